"""Runs of groups whose members use the classic or the consumer protocol, and change it when they are restarted.

The same brokers, log, network and faults as in :mod:`tests.sim.scenario`; our client's two state machines. A group is
upgraded and downgraded as its members come and go. The invariants, beside those about commits and deferred responses:

- a partition has one owner in the clients' view: two members that the coordinator knows in their epochs do not hold it;
- the epoch of a member does not go back;
- once faults stop, every live member owns its part, every partition has an owner, and no member is dead.
"""

from random import Random
from typing import Any

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_client.assignors import Assignor, CooperativeStickyAssignor, RangeAssignor
from barnabas_client.membership.classic import ClassicMember
from barnabas_client.membership.consumer_member import ConsumerMember
from barnabas_client.membership.effects import NameTopics
from barnabas_client.membership.member import MemberConfig
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas_protocol.messages.join_group import JoinGroupRequest
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas_protocol.messages.sync_group import SyncGroupRequest
from barnabas_protocol.schema import Request, Response
from tests.sim.invariants import Commit, Invariants
from tests.sim.members import TOPIC, Consumer
from tests.sim.scenario import Scenario

TOPIC_ID = b"t" * 16


class MixedInvariants(Invariants):
    """The rules of a group whose members have epochs of their own."""

    def snapshot(self) -> tuple[dict[int, Commit], int]:
        # Commits of older epochs are accepted as long as the member owns the partition (KIP-1251).
        return dict(self.last), -1

    def _overtaken(self, late: OffsetCommitRequest, before: OffsetCommitRequest) -> bool:
        # A commit of the same member may arrive late over a connection that broke, in a later epoch, too.
        return late.member_id == before.member_id

    def answered(self, leads: bool, request: Request, response: Response, known: Any) -> None:
        if isinstance(request, SyncGroupRequest | JoinGroupRequest):
            return
        if isinstance(request, ConsumerGroupHeartbeatRequest) and isinstance(response, ConsumerGroupHeartbeatResponse):
            if response.error_code == ErrorCode.NONE and 0 < response.member_epoch < request.member_epoch:
                self.world.fail(f"the epoch of {request.member_id} goes back to {response.member_epoch}: {request}")
            return
        super().answered(leads, request, response, known)


class Member(Consumer):
    """A consumer of either protocol."""

    @property
    def member_id(self) -> str:
        member_id: str = self._machine.member_id
        return member_id

    @property
    def epoch(self) -> int:
        """Its generation, or its member epoch."""
        raise NotImplementedError


class Classic(Member):
    """A consumer of the classic protocol."""

    def __init__(self, assignors: list[Assignor], *arguments: Any) -> None:
        self._assignors = assignors
        super().__init__(*arguments)

    def _member(self, config: MemberConfig) -> Any:
        return ClassicMember(config, self._assignors, lambda: self.world.between(0.8, 1.2))

    @property
    def epoch(self) -> int:
        generation: int = self._machine.generation
        return generation


class Modern(Member):
    """A consumer of the consumer protocol: partitions come and go one by one."""

    def _member(self, config: MemberConfig) -> Any:
        number = self.world.chance.getrandbits(32)
        return ConsumerMember(
            config._replace(protocol="consumer"), f"{self.name}-{number:08x}", lambda: self.world.between(0.8, 1.2)
        )

    @property
    def epoch(self) -> int:
        epoch: int = self._machine.epoch
        return epoch

    @property
    def leads_by_return(self) -> bool:
        return False

    def _grown(self) -> None:
        """The coordinator watches the topics."""

    def _take(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, NameTopics):
                self.world.after(self.world.between(0.0, 0.05), self._event, self._named, effect.ticket)
        super()._take(effects)

    def _named(self, ticket: int) -> None:
        self._take(self._machine.named(ticket, {TOPIC_ID: TOPIC}, self.world.now))

    def _release(self, effect: Any) -> None:
        if not effect.lost:
            self._commit()
        gone = {partition.partition for partition in effect.partitions}
        self.held -= gone
        for partition in gone:
            self._positions.pop(partition, None)
        self._take(self._machine.revoked(effect.ticket, self.world.now))

    def _assigned(self, partitions: frozenset[int], generation: int) -> None:
        self.held, self.generation = partitions, generation
        self._positions = {each: offset for each, offset in self._positions.items() if each in partitions}
        self.world.note("%s holds %s in epoch %d", self.name, sorted(partitions), generation)
        self._fetch(generation)

    def _fetch(self, generation: int) -> None:
        missing = self.held - self._positions.keys()
        if not self.alive or self.generation != generation or not missing:
            return
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=sorted(missing))]
        groups = [OffsetFetchRequestGroup(group_id=self.group, topics=topics)]
        request = OffsetFetchRequest(groups=groups, require_stable=True)  # as the client's consumer does

        def then(response: Response | None) -> None:
            if self.generation != generation:
                return
            if isinstance(response, OffsetFetchResponse) and response.groups[0].error_code == ErrorCode.NONE:
                for found in response.groups[0].topics[0].partitions:
                    if found.partition_index in self.held:
                        self._positions[found.partition_index] = max(found.committed_offset, 0)
            else:
                self.world.after(0.3, self._event, self._fetch, generation)

        self._ask(request, then)

    def _commit(self) -> None:
        # An epoch grows without a new assignment: the program commits in the epoch of the membership.
        if self._machine.epoch > 0:
            before, self.generation = self.generation, self._machine.epoch
            super()._commit()
            self.generation = before


