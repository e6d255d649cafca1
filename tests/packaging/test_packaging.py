"""The distribution: what the wheel contains, what package indexes show, and the workflow that publishes it."""

import email
import email.message
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

from tests.needs import missing
from tests.packaging.try_wheel import first_example

ROOT: Final = Path(__file__).parents[2]
SETTINGS: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT: Final[dict[str, Any]] = SETTINGS["project"]
#: Folders and modules that the wheel contains, by the name in the wheel.
PACKAGES: Final = {
    Path(path).name: ROOT / path for path in SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
}
WORKFLOW: Final = ROOT / ".github" / "workflows" / "checks.yml"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(built)


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def sources() -> set[str]:
    """The files of the packages, without what Python and tools left there."""
    found = set()
    for name, path in PACKAGES.items():
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        found |= {
            f"{name}/{each.relative_to(path).as_posix()}" if path.is_dir() else name
            for each in files
            if "__pycache__" not in each.parts
        }
    return found


def test_the_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == sources()
    assert not [
        name for name in names if "/test_" in name or "/conftest" in name or name.endswith((".pyc", ".md", ".toml"))
    ]


def test_a_package_has_its_types() -> None:
    assert [name for name, path in PACKAGES.items() if path.is_dir() and not (path / "py.typed").is_file()] == []


def test_the_wheel_has_the_commands_and_plugins(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        text = archive.read(name).decode()
    groups = {"console_scripts": PROJECT["scripts"], **PROJECT["entry-points"]}
    lines = [f"{key} = {value}" for group in groups.values() for key, value in group.items()]
    assert sorted(line for line in text.splitlines() if " = " in line) == sorted(lines)
    assert {f"[{group}]" for group in groups} == {line for line in text.splitlines() if line.startswith("[")}


def test_package_indexes_show_no_relative_link(metadata: email.message.Message) -> None:
    page = metadata.get_payload()
    assert isinstance(page, str) and page.startswith("# Barnabas")
    assert metadata["Description-Content-Type"] == "text/markdown"
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"\]\((?!https?:|#|mailto:)[^)]*\)|(?:src|href)=\"(?!https?:|#)[^\"]*\"", prose) == []


def test_the_substitutions_of_the_readme_have_the_address_of_the_project() -> None:
    replacements = [
        each["replacement"]
        for each in SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]
    ]
    address = PROJECT.get("urls", {}).get("Repository")
    if address is None:
        assert replacements == ["", r"\1"], "the address of the project is not filled in: links have nowhere to lead"
    else:
        assert all(f"]({address}/" in replacement for replacement in replacements)


@pytest.mark.programs
def test_package_indexes_accept_the_wheel(wheel: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_example_is_found() -> None:
    compile(first_example((ROOT / "README.md").read_text("utf-8")), "README.md", "exec")


def workflow() -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    return found


def test_the_workflow_checks_every_python_that_the_package_promises() -> None:
    promised = [
        found[1]
        for line in PROJECT["classifiers"]
        if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    ]
    job = workflow()["jobs"]["checks"]
    assert job["strategy"]["matrix"]["python"] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert {"run": ".ci/run"} in job["steps"]


def test_the_workflow_publishes_a_tag_that_passed_without_a_password() -> None:
    jobs = workflow()["jobs"]
    publish = jobs["publish"]
    assert publish["if"] == "github.ref_type == 'tag'"
    assert set(publish["needs"]) == set(jobs) - {"publish"}
    assert publish["permissions"] == {"id-token": "write"}
    assert "secrets." not in WORKFLOW.read_text("utf-8")


def test_the_workflow_runs_commands_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    commands = [step["run"] for job in workflow()["jobs"].values() for step in job["steps"] if "run" in step]
    for command in commands:
        first, _, rest = command.partition(" ")
        if first == "make":
            assert rest in targets
        elif first.startswith("."):
            assert (ROOT / first).is_file()


@pytest.mark.programs
def test_the_workflow_is_valid() -> None:
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        missing(
            "actionlint is not installed: go install github.com/rhysd/actionlint/cmd/actionlint@latest",
            on_this_machine=False,
        )
    done = subprocess.run([actionlint, str(WORKFLOW)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
