"""The declaration of a command, the same for every program and for every package that adds commands."""

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from barnabas_client.cli import values
from barnabas_client.cli.output import Output

T = TypeVar("T")

#: Runs a command: returns its exit status, or a coroutine that returns it.
Run = Callable[[Namespace, Output], int | Coroutine[Any, Any, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a program.

    A package that does not import this one declares its commands as mappings with these names as keys, see
    :func:`barnabas_client.cli.plugins.plugin_commands`.

    Attributes:
        path: its words, such as ``("topics", "list")``.
        help: one line for the list of commands, without a capital letter and without a full stop.
        add_arguments: adds its arguments to its parser.
        run: runs it with the parsed arguments.
        offline: whether it works without a broker, so that it has no connection options.
        reports: names of the loggers whose warnings are not shown, because the command reports these failures itself.
    """

    path: tuple[str, ...]
    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Run
    offline: bool = False
    reports: tuple[str, ...] = ()


def checked(convert: Callable[[str], T]) -> Callable[[str], T]:
    """Turn a function that raises `ValueError` into an argparse type that reports the error's own text."""

    def read(text: str) -> T:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def add_pairs(parser: ArgumentParser, *names: str, dest: str, help: str) -> None:
    """Add an option ``NAME=VALUE`` that may be given several times."""
    convert = checked(values.pair)
    parser.add_argument(*names, dest=dest, action="append", default=[], type=convert, metavar="NAME=VALUE", help=help)


def add_topic_specs(parser: ArgumentParser, help: str) -> None:
    """Add the option that names topics, or partitions of them."""
    convert = checked(values.topic_spec)
    parser.add_argument("-t", "--topic", dest="topics", action="append", type=convert, metavar="T[:P,P]", help=help)


def add_partitions(parser: ArgumentParser) -> None:
    """Add the option that names partitions of the command's topic."""
    text = "only this partition; repeatable"
    parser.add_argument("-p", "--partition", dest="partitions", type=int, action="append", metavar="N", help=text)


def add_since(parser: argparse._ActionsContainer, help: str) -> None:
    """Add the option that says from when on: a time, or a duration ago."""
    parser.add_argument("--since", type=checked(values.since), metavar="TIME", help=help)


def add_isolation_level(parser: ArgumentParser) -> None:
    """Add the options of commands that read records."""
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed leaves out records of open and aborted transactions (default: read_uncommitted)",
    )
    parser.add_argument(
        "--read-committed",
        dest="isolation_level",
        action="store_const",
        const="read_committed",
        help="the same as --isolation-level read_committed",
    )
