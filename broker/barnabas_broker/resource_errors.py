"""Shortages of space on the disk and of descriptors: nothing is broken, and what they hit may be tried again."""

import errno
import resource
from typing import Final

_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})


def is_shortage(error: Exception) -> bool:
    """Whether the error is a shortage of space or of descriptors."""
    return isinstance(error, OSError) and error.errno in _SPACE | _DESCRIPTORS


def lacks_descriptors(error: Exception) -> bool:
    """Whether the error is a shortage of descriptors."""
    return isinstance(error, OSError) and error.errno in _DESCRIPTORS


def most_descriptors() -> int:
    """The descriptors that this process may have open (``ulimit -n``)."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def share_of_descriptors(part: int, least: int, most: int) -> int:
    """One of `part` equal shares of the descriptors, from `least` to `most`."""
    return min(max(most_descriptors() // part, least), most)
