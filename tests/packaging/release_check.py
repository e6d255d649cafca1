"""What is left before a release: ``make release-check``, after it has built and checked the packages and the site.

::

    python -m tests.packaging.release_check            # what is there, what is missing, what this machine cannot check
    python -m tests.packaging.release_check --notes    # the section of this version in CHANGELOG.md

Prints one line for each thing that a release needs; the exit status is 1 if one is missing. It needs no network. What
the machine lacks a program for (Docker, helm, actionlint) is said, and checked by the workflow of the release.
"""

import argparse
import email
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

ROOT: Final = Path(__file__).parents[2]
#: The package's description of what an installation contains: see try_wheel.py.
SBOM: Final = "build/barnabas.cdx.json"
_ADDRESS: Final = re.compile(r"https://[\w.-]+(/[\w.-]+){2,}")


class Check(NamedTuple):
    """Something that a release needs.

    Attributes:
        what: the state that is needed.
        remedy: what to do if it is missing; "" if it is there.
        unknown: why it cannot be found out here; "" if it can.
    """

    what: str
    remedy: str = ""
    unknown: str = ""

    def __str__(self) -> str:
        if self.unknown:
            return f"{'?':8}{self.what}. Not checked: {self.unknown}"
        return f"missing {self.what}. To do: {self.remedy}" if self.remedy else f"{'ok':8}{self.what}"


def settings(root: Path) -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))


def version_of(root: Path) -> str:
    """The version of the package."""
    text = (root / settings(root)["tool"]["hatch"]["version"]["path"]).read_text("utf-8")
    found = re.search(r'^VERSION = "(.*)"$', text, re.MULTILINE)
    assert found
    return found[1]


def sources(root: Path) -> dict[str, Path]:
    """The files of the packages by their names in a wheel, without what Python and tools left there."""
    found: dict[str, Path] = {}
    for name in settings(root)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        path = root / name
        files = [path] if path.is_file() else [each for each in sorted(path.rglob("*")) if each.is_file()]
        found |= {each.relative_to(path.parent).as_posix(): each for each in files if "__pycache__" not in each.parts}
    return found


def differences(packed: Mapping[str, bytes], expected: Mapping[str, Path]) -> list[str]:
    """The names of files that a package lacks, has too many, or has with another content."""
    wrong = set(packed) ^ set(expected)
    wrong |= {name for name in set(packed) & set(expected) if packed[name] != expected[name].read_bytes()}
    return sorted(wrong)


