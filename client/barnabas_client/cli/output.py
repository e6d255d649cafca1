"""The output of commands: lines, columns and JSON on standard output, notes and errors on standard error.

Colour is used on terminals only, unless NO_COLOR is set (https://no-color.org) or TERM is "dumb".
"""

import json
import os
import select
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TextIO


class Style(Enum):
    """A style of text on a terminal."""

    PLAIN = ""
    HEAD = "1"
    GOOD = "32"
    WARN = "33"
    BAD = "31"
    FAINT = "2"


class Column(NamedTuple):
    """A column: its title and its smallest width; 0 for the last column, which is not padded."""

    title: str
    least: int = 15


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

    def line(self, text: str = "") -> None:
        """Print a line of text."""
        print(text, file=self.out)

    def data(self, value: Any) -> None:
        """Print the one JSON document of a command, for ``--json``."""
        print(json.dumps(value, indent=2, ensure_ascii=False), file=self.out)

    def row(self, value: Any) -> None:
        """Print one of several JSON documents, each on a line of its own."""
        print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), file=self.out)

    def raw(self, data: bytes) -> None:
        """Print bytes as they are, and flush."""
        self.out.flush()
        self.out.buffer.write(data)
        self.out.buffer.flush()

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
        print(text, file=self.err)

    def error(self, text: str) -> None:
        """Print what failed, in one line."""
        print(f"{self.program}: {' '.join(text.split())}", file=self.err)

    def styled(self, text: str, style: Style) -> str:
        """Return `text`, with colour if colour is used."""
        return f"\x1b[{style.value}m{text}\x1b[0m" if self.color and style.value and text else text

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
        """Print columns as Kafka's tools do."""
        for text in self.table_lines(columns, rows):
            self.line(text)

    def table_lines(self, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> list[str]:
        """The lines of :meth:`table`. A cell may be (text, style)."""
        cells = [[_cell(cell) for cell in row] for row in rows]
        widths = [
            max([column.least, len(column.title), *(len(row[at][0]) for row in cells)]) if column.least else 0
            for at, column in enumerate(columns)
        ]
        head = " ".join(column.title.ljust(width) for column, width in zip(columns, widths, strict=True))
        lines = [self.styled(head, Style.HEAD)]
        for row in cells:
            parts = (self.styled(text.ljust(width), style) for (text, style), width in zip(row, widths, strict=True))
            lines.append(" ".join(parts))
        return lines


def _cell(cell: object) -> tuple[str, Style]:
    if isinstance(cell, tuple):
        return str(cell[0]), cell[1]
    return ("-" if cell is None else str(cell)), Style.PLAIN
