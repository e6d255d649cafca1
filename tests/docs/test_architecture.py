"""The page docs/architecture.md names modules and functions that exist."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lots import in_lots

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SOURCES = [
    ROOT / "broker/barnabas_broker",
    ROOT / "client/barnabas_client",
    ROOT / "protocol/barnabas_protocol",
    ROOT / "explain/barnabas_explain",
]
PACKAGES = {"client/...": SOURCES[1], "protocol/...": SOURCES[2], "explain/...": SOURCES[3]}


#: A class or a function, and how far it is indented.
DEFINITION = re.compile(r"^( *)(?:async )?(class|def) (\w+)", re.MULTILINE)


class Definition(NamedTuple):
    """A class, or a function with the class in whose body it is."""

    path: Path
    kind: str
    owner: str | None
    name: str


@cache
def sources() -> dict[Path, str]:
    return {path: path.read_text("utf-8") for source in SOURCES for path in source.rglob("*.py")}


@cache
def definitions() -> list[Definition]:
    """All of them, found by their indentation: parsing the sources takes ten times as long."""
    found: list[Definition] = []
    for path, text in sources().items():
        around: list[tuple[int, Definition]] = []
        for indented, kind, name in DEFINITION.findall(text):
            while around and around[-1][0] >= len(indented):
                around.pop()
            owner = around[-1][1].name if around and around[-1][1].kind == "class" else None
            found.append(Definition(path, kind, owner, name))
            around.append((len(indented), found[-1]))
    return found


@cache
def files() -> dict[str, set[Path]]:
    """The files that define each function, and each method with its class."""
    found: dict[str, set[Path]] = {}
    for each in definitions():
        if each.kind == "def":
            found.setdefault(each.name, set()).add(each.path)
            if each.owner is not None:
                found.setdefault(f"{each.owner}.{each.name}", set()).add(each.path)
    return found


def in_backticks(pattern: str) -> list[str]:
    return sorted(set(re.findall(rf"`({pattern})`", PAGE)))


@in_lots("name", in_backticks(r"[A-Z]\w+\.\w+"))
def test_a_method_exists(name: str) -> None:
    assert name in files()


@pytest.mark.parametrize("name", in_backticks(r"_?[a-z]+(?:_[a-z]+)+"))
def test_a_function_or_parameter_exists(name: str) -> None:
    parameter = re.compile(rf"\b{name}: ")
    assert name in files() or any(map(parameter.search, sources().values()))


@pytest.mark.parametrize(
    "section", re.split(r"^#+ ", PAGE, flags=re.MULTILINE), ids=lambda text: text.partition("\n")[0]
)
def test_a_private_function_is_in_a_file_that_its_section_names(section: str) -> None:
    names = set(re.findall(r"`((?:[A-Z]\w+\.)?\w+)`", section))
    private = {name for name in names if re.fullmatch(r"_[a-z][a-z_]+", name)}
    around = {path for name in names - private for path in files().get(name, ())}
    assert [name for name in sorted(private) if not files().get(name, set()) & around] == []


@in_lots("name", in_backticks(r"[\w./]+/[\w.]*"))
def test_a_path_exists(name: str) -> None:
    for prefix, source in PACKAGES.items():
        name = name.replace(prefix, str(source))
    name = name.replace("NAME.py", "produce.py")
    roots = [ROOT, *SOURCES, SOURCES[0] / "cluster"]
    assert any((root / name).exists() for root in roots), name


@pytest.mark.parametrize(
    ("folder", "names"), re.findall(r"`([\w./]+)`: ((?:`\w+\.py`(?:, )?)+)", PAGE), ids=lambda text: text.strip("/, ")
)
def test_a_folder_has_the_files_that_are_named_after_it(folder: str, names: str) -> None:
    for prefix, source in PACKAGES.items():
        folder = folder.replace(prefix, str(source))
    there = {path.name for root in SOURCES for path in (root / folder).glob("*.py")}
    assert there >= set(re.findall(r"\w+\.py", names))
