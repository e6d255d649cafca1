"""Brokers, each with a real coordinator, that share the partitions of ``__consumer_offsets``."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from barnabas_broker.cluster.image import PartitionChanged
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.coordinator.offset_service import Verify
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.sightings import MemberConnection
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.steps import finish
from barnabas_explain.catalog import GroupEvent, JoinPhaseOver, MemberRevoking, RebalanceStarted, TargetAssigned
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
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
from tests.sim.brokers import Port, Role, SimulatedBroker, without_leaders
from tests.sim.invariants import Invariants
from tests.sim.storage import PARTITIONS, CoordinatorPartition, Done
from tests.sim.transactions import Marker, Transactions
from tests.sim.world import World

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


class Node(SimulatedBroker):
    """A broker.

    Args:
        world: its clock and random numbers.
        node_id: its number.
        changes: all elections, in their order.
        partitions: of ``__consumer_offsets``.
        invariants: of each group.
        transactions: their coordinator.

    Attributes:
        deferred: requests without a response, and when they arrived.
    """

    def __init__(
        self,
        world: World,
        node_id: int,
        changes: Sequence[PartitionChanged],
        partitions: "Sequence[CoordinatorPartition[Role]]",
        invariants: Mapping[str, Invariants],
        transactions: Transactions,
    ) -> None:
        super().__init__(world, node_id, without_leaders({OFFSETS_TOPIC: PARTITIONS}), changes)
        self.transactions = transactions
        self.partitions = partitions
        self.invariants = invariants
        self.deferred: dict[int, tuple[float, Request]] = {}
        self._ids = count(1)
        self._requests = count(1)
        self._topics: Sequence[Topic] = ()

    def start(self) -> None:
        super().start()
        self.deferred = {}
        life, clock = self.life, self.clock
        self.offsets = self.role(OFFSETS_TOPIC, self.partitions)
        self.groups = GroupCoordinator(
            _CONFIG,
            Port(self.offsets),
            MemoryStates(),
            now=clock.now,
            wall_ms=clock.wall_ms,
            new_id=lambda: f"{self.node_id}.{life}.{next(self._ids)}",
            loop=clock,
            on_event=self._event,
            regexes=RegexSearch(matching=self._match, clock=clock.now),
        )
        self.coordinate(OFFSETS_TOPIC, self.groups)
        self.following.metadata.subscribe(self.reconcile)
        self._tell_topics()

    def _match(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Match topics with a regular expression, outside the event loop."""
        self.clock.call_later(self.world.between(0.0, 0.5), lambda: done(work()))

    def topics_changed(self, topics: Sequence[Topic]) -> None:
        """Learn the topics of the cluster, which the coordinator assigns in groups of the consumer protocol."""
        self._topics = topics
        if self.alive:
            self._tell_topics()

    def _tell_topics(self) -> None:
        if self._topics:
            self.groups.topics_changed({topic.name: topic.partitions for topic in self._topics}, self._topics)

    def differences(self, index: int, batches: Sequence[bytes]) -> Iterator[str]:
        """How its groups of a partition differ from a replay of the partition's log."""
        now, wall_ms = self.clock.now(), self.clock.wall_ms()
        return differences(self.groups, _CONFIG, {index: batches}, self._topics, now, wall_ms)

    def handle(self, client: str, request: Request, respond: Respond, connection: MemberConnection) -> None:
        """Handle a request."""
        caller = Caller(client, "/127.0.0.1", connection=connection)
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
            invariants.commit_arrives(self.node_id, self.offsets.epochs.get(index, -1), request)
            answer = finish(groups.offsets.commit(request, 9, caller))
        elif isinstance(request, OffsetFetchRequest):
            if not self.offsets.leads(index) and index in self.offsets.epochs:
                return  # A former coordinator's offsets are stale: the client waits until it finds the new one.
            answer = finish(groups.offsets.fetch(request, 9, caller))
        elif isinstance(request, TxnOffsetCommitRequest):
            self.moment("transactional commit received")
            answer = finish(groups.offsets.commit_transactional(request, 5, caller, self._verifier(request)))
        else:
            raise AssertionError(f"{request} in a simulation")
        number, life = next(self._requests), self.life
        asked = self.world.now
        known = invariants.arrives(request)
        self.deferred[number] = (asked, request)

        def answered(response: Response) -> None:
            if not self.lives(life):
                return
            del self.deferred[number]
            invariants.answered(self.offsets.leads(index), request, response, known)
            if isinstance(request, SyncGroupRequest) and getattr(response, "error_code", 1) == 0:
                self.moment("sync answered")
            respond(response)

        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda done: answered(done.result()))
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
                if self.lives(life):
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
        log.append(self.offsets, self.offsets.epochs.get(index, -1), write, appended)

    def _find(self, group_id: str) -> FindCoordinatorResponse:
        leader = self.partitions[self.groups.partition_for(group_id)].leader
        found = Coordinator(key=group_id, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1)
        if leader is not None and leader.alive:
            node_id = self.world.chance.randint(1, 2) if self.world.happens(0.1) else leader.node.node_id
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


def _group_of(request: Any) -> str:
    """The group id of a request."""
    group_id: str = request.group_id
    return group_id
