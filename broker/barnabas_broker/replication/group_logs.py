"""The coordinator's ports onto ``__consumer_offsets`` and ``__group_events``, over the partitions that this broker
leads."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas_broker.logs import logger
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.storage.slices import joined
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import EVENTS_TOPIC, OFFSETS_TOPIC
from barnabas_protocol.wire import Buffer

log = logger("offsets")

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
        """Append a batch; `done` hears when the ISR has it, as durable as the topic asks for, or why not."""
        try:
            hosted = self._replicas.find(OFFSETS_TOPIC, partition)
            hosted.check_isr()
            info = hosted.append(batch, self._wall_ms(), internal=True)
            promises = [hosted.log.durable(info.last_offset), hosted.replicated(info.last_offset)]
        except KafkaError as error:
            log.error("offsets cannot be written", partition=partition, error=error.code.name, reason=str(error))
            done(error.code)
            return
        waiting = [promise for promise in promises if promise is not None]
        if not waiting:
            done(ErrorCode.NONE)
        elif len(waiting) == 1:
            waiting[0].add_done_callback(lambda future: done(_outcome(future)))
        else:
            _Both(waiting, done)

    def end_offset(self, partition: int) -> int:
        """Where a replay ends: the log's end, for what lies past the high watermark may have been acknowledged."""
        return self._replicas.find(OFFSETS_TOPIC, partition).log.log_end_offset

    def start_offset(self, partition: int) -> int:
        """Where a replay starts."""
        return self._replicas.find(OFFSETS_TOPIC, partition).log.log_start_offset

    async def read(self, partition: int, offset: int) -> Buffer:
        """Whole batches from `offset` on, about a megabyte; b"" at the end.

        A new leader waits until all of it is committed, so that nobody is told what a third leader would not know.
        """
        hosted = self._replicas.find(OFFSETS_TOPIC, partition)
        committed = hosted.when_settled()
        if committed is not None:
            await asyncio.wait([committed])
            _outcome(committed)
            hosted = self._replicas.find(OFFSETS_TOPIC, partition)
        end = hosted.log.log_end_offset
        if offset >= end:
            return b""
        return joined(hosted.log.read(offset, _CHUNK, end, min_one=True))


class _Both:
    """Answers once, when several promises are kept or the first is broken."""

    def __init__(self, waiting: "Sequence[asyncio.Future[None]]", done: Callable[[ErrorCode], None]) -> None:
        self._left = len(waiting)
        self._done = done
        for future in waiting:
            future.add_done_callback(self._settled)

    def _settled(self, future: "asyncio.Future[None]") -> None:
        if self._left <= 0:
            _outcome(future)  # looked at, so that nobody complains of it
            return
        self._left -= 1
        error = _outcome(future)
        if error is not ErrorCode.NONE:
            self._left = 0
        if not self._left:
            self._done(error)


def _outcome(future: "asyncio.Future[None]") -> ErrorCode:
    if future.cancelled():
        return ErrorCode.KAFKA_STORAGE_ERROR
    error = future.exception()
    if error is None:
        return ErrorCode.NONE
    return error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR


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
