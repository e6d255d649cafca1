"""The standard streams of the `broker` command, which may be closed, or end while the broker runs.

``broker >&-`` and ``broker | head -1`` are no reason to stop serving.
"""

import os
import sys


def open_closed() -> None:
    """Open the standard streams that are closed, on the null device. Call this first in the program.

    Otherwise the first files that the broker opens get the numbers 0, 1 and 2: output would go into a log segment, and
    libuv aborts the process when it closes one of them.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number, which is this one. Inheritable, as standard streams are.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Python sets those that were closed at its start to None.
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def say(line: str) -> None:
    """Print a line on standard output at once; if its reader is gone, drop this line and all others."""
    try:
        print(line, flush=True)
    except OSError:
        # What is in the buffer, too, must not fail again when Python flushes it at exit.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
