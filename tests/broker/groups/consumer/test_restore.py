"""Groups that are restored from a log in which a damaged disk has lost some of their records."""

import pytest

from barnabas_broker.groups.consumer.records import CURRENT, TARGET, ReplayedGroup, replay_record
from barnabas_explain.catalog import MemberRevoked
from barnabas_protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
)
from tests.broker.groups.consumer.machine import Machine, T


@pytest.mark.parametrize("revoking", [True, False])
def test_a_partition_that_two_members_own_belongs_to_the_one_that_got_it_last(revoking: bool) -> None:
    """The records that say that the first member revokes them, and has revoked them, are lost, or only the last one."""
    machine = Machine()
    machine.join("a")
    machine.join("b")
    machine.settle()
    given = machine.group.members["b"].owned()
    assert machine.of(MemberRevoked)
    of_a = [
        number
        for number, (key, _) in enumerate(machine.records)
        if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey) and key.member_id == "a"
    ]
    lost = of_a[2:] if revoking else of_a[1:]
    replayed: dict[str, ReplayedGroup] = {}
    for number, (key, value) in enumerate(machine.records):
        if number not in lost:
            replay_record(replayed, key, value)
    first = replayed["g"][CURRENT]["a"]
    assert isinstance(first, ConsumerGroupCurrentMemberAssignmentValue)
    assert bool(first.partitions_pending_revocation) is revoking
    machine.group = machine.group.restore("g", machine.settings, replayed["g"], machine.now, machine.wall_ms)
    owners = machine.owners()
    assert {partition: owners[T, partition] for partition in given[T]} == {partition: ["b"] for partition in given[T]}
    machine.settle()
    assert all(len(owners) == 1 for owners in machine.owners().values())
    assert {partition for _, partition in machine.owners()} == {0, 1, 2, 3}


def test_a_member_whose_record_is_lost_comes_back_without_its_old_target() -> None:
    """The records of what it had are deleted: the next coordinator would give its partitions to two members."""
    machine = Machine()
    machine.join("a")
    machine.join("b")
    machine.settle()
    replayed: dict[str, ReplayedGroup] = {}
    for key, value in machine.records:
        if not isinstance(key, ConsumerGroupMemberMetadataKey) or key.member_id != "a":
            replay_record(replayed, key, value)
    assert "a" in replayed["g"][TARGET]
    kept = [*machine.records]
    machine.records.clear()
    machine.group = machine.group.restore("g", machine.settings, replayed["g"], machine.now, machine.wall_ms)
    machine.join("c")
    written: dict[str, ReplayedGroup] = {}
    for key, value in (*kept, *machine.records):
        if not isinstance(key, ConsumerGroupMemberMetadataKey) or key.member_id != "a":
            replay_record(written, key, value)
    assert "a" not in written["g"][TARGET] and "a" not in written["g"][CURRENT]
