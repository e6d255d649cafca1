"""Where the events of a group come from.

Barnabas brokers record them in ``__group_events``. For other brokers they are rebuilt from the records of the group's
partition of ``__consumer_offsets``; and where that may not be read, from descriptions of the group while the command
runs. All of this only reads.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import OffsetSpec
from barnabas_client.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError, error_for
from barnabas_client.history.located import EventRange, locate
from barnabas_client.history.ports import Connect
from barnabas_client.history.reading import read
from barnabas_client.structs import ConsumerRecord, TopicPartition
from barnabas_explain.rebuild.values import RebuiltEvents
from barnabas_explain.words import capital, moment
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import EVENTS_TOPIC, OFFSETS_TOPIC, partition_for

#: Where events come from: the records of ``__group_events``, of ``__consumer_offsets``, and descriptions.
SOURCES: Final = ("events", "offsets", "polls")
#: How far back ``__consumer_offsets`` is read if no time is given.
DAY_MS: Final = 24 * 3_600_000
#: A rebalance may begin so much earlier than the time from which on events are wanted, in ms.
_MARGIN_MS: Final = 3_600_000
#: Events that are kept: their number, and their bytes. Older ones are left out.
_MOST_EVENTS: Final = 20_000
_MOST_BYTES: Final = 64 * 1024 * 1024
#: Errors of a described group whose coordinator moves.
_MOVING: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

#: Called with the number of records that were read since the last call.
Advance = Callable[[int], None]


class Newest:
    """Keeps the newest events.

    Attributes:
        dropped: the number of older events that were left out.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._values: deque[bytes] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def add(self, values: Iterable[bytes]) -> None:
        """Add events, oldest first."""
        for value in values:
            self._values.append(value)
            self._bytes += len(value)
            while len(self._values) > _MOST_EVENTS or (self._bytes > _MOST_BYTES and len(self._values) > 1):
                self._bytes -= len(self._values.popleft())
                self.dropped += 1

    def values(self) -> Iterable[bytes]:
        """The events that are kept, oldest first."""
        return self._values

    @property
    def newest(self) -> bytes | None:
        """The newest event; None if there is none."""
        return self._values[-1] if self._values else None


class History(ABC):
    """The events of a group, as values of records of ``__group_events``.

    Attributes:
        note: where they come from, if that needs to be said.
        no_requests: why the requests of the group's members are not known.
        size: the number of records that :meth:`read` reads.
    """

    note: str | None = None
    no_requests: str
    size: int = 0

    @abstractmethod
    def read(self, advance: Advance) -> AsyncIterator[list[bytes]]:
        """Yield the events until now.

        Raises:
            KafkaError: they cannot be read.
        """

    @abstractmethod
    def follow(self) -> AsyncIterator[list[bytes]]:
        """Yield the events after those of :meth:`read`, without end; an empty list while there are none."""

    def finish(self) -> list[bytes]:
        """The events of what is open at the end; called instead of :meth:`follow`."""
        return []


class RecordedHistory(History):
    """The events that the brokers recorded."""

    no_requests = (
        f"Requests are not recorded in {EVENTS_TOPIC}. The broker that coordinates the group has the newest ones in "
        "memory: its own page (--http-port) shows them."
    )

    def __init__(self, connect: Connect, where: EventRange, group: str) -> None:
        self._connect, self._where, self._key = connect, where, group.encode()
        self.size = where.end - where.start

    async def read(self, advance: Advance) -> AsyncIterator[list[bytes]]:
        where = self._where
        async for records in read(self._connect, {where.partition: where.start}, {where.partition: where.end}):
            advance(len(records))
            yield self._values(records)

    async def follow(self) -> AsyncIterator[list[bytes]]:
        where = self._where
        async for records in read(self._connect, {where.partition: where.end}, {}, follow=True):
            yield self._values(records)

    def _values(self, records: Iterable[ConsumerRecord]) -> list[bytes]:
        return [record.value for record in records if record.key == self._key and record.value is not None]


class OffsetsRange(NamedTuple):
    """Records of a partition of ``__consumer_offsets``: the first offset, the last stable offset, the end."""

    partition: TopicPartition
    start: int
    stable: int
    end: int


async def locate_offsets(admin: Admin, group: str, start: int, until: int | None = None) -> OffsetsRange:
    """Look up where the records of a group are.

    Args:
        admin: of the brokers.
        group: the group.
        start: a time in ms since 1970, or an :class:`OffsetSpec`.
        until: records of later times are not needed, in ms since 1970; some may be in the range nevertheless.

    Raises:
        TopicAuthorizationFailedError: this client may not describe the topic.
        KafkaError: the offsets cannot be looked up.
    """
    (topic,) = await admin.describe_topics([OFFSETS_TOPIC], raise_errors=False)
    if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicOrPartitionError(
            f"topic {OFFSETS_TOPIC} does not exist: no group has been used here yet. To do: check that these are the "
            "right brokers, and whether consumers reach the address that they tell them (advertised.listeners of the "
            "listener that these use)"
        )
    if not topic.partitions:
        raise error_for(topic.error, f"describe topic {OFFSETS_TOPIC!r}")
    tp = TopicPartition(OFFSETS_TOPIC, partition_for(group, len(topic.partitions)))
    end = (await admin.list_offsets({tp: OffsetSpec.LATEST}))[tp].offset
    stable = (await admin.list_offsets({tp: OffsetSpec.LATEST}, read_committed=True))[tp].offset
    first = (await admin.list_offsets({tp: start}))[tp].offset
    if until is not None:
        after = (await admin.list_offsets({tp: until + 1}))[tp].offset
        end = after if after >= 0 else end
    if first < 0:
        # No record is that late; or the partition was compacted, where Apache Kafka 4.3.1 finds no record by its time.
        first = (await admin.list_offsets({tp: OffsetSpec.EARLIEST}))[tp].offset
    return OffsetsRange(tp, min(first, end), max(min(stable, end), min(first, end)), end)


