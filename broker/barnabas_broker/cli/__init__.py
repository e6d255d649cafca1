"""The broker's commands of `barnabas`: those that look into its files, and the telling of its events.

The command itself belongs to the client, which this package does not import. It finds :data:`COMMANDS` by the entry
point group ``barnabas.commands``, and gives each command its parsed arguments and somewhere to print: an
:class:`Output`. Only what the parser needs is here; the work is in the modules that are named.
"""

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol


class Output(Protocol):
    """Where a command prints."""

    json: bool

    def line(self, text: str = "") -> None:
        """A line of text."""

    def data(self, value: Any) -> None:
        """One JSON document."""

    def row(self, value: Any) -> None:
        """One JSON document on a line of its own, of many."""

    def error(self, text: str) -> None:
        """What went wrong, in one line."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words, one line of help, ``module:function``, its arguments, and whether it needs no broker."""

    path: tuple[str, ...]
    help: str
    run: str
    configure: Callable[[ArgumentParser], None]
    offline: bool = True


def _dump_log(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a .log file, or the directory of a partition")
    parser.add_argument("--records", action="store_true", help="with the records of each batch")
    parser.add_argument("--verify", action="store_true", help="check the CRC and structure of each batch")


def _log_check(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a log directory, or the directory of a partition")
    parser.add_argument("--records", action="store_true", help="decode the records too, which takes longer")


COMMANDS: Final = (
    Command(("dump", "log"), "the batches of log files", "barnabas_broker.cli.dump_log:dump_log", _dump_log),
    Command(
        ("log", "check"),
        "whether a log directory is sound; changes nothing",
        "barnabas_broker.cli.log_check:log_check",
        _log_check,
    ),
)
