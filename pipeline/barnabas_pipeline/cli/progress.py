"""The progress of a long command on standard error: a bar on a terminal, a line every few seconds in a pipe."""

import time
from collections import deque
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

from rich import progress as rich_progress
from rich.console import Console

from barnabas_client.cli.output import Output
from barnabas_pipeline.text import duration

#: Seconds between two lines in a pipe.
_LINE_INTERVAL: Final = 5.0
#: Seconds over which a rate is averaged.
_RATE_WINDOW: Final = 20.0


class Rate:
    """A moving average of things done per second. Pure: times are arguments.

    Args:
        now: the time of the start, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._seen = deque([(now, 0)])

    def at(self, now: float, done: int) -> float:
        """Return the rate, given that `done` things are done at the time `now`."""
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] < now - _RATE_WINDOW:
            self._seen.popleft()
        (then, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - then) if last > then else 0.0


class Progress(AbstractContextManager["Progress"]):
    """Shows how much of the known work is done.

    The bar appears with the first number. Before that Java may print messages, which would break it.

    Args:
        output: where to print; a bar needs a terminal, and no ``--json``.
        title: the name of the work.
        unit: what is counted.
    """

    def __init__(self, output: Output, title: str, unit: str) -> None:
        self._output, self._title, self._unit = output, title, unit
        self._rate: Rate | None = None
        self._last_line = 0.0
        self._last_shown: tuple[int, int] | None = None
        self._with_bar = output.err.isatty() and not output.json
        self._bar = rich_progress.Progress(
            rich_progress.SpinnerColumn(),
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("{task.fields[text]}"),
            rich_progress.TimeElapsedColumn(),
            console=Console(file=output.err),
        )
        self._task = self._bar.add_task(title, total=None, text="")
        self._drawn = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Show what is being done while there is nothing to count."""
        if self._drawn:
            self._bar.update(self._task, text=text)
        else:
            self._output.note(f"{self._title}: {text}")

    def show(self, done: int, known: int, *, lag: int | None = None) -> None:
        """Show that `done` of `known` things are done.

        Args:
            done: how many are done.
            known: how many there are, as far as known; it may grow.
            lag: how far the work is behind, if that has a meaning.
        """
        now = time.monotonic()
        if self._rate is None:
            self._rate = Rate(now)
        text = line(done, known, self._rate.at(now, done), self._unit, lag)
        if self._with_bar:
            if not self._drawn:
                self._bar.start()
                self._drawn = True
            self._bar.update(self._task, completed=done, total=max(known, 1), text=text)
        elif (done, known) != self._last_shown and (now - self._last_line >= _LINE_INTERVAL or done == known):
            # Work that waits for more prints nothing.
            self._last_line, self._last_shown = now, (done, known)
            self._output.note(f"{self._title}: {text}")


def line(done: int, known: int, rate: float, unit: str, lag: int | None) -> str:
    """Format progress: ``2,500 of 12,500 offsets, 100/s, lag 10,000, ETA 100 s``."""
    parts = [f"{done:,} of {known:,} {unit}"]
    if rate >= 0.5:
        parts.append(f"{rate:,.0f}/s")
    if lag is not None:
        parts.append(f"lag {lag:,}")
    if done < known and rate >= 0.5:
        parts.append(f"ETA {duration((known - done) / rate)}")
    return ", ".join(parts)
