"""What simulated brokers have in common: lives, clocks, and the partitions that they learn to lead.

A broker has the real :class:`.ClusterMetadata`, which learns of elections late and in their order, and the real
:class:`.CoordinatorPartitions`, which loads and unloads what follows from it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas_broker.clock import Clock, Handle
from barnabas_broker.cluster.image import Event, Image, PartitionChanged, PartitionInfo, TopicCreated
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.store import EventBatch
from barnabas_broker.coordinators.partitions import Coordinator, CoordinatorPartitions
from barnabas_broker.steps import Steps, finish
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.sim.storage import CoordinatorPartition, Done
from tests.sim.world import World

T = TypeVar("T")
#: The time of day at the beginning, in ms.
EPOCH_MS: Final = 1_000_000_000


class Time(Protocol):
    """The time of a simulation."""

    @property
    def now(self) -> float:
        """Seconds."""

    def at(self, time: float, callback: Callable[..., object], *args: Any) -> object:
        """Call `callback` at a time."""


class Follower:
    """The cluster's metadata on one broker in one of its lives, which learns of changes late.

    It knows what was changed before it starts, and leads nothing of it: an earlier life did.

    Args:
        world: the time.
        image: the cluster before all changes.
        changes: all changes of leaders, in their order.
        lives: whether the broker still lives.

    Attributes:
        metadata: what it knows.
        learns_at: when it knows of all changes that it has been told to follow.
    """

    def __init__(
        self, world: Time, image: Image, changes: Sequence[PartitionChanged], lives: Callable[[], bool]
    ) -> None:
        unused: Any = None
        self.metadata = ClusterMetadata(image.apply_all(changes), unused, len(changes))
        self.learns_at = world.now
        self._world = world
        self._changes = changes
        self._lives = lives

    def follow(self, seconds: float) -> None:
        """Learn of the last change in some time, and not before the changes before it."""
        self.learns_at = max(self.learns_at, self._world.now + seconds)
        self._world.at(self.learns_at, self._learn, len(self._changes))

    def catch_up(self, topic: str, index: int) -> None:
        """Learn at once of all changes of a partition."""
        known = (n for n, each in enumerate(self._changes, 1) if (each.name, each.index) == (topic, index))
        self._learn(max(known, default=0))

    def _learn(self, count: int) -> None:
        """Learn of the first `count` changes."""
        for sequence in range(self.metadata.sequence, count):
            if self._lives():
                self.metadata._apply(EventBatch(sequence + 1, [self._changes[sequence]]))


class Led:
    """The partitions of a coordinator's topic that a broker believes to lead. Implements :class:`.Leaderships`.

    Attributes:
        epochs: their leader epochs.
    """

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}

    def lead(self, index: int, epoch: int) -> None:
        """Learn that it leads a partition."""
        self.epochs[index] = epoch

    def resign(self, index: int) -> None:
        """Learn that another broker leads a partition."""
        self.epochs.pop(index, None)

    def led(self, topic: str) -> Mapping[int, int]:
        return self.epochs

    def creating(self, topic: str) -> bool:
        return False


class Role(Led):
    """A broker in one of its lives, as a possible leader of the partitions of a coordinator's topic.

    Attributes:
        life: the number of its restarts.
        partitions: of the topic.
    """

    def __init__(self, node: "SimulatedBroker", topic: str, partitions: "Sequence[CoordinatorPartition[Role]]") -> None:
        super().__init__()
        self.node: Any = node
        self.topic = topic
        self.life = node.life
        self.partitions = partitions

    @property
    def alive(self) -> bool:
        alive: bool = self.node.alive and self.node.life == self.life
        return alive

    def kill(self, *, power: bool) -> None:
        if self.alive:
            self.node.kill(power=power)

    def moment(self, name: str) -> None:
        if self.alive:
            self.node.moment(f"{name} in {self.topic}")

    def leads(self, index: int) -> bool:
        """Whether it really leads a partition."""
        partition = self.partitions[index]
        return self.alive and partition.leader is self and self.epochs.get(index) == partition.epoch

    def lead(self, index: int, epoch: int) -> None:
        """Learn that it leads a partition, and open its log if that is still true."""
        super().lead(index, epoch)
        if self.leads(index) and self.partitions[index].open():
            self.node.world.note("node %d opens %s-%d, epoch %d", self.node.node_id, self.topic, index, epoch)


class Port:
    """The log of a coordinator's topic for one life of a broker, which may wrongly believe that it leads."""

    def __init__(self, role: Role) -> None:
        self._role = role

    def append(self, partition: int, batch: bytearray, done: Done, verification: Any = None) -> None:
        role = self._role
        log = role.partitions[partition]
        log.append(role, role.epochs.get(partition, -1), log.batch(batch, verification), done)

    def verify(
        self, partition: int, producer_id: int, producer_epoch: int, transactional_id: str, *, bumps_epoch: bool
    ) -> Any:
        log = self._led(partition).opened()
        return log.verify(partition, producer_id, producer_epoch, transactional_id, bumps_epoch=bumps_epoch)

    def not_verified(self, partition: int, producer_id: int, verification: Any) -> None:
        if self._role.leads(partition):
            self._role.partitions[partition].opened().not_verified(partition, producer_id, verification)

    def end_offset(self, partition: int) -> int:
        return self._led(partition).end_offset()

    def start_offset(self, partition: int) -> int:
        return self._led(partition).start_offset()

    async def read(self, partition: int, offset: int) -> bytes:
        world: World = self._role.node.world
        await asyncio.sleep(world.between(0.2, 2.0) if world.happens(0.2) else world.between(0.0, 0.02))
        return await self._led(partition).read(offset)

    def _led(self, partition: int) -> "CoordinatorPartition[Role]":
        if not self._role.leads(partition):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._role.partitions[partition]


