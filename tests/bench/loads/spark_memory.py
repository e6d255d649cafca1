"""What a program takes with all that it started: Python's driver, the JVM, Python's workers (Linux)."""

import os
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Final, Self

#: Seconds between two looks.
_EVERY: Final = 0.1
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = os.sysconf("SC_CLK_TCK")


class Sampler:
    """Looks now and then, on a thread.

    Attributes:
        peak: the most bytes that were resident at one look, of all processes together. What forked workers share
            counts for each.
        cpu: seconds of the processor.
    """

    def __init__(self) -> None:
        self.peak = 0
        self.cpu = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self.cpu = -busy(os.getpid())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.cpu += busy(os.getpid())

    def _look(self) -> None:
        while True:
            self.peak = max(self.peak, resident(os.getpid()))
            if self._ended.wait(_EVERY):
                return


def resident(root: int) -> int:
    """Bytes that a process and its descendants have in memory now."""
    return sum(int(_read(process, "statm").split()[1]) * _PAGE for process in _tree(root))


def busy(root: int) -> float:
    """Seconds of the processor that a process, its descendants, and those of them that have ended, have had."""
    return sum(sum(map(int, _stat(process)[11:15])) for process in _tree(root)) / _TICK


def _tree(root: int) -> list[int]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        children[int(_stat(int(folder.name))[1])].append(int(folder.name))
    found = [root]
    for process in found:
        found.extend(children[process])
    return found


def _stat(process: int) -> list[str]:
    """From the state on: what stands before the last bracket is the name, with whatever characters."""
    return _read(process, "stat").rpartition(")")[2].split()


def _read(process: int, name: str) -> str:
    """Nothing but zeros of a process that has ended meanwhile."""
    try:
        return Path(f"/proc/{process}/{name}").read_text()
    except OSError:
        return "0 " * 20
