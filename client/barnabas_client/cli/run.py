"""Runs a command: loads it, gives it an event loop, and turns whatever happens into an exit status and one line."""

import argparse
import asyncio
import inspect
import logging
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from barnabas_client.cli.commands import COMMANDS, GROUPS
from barnabas_client.cli.failures import DONE, FAILED, INTERRUPTED, TERMINATED, USAGE, CommandError, UsageError
from barnabas_client.cli.output import Output
from barnabas_client.cli.parser import parse
from barnabas_protocol.errors import DecodeError, KafkaError


def run(argv: list[str]) -> int:
    """Run the command that `argv` names; its exit status."""
    try:
        arguments = parse(argv, COMMANDS, GROUPS)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else FAILED
    output = Output(json=arguments.json)
    try:
        with _warnings_shown(output):
            status = _call(arguments, output)
        output.out.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain once more when it flushes at its end.
        _forget_output(output)
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _call(arguments: argparse.Namespace, output: Output) -> int:
    module, _, name = arguments.command.run.partition(":")
    function = getattr(import_module(module), name)
    try:
        outcome = function(arguments, output)
        return int(_in_loop(outcome) if inspect.iscoroutine(outcome) else outcome)
    except UsageError as error:
        output.error(f"{error} (see barnabas {' '.join(arguments.command.path)} --help)")
        return USAGE
    except CommandError as error:
        output.error(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        output.error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (KafkaError, DecodeError) as error:
        output.error(str(error))
        for note in getattr(error, "__notes__", ()):
            output.error(note)
    return FAILED


def _in_loop(work: Coroutine[Any, Any, int]) -> int:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_terminated(work))


async def _until_terminated(work: Coroutine[Any, Any, int]) -> int:
    """Let SIGTERM end a command as Ctrl-C does: with whatever it has to clean up."""
    if threading.current_thread() is not threading.main_thread():
        return await work
    task = asyncio.ensure_future(work)
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if terminated:
            return TERMINATED
        raise


@contextmanager
def _warnings_shown(output: Output) -> Iterator[None]:
    """Show warnings of the client as lines of ours."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            output.error(f"{record.levelname.lower()}: {record.getMessage()}")

    logger, handler = logging.getLogger("barnabas_client"), Lines(logging.WARNING)
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def _forget_output(output: Output) -> None:
    try:
        descriptor = output.out.fileno()
    except (OSError, ValueError):
        return
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), descriptor)
