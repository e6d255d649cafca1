"""The image: immutable, and the same after the same events."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from barnabas_broker.cluster.difference import difference
from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerFenced,
    BrokerRegistered,
    ControllerElected,
    Event,
    GroupConfigured,
    Image,
    PartitionChanged,
    PartitionInfo,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from barnabas_broker.cluster.store import StoreError

PARTITION = PartitionInfo(1, 0, (1, 2), (1,))
OTHER = PartitionInfo(-1, 7, (2, 3, 1), (3, 1), 9, (3,), (1,))
names = st.sampled_from(["a", "b", "c"])
configs = st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.text(max_size=3))
partitions = st.lists(st.just(PARTITION), min_size=1, max_size=3).map(tuple)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        BrokerRegistered,
        st.integers(1, 3),
        st.dictionaries(
            st.sampled_from(["PLAINTEXT", "INTERNAL"]), st.tuples(st.just("host"), st.integers(1, 65535)), min_size=1
        ),
        st.none() | st.just("rack"),
        st.integers(1, 3),
    ),
    st.builds(BrokerFenced, st.integers(1, 3), st.integers(1, 3)),
    st.builds(ControllerElected, st.integers(1, 3)),
    st.builds(PartitionChanged, names, st.integers(-1, 4), st.just(OTHER)),
    st.builds(TopicCreated, names, st.binary(min_size=16, max_size=16), partitions, configs),
    st.builds(TopicDeleted, names),
    st.builds(PartitionsAdded, names, partitions),
    st.builds(TopicConfigured, names, configs),
    st.builds(BrokerConfigured, st.sampled_from(["", "1"]), configs),
    st.builds(GroupConfigured, names, configs),
    st.builds(ProducerIdsAllocated, st.integers(0, 10**6)),
)


def applied(happened: list[Event]) -> Image:
    """The image after these events, without topics whose ids are used already."""
    image, used = Image("cluster"), set()
    for event in happened:
        if isinstance(event, TopicCreated):
            if event.name in image.topics or event.topic_id in used:
                continue
            used.add(event.topic_id)
        image = image.apply(event)
    return image


@given(st.lists(events, max_size=20))
def test_a_snapshot_makes_the_same_image(happened: list[Event]) -> None:
    image = applied(happened)
    again = Image("cluster")
    for event in image.snapshot():
        again = again.apply(event)
    assert again == image


@given(st.lists(events, max_size=20))
def test_events_together_do_what_they_do_one_by_one(happened: list[Event]) -> None:
    one_by_one = Image("cluster")
    for event in happened:
        one_by_one = one_by_one.apply(event)
    assert Image("cluster").apply_all(happened) == one_by_one


@given(st.lists(events, max_size=15), st.lists(events, max_size=15))
def test_a_difference_turns_the_earlier_image_into_the_later(before: list[Event], meanwhile: list[Event]) -> None:
    old = applied(before)
    new = applied(before + meanwhile)
    assert old.apply_all(difference(old, new)) == new
    assert difference(new, new) == []


@given(events)
def test_events_survive_json(event: Event) -> None:
    assert event_from_json(event_to_json(event)) == event


def test_an_image_does_not_change() -> None:
    before = applied([TopicCreated("a", b"1" * 16, (PARTITION,), {})])
    after = before.apply(PartitionsAdded("a", (PARTITION,)))
    assert len(before.topics["a"].partitions) == 1
    assert len(after.topics["a"].partitions) == 2


def test_a_deleted_topic_is_removed_by_name_and_id() -> None:
    image = applied([TopicCreated("a", b"1" * 16, (PARTITION,), {}), TopicDeleted("a")])
    assert not image.topics
    assert not image.names


def test_producer_ids_never_go_back() -> None:
    assert applied([ProducerIdsAllocated(2000), ProducerIdsAllocated(1000)]).next_producer_id == 2000


def test_a_journal_with_one_address_per_broker_is_read() -> None:
    line = '{"event":"BrokerRegistered","node_id":3,"host":"h","port":9092,"rack":"r","epoch":7}'
    assert event_from_json(line) == BrokerRegistered(3, {"PLAINTEXT": ("h", 9092)}, "r", 7)


@pytest.mark.parametrize(
    "endpoints",
    ["{}", "[]", "null", '{"A":["h"]}', '{"A":["h",70000]}', '{"A":["h",-1]}', '{"A":["h","x"]}'],
)
def test_a_broker_without_a_valid_address_is_rejected(endpoints: str) -> None:
    with pytest.raises(StoreError, match="not an event"):
        event_from_json(f'{{"event":"BrokerRegistered","node_id":3,"endpoints":{endpoints}}}')
