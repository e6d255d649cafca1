"""Brokers, each with a real coordinator, that share the partitions of ``__consumer_offsets``."""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.coordinator.offset_service import Verify
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.effects import Caller
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.steps import finish
from barnabas_explain.catalog import GroupEvent, JoinPhaseOver, MemberRevoking, RebalanceStarted, TargetAssigned
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest
from barnabas_protocol.messages.leave_group import LeaveGroupRequest
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas_protocol.messages.sync_group import SyncGroupRequest
from barnabas_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_protocol.schema import Request, Response
from tests.broker.groups.memory import MemoryStates
from tests.broker.groups.recorded import differences
from tests.sim.invariants import Invariants
from tests.sim.storage import PARTITIONS, CoordinatorPartition, Done, Leader
from tests.sim.transactions import Marker, Transactions
from tests.sim.world import Timer, World

#: The first two groups belong to the same partition of ``__consumer_offsets``, the others to one each.
GROUPS: Final = ("payments", "stock", "orders", "audit")
_CONFIG: Final = Config(
    BROKER_KEYS,
    {
        "offsets.topic.num.partitions": str(PARTITIONS),
        "group.initial.rebalance.delay.ms": "1000",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "2000",
        "offsets.commit.timeout.ms": "3000",
    },
)
Respond = Callable[[Response], None]


class Future:
    """The part of an asyncio future that the coordinator and the network use; callbacks run at once."""

    __slots__ = ("_callbacks", "_result")

    def __init__(self) -> None:
        self._result: Any = None
        self._callbacks: list[Respond] = []

    def done(self) -> bool:
        return self._result is not None

    def set_result(self, result: Any) -> None:
        assert self._result is None
        self._result = result
        for callback in self._callbacks:
            callback(result)

    def then(self, callback: Respond) -> None:
        """Call `callback` with the result."""
        if self._result is not None:
            callback(self._result)
        else:
            self._callbacks.append(callback)


L = TypeVar("L", bound="Leading")


class Leading(Leader, Protocol):
    """A broker that may lead partitions of a coordinator's topic."""

    @property
    def partitions(self: L) -> "Sequence[CoordinatorPartition[L]]":
        """The partitions of the topic."""

    def leads(self, index: int) -> bool:
        """Whether it really leads a partition."""


class Port(Generic[L]):
    """The log of a coordinator's topic for one life of a broker, which may wrongly believe that it leads."""

    def __init__(self, node: L) -> None:
        self._node = node

    def append(self, partition: int, batch: bytearray, done: Done, verification: Any = None) -> None:
        node = self._node
        log = node.partitions[partition]
        log.append(node, node.epochs.get(partition, -1), log.batch(batch, verification), done)

    def verify(
        self, partition: int, producer_id: int, producer_epoch: int, transactional_id: str, *, bumps_epoch: bool
    ) -> Any:
        log = self._led(partition).opened()
        return log.verify(partition, producer_id, producer_epoch, transactional_id, bumps_epoch=bumps_epoch)

    def not_verified(self, partition: int, producer_id: int, verification: Any) -> None:
        if self._node.leads(partition):
            self._node.partitions[partition].opened().not_verified(partition, producer_id, verification)

    def end_offset(self, partition: int) -> int:
        return self._led(partition).end_offset()

    def start_offset(self, partition: int) -> int:
        return self._led(partition).start_offset()

    async def read(self, partition: int, offset: int) -> bytes:
        return await self._led(partition).read(offset)

    def _led(self, partition: int) -> CoordinatorPartition[L]:
        if not self._node.leads(partition):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._node.partitions[partition]


