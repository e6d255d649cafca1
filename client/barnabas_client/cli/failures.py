"""The exit statuses of commands, and the errors that end a command with one line of text."""

from typing import Final

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2


class CommandError(Exception):
    """A command failed; the text says in one line what happened, why, and what to do."""


class UsageError(Exception):
    """The arguments of a command are not valid together."""
