"""Consumers: the client's own member machine, and a program that polls, processes, commits, stalls and dies."""

from collections.abc import Callable, Sequence
from typing import Any

from barnabas_client.assignors import RangeAssignor
from barnabas_client.membership.classic import ClassicMember
from barnabas_client.membership.effects import Assign, CountPartitions, Disconnect, Fail, Revoke, Send
from barnabas_client.membership.member import MemberConfig, MemberState
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas_protocol.schema import Response
from tests.sim.cluster import Node
from tests.sim.invariants import Invariants
from tests.sim.network import Connection
from tests.sim.world import Timer, World

TOPIC = "topic"
#: Tickets of the program's own requests, beside those of the machine.
_OWN = 1_000_000_000
#: Errors with which a membership may fail for good: those of a second process with an instance id, and of a full disk.
_EXPECTED = (
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class Consumer:
    """One consumer process.

    Attributes:
        alive: whether the process is there.
        group: that it is a member of.
        held: partitions that the program works on.
        generation: in which it was given them.
        instance: its instance id, if it is a static member.
        counted: for how many partitions it found the topic to have when it became leader last.
        retired: whether another process has its instance id now, so that it must not come back.
        gave_up: called when its membership failed for good.
    """

    def __init__(
        self,
        world: World,
        invariants: Invariants,
        group: str,
        name: str,
        instance: str | None,
        nodes: Sequence[Node],
        partitions: int,
    ) -> None:
        self.world = world
        self._invariants = invariants
        self.group = group
        self.name = name
        self.instance = instance
        self.alive = True
        self.held: frozenset[int] = frozenset()
        self.generation = -1
        self.retired = False
        self.counted = -1
        #: The last answer to a JoinGroup that succeeded, and the ticket of the last question for partitions.
        self._joined: JoinGroupResponse | None = None
        self._counting = -1
        self.gave_up: Callable[[Consumer], None] = lambda consumer: None
        self._nodes = nodes
        self._partitions = partitions
        self._positions: dict[int, int] = {}
        self._machine = self._member(
            MemberConfig(
                group_id=group,
                instance_id=instance,
                session_timeout=6.0,
                heartbeat_interval=2.0,
                max_poll_interval=12.0,
                rebalance_timeout=12.0,
                request_timeout=8.0,
            )
        )
        self._connections: dict[int, Connection] = {}
        self._timer: Timer | None = None
        self._own: dict[int, Callable[[Response | None], None]] = {}
        self._own_tickets = _OWN
        self._stalled_until = 0.0
        self._later: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def _member(self, config: MemberConfig) -> Any:
        """The state machine of the membership."""
        return ClassicMember(config, [RangeAssignor()], lambda: self.world.between(0.8, 1.2))

    @property
    def stable(self) -> bool:
        awake = self._stalled_until <= self.world.now
        return self.alive and awake and self._machine.standing.state is MemberState.STABLE

    @property
    def leads_by_return(self) -> bool:
        """Whether it is a static leader that came back and received skip_assignment (KIP-814).

        It cannot know for how many partitions that was made, so what the topic grew by while it was away is unassigned
        until the next rebalance. Kafka's own client takes the topics as it finds them then for what was assigned, too;
        from there on both watch them.
        """
        joined = self._joined
        return self._machine.is_leader and joined is not None and joined.skip_assignment

    def start(self) -> None:
        """Subscribe and begin to poll."""
        self.world.note("%s starts", self.name)
        self._take(self._subscribe())
        self._poll()

    def _subscribe(self) -> Any:
        """The effects of subscribing."""
        return self._machine.subscribe([TOPIC], self.world.now)

    def kill(self) -> None:
        """Die without goodbye."""
        if self.alive:
            self.world.note("%s dies", self.name)
            self._end()

    def leave(self) -> None:
        """Close: commit nothing, say goodbye."""
        if self.alive and self._stalled_until <= self.world.now:
            self.world.note("%s leaves", self.name)
            for effect in self._machine.leave("the consumer is being closed", self.world.now):
                if isinstance(effect, Send):
                    self._send(effect)
            self._end()

    def stall(self, seconds: float) -> None:
        """Stand still, as in a long garbage collection: what comes meanwhile waits."""
        if self.alive:
            self.world.note("%s stalls for %.1f s", self.name, seconds)
            self._stalled_until = max(self._stalled_until, self.world.now + seconds)
            self.world.at(self._stalled_until, self._wake)

    def topic_grew(self, partitions: int) -> None:
        """The client's metadata shows that the topic has more partitions."""
        self._partitions = max(self._partitions, partitions)
        self._event(self._grown)

    def _grown(self) -> None:
        self._take(self._machine.metadata_changed({TOPIC: self._partitions}, self.world.now))

    def network_lost(self, node: Node) -> None:
        """A broker died, or the network between."""
        connection = self._connections.get(node.node_id)
        if connection is not None:
            connection.break_("the broker's death")

    def _end(self) -> None:
        self.alive = False
        self.held = frozenset()
        for connection in self._connections.values():
            connection.close()
        if self._timer is not None:
            self._timer.cancel()

    # The machine's effects

    def _event(self, event: Callable[..., None], *args: Any) -> None:
        """Something comes in; it waits if the process stands still."""
        if not self.alive:
            return
        if self._stalled_until > self.world.now:
            self._later.append((event, args))
        else:
            event(*args)

    def _wake(self) -> None:
        if self._stalled_until <= self.world.now:
            later, self._later = self._later, []
            for event, args in later:
                self._event(event, *args)

    def _take(self, effects: Sequence[Any]) -> None:
        """Carry out what the machine wants done, and set its timer."""
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Revoke):
                # The program gives them up when it polls next.
                self.world.after(self.world.between(0.0, 0.6), self._event, self._release, effect)
            elif isinstance(effect, Assign):
                self._assigned(frozenset(partition.partition for partition in effect.partitions), effect.generation)
            elif isinstance(effect, CountPartitions):
                self._counting = effect.ticket
                self.world.after(self.world.between(0.0, 0.05), self._event, self._count, effect.ticket)
            elif isinstance(effect, Disconnect):
                connection = self._connections.pop(effect.coordinator.node_id, None)
                if connection is not None:
                    connection.close()
            elif isinstance(effect, Fail):
                self.world.note("%s gives up: %s", self.name, effect.error)
                self.retired = effect.error.code == ErrorCode.FENCED_INSTANCE_ID
                if effect.error.code not in _EXPECTED:
                    self.world.fail(f"{self.name} gives up: {effect.error}")
                self._end()
                self.gave_up(self)
                return
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._machine.standing.next_deadline()
        if deadline is not None:
            self._timer = self.world.at(max(deadline, self.world.now), self._event, self._tick)

    def _tick(self) -> None:
        self._take(self._machine.standing.tick(self.world.now))

    def _count(self, ticket: int) -> None:
        joined = self._joined
        if ticket == self._counting and joined is not None:
            self.counted = self._partitions
            if not joined.skip_assignment:
                self._invariants.assigned[joined.generation_id] = self._partitions
        self._take(self._machine.counted(ticket, {TOPIC: self._partitions}, self.world.now))

    def _release(self, effect: Revoke) -> None:
        if not effect.lost and self._machine.generation == effect.generation:
            self._commit()
        gone = {partition.partition for partition in effect.partitions}
        self.held -= gone
        self._take(self._machine.revoked(effect.ticket, self.world.now))

    def _send(self, effect: Send) -> None:
        if effect.to is None:
            node = self.world.chance.choice(self._nodes)
        else:
            node = self._nodes[effect.to.node_id - 1]
        self._connect(node).send(effect.ticket, effect.request, effect.timeout)

    def _connect(self, node: Node) -> Connection:
        connection = self._connections.get(node.node_id)
        if connection is None or not connection.open:
            connection = Connection(
                self.world,
                self.name,
                node,
                lambda ticket, response: self._event(self._answered, ticket, response),
                lambda ticket: self._event(self._failed, ticket),
            )
            self._connections[node.node_id] = connection
        return connection

    def _answered(self, ticket: int, response: Response) -> None:
        own = self._own.pop(ticket, None)
        if own is not None:
            own(response)
        else:
            if isinstance(response, JoinGroupResponse) and response.error_code == ErrorCode.NONE:
                self._joined = response
            self._take(self._machine.answered(ticket, response, self.world.now))

    def _failed(self, ticket: int) -> None:
        own = self._own.pop(ticket, None)
        if own is not None:
            own(None)
        else:
            error = KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection broke")
            self._take(self._machine.failed(ticket, error, self.world.now))

    # The program

    def _poll(self) -> None:
        if not self.alive:
            return
        self._take(self._machine.standing.polled(self.world.now))
        if self.world.chance.random() < 0.1:
            self._grown()  # Metadata is refreshed now and then.
        for partition in self.held & self._positions.keys():
            self._positions[partition] += self.world.chance.randint(0, 3)
        if self.world.chance.random() < 0.25:
            self._commit()
        self.world.after(self.world.between(0.3, 0.6), self._event, self._poll)

    def _ask(self, request: Any, then: Callable[[Response | None], None]) -> None:
        """A request of the program's own, to the coordinator."""
        coordinator = self._machine.standing.coordinator
        if coordinator is None:
            then(None)
            return
        self._own_tickets += 1
        self._own[self._own_tickets] = then
        self._connect(self._nodes[coordinator.node_id - 1]).send(self._own_tickets, request, 8.0)

    def _assigned(self, partitions: frozenset[int], generation: int) -> None:
        self.held, self.generation = partitions, generation
        self._positions = {}
        self.world.note("%s holds %s in generation %d", self.name, sorted(partitions), generation)
        if partitions:
            self._fetch(generation)

    def _fetch(self, generation: int) -> None:
        """Where the program continues: at the committed offsets."""
        if not self.alive or self.generation != generation or not self.held:
            return
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=sorted(self.held))]
        groups = [OffsetFetchRequestGroup(group_id=self.group, topics=topics)]
        request = OffsetFetchRequest(groups=groups, require_stable=True)  # as the client's consumer does

        def then(response: Response | None) -> None:
            if self.generation != generation:
                return
            if isinstance(response, OffsetFetchResponse) and response.groups[0].error_code == ErrorCode.NONE:
                for found in response.groups[0].topics[0].partitions:
                    self._positions[found.partition_index] = max(found.committed_offset, 0)
            else:
                self.world.after(0.3, self._event, self._fetch, generation)

        self._ask(request, then)

    def _commit(self) -> None:
        positions = {partition: self._positions[partition] for partition in self.held & self._positions.keys()}
        try:
            identity = self._machine.view().commit_identity()
        except KafkaError:
            return
        if not positions or identity.generation != self.generation:
            return
        partitions = [
            OffsetCommitRequestPartition(partition_index=p, committed_offset=o, committed_metadata="")
            for p, o in sorted(positions.items())
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.instance_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )

        def then(response: Response | None) -> None:
            if isinstance(response, OffsetCommitResponse):
                codes = {p.error_code for t in response.topics for p in t.partitions}
                for code in codes - {ErrorCode.NONE}:
                    effects = self._machine.commit_refused(ErrorCode.of(code), identity.generation, self.world.now)
                    self._take(effects)

        self._invariants.commit_leaves(request)
        self._ask(request, then)
