"""How a command ends, and what it raises when it cannot go on."""

import signal
from typing import Final

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM


class CommandError(Exception):
    """A command failed; the text is one line that says what, why, and what to do."""


class UsageError(Exception):
    """Arguments that do not go together, or make no sense."""
