"""Members of the classic protocol in a group of the consumer protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from typing import Any

import pytest

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.classic_members import MigrationPolicy
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.records import ReplayedGroup, replay_record
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_broker.groups.embedded_protocol import read_assignment
from barnabas_explain.catalog import MemberExpired, MemberNotRejoined, MemberNotSynced, MemberReplaced
from barnabas_explain.members import Member
from barnabas_protocol.coordinator_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    MemberState,
)
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.consumer.machine import Machine, T, U, catalog, partitions
from tests.broker.groups.support import owned_subscription, subscription

NONE, REBALANCE = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS


def synced(response: Any) -> dict[str, set[int]]:
    """The partitions of a SyncGroup response."""
    assert response.error_code == NONE
    return read_assignment(response.assignment)[0]


def mixed() -> Machine:
    """A stable group of `a`, of the consumer protocol, and `b`, of the classic one."""
    machine = Machine()
    machine.join("a")
    machine.join_classic("b")
    machine.sync("b")
    machine.settle_mixed()
    assert machine.state() is ConsumerGroupState.STABLE
    return machine


def test_a_member_gets_its_id_first_and_then_waits_until_partitions_are_revoked() -> None:
    machine = Machine()
    machine.join("a")
    asked = machine.join_classic("")
    assert (asked.error_code, asked.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "id1")
    joined = machine.join_classic("id1")
    assert (joined.error_code, joined.member_id, joined.generation_id) == (NONE, "id1", 3)
    assert (joined.protocol_type, joined.protocol_name, joined.leader) == ("consumer", "cooperative-sticky", "")
    assert (joined.members, joined.skip_assignment) == ([], False)
    assert synced(machine.sync("id1")) == {}
    assert machine.classic_beat("id1") == NONE  # What it waits for is not free.
    asked = machine.send("a", 2)
    assert machine.classic_beat("id1") == NONE
    machine.beat("a")
    assert machine.group.members["a"].epoch == 3
    assert machine.classic_beat("id1") == REBALANCE
    again = machine.join_classic("id1")
    assert again.generation_id == 3
    assert synced(machine.sync("id1")) == {"t": {1, 3}}
    assert machine.classic_beat("id1") == NONE
    assert machine.state() is ConsumerGroupState.STABLE


def test_a_cooperative_member_revokes_before_others_get_its_partitions() -> None:
    machine = Machine()
    machine.join_classic("b")
    assert synced(machine.sync("b")) == {"t": {0, 1, 2, 3}}
    joined = machine.join("a")
    assert (joined.member_epoch, partitions(joined)) == (3, {})
    assert machine.classic_beat("b") == REBALANCE
    answer = machine.join_classic("b", owned={"t": [0, 1, 2, 3]})
    assert answer.generation_id == 2  # It keeps its epoch until it has revoked.
    assert machine.group.members["b"].state is MemberState.UNREVOKED_PARTITIONS
    kept = synced(machine.sync("b"))
    assert kept == {"t": {1, 3}}
    assert machine.classic_beat("b") == REBALANCE
    assert partitions(machine.beat("a", owned={}, rebalance_timeout_ms=1, subscribed_topic_names=["t"])) == {}
    answer = machine.join_classic("b", owned=kept)
    assert answer.generation_id == 3
    assert synced(machine.sync("b")) == kept
    assert partitions(machine.beat("a", owned={})) == {T: [0, 2]}
    assert machine.classic_beat("b") == NONE


def test_an_eager_member_rejoins_without_partitions() -> None:
    machine = Machine()
    machine.join_classic("b")
    machine.sync("b")
    machine.join("a")
    assert machine.classic_beat("b") == REBALANCE
    answer = machine.join_classic("b", owned={})
    assert answer.generation_id == 3
    assert synced(machine.sync("b")) == {"t": {1, 3}}


def test_a_generation_that_is_over_has_to_rejoin_before_it_syncs() -> None:
    machine = Machine()
    machine.join_classic("b")
    machine.join("a")
    assert machine.sync("b").error_code == REBALANCE
    machine.join_classic("b")
    assert synced(machine.sync("b")) == {"t": {1, 3}}


def test_the_assignment_has_the_version_of_the_subscription() -> None:
    machine = Machine()
    machine.join_classic("b", metadata=subscription("t"))
    assert machine.sync("b").assignment[:2] == b"\x00\x00"
    machine.join_classic("b", metadata=owned_subscription({}, "t"))
    assert machine.sync("b").assignment[:2] == b"\x00\x01"
    machine.join_classic("b", metadata=b"\x00\x63" + owned_subscription({}, "t")[2:] + b"\xff" * 8)
    assert machine.sync("b").assignment[:2] == b"\x00\x03"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ("other",)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"metadata": b"\x00\x00\x7f"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"metadata": b"\x00\x00" + bytes(2**20)}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_is_refused_changes_nothing(fields: dict[str, Any], error: ErrorCode) -> None:
    machine = mixed()
    before = len(machine.records)
    assert machine.join_classic("c", **fields).error_code == error
    assert (len(machine.records), list(machine.group.members)) == (before, ["a", "b"])


def test_a_full_group_refuses_new_members_only() -> None:
    machine = Machine(max_size=2)
    machine.join("a")
    machine.join_classic("b")
    assert machine.join_classic("c").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert machine.join_classic("b").error_code == NONE


def test_a_disabled_migration_refuses_members_of_the_classic_protocol() -> None:
    machine = Machine(migration=MigrationPolicy.DISABLED)
    machine.join("a")
    assert machine.join_classic("b").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_requests_of_others_are_refused() -> None:
    machine = mixed()
    assert machine.classic_beat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.classic_beat("a") == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.classic_beat("b", 2) == ErrorCode.ILLEGAL_GENERATION
    assert machine.classic_beat("b", instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.sync("x", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.sync("b", 2).error_code == ErrorCode.ILLEGAL_GENERATION
    assert machine.sync("b", protocol_name="range").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert machine.sync("b", protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_members_have_their_own_sessions() -> None:
    machine = mixed()
    machine.after(9.0)
    assert machine.classic_beat("b") == NONE
    machine.after(9.0)
    assert "b" in machine.group.members
    machine.after(1.0)
    assert list(machine.group.members) == ["a"]
    (expired,) = machine.of(MemberExpired)
    assert expired.member == Member("b", "client", "/127.0.0.1", None)
    assert (expired.heard_ago_ms, expired.session_ms) == (10_000, 10_000)


def test_a_member_that_does_not_rejoin_is_removed() -> None:
    machine = mixed()
    machine.join("c")
    for _ in range(12):
        assert machine.classic_beat("b") == REBALANCE
        machine.after(5.0)
        machine.beat("a")
        machine.beat("c")
    assert list(machine.group.members) == ["a", "c"]
    assert [each.waited_ms for each in machine.of(MemberNotRejoined)] == [60_000]


def test_a_member_that_was_removed_loses_its_partitions_before_it_joins_again() -> None:
    machine = mixed()
    machine.after(10.0)
    assert list(machine.group.members) == ["a"]
    assert machine.join_classic("b", owned={"t": [1, 3]}).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.join_classic("b", owned={"t": []}).error_code == NONE


def test_a_member_that_does_not_sync_is_removed() -> None:
    machine = Machine()
    machine.join("a")
    machine.join_classic("b", rebalance=8_000)
    machine.after(8.0)
    assert list(machine.group.members) == ["a"]
    assert [each.waited_ms for each in machine.of(MemberNotSynced)] == [8_000]


def test_a_static_member_comes_back_with_either_protocol() -> None:
    machine = mixed()
    machine.join_classic("", instance="i", token="first")
    first = machine.answers["first"].member_id
    machine.sync(first)
    machine.settle_mixed()
    before = machine.group.epoch
    owned = machine.group.members[first].assigned
    assert owned
    again = machine.join("c", instance_id="i")
    assert (again.error_code, again.member_epoch) == (NONE, before)
    assert partitions(again) == {topic_id: sorted(numbers) for topic_id, numbers in owned.items()}
    assert machine.classic_beat(first, before, "i") == ErrorCode.FENCED_INSTANCE_ID
    assert machine.group.members["c"].classic is None
    # And back, without having left.
    back = machine.join_classic("", instance="i", token="back")
    assert (back.error_code, back.generation_id) == (NONE, before)
    assert synced(machine.sync(back.member_id))["t"] == set(owned[T])
    assert machine.send("c", before, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert [each.protocol for each in machine.of(MemberReplaced)] == [None, "classic"]


def test_a_static_member_that_comes_back_while_another_one_waits_causes_a_rebalance() -> None:
    machine = Machine()
    machine.join("a", instance_id="i")
    machine.join_classic("b")
    machine.sync("b")
    assert machine.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    answer = machine.join_classic("", instance="i", token="back")
    assert answer is None
    (downgrade,) = machine.downgrades
    assert downgrade.rebalance == "Downgrade group g from consumer to classic with stale assignment."
    assert [each.response.error_code for each in downgrade.replies] == [NONE]


def test_members_leave_with_their_own_results() -> None:
    machine = mixed()
    machine.join_classic("", instance="i", token="static")
    static = machine.answers["static"].member_id
    answer = machine.leave_group(("x", None), ("b", None), ("x", "i"), ("", "i"), ("", "j"))
    assert [each.error_code for each in answer.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(machine.group.members) == ["a"]
    assert static not in machine.group.members
    machine.settle()
    assert partitions(machine.send("a", machine.group.epoch, owned={}, rebalance_timeout_ms=1, **_topics())) == {
        T: [0, 1, 2, 3]
    }
    # Administrators remove members of the consumer protocol, too.
    assert machine.leave_group(("a", None)).members[0].error_code == NONE
    assert machine.state() is ConsumerGroupState.EMPTY


def _topics() -> dict[str, Any]:
    return {"subscribed_topic_names": ["t"]}


def test_commits_and_fetches_know_generations() -> None:
    machine = mixed()
    group = machine.group
    epoch = group.epoch
    assert group.check_commit("b", epoch, 2) == NONE
    assert group.check_commit("a", epoch, 2) == ErrorCode.UNSUPPORTED_VERSION
    assert group.check_commit("b", epoch + 1, 2) == ErrorCode.ILLEGAL_GENERATION
    assert group.check_commit("a", epoch + 1, 9) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_commit_of("b", 1, "t", 0) == ErrorCode.ILLEGAL_GENERATION
    assert group.check_fetch("b", epoch) == NONE
    assert group.check_fetch("b", epoch - 1) == ErrorCode.ILLEGAL_GENERATION
    assert group.check_transactional_commit("b", None, epoch) == NONE


def test_the_metadata_is_recorded_and_restored() -> None:
    machine = mixed()
    replayed: dict[str, ReplayedGroup] = {}
    for key, value in machine.records:
        replay_record(replayed, key, value)
    values = [
        value
        for key, value in machine.records
        if isinstance(key, ConsumerGroupMemberMetadataKey) and key.member_id == "b"
    ]
    assert isinstance(values[-1], ConsumerGroupMemberMetadataValue)
    recorded = values[-1].classic_member_metadata
    assert recorded is not None
    assert recorded.session_timeout_ms == 10_000
    assert [each.name for each in recorded.supported_protocols] == ["cooperative-sticky", "range"]
    machine.group = ConsumerGroup.restore("g", machine.settings, replayed["g"], machine.now, machine.wall_ms)
    assert machine.classic_beat("b") == NONE
    assert machine.join_classic("c", protocols=("other",)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    machine.after(10.0)
    assert list(machine.group.members) == ["a"]


def test_a_response_waits_for_its_records() -> None:
    machine = mixed()
    machine.hold = True
    assert machine.join_classic("c") is None
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    while machine.appends:
        machine.persisted()
    answer = machine.answers["c"]
    assert (answer.error_code, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    machine.hold = False
    assert machine.join_classic("c").error_code == NONE
    written = {key.member_id for key, _ in machine.records if isinstance(key, ConsumerGroupMemberMetadataKey)}
    assert written == {"a", "b", "c"}


def test_a_join_waits_for_a_target_that_is_computed() -> None:
    machine = Machine(compute=False)
    assert machine.join_classic("b") is None
    assert machine.join_classic("c") is None
    machine.computed()
    assert machine.answers["b"].generation_id == 2
    assert machine.answers["c"].error_code == NONE
    assert machine.group.assign_failed(99, "no", machine.now) == []


def test_an_assignor_that_fails_fails_the_join() -> None:
    machine = Machine(compute=False)
    machine.join_classic("b")
    asked = machine.computations.pop()
    machine.apply(machine.group.assign_failed(asked.ticket, "no", machine.now))
    assert machine.answers["b"].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    machine.after(2.0)  # Without heartbeats of the consumer protocol time tries again.
    assert len(machine.computations) == 1


def test_an_unloaded_group_responds() -> None:
    machine = Machine(compute=False)
    machine.join_classic("b")
    machine.apply(machine.group.unload(machine.now))
    assert machine.answers["b"].error_code == ErrorCode.NOT_COORDINATOR
    assert machine.classic_beat("b", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.join_classic("b").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.leave_group(("b", None)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_without_members_of_the_consumer_protocol_time_computes_targets() -> None:
    machine = Machine(interval=1.0, migration=MigrationPolicy.UPGRADE, topics=catalog(t=4, u=2))
    machine.join_classic("b", "t", "u")
    machine.sync("b")
    machine.join_classic("c", "t", "u")
    assert machine.group.epoch > machine.group.assignment_epoch
    assert machine.classic_beat("b") == NONE
    machine.after(1.0)
    assert machine.classic_beat("b") == REBALANCE
    machine.rebalance("b")
    machine.rebalance("c")
    machine.rebalance("b")
    machine.after(1.0)
    # A topic grows: no leader looks at it.
    machine.topics.update([Topic(T, "t", 6), Topic(U, "u", 2)])
    assert machine.classic_beat("b") == NONE
    machine.after(1.0)
    assert machine.classic_beat("b") == REBALANCE
    for member_id in ("b", "c", "b", "c"):
        machine.rebalance(member_id)
    assert len(machine.owners()) == 8
    machine.leave_group(("c", None))
    machine.after(1.0)
    assert machine.rebalance("b") == {"t": set(range(6)), "u": {0, 1}}
