"""What the coordinator needs from outside: a log, a place for events, and a loop."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.wire import Buffer


class OffsetsLog(Protocol):
    """The partitions of ``__consumer_offsets`` that this broker leads."""

    def append(self, partition: int, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        """Append a batch.

        Args:
            partition: of ``__consumer_offsets``.
            batch: one record batch; its offsets and its leader epoch are the log's to fill in.
            done: called once, at once or later, in the order of the appends of a partition: NONE when the batch is as
                durable as the topic is configured, or why it is not.
        """

    def end_offset(self, partition: int) -> int:
        """Where a replay ends: the log's end on this leader.

        Not the high watermark: a new leader learns that late, and what lies between the two may have been acknowledged.
        """

    def start_offset(self, partition: int) -> int:
        """Where a replay starts."""

    async def read(self, partition: int, offset: int) -> Buffer:
        """Whole batches from the one that holds `offset` on; b"" at the end."""


class EventSink(Protocol):
    """The partitions of ``__group_events``: nobody waits for what goes there."""

    def append(self, partition: int, batch: bytearray) -> None:
        """Append a batch, or drop it."""


class Leaderships(Protocol):
    """The partitions that this broker leads."""

    def led(self, topic: str) -> Mapping[int, int]:
        """The leader epoch of each partition of `topic` that this broker leads."""

    def creating(self, topic: str) -> bool:
        """Whether logs of partitions of `topic` are still being created on this broker."""


class Handle(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Let it not come."""


class Scheduler(Protocol):
    """The part of an event loop that the coordinator uses. Every asyncio loop is one; simulations bring their own."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        """Call in the next turn."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Call after `delay` seconds."""

    def create_future(self) -> "asyncio.Future[Any]":
        """A future of this loop."""
