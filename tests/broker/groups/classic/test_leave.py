"""LeaveGroup of a classic group."""

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine

EMPTY = ClassicGroupState.EMPTY
STABLE = ClassicGroupState.STABLE


def test_each_leaving_member_gets_its_own_result() -> None:
    machine = Machine()
    first, second, _ = machine.stable("a", "b", static=("s",))
    assert machine.leave(first, "unknown", second) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert machine.leave("", instance="unknown") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert machine.leave("other", instance="s") == [ErrorCode.FENCED_INSTANCE_ID]
    assert machine.leave("", instance="s") == [ErrorCode.NONE]
    assert machine.state is EMPTY


def test_the_deferred_sync_group_of_a_leaving_member_fails() -> None:
    machine = Machine()
    machine.enter("a")
    second = machine.enter("b")
    machine.after(6)
    machine.sync("b", second)
    machine.leave(second)
    assert machine.error("b") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leaving_pending_member_causes_no_rebalance() -> None:
    machine = Machine()
    machine.stable("a")
    pending = machine.join("b")
    assert pending is not None
    assert machine.leave(pending.member_id) == [ErrorCode.NONE]
    assert machine.state is STABLE