class NodeClock(Clock):
    """The clocks of a broker in one of its lives, which may jump. No scheduled call is made when it is dead."""

    def __init__(self, node: "SimulatedBroker") -> None:
        super().__init__()
        self._node = node
        self._life = node.life

    def now(self) -> float:
        return self._node.world.now + self._node.ahead

    def wall_ms(self) -> int:
        return EPOCH_MS + int((self._node.world.now + self._node.wall_ahead) * 1000)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Handle:
        return self.call_later(0.0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self._node.world.after(delay, self._call, callback, args)

    def _call(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self._node.lives(self._life):
            callback(*args)


class AtOnce:
    """Gives turns to what takes long: at once, so that the time of this machine has no effect."""

    def run(self, steps: Steps[T], client: object) -> T:
        return finish(steps)

    async def enqueue(self, steps: Steps[T], client: object) -> T:
        return finish(steps)


class SimulatedBroker:
    """A broker.

    Args:
        world: its clock and random numbers.
        node_id: its number.
        image: the cluster before all elections.
        changes: all elections, in their order.

    Attributes:
        alive: whether its process runs.
        life: the number of its restarts.
        ahead: seconds by which its monotonic clock is ahead of the world's.
        wall_ahead: and its time of day.
        plan: the moments at which it will die, and at which of their occurrences.
        died: called when it is dead.
        following: the cluster's metadata as it knows it.
    """

    following: Follower
    clock: NodeClock

    def __init__(self, world: World, node_id: int, image: Image, changes: Sequence[PartitionChanged]) -> None:
        self.world = world
        self.node_id = node_id
        self.alive = False
        self.life = 0
        self.ahead = self.wall_ahead = 0.0
        self.plan: dict[str, int] = {}
        self.died: Callable[[Any], None] = lambda node: None
        self._image = image
        self._changes = changes
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._roles: dict[str, Role] = {}
        self._coordinated: list[CoordinatorPartitions] = []

    def start(self) -> None:
        """Start; only the logs of coordinators are left of an earlier life."""
        self.world.note("node %d starts", self.node_id)
        self.alive = True
        self._roles, self._coordinated = {}, []
        self.following = Follower(self.world, self._image, self._changes, partial(self.lives, self.life))
        self.clock = NodeClock(self)
        self.following.metadata.subscribe(self._lead)

    def role(self, topic: str, partitions: Sequence[CoordinatorPartition[Role]]) -> Role:
        """The broker as a possible leader of a coordinator's topic."""
        role = self._roles[topic] = Role(self, topic, partitions)
        return role

    def coordinate(self, topic: str, coordinator: Coordinator) -> None:
        """Have a coordinator load and unload what this broker leads of its topic."""
        may_serve = self.following.metadata.may_serve
        self._coordinated.append(CoordinatorPartitions(topic, coordinator, self._roles[topic], may_serve))

    def lives(self, life: int) -> bool:
        """Whether it is still in one of its lives."""
        return self.alive and self.life == life

    def kill(self, *, power: bool) -> None:
        """Die at once, at any point; `power`: with the whole machine."""
        if not self.alive:
            return
        self.world.note("node %d dies%s", self.node_id, " with its machine" if power else "")
        self.alive = False
        self.life += 1
        for role in self._roles.values():
            for partition in role.partitions:
                partition.broker_died(role, power)
        for task in list(self._tasks):
            task.cancel()
        for partitions in self._coordinated:
            partitions.close()
        self._ended()
        self.died(self)

    def _ended(self) -> None:
        """End what is left of a life."""

    def moment(self, name: str) -> None:
        """A moment at which the broker may die; if it does, then in an iteration of its own, as processes do."""
        if name in self.plan and self.world.faults:
            self.plan[name] -= 1
            if self.plan[name] <= 0:
                del self.plan[name]
                self.world.after(0.0, lambda: self.kill(power=self.world.chance.random() < 0.4))

    def delay(self) -> float:
        """Seconds that a message takes."""
        world = self.world
        return world.between(0.2, 3.0) if world.happens(0.03) else world.between(0.0005, 0.01)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run something until it ends, or the broker dies."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        return task

    def _lead(self, _: Image, events: Sequence[Event]) -> None:
        """Lead what it has to lead, and nothing else."""
        for event in events:
            assert isinstance(event, PartitionChanged)
            leads, epoch = event.partition.leader == self.node_id, event.partition.leader_epoch
            role = self._roles.get(event.name)
            if role is None:
                self._lead_data(event.index, epoch if leads else None)
            elif leads:
                role.lead(event.index, epoch)
            else:
                role.resign(event.index)

    def _lead_data(self, index: int, epoch: int | None) -> None:
        """Lead a partition of another topic than a coordinator's; `epoch` None: do not lead it."""

    def reconcile(self, *_: object) -> None:
        """Coordinate what it leads, and nothing else."""
        for partitions in self._coordinated:
            partitions.reconcile()


N = TypeVar("N", bound=SimulatedBroker)


class Elections(Generic[N]):
    """Elects leaders; the brokers learn of it later.

    Attributes:
        nodes: all brokers.
        changes: all elections, in their order.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: Sequence[N] = ()
        self.changes: list[PartitionChanged] = []

    def elect(self, partition: "CoordinatorPartition[Role]") -> float:
        """Elect another leader of a coordinator's partition, if there is one; when all brokers know of it."""
        before: N | None = None if partition.leader is None else partition.leader.node
        node = self.candidate(before, partition.topic, partition.index)
        if node is None:
            return self.world.now
        partition.elect(node._roles[partition.topic])
        return self.elected(node, partition.topic, partition.index, partition.epoch, before)

    def candidate(self, before: N | None, topic: str, index: int) -> N | None:
        """A broker that may lead a partition next: not the leader before, if there is another one.

        It knows of the leader before: a replica is in sync only if it has followed that one.
        """
        alive = [node for node in self.nodes if node.alive]
        if not alive:
            return None
        node = self.world.chance.choice([each for each in alive if each is not before] or alive)
        node.following.catch_up(topic, index)
        return node if node.alive else self.candidate(before, topic, index)

    def elected(self, node: N, topic: str, index: int, epoch: int, before: N | None) -> float:
        """All brokers learn of an election, sooner or later; when all know of it."""
        world = self.world
        world.note("node %d is elected for %s-%d, epoch %d", node.node_id, topic, index, epoch)
        self.changes.append(PartitionChanged(topic, index, led_by(node.node_id, epoch)))
        known = world.now
        for each in self.nodes:
            if each.alive:
                each.following.follow(world.between(0.0, 3.0 if each is before and each is not node else 0.5))
                known = max(known, each.following.learns_at)
        return known


def led_by(leader: int, epoch: int) -> PartitionInfo:
    """A partition with a leader."""
    return PartitionInfo(leader=leader, leader_epoch=epoch, replicas=(1, 2), isr=(1, 2))


def without_leaders(topics: Mapping[str, int]) -> Image:
    """The cluster image of new topics, whose partitions have no leaders.

    Args:
        topics: the number of partitions of each.
    """
    created = [
        TopicCreated(name, bytes([number]) * 16, (led_by(-1, 0),) * partitions, {})
        for number, (name, partitions) in enumerate(topics.items(), 1)
    ]
    return Image(cluster_id="sim", controller_id=1).apply_all(created)
