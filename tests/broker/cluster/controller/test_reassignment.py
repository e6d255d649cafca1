"""Reassignment of replicas."""

import pytest

from barnabas_broker.cluster.controller import IsrChange, alter_isr, broker_fenced, is_reassigning, reassign
from barnabas_broker.cluster.image import Image, PartitionChanged
from barnabas_protocol.errors import ErrorCode
from tests.broker.cluster.support import TOPIC_ID, brokers, clean, one, partition, refused, with_topic

IMAGE = with_topic(brokers(1, 2, 3, 4), partition(1, (1, 2)))


def moved(image: Image, target: list[int] | None) -> Image:
    return image.apply(reassign(image, "topic", 0, target))


def in_sync(image: Image, *nodes: int) -> Image:
    """The leader proposes an ISR."""
    now = image.topics["topic"].partitions[0]
    wish = IsrChange("topic", TOPIC_ID, 0, now.leader_epoch, now.partition_epoch, tuple((n, n * 10) for n in nodes))
    events, _ = alter_isr(image, now.leader, now.leader * 10, [wish])
    return image.apply_all(events)


def test_old_replicas_stay_until_the_new_ones_are_in_sync() -> None:
    begun = moved(IMAGE, [3, 4])
    now = begun.topics["topic"].partitions[0]
    assert (now.replicas, now.adding, now.removing, now.isr) == ((3, 4, 1, 2), (3, 4), (1, 2), (1, 2))
    assert (now.leader, now.leader_epoch) == (1, 5)
    half = in_sync(begun, 1, 2, 3)
    assert is_reassigning(half.topics["topic"].partitions[0])
    done = in_sync(half, 1, 2, 3, 4).topics["topic"].partitions[0]
    assert (done.replicas, done.isr, done.adding, done.removing) == ((3, 4), (3, 4), (), ())
    assert (done.leader, done.leader_epoch) == (3, 6)


def test_completion_raises_the_leader_epoch_of_a_leader_that_stays() -> None:
    done = in_sync(moved(IMAGE, [1, 3]), 1, 2, 3).topics["topic"].partitions[0]
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((1, 3), (1, 3), 1, 6)


def test_a_new_order_or_fewer_replicas_completes_at_once() -> None:
    reordered = moved(IMAGE, [2, 1]).topics["topic"].partitions[0]
    assert (reordered.replicas, reordered.leader, is_reassigning(reordered)) == ((2, 1), 1, False)
    fewer = moved(IMAGE, [2]).topics["topic"].partitions[0]
    assert (fewer.replicas, fewer.isr, fewer.leader, is_reassigning(fewer)) == ((2,), (2,), 2, False)


def test_it_can_be_cancelled() -> None:
    begun = in_sync(moved(IMAGE, [3, 4]), 1, 2, 3)
    back = moved(begun, None).topics["topic"].partitions[0]
    assert (set(back.replicas), back.isr, back.adding, back.removing) == ({1, 2}, (1, 2), (), ())
    with refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
        reassign(IMAGE, "topic", 0, None)


def test_another_target_replaces_the_first() -> None:
    again = moved(moved(IMAGE, [3, 4]), [1, 4]).topics["topic"].partitions[0]
    assert (again.replicas, again.adding, again.removing) == ((1, 4, 2), (4,), (2,))


@pytest.mark.parametrize("target", [[], [1, 1], [9], [-1]])
def test_invalid_targets(target: list[int]) -> None:
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        reassign(IMAGE, "topic", 0, target)


@pytest.mark.parametrize("target", [[3], [1, 2, 3]])
def test_the_replication_factor_can_be_fixed(target: list[int]) -> None:
    """KIP-860."""
    with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
        reassign(IMAGE, "topic", 0, target, allow_factor_change=False)
    begun = moved(IMAGE, [3, 4])
    with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
        reassign(begun, "topic", 0, target, allow_factor_change=False)
    assert reassign(begun, "topic", 0, [2, 3], allow_factor_change=False).partition.adding == (3,)
    assert reassign(begun, "topic", 0, None, allow_factor_change=False).partition.replicas == (1, 2)


def test_an_in_sync_replica_stays_until_a_remaining_one_is_in_sync() -> None:
    lagging = with_topic(brokers(1, 2), partition(1, (1, 2), (1,)))
    waiting = moved(lagging, [2])
    now = waiting.topics["topic"].partitions[0]
    assert (now.replicas, now.isr, now.leader, now.removing) == ((2, 1), (1,), 1, (1,))
    done = in_sync(waiting, 1, 2).topics["topic"].partitions[0]
    assert (done.replicas, done.isr, done.leader) == ((2,), (2,), 2)


def test_it_is_not_cancelled_when_only_new_replicas_are_in_sync() -> None:
    half = in_sync(with_topic(brokers(1, 3, 4), partition(1, (1,))).apply(moving()), 1, 3)
    gone = half.apply_all(broker_fenced(half, 1, 10, clean, one, stopped=True))
    assert gone.topics["topic"].partitions[0].isr == (3,)
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        reassign(gone, "topic", 0, None)


def moving() -> PartitionChanged:
    return reassign(with_topic(brokers(1, 3, 4), partition(1, (1,))), "topic", 0, [3, 4])


def test_unknown_partitions() -> None:
    for name, index in (("nothing", 0), ("topic", 1), ("topic", -1)):
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            reassign(IMAGE, name, index, [1])
