"""Committed offsets of a group: transactions and expiry."""

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_protocol.group_records import Committed
from tests.broker.groups.machine import Machine
from tests.broker.groups.support import WEEK_MS

PREPARING = ClassicGroupState.PREPARING_REBALANCE


def test_kip_447_commits_of_an_open_transaction_are_pending() -> None:
    offsets = GroupOffsets()
    assert offsets.find("topic", 0) is None
    offsets.apply("topic", 0, Committed(5, -1, "", 0, sequence=1), 1)
    offsets.apply("topic", 0, Committed(9, -1, "", 0, sequence=2), 2, 7)
    assert offsets.is_pending("topic", 0)
    found = offsets.find("topic", 0)
    assert found is not None
    assert found.offset == 5
    offsets.end_transaction(7, commit=True)
    assert not offsets.is_pending("topic", 0)
    found = offsets.find("topic", 0)
    assert found is not None
    assert found.offset == 9


def test_kip_211_offsets_expire_when_the_group_has_been_empty_for_the_retention_time() -> None:
    machine = Machine()
    (first,) = machine.stable("a", session=1_800_000)
    machine.leave(first)
    offsets = GroupOffsets()
    offsets.apply("topic", 0, Committed(5, -1, "", 0, sequence=1), 1)
    wall_ms = 10 * WEEK_MS
    week = WEEK_MS / 1000
    assert offsets.expired(machine.group, machine.now + week - 1, wall_ms, WEEK_MS) == []
    assert offsets.expired(machine.group, machine.now + week + 1, wall_ms, WEEK_MS) == [("topic", 0)]


def test_kip_211_offsets_of_a_group_without_members_expire_after_the_commit() -> None:
    machine = Machine()
    offsets = GroupOffsets()
    offsets.apply("topic", 0, Committed(5, -1, "", 1000, sequence=1), 1)
    assert offsets.expired(machine.group, machine.now, 999 + WEEK_MS, WEEK_MS) == []
    assert offsets.expired(machine.group, machine.now, 1000 + WEEK_MS, WEEK_MS) == [("topic", 0)]


def test_kip_211_in_a_stable_group_only_offsets_of_unsubscribed_topics_expire() -> None:
    machine = Machine()
    subscription = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x04used" + b"\xff\xff\xff\xff"
    machine.stable("a", protocols=(("range", subscription),))
    offsets = GroupOffsets()
    offsets.apply("used", 0, Committed(5, -1, "", 0, sequence=1), 1)
    offsets.apply("unused", 0, Committed(5, -1, "", 0, sequence=1), 1)
    assert offsets.expired(machine.group, machine.now, 2 * WEEK_MS, WEEK_MS) == [("unused", 0)]
    machine.join("a", next(iter(machine.group.members.by_id)), protocols=(("range", subscription),))
    machine.enter("b", protocols=(("range", subscription),))
    assert machine.state is PREPARING
    assert offsets.expired(machine.group, machine.now, 2 * WEEK_MS, WEEK_MS) is None
