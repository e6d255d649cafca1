"""The modules that compiled wheels have: `make test-compiled` runs the tests of protocol and client with them."""

import importlib
import os
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MODULES = [Path(each) for each in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_to_be_compiled_exists(module: Path) -> None:
    assert (ROOT / module).is_file()


@pytest.mark.skipif("compiled" not in os.environ.get("PYTHONPATH", ""), reason="make test-compiled runs it")
@pytest.mark.parametrize("module", MODULES, ids=str)
def test_these_tests_run_the_compiled_module(module: Path) -> None:
    name = ".".join(module.with_suffix("").parts[1:])
    assert Path(importlib.import_module(name).__file__ or "").suffix == ".so"