class RebuiltHistory(History):
    """Events that are rebuilt from ``__consumer_offsets``, as far as they are not later than `until`."""

    no_requests = f"Requests are not recorded here: {OFFSETS_TOPIC} has only what came of them."

    def __init__(
        self,
        connect: Connect,
        where: OffsetsRange,
        rebuilt: RebuiltEvents,
        note: str | None = None,
        until: int | None = None,
    ) -> None:
        self._connect, self._where, self._rebuilt, self._until = connect, where, rebuilt, until
        self.size = where.end - where.start
        self.note = note

    async def read(self, advance: Advance) -> AsyncIterator[list[bytes]]:
        tp, start, stable, end = self._where
        async for records in read(self._connect, {tp: start}, {tp: stable}, read_committed=True):
            advance(len(records))
            yield self._add(records)
        if stable < end:
            yield self._rebuilt.unstable_from(stable, end - stable)
        async for records in read(self._connect, {tp: stable}, {tp: end}):
            advance(len(records))
            yield self._add(records)

    def _add(self, records: list[ConsumerRecord]) -> list[bytes]:
        until = self._until
        return self._rebuilt.add(records if until is None else [one for one in records if one.timestamp <= until])

    async def follow(self) -> AsyncIterator[list[bytes]]:
        tp, _, _, end = self._where
        async for records in read(self._connect, {tp: end}, {}, follow=True):
            yield self._rebuilt.add(records)

    def finish(self) -> list[bytes]:
        return self._rebuilt.finish()


class PolledHistory(History):
    """Events that are rebuilt from descriptions of the group, while the command runs."""

    no_requests = "Requests are not recorded here: a description of a group has only what came of them."

    def __init__(self, admin: Admin, group: str, rebuilt: RebuiltEvents, note: str, interval: float) -> None:
        self._admin, self._group, self._rebuilt, self._interval = admin, group, rebuilt, interval
        self.note = note

    async def read(self, advance: Advance) -> AsyncIterator[list[bytes]]:
        yield await self._look()

    async def follow(self) -> AsyncIterator[list[bytes]]:
        while True:
            await asyncio.sleep(self._interval)
            yield await self._look()

    async def _look(self) -> list[bytes]:
        (group,) = await self._admin.describe_consumer_groups([self._group], raise_errors=False)
        now = time.time_ns() // 1_000_000
        if group.error is None:
            return self._rebuilt.observe(now, group.state, group.members)
        if group.error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return self._rebuilt.observe(now, "Empty", ())
        if group.error.code not in _MOVING:
            raise group.error
        return []


async def find_history(
    connect: Connect,
    admin: Admin,
    group: str,
    since: int | None,
    *,
    source: str | None = None,
    interval: float = 1.0,
) -> History:
    """The best source of the events of a group that the brokers have.

    Args:
        connect: creates consumers of the brokers.
        admin: of the brokers; it is used as long as the history is.
        group: the group.
        since: only events from this time on are needed, in ms since 1970; None for all of ``__group_events``, or
            the last day of ``__consumer_offsets``. An hour more is read: a rebalance may have begun before.
        source: one of :data:`SOURCES`, to have no other one.
        interval: seconds between descriptions of the group, if it has to be described again and again.

    Raises:
        UnknownTopicOrPartitionError: there is no source.
        KafkaError: the brokers do not answer.
    """
    if source in (None, "events"):
        located = await locate(admin, [group], None if since is None else max(since - _MARGIN_MS, 0))
        if located:
            return RecordedHistory(connect, located[0], group)
        if source == "events":
            raise UnknownTopicOrPartitionError(
                f"these brokers have no topic {EVENTS_TOPIC}. Barnabas brokers create it at the first rebalance, "
                f"Apache Kafka does not. To do: do not name a source, to use {OFFSETS_TOPIC}"
            )
    if source != "polls":
        start = max((time.time_ns() // 1_000_000 - DAY_MS if since is None else since) - _MARGIN_MS, 0)
        try:
            where = await locate_offsets(admin, group, start)
            await _may_read(connect, where)
        except TopicAuthorizationFailedError:
            if source == "offsets":
                raise
        else:
            rebuilt = RebuiltEvents(group, await topic_names(admin))
            return RebuiltHistory(connect, where, rebuilt, f"From {OFFSETS_TOPIC} since {moment(start)}.")
    described = f"the group is described every {interval:g} s from now on, until Ctrl-C."
    if source is None:
        note = f"{OFFSETS_TOPIC} may not be read: {described} To see its past, allow READ on {OFFSETS_TOPIC}."
    else:
        note = capital(described)
    return PolledHistory(admin, group, RebuiltEvents(group, lambda topic_id: None), note, interval)


async def topic_names(admin: Admin) -> Callable[[bytes], str | None]:
    """A function that returns the name of a topic by its id, of the topics that this client may see."""
    names = {topic.id: topic.name for topic in await admin.describe_topics()}
    return names.get


async def _may_read(connect: Connect, where: OffsetsRange) -> None:
    """Read one record: listing offsets needs less permission than reading.

    Raises:
        TopicAuthorizationFailedError: this client may not read the topic.
    """
    tp, start, _, end = where
    async for _ in read(connect, {tp: max(start, end - 1)}, {tp: end}):
        return
