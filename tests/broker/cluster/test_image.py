"""The image: immutable, and the same after the same events."""

import hypothesis.strategies as st
from hypothesis import given

from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerRegistered,
    Event,
    Image,
    PartitionInfo,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from barnabas_broker.cluster.store import event_from_json, event_to_json

PARTITION = PartitionInfo(1, 0, (1, 2), (1,))
names = st.sampled_from(["a", "b", "c"])
configs = st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.text(max_size=3))
partitions = st.lists(st.just(PARTITION), min_size=1, max_size=3).map(tuple)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(BrokerRegistered, st.integers(1, 3), st.just("host"), st.integers(1, 65535), st.none() | st.just("rack")),
    st.builds(TopicCreated, names, st.binary(min_size=16, max_size=16), partitions, configs),
    st.builds(TopicDeleted, names),
    st.builds(PartitionsAdded, names, partitions),
    st.builds(TopicConfigured, names, configs),
    st.builds(BrokerConfigured, st.sampled_from(["", "1"]), configs),
    st.builds(ProducerIdsAllocated, st.integers(0, 10**6)),
)


def applied(happened: list[Event]) -> Image:
    image = Image("cluster")
    for event in happened:
        if isinstance(event, TopicCreated) and event.name in image.topics:
            continue
        image = image.apply(event)
    return image


@given(st.lists(events, max_size=20))
def test_a_snapshot_makes_the_same_image(happened: list[Event]) -> None:
    image = applied(happened)
    again = Image("cluster")
    for event in image.snapshot():
        again = again.apply(event)
    assert again == image


@given(events)
def test_events_survive_json(event: Event) -> None:
    assert event_from_json(event_to_json(event)) == event


def test_an_image_does_not_change() -> None:
    before = applied([TopicCreated("a", b"1" * 16, (PARTITION,), {})])
    after = before.apply(PartitionsAdded("a", (PARTITION,)))
    assert len(before.topics["a"].partitions) == 1
    assert len(after.topics["a"].partitions) == 2


def test_a_deleted_topic_is_gone_by_name_and_id() -> None:
    image = applied([TopicCreated("a", b"1" * 16, (PARTITION,), {}), TopicDeleted("a")])
    assert not image.topics
    assert not image.names


def test_producer_ids_never_go_back() -> None:
    assert applied([ProducerIdsAllocated(2000), ProducerIdsAllocated(1000)]).next_producer_id == 2000
