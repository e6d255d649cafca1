"""The record of a classic group: appends that fail, and groups that are restored from it."""

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import RANGE, Machine, value_of

EMPTY = ClassicGroupState.EMPTY
STABLE = ClassicGroupState.STABLE
DEAD = ClassicGroupState.DEAD


def test_a_new_group_whose_record_cannot_be_appended_is_dead() -> None:
    machine = Machine(hold=True)
    machine.join("a", version=3)
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.error("a") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.state is DEAD
    assert machine.group.next_deadline() == float("inf")
    machine.apply(machine.group.tick(machine.now + 100))


def test_stale_tickets_are_ignored() -> None:
    machine = Machine()
    machine.stable("a")
    machine.apply(machine.group.persisted(999, ErrorCode.NOT_ENOUGH_REPLICAS, machine.now))
    assert machine.state is STABLE


def test_a_restored_group_continues_without_a_rebalance() -> None:
    machine = Machine(hold=True)
    first, second = machine.enter("a"), machine.enter("b")
    machine.persists.clear()
    machine.after(6)
    machine.sync("sync a", first, assignments={first: b"1", second: b"2"})
    value: GroupMetadataValue = value_of(machine.persists[-1])
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
    assert machine.state is EMPTY, "the restored sessions have expired"


def test_the_record_of_an_empty_group_is_appended_until_it_is_in_the_log() -> None:
    machine = Machine()
    member = machine.stable("a")[0]
    machine.hold = True
    machine.leave(member)
    for pause in (0.5, 1, 2, 4, 8, 16, 30, 30):
        machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
        machine.after(pause - 0.25)
        assert machine.persists == []
        machine.after(0.25)
        assert len(machine.persists) == 1
    assert (value_of(machine.persists[0]).generation, value_of(machine.persists[0]).members) == (2, [])
    machine.persisted(ErrorCode.NONE)
    assert machine.state is EMPTY
    assert machine.group.next_deadline() == float("inf")


def test_the_record_of_a_group_that_is_empty_no_more_is_not_appended_again() -> None:
    machine = Machine()
    member = machine.stable("a")[0]
    machine.hold = True
    machine.leave(member)
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    machine.join("b", version=3)
    machine.after(0.5)
    assert machine.persists == []
