"""What type checkers find in a user's programs: those in `programs/`, of the guide and of `examples/`, as a user
checks them.

`accepted.py` must have no error and the types that it asserts. In `rejected.py` each line with a mistake ignores its
error, and an ignored line without an error is an error itself.
"""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.needs import missing

PROGRAMS = Path(__file__).parent / "programs"
GUIDE = Path(__file__).parents[2] / "docs" / "guide"
EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.programs


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The programs in a folder of their own, where no configuration of this project applies."""
    return Path(shutil.copytree(PROGRAMS, tmp_path / "programs", ignore=shutil.ignore_patterns("__pycache__")))


def add_guide(folder: Path) -> None:
    """Add the programs of docs/guide, by page and line."""
    for page in sorted(GUIDE.glob("*.md")):
        text = page.read_text()
        for block in re.finditer(r"^```python.*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start()) + 1
            (folder / f"{page.stem.replace('-', '_')}_line_{line}.py").write_text(block[1])


def test_mypy_strict(programs: Path, pytestconfig: pytest.Config) -> None:
    add_guide(programs)
    cache = pytestconfig.rootpath / ".mypy_cache" / "programs"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *sorted(programs.glob("*.py"))],
        cwd=programs,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_strict(programs: Path) -> None:
    pyright(programs, typeCheckingMode="strict", reportUnnecessaryTypeIgnoreComment="error")


@pytest.mark.slow
def test_pyright_on_guide_and_examples(tmp_path: Path) -> None:
    """Not strict, and without guesses about libraries that have no types: pandas and pyarrow fail otherwise."""
    add_guide(tmp_path)
    for program in tmp_path.glob("schema_registry_*.py"):
        program.unlink()  # confluent-kafka's types say that its serializers take no arguments
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    pyright(tmp_path, typeCheckingMode="standard", useLibraryCodeForTypes=False)


def pyright(folder: Path, **settings: str | bool) -> None:
    """Check all programs in a folder."""
    if find_spec("basedpyright") is None:
        missing("needs pyright: make install")
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", folder],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
