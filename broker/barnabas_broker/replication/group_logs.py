"""The logs of group coordinators on this broker's replicas: ``__consumer_offsets`` and ``__group_events``.

The classes implement ports of :mod:`barnabas_broker.groups.ports` and import nothing of it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas_broker.logs import logger
from barnabas_broker.replication.durability import Completion
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.storage.slices import joined
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import EVENTS_TOPIC, OFFSETS_TOPIC
from barnabas_protocol.wire import Buffer

log = logger("offsets")

#: Bytes that a replay reads at a time.
_CHUNK: Final = 1024 * 1024


class OffsetsTopicLog:
    """Appends to the partitions of ``__consumer_offsets``, and reads them for a replay.

    Args:
        replicas: the replicas on this broker.
        wall_ms: the time of day, in ms.
    """

    def __init__(self, replicas: ReplicaManager, wall_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._wall_ms = wall_ms

    def append(self, partition: int, batch: bytearray, done: Callable[[ErrorCode], None]) -> None:
        """Append a batch; call `done` when it is synced as configured and in the logs of the ISR, or has failed."""
        try:
            replica = self._replicas.find(OFFSETS_TOPIC, partition)
            replica.check_isr()
            info = replica.append(batch, self._wall_ms(), internal=True)
            conditions = replica.unacknowledged(info.last_offset, acks_all=True)
        except KafkaError as error:
            log.error("offsets cannot be written", partition=partition, error=error.code.name, reason=str(error))
            done(error.code)
            return
        if conditions:
            Completion(conditions, lambda error: done(ErrorCode.NONE if error is None else error.code))
        else:
            done(ErrorCode.NONE)

    def end_offset(self, partition: int) -> int:
        """Where a replay ends: the log end offset. Records beyond the high watermark may have been acknowledged."""
        return self._replicas.find(OFFSETS_TOPIC, partition).log.log_end_offset

    def start_offset(self, partition: int) -> int:
        """Where a replay begins."""
        return self._replicas.find(OFFSETS_TOPIC, partition).log.log_start_offset

    async def read(self, partition: int, offset: int) -> Buffer:
        """Whole batches from `offset` on, about a megabyte; b"" at the end.

        On a new leader this waits until the high watermark covers the records of earlier leaders: the coordinator must
        not answer with records that another election could remove.
        """
        replica = self._replicas.find(OFFSETS_TOPIC, partition)
        settled = replica.when_settled()
        if settled is not None:
            await asyncio.gather(settled, return_exceptions=True)
            replica = self._replicas.find(OFFSETS_TOPIC, partition)
        end = replica.log.log_end_offset
        if offset >= end:
            return b""
        return joined(replica.log.read(offset, _CHUNK, end, min_one=True))


class GroupEventsLog:
    """Appends group events to ``__group_events``. An event that cannot be written is dropped.

    Args:
        replicas: the replicas on this broker.
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
