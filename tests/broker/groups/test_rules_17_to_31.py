"""The 31 rules of the classic group protocol that implementers get wrong, each as a test named after it: 17 to 31."""

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.effects import EventType
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.groups.records import Committed
from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import RANGE, Machine

EMPTY, PREPARING = ClassicGroupState.EMPTY, ClassicGroupState.PREPARING_REBALANCE
COMPLETING, STABLE, DEAD = ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE, ClassicGroupState.DEAD
OTHER = (("range", b"other topics"),)


def test_rule_17_if_the_leader_has_not_rejoined_any_joined_member_leads() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b", session=600_000)
    machine.join("b", second, protocols=OTHER, session=600_000)
    machine.after(60)
    assert first not in machine.group.members.by_id
    assert machine.group.members.leader == second
    assert len(machine.answers["b"].members) == 1


def test_rule_17_if_nobody_has_joined_the_timer_restarts() -> None:
    machine = Machine()
    machine.stable("a", static=("s",), session=1_800_000)
    first = next(iter(machine.group.members.by_id))
    machine.leave(first)
    assert machine.state is PREPARING
    machine.after(60)
    assert machine.state is PREPARING
    assert machine.kinds().count(EventType.JOIN_PHASE_STUCK) == 1
    machine.after(60)
    assert machine.kinds().count(EventType.JOIN_PHASE_STUCK) == 2
    machine.join("s", machine.group.members.static["s"], instance="s")
    assert machine.state is COMPLETING


def test_rule_18_followers_wait_for_the_leader_and_the_forgotten_get_nothing() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    assert machine.sync("sync b", second) is None
    machine.sync("sync a", first, assignments={first: b"everything", "stranger": b"x"})
    assert machine.answers["sync a"].assignment == b"everything"
    assert machine.answers["sync b"].assignment == b""
    assert machine.error("sync b") == ErrorCode.NONE
    assert machine.state is STABLE


def test_rule_18_nobody_is_answered_before_the_assignment_is_in_the_log() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    machine.hold = True
    machine.sync("sync b", second)
    machine.sync("sync a", first, assignments={first: b"1", second: b"2"})
    assert machine.state is COMPLETING
    assert "sync a" not in machine.answers
    assert "sync b" not in machine.answers
    assert [each.assignment for each in machine.persists[0].value.members] == [b"1", b"2"]
    machine.persisted()
    assert machine.answers["sync b"].assignment == b"2"
    assert machine.state is STABLE


def test_rule_19_sync_in_stable_returns_the_stored_assignment() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    again = machine.sync("again", first, assignments={first: b"all", second: b""})
    assert again is not None
    assert again.assignment == f"share of {first}".encode()
    other = machine.sync("other", second)
    assert other is not None
    assert other.assignment == f"share of {second}".encode()
    assert machine.state is STABLE


def test_rule_20_who_does_not_sync_within_the_rebalance_timeout_is_removed() -> None:
    machine = Machine()
    first, second = (machine.enter(name, session=600_000) for name in "ab")
    machine.after(6)
    machine.sync("sync a", first, assignments={first: b"1", second: b"2"})
    assert machine.state is STABLE
    machine.after(59)
    assert machine.state is STABLE
    machine.after(1)
    assert machine.state is PREPARING
    assert list(machine.group.members.by_id) == [first]


def test_rule_20_a_leader_that_does_not_sync_lets_nobody_hang() -> None:
    machine = Machine()
    first, second = (machine.enter(name, session=600_000) for name in "ab")
    machine.after(6)
    machine.sync("sync b", second)
    machine.after(60)
    assert machine.error("sync b") == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(machine.group.members.by_id) == [second]
    assert first not in machine.group.members.by_id


