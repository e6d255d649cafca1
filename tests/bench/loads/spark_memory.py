"""Memory and processor time of a program and its children: Python's driver, the JVM, Python's workers (Linux)."""

import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Final, Self

#: Seconds between two samples. The kernel needs 35 ms to count the shared pages of 1.5 GiB.
_EVERY: Final = 0.5
_TICK: Final = os.sysconf("SC_CLK_TCK")


class Sampler:
    """Takes samples on a thread.

    Attributes:
        peak: the most bytes that all processes together had in memory in one sample; shared pages count once.
        cpu: processor seconds, without those of the samples.
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
                self.cpu -= time.thread_time()
                return


def resident(root: int) -> int:
    """Return the bytes that a process and its descendants have in memory now. Pages that several processes share, such
    as those of forked workers, count proportionally (``Pss`` of Linux)."""
    return sum(_share(process) for process in _tree(root))


def _share(process: int) -> int:
    for line in _read(process, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def busy(root: int) -> float:
    """Return the processor seconds of a process and its descendants, including those that have ended."""
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
    """Return the fields of /proc/PID/stat from the state on. The name before it may contain any characters."""
    return _read(process, "stat").rpartition(")")[2].split()


def _read(process: int, name: str) -> str:
    """Return the text of a file in /proc; zeros if the process has ended."""
    try:
        return Path(f"/proc/{process}/{name}").read_text()
    except OSError:
        return "0 " * 20
