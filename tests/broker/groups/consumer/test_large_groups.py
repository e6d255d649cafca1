"""Thousands of members: the group does its work in parts, and nothing of it grows with the members of a heartbeat."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from barnabas_broker.groups.consumer.assignment import NewTargets
from barnabas_broker.groups.consumer.assignors import UniformAssignor
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_explain.catalog import MemberExpired
from tests.broker.groups.consumer.machine import Machine, T, catalog

V = TypeVar("V")

#: Members that one call handles, at most.
PART = 100


def answered(machine: Machine, ids: Sequence[str]) -> int:
    return sum(member_id in machine.answers for member_id in ids)


def test_heartbeats_that_wait_for_a_target_go_on_in_parts() -> None:
    machine = Machine(topics=catalog(t=1000))
    machine.compute = False
    ids = [f"m{number:03d}" for number in range(250)]
    for member_id in ids:
        assert machine.join(member_id) is None
    machine.computed()
    assert answered(machine, ids) == PART
    machine.after(0.0005)
    assert answered(machine, ids) == PART, "the loop does other work first"
    machine.after(0.0006)
    assert answered(machine, ids) == 2 * PART
    machine.after(0.001)
    assert answered(machine, ids) == 250
    assert machine.group.next_deadline() > machine.now + 1
    machine.compute = True
    machine.settle(5)
    assert machine.state() is ConsumerGroupState.STABLE
    assert sorted(len(each.assigned[T]) for each in machine.group.members.values()) == [4] * 250


def test_what_waits_for_its_part_gets_an_answer_if_the_group_ends() -> None:
    machine = Machine()
    machine.compute = False
    ids = [f"m{number:03d}" for number in range(150)]
    for member_id in ids:
        machine.join(member_id)
    machine.computed()
    assert answered(machine, ids) == PART
    machine.apply(machine.group.unload(machine.now))
    assert answered(machine, ids) == 150
    assert machine.group.next_deadline() == float("inf")


def test_a_member_that_leaves_before_its_part_is_refused() -> None:
    machine = Machine()
    machine.compute = False
    ids = [f"m{number:03d}" for number in range(150)]
    for member_id in ids:
        machine.join(member_id)
    machine.computed()
    machine.send("m149", -1, token="leaves")
    machine.after(0.01)
    assert answered(machine, ids) == 150
    assert machine.answers["m149"].error_code != 0
    assert machine.answers["m148"].error_code == 0


def test_members_that_die_together_are_removed_in_parts() -> None:
    machine = Machine(topics=catalog(t=1000))
    ids = [f"m{number:03d}" for number in range(250)]
    for member_id in ids:
        machine.join(member_id)
    machine.settle(5)
    machine.now += 44
    machine.beat("m249")
    machine.now += 1.5
    parts = []
    while len(machine.group.members) > 1:
        before = len(machine.group.members)
        machine.apply(machine.group.tick(machine.now))
        parts.append(before - len(machine.group.members))
        assert machine.now < machine.group.next_deadline() <= machine.now + 0.001 or len(machine.group.members) == 1
        machine.now += 0.001
    assert parts == [PART, PART, 49]
    assert list(machine.group.members) == ["m249"]
    machine.settle(3)
    assert len(machine.group.members["m249"].assigned[T]) == 1000
    assert len(machine.of(MemberExpired)) == 249


def test_ever_new_members_do_not_leave_their_deadlines_behind() -> None:
    machine = Machine()
    for number in range(3_000):
        machine.join(f"m{number}")
        machine.send(f"m{number}", -1)
    assert len(machine.group._deadlines) < 500
    machine.join("stays")
    machine.after(46)
    assert not machine.group.members


@pytest.mark.parametrize("count", [1, 3])
def test_members_with_the_same_subscription_share_it(count: int) -> None:
    machine = Machine(topics=catalog(t=4, u=4))
    for number in range(count):
        machine.join(f"m{number}", "t", "u")
    assert len({id(member.topics) for member in machine.group.members.values()}) == 1
    machine.send("m0", -1)
    for number in range(1, count):
        machine.beat(f"m{number}", subscribed_topic_names=["u"])
    assert [*machine.group.subscriptions._sets] == ([frozenset("u")] if count > 1 else [])
    machine.settle(4)
    assert all(T not in member.assigned for member in machine.group.members.values())


def test_the_epoch_grows_if_a_topic_does_whose_hash_is_remembered() -> None:
    machine = Machine(topics=catalog(t=4))
    machine.join("a")
    machine.join("b")
    before = machine.group.epoch
    machine.topics.update([each._replace(partitions=6) for each in machine.topics.by_name.values()])
    machine.beat("a")
    assert machine.group.epoch == before + 1
    machine.settle(4)
    assert sorted(machine.owners()) == [(T, number) for number in range(6)]


@pytest.mark.broad
def test_a_target_for_5000_members_and_10000_partitions_takes_little_time() -> None:
    """The assignor and what follows take less than half a second, and no call of the machine holds the loop for long.

    Measured in processor time, with a margin: a busy machine takes longer.
    """
    machine = Machine(topics=catalog(t=10_000), compute=False)
    for number in range(5_000):
        machine.join(f"m{number:04d}")
    machine.computed()  # for the first member
    machine.after(0.1)
    machine.beat("m0000")
    (asked,) = machine.computations
    assert len(asked.spec.members) == 5_000
    calls: list[float] = []

    def timed(work: Callable[[], V]) -> V:
        started = time.thread_time()
        result = work()
        calls.append(time.thread_time() - started)
        return result

    gc.disable()  # the broker bounds its pauses, which are not the group's
    try:
        targets = timed(lambda: NewTargets.of("g", asked.spec, UniformAssignor().assign(asked.spec)))
        in_thread = calls.pop()
        machine.apply(timed(lambda: machine.group.assigned(asked.ticket, targets, machine.now, 0)))
        while len(calls) < 200 and machine.group.next_deadline() < machine.now + 1:
            machine.now = machine.group.next_deadline()
            machine.apply(timed(lambda: machine.group.tick(machine.now)))
    finally:
        gc.enable()
    assert in_thread + sum(calls) < 0.5
    assert max(calls) < 0.05
    assert sorted(len(each[T]) for each in machine.group.targets.values()) == [2] * 5_000