def test_rule_21_heartbeats_by_state() -> None:
    machine = Machine()
    assert machine.heartbeat("nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    assert machine.state is COMPLETING
    assert machine.heartbeat(first) == ErrorCode.NONE
    assert machine.heartbeat(first, 0) == ErrorCode.ILLEGAL_GENERATION
    machine.settle(first, second)
    assert machine.heartbeat(first) == ErrorCode.NONE
    assert machine.heartbeat(first, 2) == ErrorCode.ILLEGAL_GENERATION
    machine.join("a", first)
    assert machine.heartbeat(second) == ErrorCode.REBALANCE_IN_PROGRESS
    assert machine.heartbeat(second, 0) == ErrorCode.ILLEGAL_GENERATION


def test_rule_21_in_preparing_it_extends_the_session() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    machine.join("a", first)
    for _ in range(4):
        machine.after(9)
        assert machine.heartbeat(second) == ErrorCode.REBALANCE_IN_PROGRESS
    assert second in machine.group.members.by_id
    machine.after(11)
    assert second not in machine.group.members.by_id


def test_rule_22_commits_with_generation_minus_one() -> None:
    machine = Machine()
    assert machine.commit("", -1) == ErrorCode.NONE
    assert machine.commit("whoever", -1) == ErrorCode.NONE
    (first,) = machine.stable("a")
    assert machine.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.commit(first, -1) == ErrorCode.ILLEGAL_GENERATION
    machine.leave(first)
    assert machine.state is EMPTY
    assert machine.commit("", -1) == ErrorCode.NONE


def test_rule_23_commits_by_state() -> None:
    machine = Machine()
    assert machine.commit("somebody", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    assert machine.commit(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    machine.settle(first, second)
    assert machine.commit(first, 1) == ErrorCode.NONE
    assert machine.commit(first, 0) == ErrorCode.ILLEGAL_GENERATION
    assert machine.commit("stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_rule_23_in_preparing_it_is_accepted_and_extends_the_session() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    machine.join("a", first)
    for _ in range(4):
        machine.after(9)
        assert machine.commit(second, 1) == ErrorCode.NONE
    assert second in machine.group.members.by_id


def test_rule_24_nothing_committed_is_minus_one_and_a_pending_transaction_is_unstable() -> None:
    offsets = GroupOffsets()
    assert offsets.find("topic", 0) is None
    offsets.commit("topic", 0, Committed(5, -1, "", 0, sequence=1))
    offsets.commit_pending(7, "topic", 0, Committed(9, -1, "", 0, sequence=2))
    assert offsets.is_pending("topic", 0)
    found = offsets.find("topic", 0)
    assert found is not None
    assert found.offset == 5
    offsets.end_transaction(7, commit=True)
    assert not offsets.is_pending("topic", 0)
    found = offsets.find("topic", 0)
    assert found is not None
    assert found.offset == 9


def test_rule_25_the_last_member_gone_makes_a_generation_of_nobody() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    machine.hold = True
    machine.leave(first)
    assert machine.state is EMPTY
    assert machine.group.generation == 2
    assert machine.persists[0].value.members == []
    assert machine.persists[0].value.generation == 2
    assert machine.persists[0].value.protocol_type == "consumer"


def test_rule_25_dead_is_not_available() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    machine.take(machine.group.unload(machine.now))
    assert machine.state is DEAD
    machine.join("join", first)
    machine.sync("sync", first)
    assert machine.error("join") == machine.error("sync") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.heartbeat(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.commit(first, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.leave(first) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


WEEK_MS = 7 * 24 * 3_600_000


def test_rule_26_offsets_expire_a_week_after_the_group_became_empty() -> None:
    machine = Machine()
    (first,) = machine.stable("a", session=1_800_000)
    machine.leave(first)
    offsets = GroupOffsets()
    offsets.commit("topic", 0, Committed(5, -1, "", 0, sequence=1))
    wall_ms = 10 * WEEK_MS
    week = WEEK_MS / 1000
    assert offsets.expired(machine.group, machine.now + week - 1, wall_ms, WEEK_MS) == []
    assert offsets.expired(machine.group, machine.now + week + 1, wall_ms, WEEK_MS) == [("topic", 0)]


def test_rule_26_offsets_of_simple_groups_expire_a_week_after_the_commit() -> None:
    machine = Machine()
    offsets = GroupOffsets()
    offsets.commit("topic", 0, Committed(5, -1, "", 1000, sequence=1))
    assert offsets.expired(machine.group, machine.now, 999 + WEEK_MS, WEEK_MS) == []
    assert offsets.expired(machine.group, machine.now, 1000 + WEEK_MS, WEEK_MS) == [("topic", 0)]


def test_rule_26_in_stable_only_topics_no_longer_subscribed_expire() -> None:
    machine = Machine()
    subscription = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x04used" + b"\xff\xff\xff\xff"
    machine.stable("a", protocols=(("range", subscription),))
    offsets = GroupOffsets()
    offsets.commit("used", 0, Committed(5, -1, "", 0, sequence=1))
    offsets.commit("unused", 0, Committed(5, -1, "", 0, sequence=1))
    assert offsets.expired(machine.group, machine.now, 2 * WEEK_MS, WEEK_MS) == [("unused", 0)]
    machine.join("a", next(iter(machine.group.members.by_id)), protocols=(("range", subscription),))
    machine.enter("b", protocols=(("range", subscription),))
    assert machine.state is PREPARING
    assert offsets.expired(machine.group, machine.now, 2 * WEEK_MS, WEEK_MS) is None


def test_rule_27_leaving_is_answered_one_by_one() -> None:
    machine = Machine()
    first, second, _ = machine.stable("a", "b", static=("s",))
    assert machine.leave(first, "stranger", second) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert machine.leave("", instance="unknown") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert machine.leave("other", instance="s") == [ErrorCode.FENCED_INSTANCE_ID]
    assert machine.leave("", instance="s") == [ErrorCode.NONE]
    assert machine.state is EMPTY


def test_rule_28_a_full_group_takes_nobody_more() -> None:
    machine = Machine(max_size=2)
    first, _ = machine.stable("a", "b")
    for version in (3, 9):
        answer = machine.join("c", version=version)
        assert answer is not None
        assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert answer.member_id == ""
    assert machine.state is STABLE
    machine.join("a", first)
    assert machine.state is PREPARING


def test_rule_28_preparing_counts_the_joiners_that_wait() -> None:
    machine = Machine(max_size=2)
    first, second = machine.stable("a", "b")
    machine.join("a", first)
    assert machine.join("c", version=3) is None, "one waits, so there is room for one who is not a member yet"
    assert machine.join("a again", first) is None, "who waits already is always accepted"
    refused = machine.join("b", second)
    assert refused is not None
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED, "who comes last is put out, a member or not"
    assert second not in machine.group.members.by_id
    assert machine.state is COMPLETING, "nobody else has to be waited for"


def test_rule_29_is_the_shells() -> None:
    """See test_service: the protocol name of an error is "" below version 7 and null from there."""


def test_rule_30_is_the_shells() -> None:
    """See test_service: Heartbeat and SyncGroup while a partition is loading."""


def test_rule_31_is_the_shells() -> None:
    """See test_service: partition_for."""


def test_a_restored_group_goes_on_without_a_rebalance() -> None:
    machine = Machine(hold=True)
    first, second = machine.enter("a"), machine.enter("b")
    machine.persists.clear()
    machine.after(6)
    machine.sync("sync a", first, assignments={first: b"1", second: b"2"})
    value: GroupMetadataValue = machine.persists[-1].value
    machine.group = ClassicGroup.restore("g", machine.settings, value, machine.now, machine.now)
    machine.hold = False
    assert machine.state is STABLE
    assert machine.group.generation == 1
    assert machine.group.members.leader == first
    assert machine.heartbeat(first) == machine.heartbeat(second) == ErrorCode.NONE
    again = machine.sync("again", second)
    assert again is not None
    assert again.assignment == b"2"
    follower = machine.join("b", second, protocols=RANGE)
    assert follower is not None
    assert follower.generation_id == 1
    machine.after(10.1)
    assert machine.state is EMPTY, "nobody is heard of for a session after it was restored"
