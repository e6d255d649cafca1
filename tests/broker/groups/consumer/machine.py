"""The machine of a group of the consumer protocol, with a clock that tests move and requests with short arguments."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from barnabas_broker.groups.consumer.assignment import Assign, GroupSpec, NewTargets, Topic
from barnabas_broker.groups.consumer.classic_members import MigrationPolicy
from barnabas_broker.groups.consumer.group import ConsumerGroup, Downgrade
from barnabas_broker.groups.consumer.regex import Resolve
from barnabas_broker.groups.consumer.settings import ConsumerGroupSettings, GroupTimes
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_broker.groups.consumer.topics import TopicCatalog
from barnabas_broker.groups.effects import Caller, Persist, Reply
from barnabas_broker.groups.embedded_protocol import read_assignment
from barnabas_broker.regexes import Regex
from barnabas_broker.steps import finish
from barnabas_explain.catalog import GroupEvent
from barnabas_protocol.coordinator_records import CoordinatorRecord
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_protocol.messages.leave_group import MemberIdentity
from barnabas_protocol.messages.sync_group import SyncGroupRequest
from tests.broker.groups.support import owned_subscription

CALLER = Caller("client", "/127.0.0.1")
T = b"t" * 16
U = b"u" * 16

E = TypeVar("E", bound=GroupEvent)


def spread(spec: GroupSpec) -> dict[str, dict[bytes, list[int]]]:
    """A simple assignor: the partitions of a topic go to its subscribers in turn."""
    target: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in spec.members}
    for topic_id, topic in sorted(spec.topics.items()):
        subscribers = sorted(each for each, member in spec.members.items() if topic_id in member.topic_ids)
        for partition in range(topic.partitions if subscribers else 0):
            target[subscribers[partition % len(subscribers)]].setdefault(topic_id, []).append(partition)
    return target


def catalog(**topics: int) -> TopicCatalog:
    """Topics by name, with their number of partitions; the id is sixteen times the first letter."""
    made = TopicCatalog(lambda topic: topic.partitions * 31 + topic.topic_id[0], lambda hashes: sum(hashes.values()))
    replace_topics(made, topics)
    return made


def replace_topics(topics: TopicCatalog, sizes: Mapping[str, int]) -> None:
    """From now on these topics exist, with these numbers of partitions, and no others."""
    topics.update(
        (Topic(name[0].encode() * 16, name, size) for name, size in sizes.items()), topics.by_name.keys() - sizes
    )


@dataclass
class Machine:
    """A group, the time, and the effects of the group so far.

    Attributes:
        hold: whether appends wait in `appends` for :meth:`persisted`, instead of succeeding at once.
        compute: whether targets are computed at once; else the effects wait in `computations`.
        resolve: whether regular expressions are resolved at once; else the effects wait in `resolutions`.
        caller: the client of each request.
        migration: the policy of the group.
        classic_max_size: the size of the classic group that it may become.
        answers: the last response by token.
        records: the records in the log, oldest first.
        events: the group events.
        downgrades: the downgrade, when it has happened.
    """

    topics: TopicCatalog = field(default_factory=lambda: catalog(t=4))
    max_size: int = 2**31 - 1
    interval: float = 0.0
    own_times: dict[str, GroupTimes] = field(default_factory=dict)
    hold: bool = False
    compute: bool = True
    resolve: bool = True
    caller: Caller = CALLER
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic_max_size: int = 2**31 - 1
    now: float = 100.0
    wall_ms: int = 1_000_000
    answers: dict[str, Any] = field(default_factory=dict)
    appends: deque[Persist] = field(default_factory=deque)
    computations: list[Assign] = field(default_factory=list)
    resolutions: list[Resolve] = field(default_factory=list)
    records: list[CoordinatorRecord] = field(default_factory=list)
    events: list[GroupEvent] = field(default_factory=list)
    downgrades: list[Downgrade] = field(default_factory=list)

    def __post_init__(self) -> None:
        ids = count(1)
        self.settings = ConsumerGroupSettings(
            new_id=lambda: f"id{next(ids)}",
            assignors=("uniform", "range"),
            topics=self.topics,
            times=GroupTimes(assignment_interval=self.interval),
            own_times=self.own_times,
            max_size=self.max_size,
            migration=self.migration,
            classic_max_size=self.classic_max_size,
        )
        self.group = ConsumerGroup("g", self.settings, self.now)

    def state(self) -> ConsumerGroupState:
        """The group's state."""
        return self.group.state

    def send(self, member_id: str, epoch: int, token: str = "", version: int = 1, **fields: Any) -> Any:
        """Send a heartbeat; its response, or None if that is deferred."""
        token = token or member_id
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                HeartbeatTopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        self.answers.pop(token, None)
        self.apply(self.group.heartbeat(request, version, self.caller, token, self.now))
        return self.answers.get(token)

    def join(self, member_id: str, *topics: str, **fields: Any) -> Any:
        """Join with epoch 0."""
        names = list(topics or ("t",))
        return self.send(
            member_id, 0, **{"owned": {}, "rebalance_timeout_ms": 30_000, "subscribed_topic_names": names, **fields}
        )

    def join_classic(
        self,
        member_id: str,
        *topics: str,
        owned: Mapping[str, Any] | None = None,
        token: str = "",
        version: int = 9,
        instance: str | None = None,
        session: int = 10_000,
        rebalance: int = 60_000,
        protocols: tuple[str, ...] = ("cooperative-sticky", "range"),
        protocol_type: str = "consumer",
        metadata: bytes | None = None,
    ) -> Any:
        """JoinGroup of a member of the classic protocol; its response, or None if that is deferred."""
        token = token or member_id or "new"
        if metadata is None:
            metadata = owned_subscription(owned or {}, *(topics or ("t",)))
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance if version >= 1 else -1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols],
        )
        self.answers.pop(token, None)
        self.apply(self.group.join(request, version, self.caller, token, self.now))
        return self.answers.get(token)

    def sync(self, member_id: str, generation: int | None = None, **fields: Any) -> Any:
        """SyncGroup of a member of the classic protocol; its response, or None if that is deferred."""
        request = SyncGroupRequest(
            group_id="g",
            member_id=member_id,
            generation_id=self.group.members[member_id].epoch if generation is None else generation,
            assignments=[],
            **{"protocol_type": "consumer", "protocol_name": "cooperative-sticky", **fields},
        )
        self.answers.pop(member_id, None)
        self.apply(self.group.sync(request, member_id, self.now))
        return self.answers.get(member_id)

    def classic_beat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        """Heartbeat of a member of the classic protocol."""
        if generation is None:
            generation = self.group.members[member_id].epoch
        return self.group.classic_heartbeat(member_id, instance, generation, self.now)

    def leave_group(self, *members: tuple[str, str | None]) -> Any:
        """LeaveGroup of members: their ids and instance ids; the response, or None if that is deferred."""
        identities = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in members]
        self.answers.pop("leave", None)
        self.apply(self.group.leave(identities, "leave", self.now))
        return self.answers.get("leave")

    def rebalance(self, member_id: str) -> dict[str, set[int]]:
        """A member of the classic protocol rejoins until its heartbeats succeed; returns what it owns then."""
        member = self.group.members[member_id]
        topics = sorted(member.topics)
        owned: Mapping[str, Any] = {self.topics.by_id[each].name: own for each, own in member.owned().items()}
        for _ in range(5):
            self.join_classic(member_id, *topics, owned=owned, instance=member.instance_id)
            assigned, _ = read_assignment(self.sync(member_id).assignment)
            lost = any(set(own) - set(assigned.get(name, ())) for name, own in owned.items())
            owned = assigned
            if not lost and self.classic_beat(member_id, instance=member.instance_id) == ErrorCode.NONE:
                break
        return {name: set(numbers) for name, numbers in owned.items()}

    def beat(self, member_id: str, owned: Mapping[bytes, Any] | None = None, **fields: Any) -> Any:
        """A heartbeat with the member's epoch, of a member that owns what it was assigned unless told otherwise."""
        member = self.group.members[member_id]
        return self.send(member_id, member.epoch, owned=member.assigned if owned is None else owned, **fields)

    def settle(self, rounds: int = 20) -> None:
        """Heartbeats of well-behaved members until the group is stable."""
        for _ in range(rounds):
            for member_id in list(self.group.members):
                if self.group.members[member_id].epoch >= 0:
                    self.beat(member_id)

    def settle_mixed(self, rounds: int = 6) -> None:
        """Well-behaved members of both protocols until the group is stable."""
        for _ in range(rounds):
            for member_id, member in list(self.group.members.items()):
                if member.classic is not None:
                    if self.classic_beat(member_id, instance=member.instance_id) != ErrorCode.NONE:
                        self.rebalance(member_id)
                elif member.epoch >= 0:
                    self.beat(member_id)

    def owners(self) -> dict[tuple[bytes, int], list[str]]:
        """The members of each partition, as the group sees them."""
        out: dict[tuple[bytes, int], list[str]] = {}
        for member_id, member in self.group.members.items():
            for topic_id, partitions in member.owned().items():
                for partition in partitions:
                    out.setdefault((topic_id, partition), []).append(member_id)
        return out

    def after(self, seconds: float) -> None:
        """Move the clock to each deadline until `seconds` have passed."""
        end = self.now + seconds
        self.wall_ms += round(seconds * 1000)
        while self.group.next_deadline() <= end:
            self.now = max(self.now, self.group.next_deadline())
            self.apply(self.group.tick(self.now))
        self.now = end

    def persisted(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Report the result of the oldest append."""
        append = self.appends.popleft()
        if error == ErrorCode.NONE:
            self.records += append.records
        self.apply(self.group.persisted(append.ticket, error, self.now))

    def delayed(self) -> None:
        """Report that the oldest append takes long."""
        self.apply(self.group.persist_delayed(self.appends[0].ticket, self.now))

    def computed(self) -> None:
        """Report the oldest target."""
        asked = self.computations.pop(0)
        targets = NewTargets.of("g", asked.spec, spread(asked.spec))
        self.apply(self.group.assigned(asked.ticket, targets, self.now, self.wall_ms))

    def resolved(self, *without: str, last: bool = True) -> None:
        """Report what the expressions of the oldest resolution match; those of `without` took too long.

        They follow in a later call if this is not the `last` one.
        """
        asked = self.resolutions[0]
        if last:
            del self.resolutions[0]
        matches = {regex: finish(Regex(regex).matching(self.topics.by_name)) for regex in asked.regexes - set(without)}
        version = self.topics.names_version
        self.apply(self.group.regexes_resolved(asked.ticket, matches, version, self.now, self.wall_ms, last=last))

    def apply(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self.answers, "two responses"
                self.answers[str(effect.token)] = effect.response
            elif isinstance(effect, Persist):
                self.appends.append(effect)
                if not self.hold:
                    self.persisted()
            elif isinstance(effect, Assign):
                self.computations.append(effect)
                if self.compute:
                    self.computed()
            elif isinstance(effect, Resolve):
                self.resolutions.append(effect)
                if self.resolve:
                    self.resolved()
            elif isinstance(effect, Downgrade):
                self.downgrades.append(effect)
            else:
                self.events.append(effect)

    def of(self, event_type: type[E]) -> list[E]:
        """The events of a type."""
        return [event for event in self.events if isinstance(event, event_type)]


def partitions(response: ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    """The assignment of a response."""
    if response.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
