"""Runs a command of ``barnabas-pipeline``: turns every outcome into an exit status and one line on standard error."""

import argparse
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from barnabas_client.cli.failures import DONE, FAILED, INTERRUPTED, TERMINATED, USAGE, CommandError, UsageError
from barnabas_client.cli.output import Output
from barnabas_pipeline.cli.commands import PROG, build
from barnabas_pipeline.cli.failures import command_errors
from barnabas_protocol.errors import DecodeError, KafkaError


class _Output(Output):
    """Output whose errors start with the name of this command."""

    def error(self, text: str) -> None:
        print(f"{PROG}: {' '.join(text.split())}", file=self.err)


class _Terminated(KeyboardInterrupt):
    """SIGTERM arrived; commands clean up as after Ctrl-C."""


class _Warnings(logging.Handler):
    """Prints warnings of our own packages as notes.

    Other warnings are dropped: Py4J logs each call that is interrupted with its traceback.
    """

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("barnabas"):
            self._output.note(f"{PROG}: {record.getMessage()}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status: 0 done, 1 failed, 2 invalid command line, 130 after Ctrl-C, 143 after SIGTERM.
    """
    try:
        arguments = build().parse_args(sys.argv[1:] if argv is None else list(argv))
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else FAILED
    output = _Output(json=arguments.json)
    try:
        with _sigterm_interrupts(), _warnings_shown(output):
            return _call(arguments, output)
    except _Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return DONE


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM raise in the main thread, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _warnings_shown(output: Output) -> Iterator[None]:
    handler = _Warnings(output)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _call(arguments: argparse.Namespace, output: Output) -> int:
    try:
        with command_errors():
            status: int = arguments.run(arguments, output)
            return status
    except UsageError as error:
        output.error(f"{error} (see {PROG} {arguments.command} --help)")
        return USAGE
    except (CommandError, KafkaError, DecodeError) as error:
        output.error(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        output.error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return FAILED
