"""Keeps freed memory in the process while the broker is busy, and returns it to the system afterwards (glibc only).

By default glibc returns a freed megabyte to the system at once, and the next allocation faults it in again, page by
page: for a consumer of several partitions that took half of the broker's processor time. Other C libraries are left as
they are. Sources: ``mallopt(3)``, ``malloc_trim(3)``.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from barnabas_broker.periodic import PeriodicTimer

#: Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
#: Bytes that are kept at the top of the heap, and the size from which on an allocation gets a mapping of its own.
_KEEP: Final = 16 * 1024 * 1024
_MAP: Final = 8 * 1024 * 1024
#: Seconds between two checks.
_CHECK_SECONDS: Final = 2.0
#: Bytes of traffic between two checks up to which a broker counts as quiet: heartbeats, commits.
_QUIET_BYTES: Final = 4 * 1024 * 1024


class Heap:
    """The memory of this process.

    Args:
        traffic: bytes received and sent so far.
        trim: returns free memory to the system.
    """

    def __init__(self, traffic: Callable[[], int], trim: Callable[[], object]) -> None:
        self._traffic = traffic
        self._trim = trim
        self._seen = 0
        self._busy = False

    def check(self) -> None:
        """Return free memory once after a busy time."""
        seen, self._seen = self._seen, self._traffic()
        if self._seen - seen > _QUIET_BYTES:
            self._busy = True
        elif self._busy:
            self._busy = False
            self._trim()


@contextmanager
def kept(traffic: Callable[[], int]) -> Iterator[None]:
    """Manage the memory of this process while its event loop runs.

    Args:
        traffic: bytes received and sent so far.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        yield
        return
    libc.mallopt(_TRIM_THRESHOLD, _KEEP)
    libc.mallopt(_MMAP_THRESHOLD, _MAP)
    timer = PeriodicTimer(_CHECK_SECONDS, Heap(traffic, lambda: libc.malloc_trim(0)).check)
    try:
        yield
    finally:
        timer.cancel()
