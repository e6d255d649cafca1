"""What the 31 rules do not name: retries, failures of appends, static members, and ends."""

import pytest

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.states import TRANSITIONS, ClassicGroupState, IllegalTransition
from barnabas_broker.groups.effects import EventType
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine

EMPTY, PREPARING = ClassicGroupState.EMPTY, ClassicGroupState.PREPARING_REBALANCE
COMPLETING, STABLE, DEAD = ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE, ClassicGroupState.DEAD
OTHER = (("range", b"other topics"),)


@pytest.mark.parametrize("origin", list(ClassicGroupState))
@pytest.mark.parametrize("target", list(ClassicGroupState))
def test_only_the_ways_of_the_table_can_be_gone(origin: ClassicGroupState, target: ClassicGroupState) -> None:
    machine = Machine()
    machine.group.state = origin
    if target in TRANSITIONS[origin]:
        machine.group._transition(target, 1.0)
        assert machine.state is target
    else:
        with pytest.raises(IllegalTransition):
            ClassicGroup._transition(machine.group, target, 1.0)


def test_a_join_that_is_sent_again_answers_the_one_before() -> None:
    machine = Machine()
    first = machine.enter("a")
    machine.join("a again", first)
    assert machine.error("a") == ErrorCode.REBALANCE_IN_PROGRESS
    machine.after(3)
    assert machine.error("a again") == ErrorCode.NONE


def test_a_sync_that_is_sent_again_answers_the_one_before() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    machine.sync("b", second)
    machine.sync("b again", second)
    assert machine.error("b") == ErrorCode.REBALANCE_IN_PROGRESS
    machine.settle(first)
    assert machine.error("b again") == ErrorCode.NONE


def test_a_leader_that_syncs_again_does_not_assign_again() -> None:
    machine = Machine(hold=True)
    first = machine.enter("a")
    machine.persists.clear()
    machine.after(3)
    machine.sync("a", first, assignments={first: b"1"})
    machine.sync("a again", first, assignments={first: b"2"})
    assert len(machine.persists) == 1
    machine.persisted()
    assert machine.answers["a again"].assignment == b"1"


def test_an_assignment_that_is_overtaken_by_a_rebalance_is_ignored() -> None:
    machine = Machine()
    first = machine.enter("a")
    machine.after(3)
    machine.hold = True
    machine.sync("a", first, assignments={first: b"1"})
    machine.join("b", version=3)
    assert machine.error("a") == ErrorCode.REBALANCE_IN_PROGRESS
    machine.persisted()
    assert machine.state is PREPARING


def test_an_assignment_that_cannot_be_written_starts_a_rebalance() -> None:
    machine = Machine()
    first = machine.enter("a")
    machine.after(3)
    machine.hold = True
    machine.sync("a", first, assignments={first: b"1"})
    machine.persisted(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert machine.error("a") == ErrorCode.NOT_COORDINATOR
    assert machine.state is PREPARING
    assert EventType.PERSIST_FAILED in machine.kinds()


def test_a_static_member_whose_new_id_cannot_be_written_keeps_the_old_one() -> None:
    machine = Machine()
    machine.stable("leader", static=("s",))
    old = machine.group.members.static["s"]
    machine.hold = True
    machine.join("again", instance="s", client="elsewhere")
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.error("again") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.group.members.static["s"] == old
    assert machine.heartbeat(old, instance="s") == ErrorCode.NONE
    assert machine.group.members.by_id[old].client_id == "client"


def test_a_static_member_that_returns_into_a_rebalance_is_answered_by_it() -> None:
    machine = Machine()
    leader, _ = machine.stable("leader", static=("s",))
    machine.hold = True
    machine.join("again", instance="s")
    machine.join("leader", leader)
    assert machine.state is COMPLETING
    assert machine.answers["again"].generation_id == 2
    machine.persisted()
    assert machine.group.members.joining == 0


def test_who_leaves_with_a_parked_sync_is_answered() -> None:
    machine = Machine()
    machine.enter("a")
    second = machine.enter("b")
    machine.after(6)
    machine.sync("b", second)
    machine.leave(second)
    assert machine.error("b") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_that_leaves_disturbs_nobody() -> None:
    machine = Machine()
    machine.stable("a")
    pending = machine.join("b")
    assert pending is not None
    assert machine.leave(pending.member_id) == [ErrorCode.NONE]
    assert machine.state is STABLE


def test_the_votes_of_members_that_are_gone_do_not_count() -> None:
    machine = Machine()
    both = (("range", b""), ("sticky", b""))
    first = machine.enter("a", protocols=both)
    second = machine.enter("b", protocols=(("range", b""),))
    machine.after(6)
    assert machine.group.members.protocol == "range"
    machine.settle(first, second)
    machine.leave(second)
    machine.join("a", first, protocols=(("sticky", b""), ("range", b"")))
    assert machine.group.members.protocol == "sticky"


def test_a_group_that_could_not_be_written_has_nothing_to_wait_for() -> None:
    machine = Machine(hold=True)
    machine.join("a", version=3)
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.error("a") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.state is DEAD
    assert machine.group.next_deadline() == float("inf")
    machine.take(machine.group.tick(machine.now + 100))


def test_an_append_of_another_life_is_ignored() -> None:
    machine = Machine()
    machine.stable("a")
    machine.take(machine.group.persisted(999, ErrorCode.NOT_ENOUGH_REPLICAS, machine.now))
    assert machine.state is STABLE


def test_unloading_answers_everything_that_is_parked() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    machine.sync("b", second)
    machine.take(machine.group.unload(machine.now))
    assert machine.error("b") == ErrorCode.NOT_COORDINATOR
    assert machine.state is DEAD
    assert machine.group.next_deadline() == float("inf")
    assert first not in machine.group.members.by_id


def test_a_group_that_was_left_starts_anew() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    machine.leave(first)
    assert machine.state is EMPTY
    answer = machine.join("a", first)
    assert answer is not None
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (again,) = machine.stable("b", protocol_type="connect", protocols=(("v1", b""),))
    assert machine.group.generation == 3
    assert machine.group.members.protocol_type == "connect"
    assert machine.heartbeat(again) == ErrorCode.NONE


def test_without_an_initial_delay_the_first_member_need_not_wait() -> None:
    machine = Machine(initial_delay=0.0)
    machine.enter("a")
    machine.after(0.0)
    assert machine.error("a") == ErrorCode.NONE
