"""Leader elections when brokers register and are fenced."""

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import ElectionType, leaders
from barnabas_broker.cluster.image import (
    BrokerFenced,
    BrokerInfo,
    BrokerRegistered,
    ControllerElected,
    Event,
    Image,
    PartitionChanged,
)
from barnabas_protocol.errors import ErrorCode
from tests.broker.cluster.support import brokers, clean, one, only, partition, unclean, with_topic


def test_the_next_in_sync_replica_leads_when_the_leader_is_fenced() -> None:
    image = with_topic(brokers(1, 2, 3), partition(1, (1, 2, 3), (3, 1)))
    events = controller.broker_fenced(image, 1, 10, clean, one, stopped=True)
    after = only(image, events)
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (3, (3,), 6, 8)
    assert events[-1] == BrokerFenced(1, 10, stopped=True)


def test_a_fenced_follower_leaves_the_isr_in_the_same_leader_epoch() -> None:
    image = with_topic(brokers(1, 2, 3), partition(1, (1, 2, 3)))
    after = only(image, controller.broker_fenced(image, 2, 20, clean, one, stopped=True))
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (1, (1, 3), 5, 8)


def test_the_last_in_sync_replica_stays_in_the_isr() -> None:
    image = with_topic(brokers(1, 2), partition(1, (1, 2), (1,)))
    after = only(image, controller.broker_fenced(image, 1, 10, clean, one, stopped=True))
    assert (after.leader, after.isr, after.leader_epoch) == (-1, (1,), 6)


def test_an_unclean_election_takes_any_live_replica() -> None:
    image = with_topic(brokers(1, 2), partition(1, (1, 2), (1,)))
    after = only(image, controller.broker_fenced(image, 1, 10, unclean, one, stopped=True))
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 6)


def test_an_earlier_broker_epoch_is_not_fenced() -> None:
    image = with_topic(brokers(1, 2), partition(1, (1, 2)))
    assert controller.broker_fenced(image, 1, 9, clean, one, stopped=True) == []
    assert controller.broker_fenced(image, 7, 70, clean, one, stopped=True) == []


def test_partitions_of_other_brokers_do_not_change() -> None:
    image = with_topic(brokers(1, 2, 3), partition(2, (2, 3)), partition(1, (1, 2)))
    events = controller.broker_fenced(image, 1, 10, clean, one, stopped=True)
    assert [e.index for e in events if isinstance(e, PartitionChanged)] == [1]


def settled(image: Image, me: int, registered: dict[int, BrokerInfo]) -> Image:
    """The image after all steps of reconcile."""
    for _ in range(100):
        events = controller.reconcile(image, me, registered, clean, one)
        if not events:
            return image
        image = image.apply_all(events)
    raise AssertionError("it does not come to an end")


def test_nothing_changes_when_the_image_is_up_to_date() -> None:
    image = with_topic(brokers(1, 2), partition(1, (1, 2)))
    assert controller.reconcile(image, 1, image.brokers, clean, one) == []


def test_a_new_controller_is_an_event() -> None:
    image = brokers(1, 2)
    assert controller.reconcile(image, 2, image.brokers, clean, one) == [ControllerElected(2)]


def test_a_returning_broker_leads_partitions_without_a_leader() -> None:
    image = with_topic(brokers(1, 2), partition(1, (1, 2), (1,)))
    alone = settled(image, 2, {2: image.brokers[2]})
    assert set(alone.brokers) == {2}
    back = settled(alone, 2, {2: image.brokers[2], 1: image.brokers[1]._replace(epoch=99)})
    after = back.topics["topic"].partitions[0]
    assert (after.leader, after.isr, back.brokers[1].epoch) == (1, (1,), 99)
    assert after.leader_epoch > 5


def test_a_broker_that_restarts_unnoticed_leads_in_a_new_epoch() -> None:
    # It may have lost unsynced records, so its new leadership needs a new leader epoch.
    image = with_topic(brokers(2, 1), partition(1, (1, 2), (1,)), partition(1, (1, 2)))
    events = controller.reconcile(image, 2, {2: image.brokers[2], 1: image.brokers[1]._replace(epoch=99)}, clean, one)
    first, second = only(image, events, 0), only(image, events, 1)
    assert (first.leader, first.isr) == (1, (1,))
    assert first.leader_epoch > 5
    assert (second.leader, second.isr) == (2, (2,))
    assert [type(e) for e in events if not isinstance(e, PartitionChanged)] == [BrokerFenced, BrokerRegistered]


def test_the_isr_stays_when_all_its_brokers_are_fenced_together() -> None:
    image = with_topic(brokers(1, 2, 3), partition(1, (1, 2)))
    gone = settled(image, 3, {3: image.brokers[3]})
    assert gone.topics["topic"].partitions[0].leader == -1
    # Both have all acknowledged records; the first to return with them leads, alone in the ISR.
    back = settled(gone, 3, {3: image.brokers[3], 2: image.brokers[2]._replace(epoch=77, intact=(20, 20))})
    after = back.topics["topic"].partitions[0]
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))


def test_many_changes_are_made_in_several_steps() -> None:
    image = with_topic(brokers(2, 1), *(partition(1, (1, 2)) for _ in range(leaders.STEP + 10)))
    first = controller.reconcile(image, 2, {2: image.brokers[2]}, clean, one)
    assert len(first) == leaders.STEP
    assert not any(isinstance(e, BrokerFenced) for e in first)
    after = settled(image, 2, {2: image.brokers[2]})
    assert set(after.brokers) == {2}
    assert {p.leader for p in after.topics["topic"].partitions} == {2}


def test_preferred_leaders_that_are_in_sync_are_elected() -> None:
    image = with_topic(
        brokers(1, 2), partition(2, (1, 2)), partition(2, (1, 2), (2,)), partition(2, (3, 2)), partition(1, (1, 2))
    )
    events = controller.prefer_leaders(image)
    assert [(e.index, e.partition.leader, e.partition.leader_epoch) for e in changed(events)] == [(0, 1, 6)]


def changed(events: list[Event]) -> list[PartitionChanged]:
    return [event for event in events if isinstance(event, PartitionChanged)]


def test_elect_leaders_answers_each_partition() -> None:
    image = with_topic(brokers(1, 2), partition(2, (1, 2)), partition(2, (1, 2), (2,)), partition(1, (1, 2)))
    asked = [("topic", 0), ("topic", 1), ("topic", 2), ("topic", 9), ("nothing", 0)]
    events, answers = controller.elect_leaders(image, ElectionType.PREFERRED, asked)
    assert [e.index for e in changed(events)] == [0]
    assert list(answers.values()) == [
        ErrorCode.NONE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_elect_leaders_unclean() -> None:
    image = with_topic(brokers(1, 2), partition(-1, (3, 2), (3,)), partition(-1, (3, 4), (3,)), partition(1, (1, 2)))
    events, answers = controller.elect_leaders(image, ElectionType.UNCLEAN, [("topic", 0), ("topic", 1), ("topic", 2)])
    assert only(image, events, 0).leader == 2
    assert only(image, events, 0).isr == (2,)
    assert answers == {
        ("topic", 0): ErrorCode.NONE,
        ("topic", 1): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ("topic", 2): ErrorCode.ELECTION_NOT_NEEDED,
    }
