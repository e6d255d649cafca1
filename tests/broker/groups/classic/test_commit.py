"""Which offset commits a classic group accepts."""

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine

EMPTY = ClassicGroupState.EMPTY


def test_commits_without_generation_are_accepted_while_the_group_is_empty() -> None:
    machine = Machine()
    assert machine.commit("", -1) == ErrorCode.NONE
    assert machine.commit("any", -1) == ErrorCode.NONE
    (first,) = machine.stable("a")
    assert machine.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.commit(first, -1) == ErrorCode.ILLEGAL_GENERATION
    machine.leave(first)
    assert machine.state is EMPTY
    assert machine.commit("", -1) == ErrorCode.NONE


def test_commits_by_state() -> None:
    machine = Machine()
    assert machine.commit("unknown", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    assert machine.commit(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    machine.settle(first, second)
    assert machine.commit(first, 1) == ErrorCode.NONE
    assert machine.commit(first, 0) == ErrorCode.ILLEGAL_GENERATION
    assert machine.commit("unknown", 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_during_the_join_phase_is_accepted_and_extends_the_session() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    machine.join("a", first)
    for _ in range(4):
        machine.after(9)
        assert machine.commit(second, 1) == ErrorCode.NONE
    assert second in machine.group.members.by_id
