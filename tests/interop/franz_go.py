"""The programs of ``franzgo/``, which use franz-go: built once, and kept in the cache until their sources change."""

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.interop import process
from tests.interop.cache import Unavailable, cached
from tests.needs import missing

SOURCES: Final = Path(__file__).parent / "franzgo"
PROGRAMS: Final = ("copier", "member")
#: Seconds that the first build may take, with the downloads and the standard library, on a busy machine.
BUILD_LIMIT: Final = 600.0


def program(name: str) -> Path:
    """The path of a program; builds all of them if the cache does not have them. Skips the test if it cannot."""
    go = shutil.which("go")
    if go is None:
        missing("franz-go needs go on the PATH: https://go.dev/dl", on_this_machine=False)
    sources = hashlib.sha256()
    for path in sorted(each for each in SOURCES.rglob("*") if each.is_file()):
        sources.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes())
    try:
        return cached("franz-go", sources.hexdigest(), functools.partial(_build, go), BUILD_LIMIT) / name
    except Unavailable as error:
        missing(f"{error.reason}: check the network", on_this_machine=False)


def _build(go: str, folder: Path, timeout: float) -> None:
    sources = folder / "source"
    shutil.copytree(SOURCES, sources)
    command = [go, "build", "-C", str(sources), "-o", f"{folder}{os.sep}", *(f"./{name}" for name in PROGRAMS)]
    try:
        done = process.run(command, timeout, environment={**os.environ, "CGO_ENABLED": "0"})
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"go has not built the programs within {timeout:.0f} s") from error
    if done.returncode != 0:
        raise Unavailable(f"go could not build the programs: {' '.join(done.stderr.split())[-200:]}")
