"""The progress of a command, on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from barnabas_client.cli.optional import NotInstalledError, optional
from barnabas_client.cli.output import Output

_MODULES: Final = ("rich.console", "rich.progress")
#: Seconds between two lines.
_LINE_INTERVAL: Final = 5.0


class _Lines:
    """Progress as lines, for a terminal without rich."""

    def __init__(self, output: Output, title: str, total: int | None, unit: str) -> None:
        self._output, self._title, self._unit = output, title, unit
        self._of = "" if total is None else f" of {total:,}"
        self._done = 0
        self._last = monotonic()

    def advance(self, more: int) -> None:
        """Count, and print a line if the last one is long enough ago."""
        self._done += more
        now = monotonic()
        if now - self._last >= _LINE_INTERVAL:
            self._last = now
            self._output.note(f"{self._title}: {self._done:,}{self._of} {self._unit}")


@contextmanager
def bar(output: Output, title: str, total: int | None, *, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """Show progress on standard error, if that is a terminal: a bar, or without rich a line every few seconds.

    Args:
        output: of the command.
        title: what is done.
        total: the number of units; if it is not known, None, the progress is a count without a bar.
        unit: "bytes", or what is counted.

    Yields:
        A function to call with the number of units that were done since the last call.
    """
    if not output.err.isatty():
        yield lambda more: None
        return
    try:
        console, rich = (optional(module, extra="cli", purpose="a progress bar") for module in _MODULES)
    except NotInstalledError:
        yield _Lines(output, title, total, unit).advance
        return
    if total is None:
        text = rich.TextColumn("{task.completed:,.0f} " + unit)
        columns = (rich.SpinnerColumn(), "{task.description}", text, rich.TimeElapsedColumn())
    else:
        amount = rich.DownloadColumn() if unit == "bytes" else rich.MofNCompleteColumn()
        columns = ("{task.description}", rich.BarColumn(), amount, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=console.Console(file=output.err), transient=total is None) as progress:
        task = progress.add_task(title, total=total)
        yield lambda more: progress.advance(task, more)
