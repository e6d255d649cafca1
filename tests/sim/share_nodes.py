"""Brokers with the real coordinators of share groups, and with the share partitions whose logs they lead."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from uuid import UUID

from barnabas_broker.cluster.image import GroupConfigured, Image, PartitionChanged, TopicCreated
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.coordination import _ShareTopic
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.share.partition import (
    Acknowledged,
    DeliveryLimits,
    SharePartition,
    State,
    Totals,
    Undeliverable,
)
from barnabas_broker.handlers import shares as state_handlers
from barnabas_broker.share_partitions.dead_letters import Report
from barnabas_broker.share_partitions.hosted import Delivery, LedSharePartition, Wanted
from barnabas_broker.share_partitions.incidents import Letters, Place
from barnabas_broker.share_partitions.service import SharePartitions
from barnabas_broker.share_partitions.sessions import FINAL_EPOCH, INITIAL_EPOCH, Where
from barnabas_broker.shares.persister import SharePersister
from barnabas_broker.shares.ports import ShareState
from barnabas_broker.shares.records import ShareKey, ShareReplay
from barnabas_broker.shares.service import ShareCoordinator
from barnabas_broker.slicer import Account
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.members import Member
from barnabas_protocol.codec import encode_response
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas_protocol.schema import Request, Response
from tests.sim.brokers import AtOnce, Port, Role, SimulatedBroker, led_by, without_leaders
from tests.sim.share_data import TOPIC, TOPIC_ID, DataLog, DataReplica
from tests.sim.share_rules import ShareRules
from tests.sim.storage import PARTITIONS, CoordinatorPartition
from tests.sim.world import World

T = TypeVar("T")

GROUP: Final = "workers"
_CALLER: Final = Caller("worker", "/127.0.0.1")
#: Errors of the persister after which what was written may be in the log.
_IN_DOUBT: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)


def config_of(limit: int, lock_ms: int) -> Config:
    """The configuration of all brokers.

    Args:
        limit: deliveries of a record.
        lock_ms: how long a lock holds.
    """
    return Config(
        BROKER_KEYS,
        {
            "offsets.topic.num.partitions": str(PARTITIONS),
            "offsets.commit.timeout.ms": "3000",
            "share.coordinator.state.topic.num.partitions": str(PARTITIONS),
            "share.coordinator.write.timeout.ms": "2000",
            "share.coordinator.snapshot.update.records.per.snapshot": "7",
            "share.coordinator.cold.partition.snapshot.interval.ms": "15000",
            "share.coordinator.state.topic.prune.interval.ms": "10000",
            "group.share.delivery.count.limit": str(limit),
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.record.lock.duration.ms": str(lock_ms),
            "group.share.partition.max.record.locks": "100",
            "group.share.min.session.timeout.ms": "1000",
            "group.share.session.timeout.ms": "6000",
            "group.share.min.heartbeat.interval.ms": "1000",
            "group.share.heartbeat.interval.ms": "2000",
        },
    )


class Connection:
    """A member's connection to a broker.

    Attributes:
        node: the broker.
        open: whether the member may use it.
        ended: called on the broker at its end.
    """

    def __init__(self, node: "ShareNode", member: str) -> None:
        self.node = node
        self.member = member
        self.open = node.alive
        self.ended: dict[Callable[[], None], None] = {}
        self._life = node.life

    @property
    def arrives(self) -> bool:
        """Whether requests arrive."""
        return self.node.alive and self.node.life == self._life

    def break_(self, reason: str) -> None:
        """Break; the broker notices later."""
        if self.open:
            self.open = False
            world = self.node.world
            world.note("connection of %s to node %d broken by %s", self.member, self.node.node_id, reason)
            world.after(world.between(0.0, 2.0) if world.happens(0.8) else world.between(2.0, 20.0), self._notice)

    def _notice(self) -> None:
        if self.arrives:
            for end in list(self.ended):
                end()


class Peers:
    """Requests to other brokers: late, lost, with lost answers."""

    def __init__(self, node: "ShareNode") -> None:
        self._node = node
        self._life = node.life

    async def ask(self, node_id: int, request: Request, version: int, timeout: float) -> bytes | bytearray:
        node, world = self._node, self._node.world
        other = next(each for each in node.cluster if each.node_id == node_id)
        await asyncio.sleep(node.delay())
        if not node.alive or node.life != self._life or not other.alive or world.happens(0.03):
            raise ConnectionError("lost")
        answering = other.spawn(other.state_request(request))
        await asyncio.wait([answering], timeout=timeout)
        if not answering.done() or answering.cancelled() or world.happens(0.03):
            raise ConnectionError("the answer is lost")
        await asyncio.sleep(node.delay())
        return encode_response(answering.result(), version, 7)[4:]


class Persister:
    """The persister of a broker. It may fail, and hears of failed writes that may be in the log all the same."""

    def __init__(self, persister: SharePersister, node: "ShareNode") -> None:
        self._persister = persister
        self._node = node
        self.read = persister.read

    async def write(self, group: str, topic_id: UUID, partition: int, **state: Any) -> None:
        world = self._node.world
        try:
            if world.happens(0.03):
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator cannot be reached")
            await self._persister.write(group, topic_id, partition, **state)
            if world.happens(0.02):
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the last answer was lost")
        except (KafkaError, asyncio.CancelledError) as error:
            if not isinstance(error, KafkaError) or error.code in _IN_DOUBT:
                self._node.write_in_doubt(partition)
            raise


class DeadLetters:
    """The topic of dead letters, which is slow sometimes."""

    def __init__(self, node: "ShareNode") -> None:
        self._node = node

    async def write(
        self, place: Place, replica: object, undeliverable: Sequence[Undeliverable], report: Report
    ) -> None:
        await asyncio.sleep(self._node.delay())
        self._node.rules.dead_letters(place.partition, undeliverable)
        written = sum(each.last - each.first + 1 for each in undeliverable)
        report(place, undeliverable, Letters("dlq.work", written, 0, None))

    def tick(self) -> None:
        """There are no log lines."""

    def close(self) -> None:
        """Nothing waits."""


class ShareNode(SimulatedBroker):
    """A broker.

    Args:
        world: its clock and random numbers.
        node_id: its number.
        config: its configuration.
        group_config: that of the group.
        state: the partitions of ``__share_group_state``.
        offsets: those of ``__consumer_offsets``.
        data: the logs of the topic.
        changes: all elections, in their order.
        rules: hear of what is delivered.

    Attributes:
        cluster: all brokers.
        gone: when the last session of each member has ended.
    """

    def __init__(
        self,
        world: World,
        node_id: int,
        config: Config,
        group_config: Mapping[str, str],
        state: "Sequence[CoordinatorPartition[Role]]",
        offsets: "Sequence[CoordinatorPartition[Role]]",
        data: Sequence[DataLog],
        changes: Sequence[PartitionChanged],
        rules: ShareRules,
    ) -> None:
        super().__init__(world, node_id, topics(len(data)).apply(GroupConfigured(GROUP, group_config)), changes)
        self.rules = rules
        self.cluster: Sequence[ShareNode] = ()
        self.gone: dict[str, float] = {}
        self._config = config
        self._state, self._offsets, self._data = state, offsets, data

    def start(self) -> None:
        super().start()
        self.gone = {}
        self.state = self.role(SHARE_GROUPS_TOPIC, self._state)
        self.offsets = self.role(OFFSETS_TOPIC, self._offsets)
        self.replicas = [DataReplica(log) for log in self._data]
        metadata, clock = self.following.metadata, self.clock
        self.shares = ShareCoordinator(
            self._config,
            Port(self.state),
            lambda topic_id, partition: topic_id.bytes == TOPIC_ID and partition < len(self._data),
            lambda index, offset: self._state[index].delete_before(offset),
            now=clock.now,
            wall_ms=clock.wall_ms,
            scheduler=clock,
        )
        unused: Any = None
        topic = _ShareTopic(self._config, metadata, unused)
        self.persister = SharePersister(self.node_id, self.shares, topic, Peers(self), 3.0)
        self.groups = GroupCoordinator(
            self._config,
            Port(self.offsets),
            self.persister,
            now=clock.now,
            wall_ms=clock.wall_ms,
            loop=clock,
            on_event=self._event,
        )
        self.groups.topics_changed({TOPIC: len(self._data)}, [Topic(TOPIC_ID, TOPIC, len(self._data), ())])
        replicas: Any = SimpleNamespace(find=self._find)
        dead_letters: Any = DeadLetters(self)
        slicer: Any = AtOnce()
        self.queues = SharePartitions(
            self._config,
            metadata,
            replicas,
            Persister(self.persister, self),
            dead_letters,
            slicer,
            clock,
            self._event,
        )
        self.coordinate(OFFSETS_TOPIC, self.groups)
        self.coordinate(SHARE_GROUPS_TOPIC, self.shares.runtime)
        for listener in (self.queues.image_changed, self._leaders_changed, self.reconcile):
            metadata.subscribe(listener)

    def _ended(self) -> None:
        for replica in self.replicas:
            replica.resign()
        for closing in (self.queues.close(), self.groups.close(), self.shares.close()):
            asyncio.get_running_loop().create_task(closing)

    # Leaders

    def _lead_data(self, index: int, epoch: int | None) -> None:
        replica = self.replicas[index]
        replica.lead(epoch) if epoch is not None else replica.resign()

    def _leaders_changed(self, *_: object) -> None:
        self.persister.leaders_changed()

    def _find(self, topic: str, partition: int) -> DataReplica:
        replica = self.replicas[partition]
        if replica.leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    # Requests

    async def state_request(self, request: Request) -> Response:
        """Handle a request of another broker about the state of share partitions."""
        services = SimpleNamespace(cluster=self.following.metadata, shares=self.shares, slicer=AtOnce())
        context: Any = SimpleNamespace(services=services, allows_on_cluster=lambda operation: True, peer=None)
        context.sliced = lambda steps: services.slicer.enqueue(steps, None)
        route = next(each for each in state_handlers.ROUTES if each.key == request.API_KEY)
        handled = route.handler(context, request)
        response = await handled if isinstance(handled, Awaitable) else handled
        assert response is not None
        return response

    async def heartbeat(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        """ShareGroupHeartbeat."""
        return await self.groups.share_groups.heartbeat(request, 1, _CALLER)

    async def fetch(
        self, connection: Connection, epoch: int, added: Sequence[int], forgotten: Sequence[int], wanted: dict[str, Any]
    ) -> dict[int, Delivery | KafkaError]:
        """ShareFetch of partitions of the topic.

        Raises:
            KafkaError: the session.
        """
        member, queues = connection.member, self.queues
        add, forget = [Where(TOPIC_ID, index) for index in added], [Where(TOPIC_ID, index) for index in forgotten]
        if epoch == FINAL_EPOCH:
            queues.end(queues.sessions.find(GROUP, member, epoch))
            return {}
        if epoch == INITIAL_EPOCH:
            session = queues.begin(GROUP, Member(member, "worker", "/127.0.0.1"), add)

            def end() -> None:
                queues.end(session)

            def ended() -> None:
                connection.ended.pop(end, None)
                self.gone[member] = self.world.now

            connection.ended[end] = None
            session.ended = ended
        else:
            session = queues.sessions.find(GROUP, member, epoch)
            queues.sessions.update(session, add, forget)
        session.rotate()
        places = {where: place(where.partition) for where in session.partitions}
        asked = Wanted(
            member,
            gone=lambda: session.closed,
            client=Account(),
            **wanted,
        )
        found = await queues.fetch(session, places, asked, 0.5)
        return {where.partition: each for where, each in found.items() if each is not None}

    async def acknowledge(self, member: str, index: int, batches: Sequence[Acknowledged]) -> None:
        """ShareAcknowledge of a partition.

        Raises:
            KafkaError: it has no effect.
        """
        await self.queues.acknowledge(member, place(index), batches)

    # What is checked

    def write_in_doubt(self, partition: int) -> None:
        """A write of a share partition has failed, and may be in the log all the same."""
        for hosted in self.queues.hosted:
            if hosted.place.partition == partition:
                self.rules.leaders[hosted].in_doubt = True

    def differences(self, role: Role, index: int, data: bytes) -> Iterator[str]:
        """How its machines of a partition differ from a replay of the partition's log."""
        replay: ShareReplay | Replay
        if role is self.state:
            replay = self.shares.replay(_corrupt, 0)
            _feed(replay, data)
            found: dict[str, Any] = {key.name: machine.snapshot for key, (machine, _) in replay.found.items()}
            home: Any = self.shares.runtime.partitions.get(index)
        else:
            replay = self.groups.replay(_corrupt, 0)
            _feed(replay, data)
            found = {name: _group_state(machine) for name, machine in replay.share_groups.items() if not machine.gone}
            home = self.groups._runtime.partitions.get(index)
        if home is None or home.loading or any(each.append is not None for each in home.hosted.values()):
            return
        memory = {
            name: hosted.machine.snapshot if role is self.state else _group_state(hosted.machine)
            for name, hosted in home.hosted.items()
            if not hosted.machine.gone
        }
        if memory != found:
            yield f"{role.topic}-{index}: memory is {memory}, the log says {found}"

    def stored(self, index: int) -> ShareState | None:
        """The state of a share partition that its coordinator has on this broker."""
        key = ShareKey(GROUP, UUID(bytes=TOPIC_ID), index)
        home = self.shares.runtime.partitions.get(self.shares.runtime.partition_for(key.name))
        hosted = None if home is None or home.loading else home.hosted.get(key.name)
        if hosted is None or hosted.machine.snapshot is None or hosted.append is not None:
            return None
        snapshot = hosted.machine.snapshot
        return ShareState(
            snapshot.state_epoch, snapshot.start_offset, snapshot.delivery_complete_count, snapshot.batches
        )

    def _event(self, group_id: str, event: GroupEvent) -> None:
        self.world.note("node %d: %s of %s: %s", self.node_id, event.type, group_id, event)


