"""The `barnabas` program: every command of this package, and the options that they have in common."""

import argparse
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from barnabas_client.cli import (
    bench,
    completion,
    consume,
    dump,
    explain,
    groups,
    ping,
    produce,
    reset,
    topics,
    values,
    watch,
)
from barnabas_client.cli.clients import DEFAULT_BOOTSTRAP, ENVIRONMENT
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.command_line import CommandLine, Parser
from barnabas_client.cli.plugins import plugin_commands

_SECTIONS: Final = {
    "topics": "list, create, describe, change and delete topics",
    "groups": "describe consumer groups, explain their rebalances, and reset their offsets",
    "dump": "print the contents of internal topics and log files",
    "log": "check a broker's log directory",
}


def _add_options(parser: Parser) -> None:
    parser.add_argument("--version", action="version", version=_version())
    _add_common(parser)
    parser.set_defaults(bootstrap=os.environ.get(ENVIRONMENT) or DEFAULT_BOOTSTRAP, json=False, timeout=15.0)


def _add_command_options(parser: Parser, command: Command) -> None:
    if command.offline:
        _add_json(parser)
    else:
        _add_common(parser.add_argument_group("connection and output"))


def _add_common(to: argparse._ActionsContainer) -> None:
    """Add options that may stand before or after the command; a default would override the other place's value."""
    to.add_argument(
        "-b",
        "--bootstrap-servers",
        dest="bootstrap",
        metavar="HOST:PORT",
        default=argparse.SUPPRESS,
        help=f"bootstrap servers, separated by commas (default: ${ENVIRONMENT}, else {DEFAULT_BOOTSTRAP})",
    )
    to.add_argument(
        "--timeout",
        type=checked(values.seconds),
        metavar="TIME",
        default=argparse.SUPPRESS,
        help="how long a response may take, such as 5s (default: 15s)",
    )
    _add_json(to)


def _add_json(to: argparse._ActionsContainer) -> None:
    to.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")


def _version() -> str:
    try:
        return f"barnabas {version('barnabas')}"
    except PackageNotFoundError:
        return "barnabas, from a source tree"


COMMAND_LINE: Final = CommandLine(
    name="barnabas",
    description="Manage topics, records and groups of Barnabas and Apache Kafka.",
    commands=(
        *topics.COMMANDS,
        produce.COMMAND,
        consume.COMMAND,
        groups.LIST,
        groups.DESCRIBE,
        explain.COMMAND,
        watch.COMMAND,
        reset.COMMAND,
        groups.DELETE,
        dump.COMMAND,
        bench.COMMAND,
        ping.COMMAND,
        completion.COMMAND,
    ),
    sections=_SECTIONS,
    add_options=_add_options,
    add_command_options=_add_command_options,
    plugins=plugin_commands,
)
