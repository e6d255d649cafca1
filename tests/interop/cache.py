"""Cache folder for downloads such as jars: BARNABAS_CACHE, or ~/.cache/barnabas."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

MARKER: Final = ".complete"


class Unavailable(Exception):
    """Something is not available on this machine; str() is one line with the reason."""

    @property
    def reason(self) -> str:
        return str(self)


def cached(name: str, wanted: str, fill: Callable[[Path, float], None], timeout: float) -> Path:
    """Return the folder `name` of the cache; call `fill` unless the folder is complete.

    `wanted` is a hash of the wanted contents: if it has changed, the folder is emptied and filled again. `fill` gets
    the empty folder and its timeout in seconds, and raises Unavailable.
    """
    root = Path(os.environ.get("BARNABAS_CACHE") or Path.home() / ".cache" / "barnabas")
    folder = root / name
    if _complete(folder, wanted):
        return folder
    root.mkdir(parents=True, exist_ok=True)
    # Parallel test workers call this at the same time: one fills the folder, the others wait for it.
    with (root / f".{name}.lock").open("w") as lock:
        deadline = time.monotonic() + timeout
        while not _try_lock(lock.fileno()):
            if time.monotonic() > deadline:
                raise Unavailable(f"another process has been filling {folder} for {timeout:.0f} s")
            time.sleep(0.2)
        if not _complete(folder, wanted):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder, deadline - time.monotonic())
            (folder / MARKER).write_text(wanted)
    return folder


def _complete(folder: Path, wanted: str) -> bool:
    try:
        return (folder / MARKER).read_text() == wanted
    except OSError:
        return False


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
