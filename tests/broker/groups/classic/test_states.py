"""The transitions between the states of a classic group, and the state Dead."""

import pytest

from barnabas_broker.coordinators.result import IllegalTransition
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.states import TRANSITIONS, ClassicGroupState
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine, value_of
from tests.lots import in_lots

EMPTY = ClassicGroupState.EMPTY
DEAD = ClassicGroupState.DEAD


@pytest.mark.parametrize("origin", list(ClassicGroupState))
@in_lots("target", list(ClassicGroupState))
def test_only_the_transitions_of_the_table_are_allowed(origin: ClassicGroupState, target: ClassicGroupState) -> None:
    machine = Machine()
    machine.group.state = origin
    if target in TRANSITIONS[origin]:
        machine.group._transition(target, 1.0)
        assert machine.state is target
    else:
        with pytest.raises(IllegalTransition):
            ClassicGroup._transition(machine.group, target, 1.0)


def test_when_the_last_member_leaves_the_group_is_empty_in_a_new_generation() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    machine.hold = True
    machine.leave(first)
    assert machine.state is EMPTY
    assert machine.group.generation == 2
    assert value_of(machine.persists[0]).members == []
    assert value_of(machine.persists[0]).generation == 2
    assert value_of(machine.persists[0]).protocol_type == "consumer"


def test_an_empty_group_can_start_again_with_another_protocol_type() -> None:
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


def test_every_request_to_a_dead_group_gets_coordinator_not_available() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    machine.apply(machine.group.unload(machine.now))
    assert machine.state is DEAD
    machine.join("join", first)
    machine.sync("sync", first)
    assert machine.error("join") == machine.error("sync") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.heartbeat(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.commit(first, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.leave(first) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_unloading_fails_deferred_requests_with_not_coordinator() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    machine.sync("b", second)
    machine.apply(machine.group.unload(machine.now))
    assert machine.error("b") == ErrorCode.NOT_COORDINATOR
    assert machine.state is DEAD
    assert machine.group.next_deadline() == float("inf")
    assert first not in machine.group.members.by_id
