"""The machine of a share group: joins, leaves, fences, sessions, assignment; and memory equals replay."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.metadata_hash import group_hash, topic_hash
from barnabas_broker.groups.consumer.topics import TopicCatalog
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.share.group import Decision, ShareGroup, ShareGroupSettings, ShareGroupTimes, StateTopics
from barnabas_explain.catalog import (
    EpochBumped,
    GroupEvent,
    GroupReconciled,
    ShareOffsetsAltered,
    SharePartitionsOpened,
    TargetAssigned,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import group_record
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas_protocol.records import build_batch

E = ErrorCode
T, U = bytes([1] * 16), bytes([2] * 16)
CALLER = Caller("client", "/127.0.0.1")
SESSION = 45.0


@dataclass
class Driver:
    """A machine that carries out its decisions, as the runtime does."""

    size: int = 200
    now: float = 0.0
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    events: list[GroupEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog = TopicCatalog(topic_hash, group_hash)
        self.catalog.update([Topic(T, "t", 2, ()), Topic(U, "u", 1, ())])
        self.settings = ShareGroupSettings(self.catalog, lambda group_id: ShareGroupTimes(SESSION, 5000), self.size)
        self.group = ShareGroup("g", self.settings)

    def do(self, decision: Decision) -> object:
        for record in decision.records:
            self.log.append(group_record(record))
            self.group.apply(record)
        self.events += decision.events
        return decision.response

    def beat(
        self, member: str = "a", epoch: int = 0, topics: Sequence[str] | None = ("t",), rack: str | None = None
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id=member,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        response = self.do(self.group.heartbeat(request, CALLER, self.now))
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def initialize(self) -> StateTopics:
        missing = self.group.missing
        self.do(self.group.begin(missing))
        self.do(self.group.have_states(missing))
        return missing

    def replayed(self) -> ShareGroup:
        return self._replay(self.log)

    def replayed_after_compaction(self, *, tombstones: bool) -> ShareGroup:
        newest = {key: (at, value) for at, (key, value) in enumerate(self.log)}
        left = sorted((at, key, value) for key, (at, value) in newest.items() if tombstones or value is not None)
        return self._replay([(key, value) for _, key, value in left])

    def _replay(self, log: Sequence[tuple[bytes, bytes | None]]) -> ShareGroup:
        replay = Replay(lambda offset, reason: None, 0, lambda group_id: ShareGroup(group_id, self.settings))
        batch = build_batch([(key, value, (), 0) for key, value in log]) if log else b""
        assert list(replay.feed(batch)) == []
        return replay.share_groups.get("g") or ShareGroup("g", self.settings)


@pytest.fixture
def driver() -> Driver:
    """A group with the member "a", which has the partitions of its topic."""
    driver = Driver()
    assert driver.beat().error_code == E.NONE
    driver.initialize()
    driver.beat(epoch=driver.group.members["a"].epoch, topics=None)
    return driver


def assignment(response: ShareGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    if response.assignment is None:
        return None
    return {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}


def test_a_member_gets_what_has_a_state() -> None:
    driver = Driver()
    first = driver.beat()
    assert (first.error_code, first.member_id, first.member_epoch) == (E.NONE, "a", 2)
    assert (first.heartbeat_interval_ms, assignment(first)) == (5000, {})
    assert driver.initialize() == {T: ("t", frozenset({0, 1}))}
    assert driver.group.missing == {}
    later = driver.beat(epoch=2, topics=None)
    assert (later.member_epoch, assignment(later)) == (3, {T: [0, 1]})
    assert assignment(driver.beat(epoch=3, topics=None)) is None
    assert assignment(driver.beat(epoch=3)) == {T: [0, 1]}, "to a heartbeat that says everything"
    assert [event.type for event in driver.events] == [
        *("member_joined", "group_epoch_bumped", "target_assigned", "group_reconciled"),
        *("share_partitions_opened", "group_epoch_bumped", "target_assigned", "group_reconciled"),
    ]
    assert caused(driver) == ["member_joined", "share_partitions_opened"]
    opened = next(event for event in driver.events if isinstance(event, SharePartitionsOpened))
    assert opened.partitions == {"t": [0, 1]}


def caused(driver: Driver) -> list[str]:
    """The causes of the epochs so far."""
    return [event.cause for event in driver.events if isinstance(event, EpochBumped)]


def test_what_members_gain_and_when_all_have_it_are_events(driver: Driver) -> None:
    driver.events.clear()
    driver.beat("b")
    driver.now = 3.0
    assert [event.type for event in driver.events] == ["member_joined", "group_epoch_bumped", "target_assigned"]
    driver.beat("a", epoch=driver.group.members["a"].epoch, topics=None)
    assigned, reconciled = driver.events[-2:]
    assert isinstance(assigned, TargetAssigned) and assigned.moves is not None
    assert [(move.member.member_id, move.gained, move.lost) for move in assigned.moves] == [
        ("a", {}, {"t": [1]}),
        ("b", {"t": [1]}, {}),
    ]
    assert isinstance(reconciled, GroupReconciled)
    assert (reconciled.generation, reconciled.took_ms, reconciled.members) == (driver.group.epoch, 3_000, 2)


def test_a_lost_response_costs_nothing(driver: Driver) -> None:
    """The member goes on with the epoch before."""
    epoch = driver.group.members["a"].epoch
    assert driver.group.members["a"].previous_epoch == epoch - 1
    again = driver.beat(epoch=epoch - 1, topics=None)
    assert (again.error_code, again.member_epoch, assignment(again)) == (E.NONE, epoch, {T: [0, 1]})


@pytest.mark.parametrize("delta", [-2, 1, 100])
def test_other_epochs_are_fenced(driver: Driver, delta: int) -> None:
    response = driver.beat(epoch=driver.group.members["a"].epoch + delta, topics=None)
    assert response.error_code == E.FENCED_MEMBER_EPOCH


def test_the_others_get_what_a_member_leaves(driver: Driver) -> None:
    second = driver.beat("b")
    assert assignment(second) == {T: [1]}
    first = driver.beat("a", epoch=driver.group.members["a"].epoch, topics=None)
    assert assignment(first) == {T: [0]} and first.member_epoch == second.member_epoch
    left = driver.beat("b", epoch=-1, topics=None)
    assert (left.error_code, left.member_epoch) == (E.NONE, -1)
    assert assignment(driver.beat("a", epoch=first.member_epoch, topics=None)) == {T: [0, 1]}
    assert driver.beat("b", epoch=second.member_epoch, topics=None).error_code == E.UNKNOWN_MEMBER_ID
    driver.beat("a", epoch=-1, topics=None)
    assert driver.group.state == "Empty" and not driver.group.gone
    assert driver.events[-1].type == "group_empty"


def test_sessions_end(driver: Driver) -> None:
    driver.now = 1.0
    driver.beat("b")
    assert driver.group.next_deadline() == SESSION
    driver.do(driver.group.expire(SESSION - 0.1))
    assert set(driver.group.members) == {"a", "b"}
    driver.do(driver.group.expire(SESSION))
    assert set(driver.group.members) == {"b"} and set(driver.group.targets) == {"b"}
    assert driver.group.next_deadline() == SESSION + 1
    expired = next(event for event in driver.events if event.type == "member_expired")
    assert expired.values()["heard_ago_ms"] == SESSION * 1000


def test_a_join_that_was_not_written_leaves_no_deadline(driver: Driver) -> None:
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id="b", member_epoch=0, rack_id=None, subscribed_topic_names=["t"]
    )
    driver.group.heartbeat(request, CALLER, -10.0)  # its append fails
    assert driver.group.next_deadline() == SESSION - 10
    assert driver.group.expire(SESSION - 5).records == ()
    assert driver.group.next_deadline() == SESSION


def test_a_topic_that_grows_is_assigned_when_it_has_states(driver: Driver) -> None:
    driver.catalog.update([Topic(T, "t", 3, ())])
    epoch = driver.group.members["a"].epoch
    assert driver.beat(epoch=epoch, topics=None).member_epoch == epoch + 1
    assert driver.initialize() == {T: ("t", frozenset({2}))}
    assert assignment(driver.beat(epoch=epoch + 1, topics=None)) == {T: [0, 1, 2]}
    assert caused(driver)[-2:] == ["topic_changed", "share_partitions_opened"]


def test_a_topic_that_is_deleted_is_taken_back(driver: Driver) -> None:
    driver.catalog.update([], ["t"])
    driver.do(driver.group.have_no_states([T]))
    epoch = driver.group.members["a"].epoch
    assert assignment(driver.beat(epoch=epoch, topics=None)) == {}
    assert driver.group.initialized == {}
    assert driver.group.have_no_states([T]).records == ()


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "rack"),
    [
        ("", 0, ("t",), None),
        ("  ", 0, ("t",), None),
        ("a", 0, None, None),
        ("a", 0, (), None),
        ("a", -2, ("t",), None),
        ("a", 0, ("t",), ""),
        ("a" * 40_000, 0, ("t",), None),
    ],
)
def test_invalid_heartbeats(member: str, epoch: int, topics: Sequence[str] | None, rack: str | None) -> None:
    driver = Driver()
    assert driver.beat(member, epoch, topics, rack).error_code == E.INVALID_REQUEST
    assert driver.group.gone and not driver.log


def test_a_subscription_that_no_record_can_hold_is_refused() -> None:
    assert Driver().beat(topics=["t" * 200] * 2000).error_code == E.UNKNOWN_SERVER_ERROR


def test_members_without_a_group_and_groups_that_are_full() -> None:
    driver = Driver(size=1)
    assert driver.beat(epoch=3).error_code == E.GROUP_ID_NOT_FOUND
    assert driver.beat(epoch=-1).error_code == E.GROUP_ID_NOT_FOUND
    assert driver.beat().error_code == E.NONE
    assert driver.beat("b").error_code == E.GROUP_MAX_SIZE_REACHED
    assert driver.beat().error_code == E.NONE, "it joins again"


def test_only_empty_groups_are_deleted_and_begin_again(driver: Driver) -> None:
    topics: StateTopics = {T: ("t", frozenset({0}))}
    assert driver.do(driver.group.delete()) is E.NON_EMPTY_GROUP
    assert driver.do(driver.group.begin_again(topics)) is E.NON_EMPTY_GROUP
    driver.beat(epoch=-1, topics=None)
    epoch = driver.group.epoch
    assert driver.do(driver.group.begin_again(topics)) is E.NONE
    assert driver.group.epoch == epoch + 1
    assert driver.group.initializing == topics and driver.group.initialized[T][1] == {0, 1}
    altered, bumped = driver.events[-2:]
    assert isinstance(altered, ShareOffsetsAltered) and altered.partitions == {"t": [0]}
    assert isinstance(bumped, EpochBumped) and bumped.cause == altered.type
    before = len(driver.events)
    driver.do(driver.group.have_states(topics))
    assert driver.events[before:] == [], "these partitions had states before"
    assert driver.do(driver.group.delete()) is E.NONE
    assert driver.group.gone and driver.replayed().gone


def test_compaction_may_leave_any_record_of_a_group_as_its_first(driver: Driver) -> None:
    """The states are not created anew after a failover: they would begin at another offset."""
    epoch = driver.group.members["a"].epoch
    driver.beat("b")
    driver.beat("a", epoch, rack="elsewhere")  # describes the member after its assignment
    replayed = driver.replayed_after_compaction(tombstones=False)
    assert replayed.initialized == driver.group.initialized != {}
    assert replayed.members == driver.group.members and replayed.targets == driver.group.targets


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("beat"),
            st.sampled_from("abcd"),
            st.sampled_from([0, 0, 1, -1, None]),
            st.sampled_from([None, ("t",), ("u",), ("t", "u"), ("missing",)]),
        ),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 20.0, 50.0])),
        st.tuples(st.just("initialize")),
        st.tuples(st.just("grow"), st.integers(1, 4)),
        st.tuples(st.just("forget")),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(steps)
def test_memory_equals_replay_and_every_member_has_its_target(steps: list[tuple[object, ...]]) -> None:
    driver = Driver()
    for step in steps:
        group = driver.group
        match step:
            case ("beat", str(member), epoch, topics):
                known = group.members.get(member)
                current = known.epoch if known is not None and epoch is None else epoch if isinstance(epoch, int) else 1
                assert topics is None or isinstance(topics, tuple)
                response = driver.beat(member, current, topics)
                if response.error_code == E.NONE and current != -1:
                    has = group.members[member]
                    assert has.assigned == group.targets[member] and has.epoch == group.epoch == group.assignment_epoch
            case ("wait", float(seconds)):
                driver.now += seconds
                driver.do(group.expire(driver.now))
                assert group.next_deadline() > driver.now
            case ("initialize",):
                driver.initialize()
            case ("grow", int(partitions)):
                driver.catalog.update([Topic(U, "u", partitions, ())])
            case _:
                driver.do(group.have_no_states([U]))
        for replayed in (
            driver.replayed(),
            driver.replayed_after_compaction(tombstones=True),
            driver.replayed_after_compaction(tombstones=False),
        ):
            assert (replayed.members, replayed.targets) == (group.members, group.targets)
            assert (replayed.epoch, replayed.metadata_hash) == (group.epoch, group.metadata_hash)
            assert (replayed.initialized, replayed.initializing) == (group.initialized, group.initializing)
            assert replayed.assignment_epoch == group.assignment_epoch and replayed.state == group.state
