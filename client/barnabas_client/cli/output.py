r"""The output of commands: lines, columns and JSON on standard output, notes and errors on standard error.

Names, ids and reasons come from clients. All text goes through :func:`~barnabas_protocol.printable.printable`, so
that no client can clear the reader's screen or forge a line; in JSON, the same characters are ``\uXXXX``.

Colour is used on terminals only, unless NO_COLOR is set (https://no-color.org) or TERM is "dumb".
"""

import os
import select
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TextIO

from barnabas_client.cli.formats import json_text
from barnabas_protocol.printable import printable

#: Kafka's tools separate fields by tabs.
_KEPT: Final = "\t"


class Style(Enum):
    """A style of text on a terminal."""

    PLAIN = ""
    HEAD = "1"
    GOOD = "32"
    WARN = "33"
    BAD = "31"
    FAINT = "2"


class Column(NamedTuple):
    """A column: its title, its smallest width (0 for the last column, which is not padded), and its alignment."""

    title: str
    least: int = 15
    right: bool = False

    def aligned(self, text: str, width: int) -> str:
        """Return `text` with spaces up to `width`."""
        return text.rjust(width) if self.right else text.ljust(width)


#: The styles of group states; other states are WARN.
STATES: Final = {"Stable": Style.GOOD, "Empty": Style.FAINT, "Dead": Style.BAD}


class Output:
    """Where a command prints.

    Args:
        program: its name starts each line of errors.
        json: whether to print data instead of text.
        color: whether to use colour; None uses it on a terminal.
    """

    def __init__(self, program: str = "barnabas", *, json: bool = False, color: bool | None = None) -> None:
        self.program = program
        self.json = json
        self.out: TextIO = sys.stdout
        self.err: TextIO = sys.stderr
        self.terminal = self.out.isatty()
        dumb = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        self.color = (self.terminal and not dumb) if color is None else color

    def line(self, *parts: str | tuple[str, Style]) -> None:
        """Print a line of text, of which parts may have a style."""
        self.lines(["".join(self.styled(*((part, Style.PLAIN) if isinstance(part, str) else part)) for part in parts)])

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines that :meth:`styled` and :meth:`table_lines` returned."""
        for text in lines:
            print(text, file=self.out)

    def data(self, value: Any) -> None:
        """Print the one JSON document of a command, for ``--json``.

        The exit status is that of the work, which is done: a reader that has gone does not change it.
        """
        try:
            print(json_text(value, indent=2), file=self.out, flush=True)
        except BrokenPipeError:
            self.discard()

    def row(self, value: Any) -> None:
        """Print one of several JSON documents, each on a line of its own."""
        print(json_text(value), file=self.out)

    def raw(self, data: bytes) -> None:
        """Print bytes as they are, and flush."""
        self.out.flush()
        self.out.buffer.write(data)
        self.out.buffer.flush()

    def discard(self) -> None:
        """Write to nowhere from now on: the reader of a pipe has gone, and Python flushes once more at exit."""
        try:
            descriptor = self.out.fileno()
        except (OSError, ValueError):
            return
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)

    def check(self) -> None:
        """Check that the reader of a pipe is still there, while there is nothing to write.

        Raises:
            BrokenPipeError: the other end of the pipe is closed.
        """
        try:
            descriptor = self.out.fileno()
        except (OSError, ValueError):
            return
        poll = select.poll()
        poll.register(descriptor, 0)
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError

    def note(self, text: str) -> None:
        """Print a line to standard error that is not an error."""
        print(printable(text, _KEPT), file=self.err)

    def error(self, text: str) -> None:
        """Print what failed, in one line."""
        print(printable(f"{self.program}: {' '.join(text.split())}"), file=self.err)

    def styled(self, text: str, style: Style) -> str:
        """Return `text`, escaped for terminals, with colour if colour is used."""
        text = printable(text, _KEPT)
        return f"\x1b[{style.value}m{text}\x1b[0m" if self.color and style.value and text else text

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """Print columns as Kafka's tools do."""
        self.lines(self.table_lines(columns, rows))

    def table_lines(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> list[str]:
        """The lines of :meth:`table`. A cell may be (text, style)."""
        cells = [[shown_cell(cell) for cell in row] for row in rows]
        widths = [
            max([column.least, len(column.title), *(len(row[at][0]) for row in cells)]) if column.least else 0
            for at, column in enumerate(columns)
        ]
        head = " ".join(column.aligned(column.title, width) for column, width in zip(columns, widths, strict=True))
        lines = [self.styled(head, Style.HEAD)]
        for row in cells:
            places = zip(row, columns, widths, strict=True)
            lines.append(
                " ".join(self.styled(column.aligned(text, width), style) for (text, style), column, width in places)
            )
        return lines


def shown_cell(cell: object) -> tuple[str, Style]:
    """The text of a cell, on one line and escaped for terminals, and its style."""
    text, style = cell if isinstance(cell, tuple) else (cell, Style.PLAIN)
    return ("-" if text is None else printable(str(text))), style