def notes(changes: str, version: str) -> str:
    """The section of a version in CHANGELOG.md without its heading; "" if there is none."""
    found = re.search(
        rf"^## \[?{re.escape(version)}(?![.\w])[^\n]*\n(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() if found else ""


def checks(root: Path) -> Iterator[Check]:
    """What a release of a checkout needs."""
    given = settings(root)
    project = given["project"]
    version = version_of(root)
    yield Check(
        f"the version {version} is a release",
        ""
        if re.fullmatch(r"\d+\.\d+\.\d+", version)
        else "set VERSION in protocol/barnabas_protocol/version.py to MAJOR.MINOR.PATCH",
    )
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    yield Check(
        f"CHANGELOG.md has a section for {version}",
        "" if notes(changes, version) else f"write a section ## {version}",
    )
    dated = re.search(rf"^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE)
    yield Check("the section has a day", "" if dated else f"write ## {version} - YYYY-MM-DD")
    yield Check(
        f"all changes are in the section for {version}",
        "" if not notes(changes, "Unreleased") else f"move what is below Unreleased to the section ## {version}",
    )
    address = given["tool"]["hatch"]["metadata"]["hooks"]["custom"]["REPOSITORY"]
    yield Check(
        "the address of the repository is known",
        "" if _ADDRESS.fullmatch(address) else "fill in REPOSITORY in pyproject.toml: https://github.com/OWNER/NAME",
    )
    yield from _git(root, version)
    yield _wheel(root, version)
    yield _sdist(root, version)
    yield _sbom(root, version, project["dependencies"])
    yield _site(root, version)
    yield _chart(root, version)
    yield _workflow(root)
    yield _image(root)


def _git(root: Path, version: str) -> Iterator[Check]:
    def git(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, timeout=60)
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain")
    unknown = "" if status is not None else "this folder is no clone"
    yield Check("everything is committed", "git commit" if status else "", unknown)
    tag = f"v{version}"
    taken = git("tag", "--list", tag) and git("rev-list", "-n", "1", tag) != git("rev-parse", "HEAD")
    yield Check(f"the tag {tag} is free", f"set a version after {version} in pyproject.toml" if taken else "", unknown)


def _wheel(root: Path, version: str) -> Check:
    what = f"the wheel of {version} has the packages of this checkout"
    path = root / "dist" / f"barnabas-{version}-py3-none-any.whl"
    if not path.is_file():
        return Check(what, "make dist")
    with zipfile.ZipFile(path) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
        metadata = email.message_from_bytes(archive.read(f"barnabas-{version}.dist-info/METADATA"))
    wrong = differences(packed, sources(root)) or ([] if metadata["Version"] == version else ["METADATA"])
    return Check(what, f"make dist, it differs in {_some(wrong)}" if wrong else "")


def _sdist(root: Path, version: str) -> Check:
    what = f"the sdist of {version} has what builds the wheel"
    path = root / "dist" / f"barnabas-{version}.tar.gz"
    if not path.is_file():
        return Check(what, "make dist")
    expected = {file.relative_to(root).as_posix(): file for file in sources(root).values()}
    expected |= {name: root / name for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")}
    with tarfile.open(path) as archive:
        files = {member.name.partition("/")[2]: member for member in archive.getmembers() if member.isfile()}
        packed = {
            name: read.read() for name in expected if name in files and (read := archive.extractfile(files[name]))
        }
    wrong = differences(packed, expected)
    return Check(what, f"make dist, it differs in {_some(wrong)}" if wrong else "")


def _sbom(root: Path, version: str, dependencies: list[str]) -> Check:
    what = "the bill of materials names what the wheel installs"
    path = root / SBOM
    if not path.is_file():
        return Check(what, "make dist")
    bill = json.loads(path.read_text("utf-8"))
    listed = {component["name"] for component in bill["components"]}
    wrong = [name for each in dependencies if (name := re.split(r"[^\w.-]", each)[0]) not in listed]
    wrong += [] if bill["metadata"]["component"]["version"] == version else [version]
    return Check(what, f"make dist, it lacks {_some(wrong)}" if wrong else "")


def _site(root: Path, version: str) -> Check:
    path = root / "build" / "site" / "index.html"
    built = path.is_file() and f"Barnabas {version}" in path.read_text("utf-8")
    return Check(f"the documentation site of {version} is built", "" if built else "make docs")


def _chart(root: Path, version: str) -> Check:
    what = f"the Helm chart is that of {version}, and helm accepts it"
    chart = root / "deploy" / "helm" / "barnabas"
    stated = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    if {stated["version"], stated["appVersion"]} != {version}:
        return Check(what, f"set version and appVersion in {chart.relative_to(root)}/Chart.yaml")
    if (helm := shutil.which("helm")) is None:
        return Check(what, unknown="helm is not installed")
    done = subprocess.run([helm, "lint", "--strict", chart], capture_output=True, text=True, timeout=60)
    return Check(what, f"mend what helm says: {done.stdout.strip()}" if done.returncode else "")


def _workflow(root: Path) -> Check:
    """The release's workflow publishes all parts, and is valid for actionlint."""
    what = "the workflow publishes packages, image, chart and site"
    path = root / ".github" / "workflows" / "checks.yml"
    if not path.is_file():
        return Check(what, "restore .github/workflows/checks.yml")
    absent = {"publish", "wheels", "image", "chart", "site", "release"} - set(
        yaml.safe_load(path.read_text("utf-8"))["jobs"]
    )
    if absent:
        return Check(what, f"add the job {_some(sorted(absent))} to {path.name}")
    if (actionlint := shutil.which("actionlint")) is None:
        return Check(what, unknown="actionlint is not installed")
    done = subprocess.run([actionlint, path], capture_output=True, text=True, timeout=60)
    return Check(what, f"mend what actionlint says: {done.stdout.strip()}" if done.returncode else "")


def _image(root: Path) -> Check:
    """The image builds, and its broker runs. The build needs the package index."""
    what = "the image builds and runs"
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, timeout=60).returncode:
        return Check(what, unknown="no Docker runs here; `make test-compose` can do without, as root on Debian")
    for command in (["build", "--tag", "barnabas", root], ["run", "--rm", "barnabas", "--version"]):
        done = subprocess.run([docker, *command], capture_output=True, text=True, timeout=1800)
        if done.returncode:
            return Check(what, f"mend docker {command[0]}: {done.stderr.strip().splitlines()[-1]}")
    return Check(what)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def main() -> None:
    """Print the checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.release_check")
    parser.add_argument("--notes", action="store_true", help="print the section of this version in CHANGELOG.md")
    if parser.parse_args().notes:
        version = version_of(ROOT)
        found = notes((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
        sys.exit(print(found) if found else f"CHANGELOG.md has no section for {version}")
    missing = False
    for check in checks(ROOT):
        print(check, flush=True)
        missing |= bool(check.remedy)
    sys.exit(missing)


if __name__ == "__main__":
    main()
