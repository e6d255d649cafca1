"""Heartbeats of a classic group, and the expiry of sessions."""

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_explain.catalog import MemberExpired, MemberSlow
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine

PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
OTHER = (("range", b"other topics"),)


def test_heartbeats_by_state() -> None:
    machine = Machine()
    assert machine.heartbeat("unknown") == ErrorCode.UNKNOWN_MEMBER_ID
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


def test_a_heartbeat_during_the_join_phase_extends_the_session() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    machine.join("a", first)
    for _ in range(4):
        machine.after(9)
        assert machine.heartbeat(second) == ErrorCode.REBALANCE_IN_PROGRESS
    assert second in machine.group.members.by_id
    machine.after(11)
    assert second not in machine.group.members.by_id


def test_members_with_a_deferred_join_group_do_not_expire() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    machine.join("a", first, protocols=OTHER)
    for _ in range(5):
        machine.after(9)
        machine.heartbeat(second)
    assert machine.state is PREPARING
    assert first in machine.group.members.by_id


def test_new_members_with_a_deferred_join_group_expire_after_five_minutes() -> None:
    machine = Machine()
    first, _ = machine.stable("a", static=("s",), session=1_800_000, rebalance=3_600_000)
    machine.enter("new", session=1_800_000, rebalance=3_600_000)
    machine.after(299)
    assert "new" not in machine.answers
    machine.heartbeat(first)
    machine.after(2)
    assert machine.error("new") == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.answers["new"].member_id == ""


def test_a_slow_member_is_reported_once_before_it_expires() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    for _ in range(3):
        machine.after(1.9)
        machine.heartbeat(first)
    assert MemberSlow not in machine.event_types()
    machine.after(0.4)
    (warning,) = [event for event in machine.events if isinstance(event, MemberSlow)]
    assert warning.member.member_id == second
    assert 6_000 <= warning.heard_ago_ms < 6_200
    machine.after(3)
    assert machine.event_types().count(MemberSlow) == 1
    machine.heartbeat(second)
    machine.heartbeat(first)
    machine.after(5.9)
    assert machine.event_types().count(MemberSlow) == 1
    machine.after(0.2)
    assert machine.event_types().count(MemberSlow) == 3
    machine.after(4)
    assert machine.event_types().count(MemberExpired) == 2
