"""The coordinator's ports onto ``__consumer_offsets`` and ``__group_events``, over the partitions that this broker
leads."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from barnabas_broker.replication.manager import ReplicaManager
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.wire import Buffer

log = structlog.get_logger("broker.offsets")

OFFSETS_TOPIC: Final = "__consumer_offsets"
EVENTS_TOPIC: Final = "__group_events"
#: Bytes that a replay reads at a time.
_CHUNK: Final = 1024 * 1024


class OffsetsTopicLog:
    """Appends to, and replays, partitions of ``__consumer_offsets``.

    Args:
        replicas: the partitions of this broker.
        wall_ms: the time of day, in ms.
    """

    def __init__(self, replicas: ReplicaManager, wall_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._wall_ms = wall_ms

    def append(self, partition: int, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        """Append a batch; `done` hears when it is as durable as the topic asks for, or why it is not there."""
        try:
            hosted = self._replicas.find(OFFSETS_TOPIC, partition)
            info = hosted.append(batch, self._wall_ms(), internal=True)
            durable = hosted.log.durable(info.last_offset)
        except KafkaError as error:
            log.error("offsets cannot be written", partition=partition, error=error.code.name, reason=str(error))
            done(error.code)
            return
        if durable is None:
            done(ErrorCode.NONE)
        else:
            durable.add_done_callback(lambda future: done(_outcome(future)))

    def end_offset(self, partition: int) -> int:
        """Where a replay ends: the log's end, for what lies past the high watermark may have been acknowledged."""
        return self._replicas.find(OFFSETS_TOPIC, partition).log.log_end_offset

    def start_offset(self, partition: int) -> int:
        """Where a replay starts."""
        return self._replicas.find(OFFSETS_TOPIC, partition).log.log_start_offset

    async def read(self, partition: int, offset: int) -> Buffer:
        """Whole batches from `offset` on, about a megabyte; b"" at the end."""
        hosted = self._replicas.find(OFFSETS_TOPIC, partition)
        end = hosted.log.log_end_offset
        if offset >= end:
            return b""
        return b"".join(hosted.log.read(offset, _CHUNK, end, min_one=True))


def _outcome(future: "asyncio.Future[None]") -> ErrorCode:
    if future.cancelled() or future.exception() is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


class GroupEventsLog:
    """Appends the story of groups to ``__group_events``. What cannot be written is dropped: nobody waits for it.

    Args:
        replicas: the partitions of this broker.
        wall_ms: the time of day, in ms.
    """

    def __init__(self, replicas: ReplicaManager, wall_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._wall_ms = wall_ms

    def append(self, partition: int, batch: bytearray) -> None:
        """Append a batch of events."""
        try:
            self._replicas.find(EVENTS_TOPIC, partition).append(batch, self._wall_ms(), internal=True)
        except KafkaError as error:
            log.debug("group events dropped", partition=partition, error=error.code.name)
