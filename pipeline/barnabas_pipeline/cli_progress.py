"""How far a long command is: a bar on a terminal, a line now and then in a pipe, both on standard error."""

import time
from collections import deque
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

from barnabas_client.cli.output import Output

#: Seconds between two lines in a pipe.
_EVERY: Final = 5.0
#: Seconds that a rate looks back.
_WINDOW: Final = 20.0


class Rate:
    """Things a second, over the last while. Pure: times are given.

    Args:
        now: when it begins.
    """

    def __init__(self, now: float) -> None:
        self._seen = deque([(now, 0)])

    def at(self, now: float, done: int) -> float:
        """The rate when `done` things are done at the time `now`."""
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] < now - _WINDOW:
            self._seen.popleft()
        (then, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - then) if last > then else 0.0


class Progress(AbstractContextManager["Progress"]):
    """Shows how many of how many things are done. The bar is drawn from the first number on: what Java says of its
    start would stand in the middle of it.

    Args:
        output: tells whether there is a terminal.
        title: what goes on.
        unit: what is counted.
    """

    def __init__(self, output: Output, title: str, unit: str) -> None:
        self._output, self._title, self._unit = output, title, unit
        self._rate: Rate | None = None
        self._told = 0.0
        self._bar: Any = None
        self._drawn = False
        if output.err.isatty() and not output.json:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
                console=Console(file=output.err),
            )
            self._task = self._bar.add_task(title, total=None, text="")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self._bar.stop()

    def say(self, text: str) -> None:
        """What goes on while there is nothing to count."""
        if self._drawn:
            self._bar.update(self._task, text=text)
        else:
            self._output.note(f"{self._title}: {text}")

    def show(self, done: int, known: int, *, lag: int | None = None) -> None:
        """So much is done of what is known so far."""
        now = time.monotonic()
        if self._rate is None:
            self._rate = Rate(now)
        text = line(done, known, self._rate.at(now, done), self._unit, lag)
        if self._bar is not None:
            if not self._drawn:
                self._bar.start()
                self._drawn = True
            self._bar.update(self._task, completed=done, total=max(known, 1), text=text)
        elif now - self._told >= _EVERY or done == known:
            self._told = now
            self._output.note(f"{self._title}: {text}")


def line(done: int, known: int, rate: float, unit: str, lag: int | None) -> str:
    """Progress in words."""
    parts = [f"{done:,} of {known:,} {unit}"]
    if rate >= 0.5:
        parts.append(f"{rate:,.0f}/s")
    if lag is not None:
        parts.append(f"lag {lag:,}")
    if done < known and rate >= 0.5:
        parts.append(f"ETA {duration((known - done) / rate)}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Seconds for people: ``7 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    large, small, units = (
        (whole // 60, whole % 60, "min s") if whole < 7200 else (whole // 3600, whole % 3600 // 60, "h min")
    )
    unit, part = units.split()
    return f"{large} {unit} {small} {part}" if small else f"{large} {unit}"


def many(count: int, what: str) -> str:
    """So many of a thing: ``1 day``, ``1,200 days``."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
