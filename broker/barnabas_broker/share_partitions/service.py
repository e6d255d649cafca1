"""The share partitions of this broker: opened when a member first fetches from them, closed when another broker leads.

:meth:`SharePartitions.fetch` and :meth:`SharePartitions.acknowledge` are what requests ask for. A session that ends,
because the member closes it or its connection is lost, gives back what the member has (:meth:`SharePartitions.end`).
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from barnabas_broker.clock import Clock
from barnabas_broker.cluster.image import Event, Image, PartitionChanged, TopicDeleted
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import Config, GroupConfig
from barnabas_broker.config.durations import duration_seconds
from barnabas_broker.config.keys import (
    BY_DURATION,
    GROUP_SHARE_MAX_SHARE_SESSIONS,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_ISOLATION_LEVEL,
    SHARE_PARTITION_MAX_RECORD_LOCKS,
    SHARE_RECORD_LOCK_DURATION_MS,
)
from barnabas_broker.folded import FoldedLines
from barnabas_broker.groups.share.partition import Acknowledged, Limits, SharePartition, State, Totals
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.replica import DelayedFetch, Replica
from barnabas_broker.share_partitions.hosted import (
    DeadLetters,
    Delivery,
    HostedPartition,
    Place,
    Wanted,
    as_answered,
)
from barnabas_broker.share_partitions.sessions import ShareSession, ShareSessions, Where
from barnabas_broker.shares.ports import Persister
from barnabas_broker.slicer import Slicer
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Partitions of all share sessions together.
_MOST_PARTITIONS: Final = 100_000

#: What a fetch has found in a partition: records, an error, or nothing.
Found = Delivery | KafkaError | None


@dataclass(frozen=True, slots=True)
class Fetch:
    """Settings of a fetch, apart from the partitions.

    Attributes:
        wanted: from each partition.
        max_wait: seconds to wait for records.
        min_bytes: bytes to wait for.
    """

    wanted: Wanted
    max_wait: float
    min_bytes: int


class SharePartitions:
    """The share partitions whose logs this broker leads.

    Args:
        config: the broker's configuration.
        cluster: the cluster image: topics, and the configuration of groups.
        replicas: the logs.
        persister: the state of share partitions.
        dead_letters: where undeliverable records go; None if they go nowhere.
        slicer: gives turns to what takes long.
        clock: the time of locks.

    Attributes:
        sessions: the share sessions of members.
        totals: numbers of records since the start.
    """

    def __init__(
        self,
        config: Config,
        cluster: ClusterMetadata,
        replicas: ReplicaManager,
        persister: Persister,
        dead_letters: DeadLetters | None,
        slicer: Slicer,
        clock: Clock,
    ) -> None:
        self.sessions = ShareSessions(config[GROUP_SHARE_MAX_SHARE_SESSIONS], _MOST_PARTITIONS)
        self.totals = Totals()
        self._config = config
        self._cluster = cluster
        self._replicas = replicas
        self._persister = persister
        self._dead_letters = dead_letters
        self._slicer = slicer
        self._clock = clock
        self._lines = FoldedLines(clock.now, "group")
        self._hosted: dict[Place, HostedPartition] = {}
        self._opening: dict[Place, asyncio.Task[HostedPartition]] = {}
        #: What goes on without a request, so that it is not collected.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def hosted(self) -> Collection[HostedPartition]:
        """The share partitions that are open."""
        return self._hosted.values()

    def configuration(self, group: str) -> GroupConfig:
        """The configuration of a group."""
        return GroupConfig(self._config, self._cluster.image.group_configs.get(group, {}))

    def lock_ms(self, group: str) -> int:
        """How long a member of a group keeps a record, in ms."""
        return self.configuration(group).bounded(SHARE_RECORD_LOCK_DURATION_MS)

    # Requests

    async def fetch(self, session: ShareSession, places: Mapping[Where, Place], fetch: Fetch) -> dict[Where, Found]:
        """Acquire records for a member, or wait for some.

        Args:
            session: of the member; nothing is acquired once it is closed.
            places: the partitions to fetch from, in their order.
            fetch: what to fetch.

        Returns:
            What was found, without the partitions that have nothing.
        """
        until = self._clock.now() + fetch.max_wait
        opened = await asyncio.gather(*map(self.open, places.values()), return_exceptions=True)
        found: dict[Where, Found] = {}
        hosted: dict[Where, HostedPartition] = {}
        for where, each in zip(places, opened, strict=True):
            if isinstance(each, HostedPartition):
                hosted[where] = each
            elif isinstance(each, KafkaError):
                found[where] = as_answered(each)
            else:
                raise each
        try:
            while not session.closed:
                over = self._clock.now() >= until
                if over or found or fetch.min_bytes <= 1 or self._enough(hosted.values(), fetch.min_bytes):
                    await self._acquire(hosted, fetch.wanted, found)
                if found or over or not hosted:
                    break
                await self._wait(session, hosted.values(), until)
        finally:
            # Others may fetch what this one has left.
            for each in hosted.values():
                each.poke()
        return found

    async def _acquire(
        self, hosted: Mapping[Where, HostedPartition], wanted: Wanted, found: dict[Where, Found]
    ) -> None:
        records, size = wanted.max_records, wanted.max_bytes
        for where, each in hosted.items():
            if records <= 0 or size <= 0 or wanted.gone():
                return
            part = Wanted(
                wanted.member,
                size,
                records,
                wanted.batch_size,
                wanted.strict,
                wanted.committed,
                wanted.gone,
                wanted.client,
            )
            try:
                delivery = await each.acquire(part)
            except KafkaError as error:
                found[where] = error
                continue
            if delivery is not None:
                found[where] = delivery
                records -= sum(run.last - run.first + 1 for run in delivery.acquired)
                size -= len(delivery.records)

    def _enough(self, hosted: Iterable[HostedPartition], min_bytes: int) -> bool:
        size = 0
        for each in hosted:
            if each.closed is not None or not each.leads:
                return True
            size += each.readable
        return size >= min_bytes

    async def _wait(self, session: ShareSession, hosted: Iterable[HostedPartition], until: float) -> None:
        """Wait until it may be this fetch's turn, or the time is over."""
        waiting = DelayedFetch(1)
        session.waiting.add(waiting)
        for each in hosted:
            each.wait(waiting)
        timer = self._clock.call_later(max(until - self._clock.now(), 0.0), waiting.wake)
        try:
            for each in hosted:
                each.poke()  # there may be something since it was looked at
            await waiting.woken
        finally:
            timer.cancel()
            session.waiting.discard(waiting)
            for each in hosted:
                each.forget(waiting)

    async def acknowledge(self, member: str, place: Place, batches: Sequence[Acknowledged]) -> None:
        """Take what a member says of records, and return when it is durable.

        Raises:
            KafkaError: nothing of it counts.
        """
        self._replicas.find(place.topic, place.partition)
        hosted = self._hosted.get(place)
        if hosted is None or not hosted.leads:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The batch cannot be acknowledged. It was not acquired.")
        hosted.configure(*self._limits(place.group))
        await hosted.acknowledge(member, batches)

    # Sessions

    def begin(self, group: str, member: str, partitions: Iterable[Where]) -> ShareSession:
        """Open a session. One that the member has ends, but the member keeps its records, as in Kafka.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        old = self.sessions.of(group, member)
        if old is not None:
            self._end(old)
        return self.sessions.open(group, member, partitions)

    def _end(self, session: ShareSession) -> None:
        self.sessions.close(session)
        session.ended()
        for waiting in tuple(session.waiting):
            waiting.wake()

    def end(self, session: ShareSession) -> None:
        """End a session, and give back what the member has."""
        if session.closed:
            return
        self._end(session)
        ending = asyncio.get_running_loop().create_task(self._release(session))
        self._tasks.add(ending)
        ending.add_done_callback(self._tasks.discard)

    async def _release(self, session: ShareSession) -> None:
        mine = [hosted for place, hosted in self._hosted.items() if place.group == session.group]
        await asyncio.gather(*(_quietly(hosted.release(session.member)) for hosted in mine))
        if not self.sessions.of_group(session.group):
            for hosted in mine:
                if not hosted.machine.in_state(State.ACQUIRED) and not hosted.machine.has_unwritten:
                    self._close(hosted, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # Partitions

    async def open(self, place: Place) -> HostedPartition:
        """A share partition; it reads its state if it is not open.

        Raises:
            KafkaError: this broker does not lead the partition, or its state cannot be read.
        """
        replica = self._replicas.find(place.topic, place.partition)
        hosted = self._hosted.get(place)
        if hosted is not None and hosted.replica is replica and hosted.leads and hosted.closed is None:
            hosted.configure(*self._limits(place.group))
            return hosted
        if hosted is not None:
            self._close(hosted, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        opening = self._opening.get(place)
        if opening is None:
            opening = self._opening[place] = asyncio.get_running_loop().create_task(self._open(place, replica))
            opening.add_done_callback(lambda _: self._opening.pop(place, None))
        return await asyncio.shield(opening)

    async def _open(self, place: Place, replica: Replica) -> HostedPartition:
        epoch = replica.leader_epoch
        state = await self._persister.read(place.group, UUID(bytes=place.topic_id), place.partition, epoch)
        start = replica.log.log_start_offset
        if state.start_offset < 0:
            start = await self._first_offset(place.group, replica)
        if replica.leading is None or replica.leader_epoch != epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        limits, committed = self._limits(place.group)
        machine = SharePartition(state, start, limits, self.totals)
        machine.log_starts_at(replica.log.log_start_offset)
        hosted = HostedPartition(
            place, replica, machine, self._persister, self._dead_letters, self._slicer, self._clock, self._lines
        )
        hosted.configure(limits, committed)
        self._hosted[place] = hosted
        hosted.write()
        return hosted

    async def _first_offset(self, group: str, replica: Replica) -> int:
        """Where a group begins that has not read a partition yet (``share.auto.offset.reset``)."""
        begin = self.configuration(group)[SHARE_AUTO_OFFSET_RESET]
        if begin == "earliest":
            return replica.log.log_start_offset
        if begin != "latest":
            seconds = duration_seconds(begin.removeprefix(BY_DURATION))
            found = await replica.log.offset_for_timestamp(self._clock.wall_ms() - int(seconds * 1000))
            if found is not None and found.offset < replica.high_watermark:
                return found.offset
        return replica.high_watermark

    def _limits(self, group: str) -> tuple[Limits, bool]:
        config = self.configuration(group)
        limits = Limits(
            config.bounded(SHARE_DELIVERY_COUNT_LIMIT),
            config.bounded(SHARE_RECORD_LOCK_DURATION_MS) / 1000,
            config.bounded(SHARE_PARTITION_MAX_RECORD_LOCKS),
        )
        return limits, config[SHARE_ISOLATION_LEVEL] == "read_committed"

    def image_changed(self, _: Image, events: Iterable[Event]) -> None:
        """Close what another broker leads now, and what is deleted."""
        changed = {event.name for event in events if isinstance(event, PartitionChanged | TopicDeleted)}
        if changed:
            for place, hosted in list(self._hosted.items()):
                if place.topic in changed and not hosted.leads:
                    self._close(hosted, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _close(self, hosted: HostedPartition, error: KafkaError) -> None:
        hosted.close(error)
        if self._hosted.get(hosted.place) is hosted:
            del self._hosted[hosted.place]

    async def close(self) -> None:
        """Close all of them. What members have is available to the next leader."""
        for hosted in list(self._hosted.values()):
            self._close(hosted, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for task in (*self._opening.values(), *self._tasks):
            task.cancel()
        self._lines.tick()


async def _quietly(work: Awaitable[None]) -> None:
    """Wait for work that may fail: its locks expire in any case."""
    with suppress(KafkaError):
        await work
