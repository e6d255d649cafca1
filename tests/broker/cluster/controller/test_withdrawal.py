"""Replicas that leave the ISR and the ELR at the wish of their own broker."""

import pytest

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import ElectionType, Withdrawal
from barnabas_broker.cluster.image import Image, LastKnown, PartitionInfo
from barnabas_protocol.errors import ErrorCode
from tests.broker.cluster.support import TOPIC_ID, brokers, only, partition, refused, with_topic

WISH = Withdrawal("topic", TOPIC_ID, 0, 5, 2)


def cluster(leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), live: tuple[int, ...] = (1, 2, 3)) -> Image:
    return with_topic(brokers(*live), partition(leader, (1, 2, 3), isr)._replace(elr=elr))


def after(image: Image, node: int, wish: Withdrawal = WISH) -> PartitionInfo:
    return only(image, controller.withdraw(image, node, node * 10, [wish]))


def test_a_follower_leaves_and_the_leader_epoch_fences_what_it_has_fetched() -> None:
    found = after(cluster(1, (1, 2, 3)), 3)
    assert (found.leader, found.leader_epoch, found.isr, found.elr, found.partition_epoch) == (1, 6, (1, 2), (), 8)


def test_a_leader_is_followed_by_a_replica_in_sync() -> None:
    found = after(cluster(1, (1, 2, 3)), 1)
    assert (found.leader, found.leader_epoch, found.isr, found.elr, found.partition_epoch) == (2, 6, (2, 3), (), 8)


def test_a_leader_alone_in_sync_is_followed_by_an_eligible_replica() -> None:
    found = after(cluster(1, (1,), (3,)), 1)
    assert (found.leader, found.isr, found.elr) == (3, (3,), ())
    assert found.last_known == (LastKnown(1, ""),)


def test_a_replica_that_has_lost_records_is_not_eligible_and_one_that_has_not_is() -> None:
    image = cluster(1, (1, 2))
    lost, kept = after(image, 2), after(image, 2, WISH._replace(lost=False))
    assert (lost.isr, lost.elr, lost.last_known) == ((1,), (), (LastKnown(2, ""),))
    assert (kept.isr, kept.elr, kept.last_known) == ((1,), (2,), ())


def test_an_eligible_replica_that_has_lost_records_is_not_eligible_any_more() -> None:
    found = after(cluster(1, (1,), (2, 3)), 3)
    assert (found.leader, found.leader_epoch, found.isr, found.elr) == (1, 6, (1,), (2,))


@pytest.mark.parametrize("wish", [WISH, WISH._replace(lost=False)])
@pytest.mark.parametrize("image", [cluster(1, (1,)), cluster(1, (1,), (2,), live=(1, 3))])
def test_a_leader_that_no_live_replica_can_follow_stays(image: Image, wish: Withdrawal) -> None:
    assert controller.withdraw(image, 1, 10, [wish]) == []


def test_a_replica_out_of_sync_gets_a_leader_epoch_in_which_it_has_fetched_nothing() -> None:
    found = after(cluster(1, (1, 2)), 3)
    assert (found.leader, found.leader_epoch, found.isr) == (1, 6, (1, 2))
    image = with_topic(brokers(1, 2, 3), partition(1, (1, 2, 3), (1, 2))._replace(leader_epoch=6))
    assert controller.withdraw(image, 3, 30, [WISH]) == []


@pytest.mark.parametrize(
    "wish", [WISH._replace(topic="other"), WISH._replace(topic_id=bytes(16)), WISH._replace(partition=1)]
)
def test_partitions_that_do_not_exist_any_more_are_ignored(wish: Withdrawal) -> None:
    assert controller.withdraw(cluster(1, (1, 2, 3)), 3, 30, [wish]) == []


def test_a_partition_without_a_leader_and_one_without_this_replica_do_not_change() -> None:
    assert controller.withdraw(cluster(-1, (1,), live=(2, 3)), 2, 20, [WISH]) == []
    image = with_topic(brokers(1, 2, 3), partition(1, (1, 2)))
    assert controller.withdraw(image, 3, 30, [WISH]) == []


def test_a_broker_that_is_not_registered_with_this_epoch_is_refused() -> None:
    with refused(ErrorCode.STALE_BROKER_EPOCH):
        controller.withdraw(cluster(1, (1, 2, 3)), 3, 29, [WISH])


def test_a_replica_that_has_left_is_not_elected_by_hand() -> None:
    image = cluster(2, (1, 2, 3))
    image = image.apply_all(controller.withdraw(image, 1, 10, [WISH]))
    events, answers = controller.elect_leaders(image, ElectionType.PREFERRED, [("topic", 0)])
    assert (events, answers) == ([], {("topic", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE})
    # A move to this replica alone waits until it is in sync again.
    moved = image.apply(controller.reassign(image, "topic", 0, (1,)))
    assert moved.topics["topic"].partitions[0].leader == 2
