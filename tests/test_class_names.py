"""Two public classes of one package do not share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "broker/barnabas_broker",
    "client/barnabas",
    "client/barnabas_client",
    "explain/barnabas_explain",
    "pipeline/barnabas_pipeline",
)
#: The clients without await have the names of those with it.
TWINS = {"sync.py"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_class_name_stands_twice(package: str) -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / package).rglob("*.py")):
        if path.name in TWINS:
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
