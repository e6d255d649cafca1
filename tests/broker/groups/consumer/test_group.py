"""The machine of a group of the consumer protocol, request by request."""

from typing import Any

import pytest

from barnabas_broker.groups.consumer.assignment import NewTargets, Topic
from barnabas_broker.groups.consumer.settings import GroupTimes
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.sightings import MemberConnection, SeenClient
from barnabas_explain.catalog import (
    EpochBumped,
    GroupReconciled,
    InstanceInUse,
    MemberExpired,
    MemberFenced,
    MemberNotRevoked,
    MemberRevoked,
    MemberRevoking,
    MemberStillRevoking,
    SubscriptionChanged,
    TargetAssigned,
)
from barnabas_protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    MemberState,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.groups.consumer.machine import CALLER, Machine, T, U, catalog, partitions


def two_members() -> Machine:
    """A stable group of `a` and `b`."""
    machine = Machine()
    machine.join("a")
    machine.join("b")
    machine.settle()
    assert machine.state() is ConsumerGroupState.STABLE
    return machine


def types_of(machine: Machine) -> list[tuple[str, bool]]:
    """The names of the records' keys without prefix and suffix, and whether they are tombstones."""
    return [
        (type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key"), value is None)
        for key, value in machine.records
    ]


def test_the_first_member_gets_everything() -> None:
    machine = Machine()
    assert machine.state() is ConsumerGroupState.EMPTY
    response = machine.join("a")
    assert (response.error_code, response.member_id, response.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert response.heartbeat_interval_ms == 5000
    assert partitions(response) == {T: [0, 1, 2, 3]}
    assert machine.state() is ConsumerGroupState.STABLE
    assert types_of(machine) == [
        ("MemberMetadata", False),
        ("Metadata", False),
        ("TargetAssignmentMember", False),
        ("TargetAssignmentMetadata", False),
        ("CurrentMemberAssignment", False),
    ]


def test_a_member_of_a_new_group_waits_in_its_initial_epoch_for_the_first_target() -> None:
    machine = Machine(compute=False)
    machine.join("a", token="a1")
    asked = machine.computations.pop()
    machine.apply(machine.group.assign_failed(asked.ticket, "no luck", machine.now))
    waiting = machine.join("a")
    assert (waiting.member_epoch, partitions(waiting)) == (1, {})
    assert (machine.group.epoch, machine.group.assignment_epoch) == (2, 1)


def test_a_member_without_topics_does_not_bump_the_epoch_of_a_new_group() -> None:
    machine = Machine()
    response = machine.join("a", subscribed_topic_names=[])
    assert (response.member_epoch, partitions(response)) == (1, {})
    assert machine.state() is ConsumerGroupState.STABLE
    assert types_of(machine) == [("MemberMetadata", False), ("CurrentMemberAssignment", False)]


def test_a_steady_heartbeat_changes_nothing() -> None:
    machine = two_members()
    before = len(machine.records)
    response = machine.send("a", machine.group.members["a"].epoch)
    assert (response.error_code, response.member_epoch, response.assignment) == (ErrorCode.NONE, 3, None)
    assert len(machine.records) == before


def test_a_second_member_waits_until_partitions_are_revoked() -> None:
    machine = Machine()
    machine.join("a")
    joined = machine.join("b")
    assert (joined.member_epoch, partitions(joined)) == (3, {})
    assert machine.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert machine.state() is ConsumerGroupState.RECONCILING
    asked = machine.send("a", 2)
    assert (asked.member_epoch, partitions(asked)) == (2, {T: [0, 2]})
    assert machine.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    still = machine.send("a", 2, owned={T: [0, 1, 2]})
    assert (still.member_epoch, still.assignment) == (2, None)
    assert partitions(machine.send("b", 3, owned={}, rebalance_timeout_ms=1, subscribed_topic_names=["t"])) == {}
    done = machine.send("a", 2, owned={T: [0, 2]})
    assert (done.member_epoch, done.assignment) == (3, None)
    assert partitions(machine.send("b", 3)) == {T: [1, 3]}
    assert machine.state() is ConsumerGroupState.STABLE
    assert machine.of(MemberRevoking)[0].partitions == {"t": [1, 3]}
    assert len(machine.of(MemberRevoked)) == 1
    assert [event.members for event in machine.of(GroupReconciled)] == [1, 2]


def test_a_member_that_leaves_gives_its_partitions_back() -> None:
    machine = two_members()
    machine.records.clear()
    response = machine.send("a", -1)
    assert (response.error_code, response.member_id, response.member_epoch) == (ErrorCode.NONE, "a", -1)
    assert types_of(machine) == [
        ("CurrentMemberAssignment", True),
        ("TargetAssignmentMember", True),
        ("MemberMetadata", True),
        ("Metadata", False),
    ]
    assert machine.state() is ConsumerGroupState.ASSIGNING
    assert partitions(machine.beat("b")) == {T: [0, 1, 2, 3]}
    assert machine.send("a", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    machine.send("b", -1)
    assert machine.state() is ConsumerGroupState.EMPTY
    assert machine.owners() == {} and machine.group.targets == {}


def test_a_session_expires() -> None:
    machine = two_members()
    machine.after(40)
    machine.beat("b")
    machine.after(10)
    assert list(machine.group.members) == ["b"]
    assert machine.of(MemberExpired)[0].member.member_id == "a"
    assert machine.of(EpochBumped)[-1].cause == "member_expired"
    assert partitions(machine.beat("b")) == {T: [0, 1, 2, 3]}


def test_a_member_that_does_not_revoke_is_removed_after_its_rebalance_timeout() -> None:
    machine = Machine()
    machine.join("a", rebalance_timeout_ms=10_000)
    machine.join("b")
    machine.beat("a")
    for _ in range(4):
        machine.after(3)
        if "a" in machine.group.members:
            machine.send("a", 2)
        machine.send("b", 3)
    assert list(machine.group.members) == ["b"]
    assert machine.of(MemberNotRevoked)[0].partitions == {"t": [1, 3]}
    machine.settle()
    assert machine.owners() == {(T, number): ["b"] for number in range(4)}


@pytest.mark.parametrize(
    ("epoch", "owned", "accepted"),
    [
        (3, None, True),
        (0, {}, True),
        (4, None, False),
        (2, {T: [0]}, True),
        (2, {}, True),
        (2, None, False),
        (2, {T: [0, 1]}, False),
        (2, {U: [0]}, False),
    ],
)
def test_epochs_that_are_accepted(epoch: int, owned: Any, accepted: bool) -> None:
    machine = two_members()
    full: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"]} if epoch == 0 else {}
    response = machine.send("a", epoch, owned=owned, **full)
    assert response.error_code == (ErrorCode.NONE if accepted else ErrorCode.FENCED_MEMBER_EPOCH)
    assert bool(machine.of(MemberFenced)) is not accepted


def test_a_member_that_is_fenced_again_and_again_makes_one_event() -> None:
    """A client could fill the log of events with it."""
    machine = Machine()
    machine.join("a")
    for epoch in range(10, 110):
        assert machine.send("a", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert len(machine.of(MemberFenced)) == 1
    machine.beat("a")
    assert machine.send("a", 10).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert len(machine.of(MemberFenced)) == 2


def test_a_repeated_join_gets_the_same_assignment() -> None:
    machine = two_members()
    epoch = machine.group.epoch
    response = machine.join("a")
    assert (response.member_epoch, partitions(response)) == (3, {T: [0, 2]})
    assert machine.group.epoch == epoch


def test_a_member_that_rejoins_while_it_revokes_has_revoked() -> None:
    machine = Machine()
    machine.join("a")
    machine.join("b")
    machine.beat("a")
    response = machine.join("a")
    assert (response.member_epoch, partitions(response)) == (3, {T: [0, 2]})
    assert partitions(machine.send("b", 3)) == {T: [1, 3]}


def test_an_assignment_that_was_sent_on_a_connection_that_is_given_up_is_sent_again() -> None:
    """The first join of the second member arrives when it has joined on another connection, and gets partitions."""
    machine = Machine()
    machine.join("a")
    first, second = _connected(), _connected()
    machine.caller = second
    assert partitions(machine.join("b")) == {}
    machine.caller = CALLER
    machine.beat("a")
    machine.send("a", 2, owned={T: [0, 2]})
    machine.caller = first
    assert partitions(machine.join("b")) == {T: [1, 3]}
    machine.caller = second
    assert partitions(machine.send("b", 3)) == {T: [1, 3]}
    assert machine.send("b", 3).assignment is None


def _connected() -> Caller:
    return CALLER._replace(connection=MemberConnection(SeenClient(), "client", "", lambda _: None))


def test_the_response_with_the_new_epoch_was_lost() -> None:
    machine = Machine()
    machine.join("a")
    machine.join("b")
    machine.beat("a")
    machine.send("a", 2, owned={T: [0, 2]})
    full: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"]}
    again = machine.send("a", 2, owned={T: [0, 2]}, **full)
    assert (again.error_code, again.member_epoch, partitions(again)) == (ErrorCode.NONE, 3, {T: [0, 2]})


def test_a_static_member_comes_back_with_its_partitions() -> None:
    machine = Machine()
    machine.join("a", instance_id="one")
    machine.join("b")
    machine.settle()
    for _ in range(2):
        refused = machine.join("c", instance_id="one")
        assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    (contested,) = machine.of(InstanceInUse)
    assert (contested.member.member_id, contested.owner.member_id) == ("c", "a")
    away = machine.send("a", -2, instance_id="one")
    assert (away.error_code, away.member_epoch) == (ErrorCode.NONE, -2)
    assert machine.send("a", 3, instance_id="one").error_code == ErrorCode.FENCED_MEMBER_EPOCH
    epoch = machine.group.epoch
    machine.records.clear()
    back = machine.join("c", instance_id="one")
    assert (back.member_epoch, partitions(back)) == (3, {T: [0, 2]})
    assert machine.group.epoch == epoch
    assert types_of(machine) == [
        ("CurrentMemberAssignment", True),
        ("TargetAssignmentMember", True),
        ("MemberMetadata", True),
        ("MemberMetadata", False),
        ("TargetAssignmentMember", False),
        ("CurrentMemberAssignment", False),
    ]
    assert machine.send("a", 3, instance_id="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert machine.send("c", 3, instance_id="two").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.state() is ConsumerGroupState.STABLE


def test_a_static_member_repeats_its_join() -> None:
    machine = Machine()
    machine.join("a", instance_id="one")
    response = machine.join("a", instance_id="one")
    assert (response.error_code, partitions(response)) == (ErrorCode.NONE, {T: [0, 1, 2, 3]})
    assert machine.join("a", instance_id="two").error_code == ErrorCode.INVALID_REQUEST


def test_a_static_member_that_stays_away_is_removed() -> None:
    machine = Machine()
    machine.join("a", instance_id="one")
    machine.send("a", -2, instance_id="one")
    assert machine.join("b").member_epoch == 3
    assert machine.send("b", 3).assignment is None
    machine.after(30)
    machine.beat("b")
    machine.after(20)
    assert machine.group.static == {}
    assert partitions(machine.beat("b")) == {T: [0, 1, 2, 3]}


def test_a_static_member_that_is_away_keeps_no_partition_that_it_had_to_revoke() -> None:
    machine = Machine()
    machine.join("a", instance_id="one")
    machine.join("b")
    machine.send("a", 2)
    machine.send("a", -2, instance_id="one")
    assert partitions(machine.send("b", 3)) == {T: [1, 3]}


def test_a_static_member_leaves_for_good() -> None:
    machine = Machine()
    machine.join("a", instance_id="one")
    assert machine.send("b", -1, instance_id="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert machine.send("b", -1, instance_id="two").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.send("a", -1, instance_id="one").error_code == ErrorCode.NONE
    assert machine.group.members == {} == machine.group.static


def test_a_topic_grows() -> None:
    machine = two_members()
    machine.topics.update([Topic(T, "t", 6)])
    assert machine.beat("a").member_epoch == 4
    machine.settle()
    assert machine.owners().keys() == {(T, number) for number in range(6)}
    assert machine.of(EpochBumped)[-1].cause == "topic_changed"


def test_a_deleted_topic_is_revoked() -> None:
    machine = two_members()
    machine.topics.update([], ["t"])
    machine.settle()
    assert machine.owners() == {}
    assert machine.state() is ConsumerGroupState.STABLE


def test_topics_that_the_group_does_not_subscribe_to_change_nothing() -> None:
    machine = two_members()
    machine.topics.update([Topic(T, "t", 4), Topic(U, "u", 4)])
    assert machine.beat("a").member_epoch == 3


def test_a_changed_subscription() -> None:
    machine = Machine(topics=catalog(t=2, u=2))
    machine.join("a", "t")
    response = machine.send("a", 2, subscribed_topic_names=["u"])
    assert (response.member_epoch, partitions(response)) == (2, {})
    response = machine.send("a", 2, owned={})
    assert (response.member_epoch, partitions(response)) == (3, {U: [0, 1]})
    changed = machine.of(SubscriptionChanged)[0]
    assert (changed.added, changed.removed) == (("u",), ("t",))


def test_a_member_that_unsubscribes_revokes_before_there_is_a_new_target() -> None:
    machine = Machine(topics=catalog(t=2, u=2), interval=10.0)
    machine.join("a", "t", "u")
    response = machine.send("a", 2, subscribed_topic_names=["t"])
    assert machine.state() is ConsumerGroupState.ASSIGNING
    assert partitions(response) == {T: [0, 1]}
    assert machine.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_the_assignment_interval() -> None:
    machine = Machine(interval=1.0)
    machine.join("a")
    joined = machine.join("b")
    assert (joined.member_epoch, partitions(joined)) == (2, {})
    assert machine.state() is ConsumerGroupState.ASSIGNING
    machine.after(1.0)
    assert partitions(machine.beat("a")) == {T: [0, 2]}
    machine.settle()
    assert machine.group.members["b"].epoch == 3


def test_a_group_is_full() -> None:
    machine = Machine(max_size=1)
    machine.join("a")
    assert machine.join("b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert machine.join("a").error_code == ErrorCode.NONE


def test_the_coordinator_makes_member_ids_for_version_0() -> None:
    machine = Machine()
    assert machine.join("", version=0).member_id == "id1"


FULL = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "topic_partitions": []}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -(2**31)}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -2, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "x" * 300_000}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"subscribed_topic_names": ["x" * 100] * 5000}, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_bad_requests(fields: dict[str, Any], error: ErrorCode) -> None:
    machine = Machine()
    given: dict[str, Any] = {"group_id": "g", "member_id": "a", "member_epoch": 0, **FULL, **fields}
    machine.apply(machine.group.heartbeat(ConsumerGroupHeartbeatRequest(**given), 1, CALLER, "x", machine.now))
    assert machine.answers["x"].error_code == error
    assert machine.group.members == {} and machine.records == []


def test_responses_wait_for_their_records() -> None:
    machine = Machine(hold=True)
    assert machine.join("a") is None
    machine.persisted()
    assert "a" not in machine.answers
    machine.persisted()
    assert partitions(machine.answers["a"]) == {T: [0, 1, 2, 3]}


def test_a_heartbeat_waits_for_what_is_being_appended() -> None:
    machine = Machine(hold=True)
    machine.join("a", token="join")
    assert machine.send("a", 2, token="beat") is None
    machine.persisted()
    machine.persisted()
    assert machine.answers["beat"].member_epoch == 2


def test_an_append_that_takes_long_is_not_undone() -> None:
    machine = Machine(hold=True)
    machine.join("a", token="join")
    machine.delayed()
    assert machine.answers["join"].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.send("a", 2, token="beat")
    assert machine.answers["beat"].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "nor does another request wait"
    count = len(machine.appends)
    machine.persisted()
    machine.persisted()
    assert len(machine.appends) == count - 2, "nothing is appended again"
    machine.send("a", 2, token="steady")
    assert machine.answers["steady"].member_epoch == 2


def test_a_failed_append_is_repeated() -> None:
    machine = Machine(hold=True)
    machine.join("a")
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.answers["a"].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.records == []
    assert machine.join("a") is None
    machine.persisted()
    assert partitions(machine.answers["a"]) == {T: [0, 1, 2, 3]}
    assert sorted(types_of(machine)) == [
        ("CurrentMemberAssignment", False),
        ("MemberMetadata", False),
        ("Metadata", False),
        ("TargetAssignmentMember", False),
        ("TargetAssignmentMetadata", False),
    ]


def test_a_target_that_takes_long() -> None:
    machine = Machine(compute=False)
    assert machine.join("a", token="a1") is None
    assert machine.join("b") is None
    machine.computed()
    assert partitions(machine.answers["a1"]) == {T: [0, 1, 2, 3]}
    assert (machine.answers["b"].member_epoch, partitions(machine.answers["b"])) == (2, {})
    assert machine.state() is ConsumerGroupState.ASSIGNING
    assert machine.send("b", 2, token="b2") is None
    assert machine.send("a", 2, token="a2") is None, "a member does not need another heartbeat for its new target"
    machine.now += 0.5
    slow = machine.send("a", 2, token="a3")
    assert (slow.member_epoch, slow.assignment) == (2, None), "a slow assignor keeps no heartbeat"
    machine.computed()
    assert machine.answers["a2"].assignment is not None
    assert "b2" not in machine.answers, "it waits for a, which has been asked to revoke"
    machine.after(0.5)
    assert (machine.answers["b2"].member_epoch, partitions(machine.answers["b2"])) == (3, None)
    assert machine.group.assigned(99, NewTargets({}, set(), {}), machine.now, 0) == []


def waiting_for_each_other(*more: str) -> Machine:
    """A group in which `b` and `more` have waited for a new target, and wait for `a`, which has to revoke."""
    machine = Machine(topics=catalog(t=6), compute=False)
    machine.join("a")
    machine.computed()
    machine.join("b")
    for member_id in more:
        machine.join(member_id)
    if more:
        machine.computed()
        for member_id in ("b", *more):
            machine.beat(member_id)
    machine.send("a", 2, token="a1")
    machine.computed()
    assert partitions(machine.answers["a1"]) is not None
    assert [each for each in ("b", *more) if each in machine.answers] == []
    return machine


def test_members_that_waited_for_a_target_get_partitions_as_soon_as_they_are_revoked() -> None:
    machine = waiting_for_each_other("c")
    assert machine.group.next_deadline() == machine.now + 0.5
    machine.now += 0.1
    asked = machine.group.members["a"]
    machine.send("a", 2, owned={T: [*asked.assigned[T]]})
    machine.after(0.0)
    assert partitions(machine.answers["b"]) == {T: [1, 4]}
    assert partitions(machine.answers["c"]) == {T: [2, 5]}
    assert machine.state() is ConsumerGroupState.STABLE


@pytest.mark.parametrize("how", ["slow", "gone", "unloaded", "new target"])
def test_members_do_not_wait_for_long_for_one_that_does_not_revoke(how: str) -> None:
    machine = waiting_for_each_other()
    if how == "slow":
        machine.after(0.499)
        assert "b" not in machine.answers
        machine.after(0.002)
        assert (machine.answers["b"].member_epoch, partitions(machine.answers["b"])) == (3, {})
    elif how == "gone":
        machine.send("a", -1, token="leaves")
        machine.after(0.0)
        assert partitions(machine.answers["b"]) == {T: [1, 3, 5]}
    elif how == "unloaded":
        machine.apply(machine.group.unload(machine.now))
        assert machine.answers["b"].error_code == ErrorCode.NOT_COORDINATOR
    else:
        machine.join("c")
        machine.computed()
        assert (machine.answers["b"].member_epoch, partitions(machine.answers["b"])) == (4, {})
    assert not machine.group._released.waits


def test_members_that_wait_heartbeat_soon_and_then_less_often() -> None:
    machine = Machine(interval=1.0)
    assert machine.join("a").heartbeat_interval_ms == 5000
    machine.now += 0.3
    assert machine.join("b").heartbeat_interval_ms == 700, "when the next target is due"
    assert machine.send("a", 2).heartbeat_interval_ms == 700
    machine.now += 0.7
    asked = machine.send("b", 2)
    assert (asked.member_epoch, asked.heartbeat_interval_ms) == (3, 100), "a has to revoke"
    waits = []
    for _ in range(8):
        machine.now += asked.heartbeat_interval_ms / 1000
        asked = machine.send("b", 3)
        waits.append(asked.heartbeat_interval_ms)
    assert waits == [100, 200, 400, 800, 1600, 3200, 5000, 5000]
    assert machine.send("a", 2).heartbeat_interval_ms == 5000
    machine.send("a", 2, owned={T: [0, 2]})
    assert machine.send("b", 3).heartbeat_interval_ms == 5000


def test_members_of_a_large_group_do_not_heartbeat_too_soon() -> None:
    machine = Machine(compute=False)
    for number in range(4_000):
        machine.join(f"m{number}")
    machine.computed()
    machine.after(0.1)
    assert {each.heartbeat_interval_ms for each in machine.answers.values()} == {200}
    machine.beat("m0")
    machine.now += 0.6
    assert machine.beat("m1").heartbeat_interval_ms == 600, "a slow assignor"


def test_a_member_leaves_while_its_target_is_computed() -> None:
    machine = Machine(compute=False)
    machine.join("a", token="a1")
    machine.send("a", -1, token="a2")
    machine.computed()
    assert machine.answers["a1"].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.group.targets == {}


def test_a_static_member_is_replaced_while_its_target_is_computed() -> None:
    machine = Machine(compute=False)
    machine.join("a", instance_id="one", token="a1")
    machine.computed()
    machine.topics.update([Topic(T, "t", 6)])
    machine.send("a", 2, token="a2")
    machine.send("a", -2, instance_id="one", token="a3")
    assert machine.join("b", instance_id="one") is None
    machine.computed()
    assert partitions(machine.answers["b"]) == {T: [0, 1, 2, 3, 4, 5]}
    assert machine.answers["a2"].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignor_fails_and_is_tried_again_later() -> None:
    machine = Machine(compute=False)
    machine.join("a")
    asked = machine.computations.pop()
    machine.apply(machine.group.assign_failed(asked.ticket, "no luck", machine.now))
    assert machine.answers["a"].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert machine.send("a", 0, owned={}, rebalance_timeout_ms=1, subscribed_topic_names=["t"]).member_epoch == 1
    assert machine.computations == []
    machine.after(1.0)
    assert machine.send("a", 0, owned={}, rebalance_timeout_ms=1, subscribed_topic_names=["t"]) is None
    machine.computed()
    assert partitions(machine.answers["a"]) == {T: [0, 1, 2, 3]}


def test_the_preferred_assignor_of_most_members() -> None:
    machine = Machine()
    assert machine.group.assignor == "uniform"
    machine.join("a", server_assignor="range")
    assert machine.of(TargetAssigned)[-1].assignor == "range"


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "error"),
    [
        ("a", 3, 9, ErrorCode.NONE),
        ("a", 2, 9, ErrorCode.NONE),
        ("a", 4, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 3, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("x", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits(member_id: str, epoch: int, version: int, error: ErrorCode) -> None:
    assert two_members().group.check_commit(member_id, epoch, version) == error


def test_commits_with_an_older_epoch() -> None:
    group = two_members().group
    assert group.check_commit_of("a", 3, "t", 1) == ErrorCode.NONE
    assert group.check_commit_of("a", 2, "t", 0) == ErrorCode.NONE
    assert group.check_commit_of("a", 2, "t", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_commit_of("b", 2, "t", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_commit_of("a", 2, "nothing", 0) == ErrorCode.STALE_MEMBER_EPOCH


def test_commits_to_an_empty_group() -> None:
    group = Machine().group
    assert group.check_commit("", -1, 2) == ErrorCode.NONE
    assert group.check_commit("a", 2, 9) == ErrorCode.UNKNOWN_MEMBER_ID


def test_fetches() -> None:
    group = two_members().group
    assert group.check_fetch(None, -1) == ErrorCode.NONE
    assert group.check_fetch("a", 3) == ErrorCode.NONE
    assert group.check_fetch("a", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_fetch("x", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_unloading_fails_what_waits() -> None:
    machine = Machine(hold=True)
    machine.join("a")
    machine.apply(machine.group.unload(machine.now))
    assert machine.answers["a"].error_code == ErrorCode.NOT_COORDINATOR
    assert machine.state() is ConsumerGroupState.DEAD
    machine.answers.clear()
    assert machine.join("b").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_tombstones_of_a_group_are_in_kafkas_order() -> None:
    keys = [type(key) for key, value in two_members().group.tombstones() if value is None]
    assert keys == [
        *[ConsumerGroupCurrentMemberAssignmentKey] * 2,
        *[ConsumerGroupTargetAssignmentMemberKey] * 2,
        ConsumerGroupTargetAssignmentMetadataKey,
        *[ConsumerGroupMemberMetadataKey] * 2,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMetadataKey,
    ]


def test_the_record_of_what_a_member_owns() -> None:
    machine = Machine()
    machine.join("a")
    machine.join("b")
    machine.records.clear()
    machine.send("a", 2)
    ((_, value),) = machine.records
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    assert (value.member_epoch, value.previous_member_epoch, value.state) == (2, 2, 1)
    (assigned,), (revoking,) = value.assigned_partitions, value.partitions_pending_revocation
    assert (assigned.topic_id, assigned.partitions, assigned.assignment_epochs) == (T, [0, 2], [2, 2])
    assert (revoking.topic_id, revoking.partitions, revoking.assignment_epochs) == (T, [1, 3], [2, 2])


def test_a_group_has_times_of_its_own() -> None:
    machine = Machine(own_times={"g": GroupTimes(50.0, 7000, 2.0)})
    assert machine.join("a").heartbeat_interval_ms == 7000
    assert partitions(machine.join("b")) == {}
    assert machine.state() is ConsumerGroupState.ASSIGNING
    machine.after(2.0)
    machine.settle()
    machine.after(49.0)
    assert list(machine.group.members) == ["a", "b"]
    machine.after(1.0)
    assert machine.state() is ConsumerGroupState.EMPTY


def test_times_that_change_apply_to_a_running_group() -> None:
    machine = Machine(own_times={"g": GroupTimes(session_timeout=60.0)})
    machine.join("a")
    machine.after(46.0)
    assert list(machine.group.members) == ["a"]
    machine.own_times.clear()
    machine.group.times_changed(machine.now)
    machine.after(0.0)
    assert machine.state() is ConsumerGroupState.EMPTY
    assert machine.of(MemberExpired)[0].session_ms == 45_000


def revoking(**fields: Any) -> Machine:
    """Member `a` has to revoke two partitions, `b` waits for them; both send heartbeats."""
    machine = Machine()
    machine.join("a", **fields)
    machine.join("b")
    machine.send("a", 2)
    return machine


def pass_time(machine: Machine, seconds: int) -> None:
    """Seconds with heartbeats of both members; `a` does not revoke."""
    for _ in range(seconds):
        machine.after(1.0)
        machine.send("a", 2)
        machine.send("b", 3)


def test_a_member_that_revokes_for_long_is_warned_about_at_growing_intervals() -> None:
    machine = revoking(rebalance_timeout_ms=300_000)
    pass_time(machine, 9)
    assert machine.of(MemberStillRevoking) == []
    pass_time(machine, 80)
    warned = machine.of(MemberStillRevoking)
    assert [each.waited_ms for each in warned] == [10_000, 20_000, 40_000, 80_000]
    assert {(each.member.member_id, each.timeout_ms) for each in warned} == {("a", 300_000)}
    assert warned[0].partitions == {"t": [1, 3]}
    machine.send("a", 2, owned={T: [0, 2]})
    machine.after(0.0)
    pass_time(machine, 30)
    assert len(machine.of(MemberStillRevoking)) == 4


def test_a_short_rebalance_timeout_is_warned_about_in_its_middle() -> None:
    machine = revoking(rebalance_timeout_ms=8_000)
    pass_time(machine, 7)
    assert [each.waited_ms for each in machine.of(MemberStillRevoking)] == [4_000]
    pass_time(machine, 1)
    assert len(machine.of(MemberNotRevoked)) == 1
    assert machine.group.next_deadline() > machine.now


def test_a_member_that_revokes_in_time_is_not_warned_about() -> None:
    machine = revoking(rebalance_timeout_ms=300_000)
    pass_time(machine, 9)
    machine.send("a", 2, owned={T: [0, 2]})
    machine.after(3.0)
    assert machine.of(MemberStillRevoking) == []
