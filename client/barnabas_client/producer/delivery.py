"""The outcome of a batch, which the receipts of its records read. Pure: who waits for it gives a function to call.

A record's offset and time follow from those of its batch, so nothing is done for a record when its batch is
acknowledged: a receipt computes them if the program asks.
"""

from collections.abc import Callable
from typing import Any

from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import KafkaError


class Delivery:
    """The outcome of a batch: unknown at first, then acknowledged or failed, or that of the two batches that it was
    split into.

    Attributes:
        tp: the partition.
        loop: the event loop in which receipts are awaited.
        settled: whether the batch is acknowledged, or has failed.
        base_offset: of the first record; -1 if it is not known.
        append_time: of all records, in ms since 1970; -1 if they keep their own.
        log_start_offset: the first offset of the partition; -1 if it is not known.
        error: why the batch has failed; None if it has not.
    """

    __slots__ = (
        "_at",
        "_halves",
        "_watchers",
        "append_time",
        "base_offset",
        "error",
        "log_start_offset",
        "loop",
        "settled",
        "tp",
    )

    def __init__(self, tp: TopicPartition, loop: Any) -> None:
        self.tp = tp
        self.loop = loop
        self.settled = False
        self.base_offset = self.append_time = self.log_start_offset = -1
        self.error: KafkaError | None = None
        self._halves: tuple[Delivery, Delivery] | None = None
        self._at = 0
        self._watchers: list[Callable[[], None]] = []

    def acknowledge(self, base_offset: int, append_time: int, log_start_offset: int) -> None:
        """The broker has written the batch."""
        self.base_offset, self.append_time, self.log_start_offset = base_offset, append_time, log_start_offset
        self._settle()

    def fail(self, error: KafkaError) -> None:
        """The batch has failed."""
        self.error = error
        self._settle()

    def split(self, at: int, first: "Delivery", second: "Delivery") -> None:
        """Two batches take over; `at` is the first record of the second one."""
        self._at, self._halves = at, (first, second)
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            first.watch(watcher)
            second.watch(watcher)

    def parts(self, begin: int, end: int) -> list[tuple["Delivery", int, int]]:
        """The outcomes of the records from `begin` to `end`, exclusive: each with the places of its records."""
        if self._halves is None:
            return [(self, begin, end)]
        (first, second), at = self._halves, self._at
        found = first.parts(begin, min(end, at)) if begin < at else []
        return found + second.parts(max(begin - at, 0), end - at) if end > at else found

    def watch(self, settled: Callable[[], None]) -> None:
        """Call a function when the batch is settled; if it is split, when either half is."""
        self._watchers.append(settled)

    def _settle(self) -> None:
        self.settled = True
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()
