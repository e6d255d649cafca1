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
def members() -> dict[str, set[str]]:
    """The methods of every class, by its name; those of functions are empty."""
    found: dict[str, set[str]] = {}
    for path in (path for source in SOURCES for path in source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
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
    parameters = ("wrap_dispatcher", "min_bytes", "max_wait_ms")
    assert name in everything or name in parameters


@in_lots("name", in_backticks(r"[\w./]+/[\w.]*"))
def test_a_path_exists(name: str) -> None:
    for prefix, source in PACKAGES.items():
        name = name.replace(prefix, str(source))
    name = name.replace("NAME.py", "produce.py")
    roots = [ROOT, *SOURCES, SOURCES[0] / "cluster"]
    assert any((root / name).exists() for root in roots), name
