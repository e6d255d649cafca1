"""What `make release-check` finds."""

from pathlib import Path

from tests.packaging.release_check import checks


def checkout(root: Path, version: str, changes: str, more: str = "") -> list[str]:
    """The remedies for a checkout."""
    (root / "pyproject.toml").write_text(f'[project]\nname = "barnabas"\nversion = "{version}"\n{more}')
    (root / "CHANGELOG.md").write_text(changes)
    return [check.remedy for check in checks(root) if check.remedy]


def test_everything_is_missing(tmp_path: Path) -> None:
    assert checkout(tmp_path, "0.2.0.dev1", "# Changes\n\n## Unreleased\n") == [
        "set version in pyproject.toml to MAJOR.MINOR.PATCH",
        "put what is below Unreleased under a heading ## 0.2.0.dev1",
        "fill in REPOSITORY in pyproject.toml",
        "make dist",
        "make dist",
        "make docs",
    ]


def test_everything_is_there(tmp_path: Path) -> None:
    for name in ("dist/barnabas-0.1.0-py3-none-any.whl", "dist/barnabas-0.1.0.tar.gz", "build/site/index.html"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    urls = '[project.urls]\nRepository = "https://example.com/barnabas"\n'
    assert checkout(tmp_path, "0.1.0", "## Unreleased\n\n## [0.1.0] - 2026-12-01\n", urls) == []
    assert checkout(tmp_path, "0.1.0", "## 0.1.0\n", urls.replace("example.com", "REPOSITORY")) == [
        "fill in REPOSITORY in pyproject.toml"
    ]
