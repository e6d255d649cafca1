"""`python tests/bench/run.py`: tests.bench.main, with the project's folder on sys.path from any working directory."""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    runpy.run_module("tests.bench.main", run_name="__main__", alter_sys=True)
