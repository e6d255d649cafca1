"""The machine of the measurements: its description for the report, and the cores of server and load."""

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
    """Return a core for the server and another one for the load; None if the machine has only one."""
    found = sorted(os.sched_getaffinity(0))
    return (found[0], found[1]) if len(found) > 1 else (None, None)


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Pin processes that are started in the context, with all their threads, to a core."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
