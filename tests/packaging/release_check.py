"""What is left before a release: ``make release-check``, after it has built and checked the packages and the site.

::

    python -m tests.packaging.release_check

Prints one line for each thing that a release needs; the exit status is 1 if one is missing. It needs no network.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]


class Check(NamedTuple):
    """Something that a release needs: what it is, and what to do if it is missing; "" if it is there."""

    what: str
    remedy: str


def checks(root: Path) -> Iterator[Check]:
    """What a release of a checkout needs."""
    project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    version = project["version"]
    yield Check(
        f"the version {version} is a release",
        "" if re.fullmatch(r"\d+\.\d+\.\d+", version) else "set version in pyproject.toml to MAJOR.MINOR.PATCH",
    )
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", changes, re.MULTILINE)
    named = any(heading.split()[0].strip("[]") == version for heading in headings)
    yield Check(
        f"CHANGELOG.md has a section for {version}",
        "" if named else f"put what is below Unreleased under a heading ## {version}",
    )
    urls = project.get("urls", {})
    yield Check(
        "the addresses of the project are known",
        "" if urls and "REPOSITORY" not in str(urls) else "fill in REPOSITORY in pyproject.toml",
    )
    built = root / "dist"
    for kind, file in (
        ("wheel", built / f"barnabas-{version}-py3-none-any.whl"),
        ("sdist", built / f"barnabas-{version}.tar.gz"),
    ):
        yield Check(f"the {kind} of {version} is built", "" if file.is_file() else "make dist")
    site = root / "build" / "site" / "index.html"
    yield Check("the documentation site is built", "" if site.is_file() else "make docs")


def main() -> None:
    """Print the checks."""
    found = list(checks(ROOT))
    for check in found:
        print(
            f"{'missing' if check.remedy else 'ok':8}{check.what}{f'. To do: {check.remedy}' if check.remedy else ''}"
        )
    sys.exit(any(check.remedy for check in found))


if __name__ == "__main__":
    main()
