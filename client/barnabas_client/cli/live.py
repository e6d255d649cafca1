"""Shows a view at intervals. On a terminal each view replaces the one before; otherwise the views follow each other."""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from textwrap import wrap
from typing import Any

from barnabas_client.cli import values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import checked
from barnabas_client.cli.failures import DONE
from barnabas_client.cli.optional import optional
from barnabas_client.cli.output import Output
from barnabas_explain.words import moment
from barnabas_protocol.errors import KafkaError

#: The lines of a view. The arguments are the width and the height of the terminal; None for no limit.
Lines = Callable[[int | None, int | None], list[str]]
#: Looks once: the data of a view, and its lines.
Look = Callable[[], Awaitable[tuple[dict[str, Any], Lines]]]


def add_options(parser: ArgumentParser) -> None:
    """Add the options of :func:`views`."""
    parser.add_argument(
        "-i", "--interval", type=checked(values.seconds), default=1.0, metavar="TIME", help="default: 1s"
    )
    parser.add_argument("-n", "--max", type=checked(values.positive), metavar="N", help="stop after N views")


async def views(
    look: Look,
    arguments: Namespace,
    output: Output,
    subject: Mapping[str, Any],
    over: Callable[[], bool] = lambda: False,
) -> int:
    """Show views until --max ends it, or Ctrl-C; with --json one per line.

    Args:
        look: looks once.
        arguments: of the command, with the options of :func:`add_options`.
        output: of the command.
        subject: what the data of a view contains if it cannot be looked at.
        over: whether the view that was shown is the last one.

    Raises:
        KafkaError: the first look failed, which may be a mistake in the arguments; later errors are shown as a view.
    """
    shown = 0
    with _screen(output) as show:
        while True:
            try:
                data, lines = await look()
            except KafkaError as error:
                if not shown:
                    raise
                now, text = time.time_ns() // 1_000_000, for_command_line(error)
                data = {"time": now, "error": text, **subject}
                lines = partial(_failed, f"{moment(now)}  {text}")
            if output.json:
                output.row(data)
            else:
                show(lines)
            output.out.flush()
            shown += 1
            if shown == arguments.max or over():
                return DONE
            await asyncio.sleep(arguments.interval)
            output.check()


def _failed(text: str, width: int | None, height: int | None) -> list[str]:
    return [text] if width is None else wrap(text, width)


@contextmanager
def _screen(output: Output) -> Iterator[Callable[[Lines], None]]:
    """Yield the function that shows a view."""

    def plain(lines: Lines) -> None:
        output.lines((*lines(None, None), ""))

    if not output.terminal or output.json:
        yield plain
        return
    made, live, text = (
        optional(module, extra="cli", purpose="drawing on a terminal", instead="pipe the output into cat")
        for module in ("rich.console", "rich.live", "rich.text")
    )
    console = made.Console(file=output.out)

    def drawn(lines: Lines) -> None:
        screen.update(text.Text.from_ansi("\n".join(lines(console.width, console.height))), refresh=True)

    with live.Live(console=console, auto_refresh=False, screen=True) as screen:
        yield drawn
