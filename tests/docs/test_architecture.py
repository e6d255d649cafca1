"""The page docs/architecture.md names modules and functions that exist."""

import ast
import re
from functools import cache
from pathlib import Path

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


@cache
def trees() -> dict[Path, ast.Module]:
    """The sources, parsed."""
    return {path: ast.parse(path.read_text("utf-8")) for source in SOURCES for path in source.rglob("*.py")}


@cache
def parameters() -> set[str]:
    """The names of all parameters and of all fields."""
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    fields = {each.target.id for each in nodes if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
    return fields | {node.arg for node in nodes if isinstance(node, ast.arg)}


@cache
def files() -> dict[str, set[Path]]:
    """The files that define each function, and each method with its class."""
    found: dict[str, set[Path]] = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, set()).add(path)
            elif isinstance(node, ast.ClassDef):
                for each in node.body:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        found.setdefault(f"{node.name}.{each.name}", set()).add(path)
    return found


@cache
def members() -> dict[str, set[str]]:
    """The methods of every class, by its name; those of functions are empty."""
    found: dict[str, set[str]] = {}
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                found.setdefault(node.name, set()).update(names)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, set())
    return found


def in_backticks(pattern: str) -> list[str]:
    return sorted(set(re.findall(rf"`({pattern})`", PAGE)))


@in_lots("name", in_backticks(r"[A-Z]\w+\.\w+"))
def test_a_method_exists(name: str) -> None:
    owner, _, method = name.partition(".")
    assert method in members()[owner]


@pytest.mark.parametrize("name", in_backticks(r"_?[a-z]+(?:_[a-z]+)+"))
def test_a_function_or_parameter_exists(name: str) -> None:
    everything = {method for methods in members().values() for method in methods} | members().keys()
    assert name in everything or name in parameters()


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
