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

import hatch_build
from barnabas_protocol.version import VERSION
from tests.needs import missing
from tests.packaging.release_check import notes, sources
from tests.packaging.try_wheel import first_example

ROOT: Final = Path(__file__).parents[2]
SETTINGS: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT: Final[dict[str, Any]] = SETTINGS["project"]
#: Folders and modules that the wheel contains, by the name in the wheel.
PACKAGES: Final = {
    Path(path).name: ROOT / path for path in SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
}
WORKFLOW: Final = ROOT / ".github" / "workflows" / "checks.yml"

pytestmark = pytest.mark.together


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    return Path(built)


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == set(sources(ROOT))
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


def test_the_address_of_the_project_is_stated_once() -> None:
    stated = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["custom"]["REPOSITORY"]
    assert "urls" not in PROJECT
    page = "![a page](docs/a.png) [a](docs/a.md#b) [c](#c) [d](https://d.example)"
    assert hatch_build.readme(page, "", "1.2.3") == " a [c](#c) [d](https://d.example)"
    address = stated or "https://github.com/a/b"
    assert hatch_build.readme(page, address, "1.2.3") == (
        f"![a page]({address}/raw/v1.2.3/docs/a.png) [a]({address}/blob/v1.2.3/docs/a.md#b) [c](#c) [d](https://d.example)"
    )
    assert hatch_build.urls("") == {}
    assert all(link.startswith(address) for link in hatch_build.urls(address).values())


@pytest.mark.programs
def test_package_indexes_accept_the_wheel(wheel: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_example_is_found() -> None:
    compile(first_example((ROOT / "README.md").read_text("utf-8")), "README.md", "exec")


def test_the_notes_of_the_release_can_be_read() -> None:
    """Grouped by what users do, on three pages; later changes stand below Unreleased until the next release."""
    text = notes((ROOT / "CHANGELOG.md").read_text("utf-8"), VERSION)
    assert text.count("### ") >= 5
    assert len(text.splitlines()) < 150
    assert re.findall(r"^### (?:Added|Changed|Fixed)$", text, re.MULTILINE) == []


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
    tagged = {name: job for name, job in jobs.items() if job.get("if") == "github.ref_type == 'tag'"}
    assert set(jobs) - set(tagged) == {"checks", "series", "distribution"}
    release = tagged.pop("release")
    compiled = tagged.pop("wheels")
    assert "CIBW_TEST_COMMAND" in compiled["steps"][1]["env"]
    assert {"checks", "series", "distribution", "wheels"} == set(tagged["publish"]["needs"])
    assert all(set(job["needs"]) >= {"checks", "series", "distribution"} for job in tagged.values())
    assert set(release["needs"]) == set(tagged)  # nothing is announced before all of it is there
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in WORKFLOW.read_text("utf-8")


def test_the_workflow_publishes_an_image_for_both_architectures() -> None:
    (step,) = [each for each in workflow()["jobs"]["image"]["steps"] if "build-push" in each.get("uses", "")]
    assert step["with"]["platforms"] == "linux/amd64,linux/arm64"
    assert step["with"]["push"] is True


def test_the_published_chart_has_the_published_image() -> None:
    (line,) = re.findall(r"s\|(\^  repository: barnabas\$)\|", WORKFLOW.read_text("utf-8"))
    values = (ROOT / "deploy" / "helm" / "barnabas" / "values.yaml").read_text("utf-8")
    assert len(re.findall(line, values, re.MULTILINE)) == 1


def test_the_workflow_runs_commands_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    steps = [step["run"] for job in workflow()["jobs"].values() for step in job["steps"] if "run" in step]
    for command in (line for step in steps for line in step.splitlines()):
        first, _, rest = command.partition(" ")
        if first == "make":
            assert set(rest.split(" || make ")) <= targets
        elif first == ".venv/bin/python":
            assert (ROOT / f"{rest.split()[1].replace('.', '/')}.py").is_file()
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
