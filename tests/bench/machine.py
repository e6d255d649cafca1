"""Where it is measured: its name for the report, and who runs on which core."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def describe() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    cores = len(os.sched_getaffinity(0))
    parts = [
        found[1] if found else platform.machine(),
        f"{cores} cores",
        f"{int(memory[1]) / 1024**2:.0f} GiB" if memory else "",
        f"Linux {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}",
    ]
    return ", ".join(part for part in parts if part)


def cores() -> tuple[int | None, int | None]:
    """One core for the server and another one for the load, where there are two."""
    found = sorted(os.sched_getaffinity(0))
    return (found[0], found[1]) if len(found) > 1 else (None, None)


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """What is started in here stays on that core, all its threads included."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
