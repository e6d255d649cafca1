"""Ports of a coordinator: the log of its topic, the partitions that it leads, other brokers, and an event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from barnabas_broker.clock import Handle
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.schema import Request
from barnabas_protocol.wire import Buffer


class CoordinatorLog(Protocol):
    """The partitions of a coordinator's topic that this broker leads."""

    def append(
        self, partition: int, batch: bytearray, done: Callable[[ErrorCode], None], verification: Any = None
    ) -> None:
        """Append a batch.

        Args:
            partition: of the topic.
            batch: one record batch; the log sets its offsets and its leader epoch.
            done: called once, at once or later, in the order of a partition's appends: with NONE when the batch is as
                durable as the topic's configuration demands, or with the reason why it is not and will not be: never
                with REQUEST_TIMED_OUT.
            verification: of the transaction that the batch is a part of; only logs that verify need it.
        """

    def end_offset(self, partition: int) -> int:
        """Where a replay ends: the log end offset on this leader.

        Not the high watermark: a new leader learns that late, and records between the two may have been acknowledged.
        """

    def start_offset(self, partition: int) -> int:
        """Where a replay starts: the log start offset."""

    async def read(self, partition: int, offset: int) -> Buffer:
        """Whole batches, starting with the one that contains `offset`; b"" at the end."""


class Leaderships(Protocol):
    """The partitions that this broker leads."""

    def led(self, topic: str) -> Mapping[int, int]:
        """The leader epoch of each partition of `topic` that this broker leads."""

    def creating(self, topic: str) -> bool:
        """Whether logs of partitions of `topic` are still being created on this broker."""


class Peers(Protocol):
    """The other brokers."""

    def ask(self, node_id: int, request: Request, version: int, timeout: float) -> Awaitable[bytes | bytearray]:
        """Send a request to a broker; the response, a frame.

        Raises:
            OSError: the broker is not registered, cannot be reached, or does not answer in time.
        """


class Scheduler(Protocol):
    """The part of an event loop that a coordinator uses: asyncio's, or that of a simulation."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        """Call in the next iteration of the loop."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Call after `delay` seconds."""

    def create_future(self) -> "asyncio.Future[Any]":
        """A future of this loop."""
