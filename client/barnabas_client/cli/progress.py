"""A bar on a terminal, nothing anywhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas_client.cli.output import Output


@contextmanager
def bar(output: Output, title: str, total: int | None, *, unit: str = "bytes") -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; the block calls it with how much more is done.

    Args:
        output: tells whether there is a terminal.
        title: what is going on.
        total: how much there is; None if nobody knows, and then there is no bar.
        unit: "bytes", or what is counted.
    """
    if total is None or not output.terminal or not output.err.isatty():
        yield lambda more: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
    except ImportError:  # the extra "cli" is not installed
        yield lambda more: None
        return
    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    console = Console(file=output.err)
    with Progress("{task.description}", BarColumn(), amount, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda more: progress.advance(task, more)