class Loop:
    """The event loop of one life of a broker: when the broker dies, no scheduled call is made any more."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._life = node.life

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Timer:
        return self._node.world.after(0.0, self._call, callback, args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        return self._node.world.after(delay, self._call, callback, args)

    def create_future(self) -> Any:
        return Future()

    def _call(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self._node.life == self._life and self._node.alive:
            callback(*args)


class Node:
    """A broker.

    Attributes:
        life: number of its restarts.
        epochs: the leader epochs of the partitions that it believes to lead.
        plan: the moments at which it will die, and at which of their occurrences.
        deferred: requests without a response, and when they arrived.
    """

    def __init__(
        self,
        world: World,
        partitions: "Sequence[CoordinatorPartition[Node]]",
        node_id: int,
        invariants: Mapping[str, Invariants],
        transactions: Transactions,
    ) -> None:
        self.world = world
        self.transactions = transactions
        self.partitions = partitions
        self.node_id = node_id
        self.invariants = invariants
        self.alive = False
        self.life = 0
        self.epochs: dict[int, int] = {}
        self.plan: dict[str, int] = {}
        self.died: Callable[[Node], None] = lambda node: None
        self.deferred: dict[int, tuple[float, Request]] = {}
        self._ids = count(1)
        self._requests = count(1)
        self._topics: Sequence[Topic] = ()

    def start(self) -> None:
        """Start; only the log is left of an earlier life."""
        self.alive = True
        self.epochs = {}
        self.deferred = {}
        life = self.life
        self.groups = GroupCoordinator(
            _CONFIG,
            Port(self),
            MemoryStates(),
            now=lambda: self.world.now,
            wall_ms=lambda: int(self.world.now * 1000),
            new_id=lambda: f"{self.node_id}.{life}.{next(self._ids)}",
            loop=Loop(self),
            on_event=self._event,
            regexes=RegexSearch(matching=self._match, clock=lambda: self.world.now),
        )
        self._tell_topics()
        self.world.note("node %d starts", self.node_id)

    def _match(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Match topics with a regular expression, outside the event loop."""
        Loop(self).call_later(self.world.between(0.0, 0.5), lambda: done(work()))

    def topics_changed(self, topics: Sequence[Topic]) -> None:
        """Learn the topics of the cluster, which the coordinator assigns in groups of the consumer protocol."""
        self._topics = topics
        if self.alive:
            self._tell_topics()

    def _tell_topics(self) -> None:
        if self._topics:
            self.groups.topics_changed({topic.name: topic.partitions for topic in self._topics}, self._topics)

    def kill(self, *, power: bool) -> None:
        """Die at once, at any point; `power`: with the whole machine."""
        if self.alive:
            self.world.note("node %d dies%s", self.node_id, " with its machine" if power else "")
            self.alive = False
            self.life += 1
            for partition in self.partitions:
                partition.broker_died(self, power)
            self.died(self)

    def lead(self, partition: "CoordinatorPartition[Node]", epoch: int) -> None:
        """Learn that it leads a partition, if that is still true."""
        index = partition.index
        if self.alive and epoch > self.epochs.get(index, -1):
            self.epochs[index] = epoch
            if self.leads(index) and partition.open():
                self.world.note("node %d loads partition %d, epoch %d", self.node_id, index, epoch)
                self._drive(self.groups.load(index, epoch), self.life)

    def resign(self, index: int, epoch: int) -> None:
        """Learn that another broker leads a partition since `epoch`."""
        if self.alive and self.epochs.get(index, -1) < epoch:
            self.world.note("node %d unloads partition %d", self.node_id, index)
            self.groups.unload(index)

    def leads(self, index: int) -> bool:
        """Whether it really leads a partition."""
        partition = self.partitions[index]
        return self.alive and partition.leader is self and self.epochs.get(index) == partition.epoch

    def differences(self, index: int, batches: Sequence[bytes]) -> Iterator[str]:
        """How its groups of a partition differ from a replay of the partition's log."""
        now = self.world.now
        return differences(self.groups, _CONFIG, {index: batches}, self._topics, now, int(now * 1000))

    def moment(self, name: str) -> None:
        """A moment at which the broker may die; if it does, then in an iteration of its own, as processes do."""
        if name in self.plan and self.world.faults:
            self.plan[name] -= 1
            if self.plan[name] <= 0:
                del self.plan[name]
                self.world.after(0.0, partial(self.kill, power=self.world.chance.random() < 0.4))

    def handle(self, client: str, request: Request, respond: Respond) -> None:
        """Handle a request."""
        caller = Caller(client, "/127.0.0.1")
        groups = self.groups
        answer: Any
        if isinstance(request, FindCoordinatorRequest):
            respond(self._find(request.coordinator_keys[0]))
            return
        group_id = request.groups[0].group_id if isinstance(request, OffsetFetchRequest) else _group_of(request)
        index, invariants = groups.partition_for(group_id), self.invariants[group_id]
        if isinstance(request, JoinGroupRequest):
            self.moment("join received")
            answer = groups.join(request, 9, caller)
        elif isinstance(request, SyncGroupRequest):
            answer = groups.sync(request, 5, caller)
        elif isinstance(request, HeartbeatRequest):
            answer = groups.heartbeat(request, 4, caller)
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.moment("heartbeat asks to rejoin")
        elif isinstance(request, LeaveGroupRequest):
            answer = groups.leave(request, 5, caller)
        elif isinstance(request, ConsumerGroupHeartbeatRequest):
            self.moment("join received" if request.member_epoch == 0 else "heartbeat received")
            answer = groups.consumer_heartbeat(request, 1, caller)
        elif isinstance(request, OffsetCommitRequest):
            invariants.commit_arrives(self.node_id, self.epochs.get(index, -1), request)
            answer = finish(groups.offsets.commit(request, 9, caller))
        elif isinstance(request, OffsetFetchRequest):
            if not self.leads(index) and index in self.epochs:
                return  # A former coordinator's offsets are stale: the client waits until it finds the new one.
            answer = finish(groups.offsets.fetch(request, 9, caller))
        elif isinstance(request, TxnOffsetCommitRequest):
            self.moment("transactional commit received")
            answer = finish(groups.offsets.commit_transactional(request, 5, caller, self._verifier(request)))
        else:
            raise AssertionError(f"{request} in a simulation")
        number = next(self._requests)
        asked = self.world.now
        known = invariants.arrives(request)
        self.deferred[number] = (asked, request)

        def answered(response: Response) -> None:
            del self.deferred[number]
            invariants.answered(self.leads(index), request, response, known)
            if isinstance(request, SyncGroupRequest) and getattr(response, "error_code", 1) == 0:
                self.moment("sync answered")
            respond(response)

        if isinstance(answer, Future):
            answer.then(answered)
        else:
            answered(answer)

    def _verifier(self, request: TxnOffsetCommitRequest) -> Verify:
        """Asks the coordinator of the transaction, over the network."""
        world, life = self.world, self.life

        def verify(index: int, done: Done) -> None:
            def ask() -> None:
                code = self.transactions.verify(request.producer_id, request.producer_epoch, index)
                world.after(world.between(0.0005, 0.01), answered, code)

            def answered(code: ErrorCode) -> None:
                if self.alive and self.life == life:
                    self.moment("transaction verified")
                    done(code)

            slow = world.happens(0.05)
            if world.happens(0.03):
                world.after(world.between(0.5, 2.0), answered, ErrorCode.NETWORK_EXCEPTION)
            else:
                world.after(world.between(0.2, 2.0) if slow else world.between(0.0005, 0.01), ask)

        return verify

    def write_marker(self, marker: Marker, done: Done) -> None:
        """Handle WriteTxnMarkers for one marker: append it; what it ends is ended when it is durable."""
        index, log = marker.partition, self.partitions[marker.partition]
        position = self.groups.next_position()
        self.moment("marker received")

        def appended(error: ErrorCode) -> None:
            self.world.note("node %d: %s: %s", self.node_id, marker, error.name)
            if error == ErrorCode.NONE:
                self.groups.offsets.transaction_ended(index, marker.producer_id, marker.commit, position)
                self.moment("marker applied")
            done(error)

        write = log.marker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, commit=marker.commit)
        log.append(self, self.epochs.get(index, -1), write, appended)

    def _find(self, group_id: str) -> FindCoordinatorResponse:
        leader = self.partitions[self.groups.partition_for(group_id)].leader
        found = Coordinator(key=group_id, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1)
        if leader is not None and leader.alive:
            node_id = self.world.chance.randint(1, 2) if self.world.happens(0.1) else leader.node_id
            found = Coordinator(key=group_id, node_id=node_id, host="node", port=node_id)
        return FindCoordinatorResponse(coordinators=[found])

    def _event(self, group_id: str, event: GroupEvent) -> None:
        self.world.note(
            "node %d: %s of %s, generation %d: %s",
            self.node_id,
            event.type,
            group_id,
            event.generation,
            event,
        )
        if isinstance(event, RebalanceStarted):
            self.moment("rebalance started")
        elif isinstance(event, JoinPhaseOver):
            self.moment("join phase over")
        elif isinstance(event, MemberRevoking):
            self.moment("member has to revoke")
        elif isinstance(event, TargetAssigned):
            self.moment("target assigned")

    def _drive(self, load: Coroutine[Any, Any, None], life: int) -> None:
        """Run the coroutine of a load, one step at a time."""
        if self.life != life or not self.alive:
            load.close()
            return
        try:
            load.send(None)
        except StopIteration:
            return
        delay = self.world.between(0.0, 0.02) if not self.world.happens(0.05) else self.world.between(0.2, 2.0)
        self.world.after(delay, self._drive, load, life)


def _group_of(request: Any) -> str:
    """The group id of a request."""
    group_id: str = request.group_id
    return group_id
