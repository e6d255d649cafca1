"""Text in pieces: Prometheus' exposition format and JSON, built incrementally.

Pure, except for :func:`gather` and :class:`SharedText`.

A broker with 10,000 partitions has 80,000 lines of metrics. Every long text is therefore an iterator of pieces, each
built within a fraction of a millisecond, and :func:`gather` lets the event loop do other work between them.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain, islice
from typing import Any, Final, TypeVar

import xxhash

from barnabas_broker.metrics import Histogram

T = TypeVar("T")

#: Lines of one piece.
PIECE: Final = 200
#: Seconds after which the event loop gets a turn.
TURN: Final = 0.005

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

GAUGE: Final = "gauge"
COUNTER: Final = "counter"

#: A sample: its labels with braces, "" for none, and its value.
Sample = tuple[str, float]


async def gather(pieces: Iterable[str], now: Callable[[], float]) -> list[bytes]:
    """Build all pieces, and yield to the event loop in between.

    Args:
        pieces: the text.
        now: a monotonic clock, in seconds.

    Returns:
        The text, in chunks: joining megabytes would take as long as building some of them.
    """
    chunks: list[bytes] = []
    made: list[str] = []
    since = now()
    for piece in pieces:
        made.append(piece)
        if now() - since >= TURN:
            chunks.append("".join(made).encode("utf-8", "replace"))
            made.clear()
            await asyncio.sleep(0)
            since = now()
    chunks.append("".join(made).encode("utf-8", "replace"))
    return chunks


async def collect(rows: Iterable[T | None], now: Callable[[], float]) -> list[T]:
    """All rows, of which None stands for a possible turn of the event loop.

    Args:
        rows: the rows.
        now: a monotonic clock, in seconds.
    """
    found: list[T] = []
    since = now()
    for row in rows:
        if row is not None:
            found.append(row)
        if now() - since >= TURN:
            await asyncio.sleep(0)
            since = now()
    return found


# Prometheus


def labels(**values: object) -> str:
    """Labels with their braces."""
    return "{" + ",".join(f'{name}="{escape(str(value))}"' for name, value in values.items()) + "}"


def escape(value: str) -> str:
    """A label's value, escaped for its quotes."""
    return value.translate(_ESCAPES)


def family(name: str, kind: str, description: str, samples: Iterable[Sample]) -> Iterator[str]:
    """All samples of a metric, which the format requires to be together. A metric without samples is left out.

    Args:
        name: of the metric.
        kind: "gauge" or "counter".
        description: the help text, one line.
        samples: labels and values.
    """
    left = iter(samples)
    head = f"# HELP {name} {description}\n# TYPE {name} {kind}\n"
    while piece := list(islice(left, PIECE)):
        yield head + "".join([f"{name}{mark} {value}\n" for mark, value in piece])
        head = ""


def one(name: str, kind: str, description: str, value: float, mark: str = "") -> Iterator[str]:
    """A metric of one sample, whose labels are `mark`."""
    return family(name, kind, description, [(mark, value)])


def histograms(name: str, description: str, series: Iterable[tuple[Mapping[str, object], Histogram]]) -> Iterator[str]:
    """A metric that consists of histograms.

    Args:
        name: of the metric.
        description: the help text, one line.
        series: labels and observations.
    """
    head = f"# HELP {name} {description}\n# TYPE {name} histogram\n"
    for values, histogram in series:
        lines = [head]
        head = ""
        counts = list(accumulate(histogram.counts))
        for bound, count in zip((*histogram.bounds, "+Inf"), counts, strict=True):
            lines.append(f"{name}_bucket{labels(**values, le=bound)} {count}\n")
        mark = labels(**values) if values else ""
        lines.append(f"{name}_sum{mark} {histogram.total}\n{name}_count{mark} {counts[-1]}\n")
        yield "".join(lines)


# JSON


def listing(head: Mapping[str, Any], name: str, rows: Iterable[Mapping[str, Any] | None]) -> Iterator[str]:
    """A JSON object whose last field is a long list.

    Args:
        head: its other fields.
        name: of the list.
        rows: its items; None for a turn of the event loop, while an item takes long.
    """
    text = json.dumps({**head, name: []})[:-2]
    for row in rows:
        if row is None:
            yield ""
            continue
        yield text + json.dumps(row)
        text = ", "
    yield "]}" if text == ", " else text + "]}"


class SharedText:
    """A text that many pages ask for again and again: any number of pages costs no more than one.

    Args:
        make: builds it, in pieces.
        seconds: for how long it may be sent to requests that accept an older one.
    """

    def __init__(self, make: Callable[[], Iterable[str]], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._made: tuple[float, list[bytes], str] | None = None
        self._making: asyncio.Task[list[bytes]] | None = None

    async def get(self, *, fresh: bool) -> tuple[list[bytes], str]:
        """The text in chunks, and its ETag.

        Args:
            fresh: whether it must be made now.
        """
        if not fresh and self._made is not None and time.monotonic() - self._made[0] <= self._seconds:
            return self._made[1], self._made[2]
        if self._making is None or fresh:
            pieces = gather(chain(self._make(), "\n"), time.perf_counter)
            self._making = asyncio.get_running_loop().create_task(pieces)
        task = self._making
        try:
            chunks = await asyncio.shield(task)
        finally:
            if self._making is task:
                self._making = None
        tag = xxhash.xxh3_64()
        for chunk in chunks:
            tag.update(chunk)
        etag = f'"{tag.hexdigest()}"'
        self._made = (time.monotonic(), chunks, etag)
        return chunks, etag

    def cancel(self) -> None:
        """Stop to build it."""
        if self._making is not None:
            self._making.cancel()
