"""The join phase: the initial rebalance delay, the rebalance timeout, and how the phase ends."""

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_explain.catalog import JoinPhaseOver, JoinPhaseStuck, RebalanceStarted, RejoinAwaited
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine

EMPTY = ClassicGroupState.EMPTY
PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
OTHER = (("range", b"other topics"),)


def test_kip_134_new_members_extend_the_initial_rebalance_delay_up_to_the_rebalance_timeout() -> None:
    machine = Machine()
    machine.enter("a", rebalance=7_000)
    machine.after(2.9)
    assert machine.state is PREPARING
    machine.enter("b", rebalance=7_000)
    machine.after(0.2)
    assert machine.state is PREPARING
    machine.after(2.7)
    machine.enter("c", rebalance=7_000)
    machine.after(1.1)
    assert machine.state is PREPARING, "7 seconds in all, not 9"
    machine.after(0.2)
    assert machine.state is COMPLETING


def test_kip_134_the_initial_rebalance_delay_never_ends_early() -> None:
    machine = Machine()
    machine.enter("a")
    machine.after(2.9)
    assert machine.state is PREPARING
    machine.after(0.1)
    assert machine.state is COMPLETING
    assert machine.group.generation == 1


def test_kip_134_the_initial_rebalance_delay_does_not_end_early_if_all_members_leave() -> None:
    machine = Machine()
    member_id = machine.enter("a")
    assert machine.leave(member_id) == [ErrorCode.NONE]
    assert machine.error("a") == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.state is PREPARING
    machine.after(3)
    assert machine.state is EMPTY
    assert machine.group.generation == 1


def test_kip_134_an_initial_rebalance_delay_of_0_ends_at_once() -> None:
    machine = Machine(initial_delay=0.0)
    machine.enter("a")
    machine.after(0.0)
    assert machine.error("a") == ErrorCode.NONE


def test_the_rebalance_timeout_is_the_largest_of_the_members() -> None:
    machine = Machine()
    first = machine.enter("a", rebalance=20_000, session=600_000)
    second = machine.enter("b", rebalance=40_000, session=600_000)
    machine.after(6)
    machine.settle(first, second)
    machine.join("a", first, protocols=OTHER, rebalance=20_000, session=600_000)
    machine.after(39.9)
    assert machine.state is PREPARING
    machine.after(0.2)
    assert machine.state is COMPLETING


def test_join_group_0_uses_the_session_timeout_as_rebalance_timeout() -> None:
    machine = Machine()
    machine.join("a", version=0, session=30_000)
    assert machine.group.members.rebalance_timeout == 30.0


def test_the_join_phase_waits_for_pending_members() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    pending = machine.join("b")
    assert pending is not None
    machine.join("a", first, protocols=OTHER)
    assert machine.state is PREPARING
    assert "a" not in machine.answers
    machine.join("b", pending.member_id)
    assert machine.state is COMPLETING
    assert machine.error("a") == machine.error("b") == ErrorCode.NONE


def test_the_join_phase_ends_when_a_pending_member_expires() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    machine.join("b")
    machine.join("a", first, protocols=OTHER)
    assert machine.state is PREPARING
    machine.after(10.1)
    assert machine.state is COMPLETING


def test_the_rebalance_timeout_removes_dynamic_members_and_keeps_static_ones() -> None:
    machine = Machine()
    dynamic, gone, _ = machine.stable("a", "b", static=("s",), session=600_000)
    machine.join("a", dynamic, protocols=OTHER, session=600_000)
    machine.after(60)
    assert machine.state is COMPLETING
    assert gone not in machine.group.members.by_id
    assert set(machine.group.members.by_id) == {dynamic, machine.group.members.static["s"]}


def test_if_the_leader_has_not_rejoined_another_member_is_elected() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b", session=600_000)
    machine.join("b", second, protocols=OTHER, session=600_000)
    machine.after(60)
    assert first not in machine.group.members.by_id
    assert machine.group.members.leader == second
    assert len(machine.answers["b"].members) == 1


def test_if_no_member_has_joined_the_join_phase_starts_over() -> None:
    machine = Machine()
    machine.stable("a", static=("s",), session=1_800_000)
    first = next(iter(machine.group.members.by_id))
    machine.leave(first)
    assert machine.state is PREPARING
    machine.after(60)
    assert machine.state is PREPARING
    assert machine.event_types().count(JoinPhaseStuck) == 1
    machine.after(60)
    assert machine.event_types().count(JoinPhaseStuck) == 2
    machine.join("s", machine.group.members.static["s"], instance="s")
    assert machine.state is COMPLETING


def test_members_that_a_join_phase_waits_for_are_reported_once() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    machine.enter("c")
    for _ in range(8):
        machine.after(1.5)
        machine.heartbeat(first)
        machine.heartbeat(second)
    awaited = [event for event in machine.events if isinstance(event, RejoinAwaited)]
    assert [event.member.member_id for event in awaited] == [first, second]
    assert [(event.waited_ms, event.told_ms, event.others) for event in awaited] == [(10_000, 1_500, 1)] * 2
    assert all(event.rebalance_timeout_ms > 10_000 and event.protocol == "range" for event in awaited)
    assert [(event.heartbeat_ago_ms, event.heartbeat_ms) for event in awaited] == [(1_000, 1_500)] * 2


def test_members_that_have_not_heard_of_a_rebalance_are_reported_with_their_heartbeats() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b", session=200_000)
    for _ in range(2):
        machine.after(25)
        machine.heartbeat(first)
    machine.enter("c")
    machine.after(10)
    heard, other = (event for event in machine.events if isinstance(event, RejoinAwaited))
    assert (heard.told_ms, heard.heartbeat_ago_ms, heard.heartbeat_ms) == (None, 10_000, 25_000)
    assert heard.has_not_heard
    assert (other.told_ms, other.heartbeat_ago_ms, other.heartbeat_ms) == (None, 60_000, None), "it has sent none"
    machine.after(15)
    for member in (first, second):
        machine.heartbeat(member)
        machine.join(member, member)
    (over,) = [event for event in machine.events if isinstance(event, JoinPhaseOver)][-1:]
    late = {each.member.member_id: (each.told_ms, each.heartbeat_ms) for each in over.joined_after or ()}
    assert late == {first: (25_000, 25_000), second: (25_000, 75_000)}


def test_a_group_that_was_empty_says_for_how_long_it_waits() -> None:
    machine = Machine()
    machine.enter("a")
    machine.after(3)
    machine.enter("b")
    delays = [event.delay_ms for event in machine.events if isinstance(event, RebalanceStarted)]
    assert delays == [3_000, None]


def test_a_join_phase_that_is_over_soon_is_not_reported() -> None:
    machine = Machine()
    members = machine.stable("a", "b")
    machine.enter("c")
    for _ in range(6):
        machine.after(1.5)
        for member in members:
            machine.heartbeat(member)
    for member in members:
        machine.join(member, member)
    assert machine.state is COMPLETING
    machine.after(1.5)
    assert RejoinAwaited not in machine.event_types()