class MixedScenario(Scenario):
    """A run with a seed whose groups have members of both protocols."""

    def __init__(self, seed: int) -> None:
        self._choice = Random(f"protocols {seed}")
        self._bias = self._choice.choice((0.2, 0.5, 0.8))
        super().__init__(seed)
        self.transactional = set()
        assignors: tuple[Assignor, ...] = (RangeAssignor(), CooperativeStickyAssignor())
        self._assignors = {group: self._choice.choice(assignors) for group in self.groups}
        self._grew()

    def _rules(self) -> Invariants:
        return MixedInvariants(self.world)

    def _consumer(self, group: str, arguments: Any) -> Consumer:
        if self._choice.random() < self._bias:
            return Modern(*arguments)
        return Classic([self._assignors[group]], *arguments)

    def _gave_up(self, consumer: Consumer) -> None:
        # An instance id is not released while the process that has it lives, or until its session is over.
        alive = [each for each in self._alive(consumer.group) if each.instance == consumer.instance]
        if consumer.instance is None or not alive:
            super()._gave_up(consumer)

    def _grew(self) -> None:
        for node in self.nodes:
            node.topics_changed([Topic(TOPIC_ID, TOPIC, self.partitions)])

    def _check(self) -> None:
        for group in self.groups:
            self._check_owners(group)
        if self.world.now >= self._check_at:
            self._check_at = self.world.now + 5.0
            self._check_deferred()
            self._check_memory()

    def _check_owners(self, group: str) -> None:
        """Two members that the coordinator knows, each in its epoch, do not hold the same partition."""
        leader = self._log_of(group).leader
        hosted = None if leader is None or not leader.alive else leader.node.groups.groups.get(group)
        if hosted is None:
            return
        owners: dict[int, Member] = {}
        machine = hosted.group
        for consumer in self.consumers.values():
            if not consumer.held or not consumer.alive or consumer.group != group or not isinstance(consumer, Member):
                continue
            if isinstance(machine, ConsumerGroup):
                known = machine.members.get(consumer.member_id)
                # It may not have received the response with its newest epoch yet.
                if known is None or consumer.epoch not in (known.epoch, known.previous_epoch):
                    continue
            elif consumer.member_id not in machine.members.by_id or consumer.generation != machine.generation:
                continue
            for partition in consumer.held:
                other = owners.setdefault(partition, consumer)
                if other is not consumer:
                    self.world.fail(f"{other.name} and {consumer.name} hold partition {partition} of {group}")

    def _stable(self, group: str) -> bool:
        alive = self._alive(group)
        log = self._log_of(group)
        if not log.works or log.leader is None or not alive:
            return super()._stable(group)
        hosted = log.leader.node.groups.groups.get(group)
        if hosted is None or not isinstance(hosted.group, ConsumerGroup):
            return super()._stable(group)
        held = sorted(partition for consumer in alive for partition in consumer.held)
        return (
            all(consumer.stable for consumer in alive)
            and held == list(range(self.partitions))
            and hosted.group.state.value == "Stable"
            and len(hosted.group.members) == len(alive)
        )


def run_mixed_seed(seed: int) -> MixedScenario:
    """Run one seed.

    Raises:
        Violation: an invariant does not hold; the text starts with the seed.
    """
    scenario = MixedScenario(seed)
    scenario.run()
    return scenario
