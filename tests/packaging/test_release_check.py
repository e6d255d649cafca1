"""What `make release-check` finds."""

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.release_check import ROOT, SBOM, checks, notes

CHANGES = "# Changes\n\n## Unreleased\n\n## [0.1.0] - 2026-12-01\n\nThe first one.\n\n## 0.0.1\n\nOlder.\n"


@pytest.fixture(autouse=True)
def without_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Docker, helm or actionlint, whatever the machine has."""
    monkeypatch.setattr("shutil.which", lambda name: None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout that can be released."""
    write(tmp_path)
    for name in ("hatch_build.py", "README.md", "LICENSE", "client/barnabas/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    for name in ("dist", "build/site", ".github/workflows"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".github/workflows/checks.yml").write_bytes((ROOT / ".github/workflows/checks.yml").read_bytes())
    with zipfile.ZipFile(tmp_path / "dist/barnabas-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(tmp_path / "client/barnabas/__init__.py", "barnabas/__init__.py")
        wheel.writestr("barnabas-0.1.0.dist-info/METADATA", "Name: barnabas\nVersion: 0.1.0\n")
    with tarfile.open(tmp_path / "dist/barnabas-0.1.0.tar.gz", "w:gz") as sdist:
        for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "client/barnabas/__init__.py"):
            sdist.add(tmp_path / name, f"barnabas-0.1.0/{name}")
    bill = {"metadata": {"component": {"version": "0.1.0"}}, "components": [{"name": "uvloop"}]}
    (tmp_path / SBOM).write_text(json.dumps(bill))
    (tmp_path / "build/site/index.html").write_text("<title>Barnabas 0.1.0</title>")
    return tmp_path


def write(root: Path, version: str = "0.1.0", address: str = "https://github.com/a/b", changes: str = CHANGES) -> None:
    (root / "pyproject.toml").write_text(
        f'[project]\nname = "barnabas"\ndependencies = ["uvloop>=0.20"]\n'
        f'[tool.hatch.metadata.hooks.custom]\nREPOSITORY = "{address}"\n'
        '[tool.hatch.version]\npath = "version.py"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["client/barnabas"]\n'
    )
    (root / "version.py").write_text(f'VERSION = "{version}"\n')
    (root / "CHANGELOG.md").write_text(changes)
    (root / "deploy/helm/barnabas").mkdir(parents=True, exist_ok=True)
    (root / "deploy/helm/barnabas/Chart.yaml").write_text("version: 0.1.0\nappVersion: 0.1.0\n")


def remedies(root: Path) -> list[str]:
    return [check.remedy for check in checks(root) if check.remedy]


def test_nothing_is_missing(root: Path) -> None:
    assert remedies(root) == []


def test_what_the_machine_cannot_check_is_said(root: Path) -> None:
    assert [str(check).partition(". Not checked: ")[2] for check in checks(root) if check.unknown] == [
        "this folder is no clone",
        "this folder is no clone",
        "helm is not installed",
        "actionlint is not installed",
        "no Docker runs here; `make test-compose` can do without, as root on Debian",
    ]


def test_nothing_is_there(tmp_path: Path) -> None:
    write(tmp_path, "0.2.0.dev1", "", "# Changes\n\n## Unreleased\n\n- A change.\n")
    assert remedies(tmp_path) == [
        "set VERSION in protocol/barnabas_protocol/version.py to MAJOR.MINOR.PATCH",
        "write a section ## 0.2.0.dev1",
        "write ## 0.2.0.dev1 - YYYY-MM-DD",
        "move what is below Unreleased to the section ## 0.2.0.dev1",
        "fill in REPOSITORY in pyproject.toml: https://github.com/OWNER/NAME",
        "make dist",
        "make dist",
        "make dist",
        "make docs",
        "set version and appVersion in deploy/helm/barnabas/Chart.yaml",
        "restore .github/workflows/checks.yml",
    ]


def test_packages_of_an_older_checkout(root: Path) -> None:
    (root / "client/barnabas/__init__.py").write_text("# changed\n")
    (root / "client/barnabas/new.py").write_text("")
    assert remedies(root) == [
        "make dist, it differs in barnabas/__init__.py, barnabas/new.py",
        "make dist, it differs in client/barnabas/__init__.py, client/barnabas/new.py",
    ]


def test_a_bill_of_materials_that_lacks_a_dependency(root: Path) -> None:
    (root / SBOM).write_text(json.dumps({"metadata": {"component": {"version": "0.1.0"}}, "components": []}))
    assert remedies(root) == ["make dist, it lacks uvloop"]


def test_a_tag_that_another_commit_has(root: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", root, *identity, *words], check=True, capture_output=True, timeout=60)

    git("init")
    git("add", ".")
    assert "git commit" in remedies(root)
    git("commit", "-m", "a")
    git("tag", "v0.1.0")
    assert remedies(root) == []
    git("commit", "--allow-empty", "-m", "b")
    assert remedies(root) == ["set a version after 0.1.0 in pyproject.toml"]


def test_the_notes_of_a_version() -> None:
    assert notes(CHANGES, "0.1.0") == "The first one."
    assert notes(CHANGES, "Unreleased") == notes(CHANGES, "0.1") + notes(CHANGES, "9.9.9") == ""
