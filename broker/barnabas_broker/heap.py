"""Keeps glibc from giving memory back to the system between two large answers, and gives it back when they are over.

By default a freed megabyte returns to the system at once and the next one is faulted in anew, page by page: for a
consumer of several partitions that was half of the broker's processor time. Other C libraries are left as they are.
Sources: ``mallopt(3)``, ``malloc_trim(3)``.
"""

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

#: Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
#: Bytes that are kept at the top of the heap, and from which size on memory is mapped by itself.
_KEEP: Final = 16 * 1024 * 1024
_MAP: Final = 8 * 1024 * 1024
#: Seconds between two looks.
_LOOK_SECONDS: Final = 2.0
#: Bytes between two looks up to which a broker counts as quiet: heartbeats, commits.
_QUIET_BYTES: Final = 4 * 1024 * 1024


class Heap:
    """The memory of this process.

    Args:
        traffic: how many bytes have come and gone so far.
        trim: gives back what is free.
    """

    def __init__(self, traffic: Callable[[], int], trim: Callable[[], object]) -> None:
        self._traffic = traffic
        self._trim = trim
        self._seen = 0
        self._busy = False

    def look(self) -> None:
        """Give memory back once, when a busy time is over."""
        seen, self._seen = self._seen, self._traffic()
        if self._seen - seen > _QUIET_BYTES:
            self._busy = True
        elif self._busy:
            self._busy = False
            self._trim()


def keep(traffic: Callable[[], int]) -> None:
    """Set this process up, in its running loop.

    Args:
        traffic: see :class:`Heap`.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        return
    libc.mallopt(_TRIM_THRESHOLD, _KEEP)
    libc.mallopt(_MMAP_THRESHOLD, _MAP)
    heap = Heap(traffic, lambda: libc.malloc_trim(0))
    loop = asyncio.get_running_loop()

    def look() -> None:
        heap.look()
        loop.call_later(_LOOK_SECONDS, look)

    look()
