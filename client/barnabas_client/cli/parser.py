"""Reads the command line: a tree of parsers, made of :class:`Command` declarations.

Commands of this package are in :mod:`barnabas_client.cli.commands`. Other packages add theirs by an entry point of the
group ``barnabas.commands`` that is an iterable of objects with the attributes of :class:`Command`: so the broker's
`dump log` is a `barnabas` command without this package knowing the broker.
"""

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol, TypeVar

from barnabas_client.cli import values

ENTRY_POINTS: Final = "barnabas.commands"
ENVIRONMENT: Final = "BARNABAS_BOOTSTRAP"
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

T = TypeVar("T")


class CommandLike(Protocol):
    """What the tree is made of."""

    @property
    def path(self) -> tuple[str, ...]: ...
    @property
    def help(self) -> str: ...
    @property
    def run(self) -> str: ...
    @property
    def configure(self) -> Callable[[argparse.ArgumentParser], None]: ...
    @property
    def offline(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        path: its words, such as ``("topics", "list")``.
        help: one line, without a full stop.
        run: ``module:function``, called with the parsed arguments and an Output; it returns the exit status, or a
            coroutine of it.
        configure: adds its arguments.
        offline: whether it talks to no broker.
    """

    path: tuple[str, ...]
    help: str
    run: str
    configure: Callable[[argparse.ArgumentParser], None]
    offline: bool = False


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Leave with status 2."""
        self.exit(2, f"barnabas: {message} (see {self.prog} --help)\n")


def checked(convert: Callable[[str], T]) -> Callable[[str], T]:
    """An argparse type whose `ValueError` is shown in its own words."""

    def read(text: str) -> T:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def build(commands: Iterable[CommandLike], groups: dict[str, str]) -> Parser:
    """The whole tree.

    Args:
        commands: what there is.
        groups: for each first word of longer commands what it is about.
    """
    root = Parser(
        prog="barnabas",
        description="Topics, records and groups of Barnabas and Apache Kafka.",
        epilog="Exit status: 0 done, 1 failed, 2 the command line makes no sense.",
    )
    root.add_argument("--version", action="version", version=_version())
    _add_common(root, argparse.SUPPRESS)
    root.set_defaults(bootstrap=os.environ.get(ENVIRONMENT) or DEFAULT_BOOTSTRAP, json=False, timeout=15.0)
    heads = root.add_subparsers(metavar="COMMAND", required=True)
    nested: dict[str, argparse._SubParsersAction[Parser]] = {}
    for command in commands:
        head, *rest = command.path
        if rest and head not in nested:
            parent = heads.add_parser(head, help=groups.get(head, ""), description=_sentence(groups.get(head, "")))
            nested[head] = parent.add_subparsers(metavar="COMMAND", required=True)
        leaves = nested[head] if rest else heads
        leaf = leaves.add_parser(command.path[-1], help=command.help, description=_sentence(command.help))
        command.configure(leaf)
        if command.offline:
            leaf.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print data")
        else:
            _add_common(leaf.add_argument_group("connection and output"), argparse.SUPPRESS)
        leaf.set_defaults(command=command)
    return root


def _add_common(to: argparse._ActionsContainer, default: str) -> None:
    to.add_argument(
        "-b",
        "--bootstrap-servers",
        dest="bootstrap",
        metavar="HOST:PORT",
        default=default,
        help=f"brokers to start with, separated by commas (default: ${ENVIRONMENT}, else {DEFAULT_BOOTSTRAP})",
    )
    to.add_argument(
        "--timeout",
        type=checked(values.seconds),
        metavar="TIME",
        default=default,
        help="how long an answer may take, such as 5s (default: 15s)",
    )
    to.add_argument("--json", action="store_true", default=default, help="print data")


def extensions() -> list[CommandLike]:
    """The commands of other packages."""
    from importlib.metadata import entry_points

    return [command for point in entry_points(group=ENTRY_POINTS) for command in point.load()]


def parse(argv: Sequence[str], own: Sequence[CommandLike], groups: dict[str, str]) -> argparse.Namespace:
    """Read a command line; the namespace has the command as `command`.

    Other packages are looked for only where it is not clear from the first words that the command is one of `own`.

    Raises:
        SystemExit: help was asked for (0), or the command line makes no sense (2).
    """
    words = tuple(argv)
    known = any(words[: len(command.path)] == command.path for command in own)
    return build(own if known else merged(own, extensions()), groups).parse_args(list(argv))


def merged(own: Iterable[CommandLike], others: Iterable[CommandLike]) -> list[CommandLike]:
    """All commands; those that share a first word stand together, in order of their first appearance."""
    by_head: dict[str, list[CommandLike]] = {}
    for command in (*own, *others):
        by_head.setdefault(command.path[0], []).append(command)
    return [command for commands in by_head.values() for command in commands]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"barnabas {version('barnabas')}"
    except PackageNotFoundError:
        return "barnabas, from a source tree"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
