"""Check that the modules that wheels have compiled are imported compiled: ``make test-compiled``."""

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def modules() -> list[Path]:
    """The files that pyproject.toml names, relative to the root."""
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]
    return [Path(each) for each in targets["wheel"]["hooks"]["custom"]["modules"]]


def is_compiled(module: Path) -> bool:
    """Whether an import finds the compiled form of a file."""
    name = ".".join(module.with_suffix("").parts[1:])
    return Path(importlib.import_module(name).__file__ or "").suffix == ".so"


if __name__ == "__main__":
    interpreted = [str(each) for each in modules() if not is_compiled(each)]
    sys.exit(f"not compiled: {', '.join(interpreted)}; look at what the build printed" if interpreted else 0)