def topics(partitions: int) -> Image:
    """The cluster image of new topics, whose partitions have no leaders.

    Args:
        partitions: of the topic whose records are processed.
    """
    coordinators = without_leaders({SHARE_GROUPS_TOPIC: PARTITIONS, OFFSETS_TOPIC: PARTITIONS})
    return coordinators.apply(TopicCreated(TOPIC, TOPIC_ID, (led_by(-1, 0),) * partitions, {}))


def place(index: int) -> Place:
    """A share partition."""
    return Place(GROUP, TOPIC, TOPIC_ID, index)


def states_of(hosted: LedSharePartition, stored: ShareState) -> tuple[dict[int, tuple[int, int]], ...]:
    """State and delivery count of each record of a share partition: in memory, and as the next leader would begin."""
    machine = hosted.machine
    later = SharePartition(stored, machine.start_offset, DeliveryLimits(), Totals())
    return tuple(
        {
            offset: each.written
            for each in one._ranges
            for offset in range(max(each.first, machine.start_offset), each.last + 1)
            if each.written != (State.AVAILABLE, 0)
        }
        for one in (machine, later)
    )


def _group_state(group: Any) -> tuple[Any, ...]:
    """What is in the log of a share group."""
    return (
        group.epoch,
        group.metadata_hash,
        group.assignment_epoch,
        group.members,
        group.targets,
        group.initializing,
        group.initialized,
    )


def _feed(replay: Any, data: bytes) -> None:
    for _ in replay.feed(data):
        pass


def _corrupt(offset: int, reason: str) -> None:
    raise AssertionError(f"record {offset}: {reason}")
