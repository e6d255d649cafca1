"""The share partitions of this broker: opened when a member first fetches from them, closed when another broker leads.

:meth:`SharePartitions.fetch` and :meth:`SharePartitions.acknowledge` are what requests ask for. A session that ends,
because the member closes it or its connection is lost, gives back what the member has (:meth:`SharePartitions.end`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
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
from barnabas_broker.groups.share.partition import Acknowledged, DeliveryLimits, SharePartition, State, Totals
from barnabas_broker.log_throttle import FoldedLines
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.replica import DelayedFetch, Replica
from barnabas_broker.share_partitions.dead_letters import DeadLetterTopics
from barnabas_broker.share_partitions.hosted import Delivery, LedSharePartition, Wanted, as_answered
from barnabas_broker.share_partitions.incidents import Incidents, Place
from barnabas_broker.share_partitions.sessions import ShareSession, ShareSessions, Where, nothing
from barnabas_broker.shares.ports import MOST_LOCKS, Persister
from barnabas_broker.slicer import Slicer
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.members import Member
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Partitions of all share sessions together.
_MOST_PARTITIONS: Final = 100_000

#: Seconds until a fetch looks again at what it could not read.
_PAUSE: Final = 0.05

_NO_CONFIGURATION: Final[Mapping[str, str]] = {}

#: What a fetch has found in a partition: records, an error, or nothing.
Found = Delivery | KafkaError | None


class SharePartitions:
    """The share partitions whose logs this broker leads.

    Args:
        config: the broker's configuration.
        cluster: the cluster image: topics, and the configuration of groups.
        replicas: the logs.
        persister: the state of share partitions.
        dead_letters: where undeliverable records go.
        slicer: gives turns to what takes long.
        clock: the time of locks.
        publish: gets every event of a group's records.

    Attributes:
        sessions: the share sessions of members.
        totals: numbers of records since the start.
        dead_letters: where undeliverable records go.
        incidents: what has happened to records, and is not published yet.
    """

    def __init__(
        self,
        config: Config,
        cluster: ClusterMetadata,
        replicas: ReplicaManager,
        persister: Persister,
        dead_letters: DeadLetterTopics,
        slicer: Slicer,
        clock: Clock,
        publish: Callable[[str, GroupEvent], None],
    ) -> None:
        self.sessions = ShareSessions(config[GROUP_SHARE_MAX_SHARE_SESSIONS], _MOST_PARTITIONS)
        self.totals = Totals()
        self.incidents = Incidents(self._identity, self._never_acknowledged)
        self._publish = publish
        self._config = config
        self._cluster = cluster
        self._replicas = replicas
        self._persister = persister
        self.dead_letters = dead_letters
        self._slicer = slicer
        self._clock = clock
        self._lines = FoldedLines(clock.now, "group")
        self._hosted: dict[Place, LedSharePartition] = {}
        self._opening: dict[Place, asyncio.Task[LedSharePartition]] = {}
        #: The configuration of each group that has members here, and from what it was made.
        self._configurations: dict[str, tuple[Mapping[str, str], GroupConfig]] = {}
        #: What goes on without a request, so that it is not collected.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def hosted(self) -> Collection[LedSharePartition]:
        """The share partitions that are open."""
        return self._hosted.values()

    def configuration(self, group: str) -> GroupConfig:
        """The configuration of a group."""
        given = self._cluster.image.group_configs.get(group, _NO_CONFIGURATION)
        known = self._configurations.get(group)
        if known is None or known[0] is not given:
            known = self._configurations[group] = given, GroupConfig(self._config, given)
        return known[1]

    def lock_ms(self, group: str) -> int:
        """How long a member of a group keeps a record, in ms."""
        return self.configuration(group).bounded(SHARE_RECORD_LOCK_DURATION_MS)

    # Requests

    async def fetch(
        self, session: ShareSession, places: Mapping[Where, Place], wanted: Wanted, max_wait: float
    ) -> dict[Where, Found]:
        """Acquire records for a member, or wait for some.

        Args:
            session: of the member; nothing is acquired once it is closed.
            places: the partitions to fetch from, in their order.
            wanted: what to fetch from all of them together.
            max_wait: seconds to wait for records.

        Returns:
            What was found, without the partitions that have nothing.
        """
        until = self._clock.now() + max_wait
        opened = [self._opened(place) or self.open(place) for place in places.values()]
        waiting = await asyncio.gather(
            *(each for each in opened if not isinstance(each, LedSharePartition)), return_exceptions=True
        )
        following = iter(waiting)
        found: dict[Where, Found] = {}
        hosted: dict[Where, LedSharePartition] = {}
        for where, each in zip(places, opened, strict=True):
            one = each if isinstance(each, LedSharePartition) else next(following)
            if isinstance(one, LedSharePartition):
                hosted[where] = one
            elif isinstance(one, KafkaError):
                found[where] = as_answered(one)
            else:
                raise one
        in_vain = 0
        try:
            while not session.closed:
                over = self._clock.now() >= until
                await self._acquire(hosted, wanted, found)
                if found or over or not hosted:
                    break
                in_vain = in_vain + 1 if any(each.ready for each in hosted.values()) else 0
                if in_vain > 1:
                    await asyncio.sleep(_PAUSE)  # there is something that cannot be read now
                await self._wait(session, hosted.values(), until)
        finally:
            # Others may fetch what this one has left.
            for each in hosted.values():
                each.poke()
        return found

    async def _acquire(
        self, hosted: Mapping[Where, LedSharePartition], wanted: Wanted, found: dict[Where, Found]
    ) -> None:
        records, size = wanted.max_records, wanted.max_bytes
        for where, each in hosted.items():
            if records <= 0 or size <= 0 or wanted.gone():
                return
            part = replace(wanted, max_bytes=size, max_records=records)
            try:
                delivery = await each.acquire(part)
            except KafkaError as error:
                found[where] = error
                continue
            if delivery is not None:
                found[where] = delivery
                records -= sum(run.last - run.first + 1 for run in delivery.acquired)
                size -= len(delivery.records)

    async def _wait(self, session: ShareSession, hosted: Iterable[LedSharePartition], until: float) -> None:
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
            # As in Kafka, if this leader has not opened it: nothing of it was acquired.
            text = "This server does not host this topic-partition."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        hosted.configure(*self._limits(place.group))
        await hosted.acknowledge(member, batches)
        session = self.sessions.of(place.group, member)
        if session is not None:
            session.acknowledged = True

    # Sessions

    def _identity(self, group: str, member: str) -> Member:
        """A member as group events name it: only its id if its session has ended."""
        session = self.sessions.of(group, member)
        return Member(member) if session is None else session.identity

    def _never_acknowledged(self, group: str, member: str) -> bool:
        """Whether a member has not acknowledged a record since it came to this broker."""
        session = self.sessions.of(group, member)
        return session is not None and not session.acknowledged

    def tick(self) -> None:
        """Publish what has happened to records, and write how often lines were repeated. To be called every second."""
        for group, event in self.incidents.take(self._clock.now()):
            self._publish(group, event)
        self._lines.tick()
        self.dead_letters.tick()

    def begin(self, group: str, identity: Member, partitions: Iterable[Where]) -> ShareSession:
        """Open a session. One that the member has ends, but the member keeps its records, as in Kafka.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        old = self.sessions.of(group, identity.member_id or "")
        if old is not None:
            self._end(old)
        session = self.sessions.open(group, identity, partitions)
        session.acknowledged = old is not None and old.acknowledged
        return session

    def _end(self, session: ShareSession) -> None:
        self.sessions.close(session)
        session.ended()
        session.ended = nothing  # what it called refers to the session
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
            self._configurations.pop(session.group, None)
            for hosted in mine:
                if not hosted.machine.in_state(State.ACQUIRED) and not hosted.machine.has_unwritten:
                    self._close(hosted, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # Partitions

    async def open(self, place: Place) -> LedSharePartition:
        """A share partition; it reads its state if it is not open.

        Raises:
            KafkaError: this broker does not lead the partition, or its state cannot be read.
        """
        hosted = self._opened(place)
        if hosted is not None:
            return hosted
        replica = self._replicas.find(place.topic, place.partition)
        opening = self._opening.get(place)
        if opening is None:
            opening = self._opening[place] = asyncio.get_running_loop().create_task(self._open(place, replica))

            def done(task: asyncio.Task[LedSharePartition]) -> None:
                self._opening.pop(place, None)
                if not task.cancelled():
                    task.exception()  # those that wait for it raise it, if there are any left

            opening.add_done_callback(done)
        return await asyncio.shield(opening)

    def _opened(self, place: Place) -> LedSharePartition | None:
        """A share partition that is open; None if it has to be opened."""
        hosted = self._hosted.get(place)
        if hosted is None:
            return None
        try:
            replica = self._replicas.find(place.topic, place.partition)
        except KafkaError as error:
            self._close(hosted, error)
            return None
        if hosted.replica is not replica or not hosted.leads or hosted.closed is not None:
            self._close(hosted, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return None
        hosted.configure(*self._limits(place.group))
        return hosted

    async def _open(self, place: Place, replica: Replica) -> LedSharePartition:
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
        hosted = LedSharePartition(
            place,
            replica,
            machine,
            self._persister,
            self.dead_letters,
            self._slicer,
            self._clock,
            self._lines,
            self.incidents,
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

    def _limits(self, group: str) -> tuple[DeliveryLimits, bool]:
        config = self.configuration(group)
        limits = DeliveryLimits(
            config.bounded(SHARE_DELIVERY_COUNT_LIMIT),
            config.bounded(SHARE_RECORD_LOCK_DURATION_MS) / 1000,
            min(config.bounded(SHARE_PARTITION_MAX_RECORD_LOCKS), MOST_LOCKS),
        )
        return limits, config[SHARE_ISOLATION_LEVEL] == "read_committed"

    def image_changed(self, _: Image, events: Sequence[Event]) -> None:
        """Close what another broker leads now, and what is deleted."""
        changed = {event.name for event in events if isinstance(event, PartitionChanged | TopicDeleted)}
        deleted = {event.name for event in events if isinstance(event, TopicDeleted)}
        if changed:
            for place, hosted in list(self._hosted.items()):
                if place.topic in deleted:
                    self._close(hosted, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                elif place.topic in changed and not hosted.leads:
                    self._close(hosted, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _close(self, hosted: LedSharePartition, error: KafkaError) -> None:
        hosted.close(error)
        if self._hosted.get(hosted.place) is hosted:
            del self._hosted[hosted.place]

    async def close(self) -> None:
        """Close all of them. What members have is available to the next leader."""
        for hosted in list(self._hosted.values()):
            self._close(hosted, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for task in (*self._opening.values(), *self._tasks):
            task.cancel()
        self.dead_letters.close()
        self._lines.tick()


async def _quietly(work: Awaitable[None]) -> None:
    """Wait for the end of locks, which may not be written yet: they end in any case."""
    with suppress(KafkaError):
        await work
