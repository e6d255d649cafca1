"""SyncGroup and the sync phase of a classic group."""

import pytest

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_explain.catalog import PersistFailed
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine, value_of

PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE


def test_followers_wait_for_the_leader_and_members_that_it_left_out_get_nothing() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    assert machine.sync("sync b", second) is None
    machine.sync("sync a", first, assignments={first: b"everything", "unknown": b"x"})
    assert machine.answers["sync a"].assignment == b"everything"
    assert machine.answers["sync b"].assignment == b""
    assert machine.error("sync b") == ErrorCode.NONE
    assert machine.state is STABLE


def test_sync_group_is_deferred_until_the_assignment_is_in_the_log() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    machine.hold = True
    machine.sync("sync b", second)
    machine.sync("sync a", first, assignments={first: b"1", second: b"2"})
    assert machine.state is COMPLETING
    assert "sync a" not in machine.answers
    assert "sync b" not in machine.answers
    assert [each.assignment for each in value_of(machine.persists[0]).members] == [b"1", b"2"]
    machine.persisted()
    assert machine.answers["sync b"].assignment == b"2"
    assert machine.state is STABLE


def test_sync_group_in_a_stable_group_returns_the_stored_assignment() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    again = machine.sync("again", first, assignments={first: b"all", second: b""})
    assert again is not None
    assert again.assignment == f"assignment of {first}".encode()
    other = machine.sync("other", second)
    assert other is not None
    assert other.assignment == f"assignment of {second}".encode()
    assert machine.state is STABLE


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_removed() -> None:
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


def test_if_the_leader_does_not_sync_the_followers_get_rebalance_in_progress() -> None:
    machine = Machine()
    first, second = (machine.enter(name, session=600_000) for name in "ab")
    machine.after(6)
    machine.sync("sync b", second)
    machine.after(60)
    assert machine.error("sync b") == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(machine.group.members.by_id) == [second]
    assert first not in machine.group.members.by_id


def test_a_repeated_sync_group_ends_the_previous_one() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    machine.sync("b", second)
    machine.sync("b again", second)
    assert machine.error("b") == ErrorCode.REBALANCE_IN_PROGRESS
    machine.settle(first)
    assert machine.error("b again") == ErrorCode.NONE


def test_a_repeated_sync_group_of_the_leader_does_not_assign_again() -> None:
    machine = Machine(hold=True)
    first = machine.enter("a")
    machine.persists.clear()
    machine.after(3)
    machine.sync("a", first, assignments={first: b"1"})
    machine.sync("a again", first, assignments={first: b"2"})
    assert len(machine.persists) == 1
    machine.persisted()
    assert machine.answers["a again"].assignment == b"1"


def test_an_assignment_is_ignored_if_a_rebalance_starts_while_it_is_appended() -> None:
    machine = Machine()
    first = machine.enter("a")
    machine.after(3)
    machine.hold = True
    machine.sync("a", first, assignments={first: b"1"})
    machine.join("b", version=3)
    assert machine.error("a") == ErrorCode.REBALANCE_IN_PROGRESS
    machine.persisted()
    assert machine.state is PREPARING


def test_an_assignment_that_cannot_be_appended_starts_a_rebalance() -> None:
    machine = Machine()
    first = machine.enter("a")
    machine.after(3)
    machine.hold = True
    machine.sync("a", first, assignments={first: b"1"})
    machine.persisted(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert machine.error("a") == ErrorCode.NOT_COORDINATOR
    assert machine.state is PREPARING
    assert PersistFailed in machine.event_types()


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_an_assignment_whose_append_takes_long_counts_when_the_log_has_decided(error: ErrorCode) -> None:
    machine = Machine()
    first = machine.enter("a")
    machine.after(3)
    machine.hold = True
    machine.sync("a", first, assignments={first: b"1"})
    machine.delayed()
    assert machine.error("a") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.state is COMPLETING
    machine.sync("again", first, assignments={first: b"2"})
    assert machine.error("again") == ErrorCode.COORDINATOR_NOT_AVAILABLE, "no request waits for a log that is stuck"
    assert len(machine.persists) == 1
    machine.persisted(error)
    if error == ErrorCode.NONE:
        assert machine.state is STABLE
        machine.sync("later", first)
        assert machine.answers["later"].assignment == b"1"
    else:
        assert machine.state is PREPARING
