"""A progress bar on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from barnabas_client.cli.optional import NotInstalledError, optional
from barnabas_client.cli.output import Output

_MODULES: Final = ("rich.console", "rich.progress")


@contextmanager
def bar(output: Output, title: str, total: int | None, *, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error. Without a terminal, or without rich, there is no bar.

    Args:
        output: of the command.
        title: what is done.
        total: the number of units; None if it is not known, and then there is no bar.
        unit: "bytes", or what is counted.

    Yields:
        A function to call with the number of units that were done since the last call.
    """
    if total is None or not output.terminal or not output.err.isatty():
        yield lambda more: None
        return
    try:
        console, rich = (optional(module, extra="cli", purpose="a progress bar") for module in _MODULES)
    except NotInstalledError:
        yield lambda more: None
        return
    amount = rich.DownloadColumn() if unit == "bytes" else rich.MofNCompleteColumn()
    columns = ("{task.description}", rich.BarColumn(), amount, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=console.Console(file=output.err)) as progress:
        task = progress.add_task(title, total=total)
        yield lambda more: progress.advance(task, more)
