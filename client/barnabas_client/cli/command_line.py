"""The command line of a program: reads its arguments, runs the command and turns the result into an exit status.

`barnabas` and `barnabas-pipeline` each have a :class:`CommandLine`, so both report errors, warnings and signals alike.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from barnabas_client.cli import servers
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command
from barnabas_client.cli.failures import DONE, FAILED, USAGE, CommandError, UsageError
from barnabas_client.cli.output import Output
from barnabas_client.cli.parser import Parser
from barnabas_client.program import INTERRUPTED, TERMINATED, Terminated, raise_terminated, run_in_loop, sigterm_calls
from barnabas_protocol.errors import DecodeError, KafkaError
from barnabas_protocol.version import VERSION

_EPILOG: Final = "Exit status: 0 done, 1 failed, 2 the command line is not valid."


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """The command line of a program that has commands.

    Every command has the option --json, and commands that are not offline have those that name brokers; their
    `arguments` then have the brokers as `servers`, see :class:`~barnabas_client.cli.servers.Servers`.

    Attributes:
        name: its name, which starts each line of its errors.
        description: one sentence for its help.
        commands: its own commands.
        sections: for each first word of commands of two words, one line of help.
        add_options: adds further options of all commands that are not offline.
        plugins: returns the commands of other packages; called only if no own command matches.
        loggers: names of the loggers whose warnings are shown.
    """

    name: str
    description: str
    commands: Sequence[Command]
    add_options: Callable[[argparse._ActionsContainer], None]
    sections: Mapping[str, str] = field(default_factory=dict)
    plugins: Callable[[], Sequence[Command]] = tuple
    loggers: tuple[str, ...] = ("barnabas_client",)

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Read a command line; the namespace has the command as `command` and this object as `command_line`.

        Raises:
            SystemExit: help was asked for (status 0), or the command line is not valid (status 2).
        """
        strange, words = self._after_options(argv)
        named = [command for command in self.commands if words[: len(command.path)] == command.path]
        # The tree of all commands takes 35 ms; only help and errors about their words need it.
        commands = named if named and not strange else self.commands if named else self.every_command()
        return self.parser(commands).parse(list(argv))

    def _after_options(self, argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
        """Split the arguments before the first word of the command.

        Returns:
            Options before it that not all commands have, such as --help, and the arguments from that word on; all
            arguments if the options before it are not valid.
        """
        options = Parser(prog=self.name, add_help=False, exit_on_error=False)
        self._add_options(options)
        options.add_argument("words", nargs=argparse.REMAINDER)
        try:
            known, strange = options.parse_known_args(argv)
        except argparse.ArgumentError:
            return [], tuple(argv)
        return strange, tuple(known.words)

    def every_command(self) -> list[Command]:
        """The own commands and those of other packages.

        Commands with the same first word stand together, in order of the first appearance of that word.
        """
        by_word: dict[str, list[Command]] = {}
        for command in (*self.commands, *self.plugins()):
            by_word.setdefault(command.path[0], []).append(command)
        return [command for commands in by_word.values() for command in commands]

    def parser(self, commands: Iterable[Command]) -> Parser:
        """The tree of parsers for `commands`."""
        root = Parser(prog=self.name, description=self.description, epilog=_EPILOG)
        root.add_argument("--version", action="version", version=f"{self.name} {VERSION}")
        self._add_options(root)
        heads = root.add_subparsers(metavar="COMMAND", required=True)
        sections: dict[str, argparse._SubParsersAction[Parser]] = {}
        for command in commands:
            head, *rest = command.path
            if rest and head not in sections:
                help = self.sections.get(head, "")
                section = heads.add_parser(head, help=help, description=_sentence(help))
                self._add_options(section)
                sections[head] = section.add_subparsers(metavar="COMMAND", required=True)
            leaves = sections[head] if rest else heads
            leaf = leaves.add_parser(command.path[-1], help=command.help, description=_sentence(command.help))
            command.add_arguments(leaf)
            self._add_options(leaf.add_argument_group("options of all commands"), offline=command.offline)
            leaf.set_defaults(command=command, command_line=self)
        return root

    def _add_options(self, to: argparse._ActionsContainer, *, offline: bool = False) -> None:
        """Add the options that may stand before, between and after the words of a command."""
        if not offline:
            servers.add_options(to)
            self.add_options(to)
        to.add_argument("--json", action="store_true", help="print JSON")

    def run(self, argv: Sequence[str]) -> int:
        """Run the command that `argv` names.

        Returns:
            The exit status: 0 done, 1 failed, 2 the command line is not valid, 130 after Ctrl-C, 143 after SIGTERM.
        """
        _standard_streams()
        try:
            arguments = self.parse(argv)
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else FAILED
        except KeyboardInterrupt:
            return INTERRUPTED
        output = Output(self.name, json=arguments.json)
        try:
            with _warnings_shown(self.loggers, arguments.command.reports, output), sigterm_calls(raise_terminated):
                status = self._call(arguments, output)
        except BrokenPipeError:
            output.discard()  # the reader has what it wants
            return DONE
        except Terminated:
            return TERMINATED
        except KeyboardInterrupt:
            return INTERRUPTED
        try:
            output.out.flush()
        except BrokenPipeError:
            output.discard()
        return status

    def _call(self, arguments: argparse.Namespace, output: Output) -> int:
        command: Command = arguments.command
        try:
            if not command.offline:
                arguments.servers = servers.find_servers(arguments.bootstrap, arguments.cluster, os.environ)
                arguments.servers.check()
            outcome = command.run(arguments, output)
            return outcome if isinstance(outcome, int) else run_in_loop(outcome)
        except UsageError as error:
            output.error(f"{error} (see {self.name} {' '.join(command.path)} --help)")
            return USAGE
        except CommandError as error:
            output.error(str(error))
        except BrokenPipeError:
            raise
        except OSError as error:
            output.error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except (KafkaError, DecodeError) as error:
            output.error(for_command_line(error) + ("" if command.offline else arguments.servers.note(error)))
            for note in getattr(error, "__notes__", ()):
                output.error(note)
        return FAILED


@contextmanager
def _warnings_shown(loggers: Iterable[str], reported: Iterable[str], output: Output) -> Iterator[None]:
    """Show warnings of `loggers` as lines of the command, except those of `reported`, which it reports itself."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not any(f"{record.name}.".startswith(f"{name}.") for name in reported):
                output.error(f"{record.levelname.lower()}: {_warning(record)}")

    handler = Lines(logging.WARNING)
    with ExitStack() as stack:
        for name in loggers:
            logger = logging.getLogger(name)
            logger.addHandler(handler)
            stack.callback(logger.removeHandler, handler)
            stack.callback(setattr, logger, "propagate", logger.propagate)
            logger.propagate = False
        yield


def _warning(record: logging.LogRecord) -> str:
    """The text of a log record; a record of the client has an event, fields, and often a reason."""
    event, fields = getattr(record, "event", None), dict(getattr(record, "fields", {}))
    if event is None:
        return record.getMessage()
    reason = fields.pop("reason", None)
    where = f" ({', '.join(f'{name} {value}' for name, value in fields.items())})" if fields else ""
    return f"{event}{where}" + (f": {for_command_line(str(reason))}" if reason else "")


def _standard_streams() -> None:
    """Open what the caller has closed of standard input, output and error.

    Otherwise the next descriptor that this process opens would be one of them, which uvloop refuses.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
