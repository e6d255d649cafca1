"""The image: immutable, and the same after the same events."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from barnabas_broker.cluster.acls import AclCreated, AclDeleted
from barnabas_broker.cluster.controller import create_acls, delete_acls
from barnabas_broker.cluster.event_json import event_from_json, event_to_json
from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerFenced,
    BrokerRegistered,
    ClientMetricsConfigured,
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
from barnabas_broker.cluster.image_diff import difference
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.security.bindings import AclBinding
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType

PARTITION = PartitionInfo(1, 0, (1, 2), (1,))
OTHER = PartitionInfo(-1, 7, (2, 3, 1), (3, 1), 9, (3,), (1,))
names = st.sampled_from(["a", "b", "c"])
configs = st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.text(max_size=3))
partitions = st.lists(st.just(PARTITION), min_size=1, max_size=3).map(tuple)
bindings = st.builds(
    AclBinding,
    st.sampled_from([AclResourceType.TOPIC, AclResourceType.CLUSTER]),
    names,
    st.sampled_from([AclPatternType.LITERAL, AclPatternType.PREFIXED]),
    st.sampled_from(["User:a", 'User:ü\\"']),
    st.just("*"),
    st.sampled_from([AclOperation.ALL, AclOperation.READ]),
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
)
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
    st.builds(ClientMetricsConfigured, names, configs),
    st.builds(ProducerIdsAllocated, st.integers(0, 10**6)),
    st.builds(AclCreated, bindings),
    st.builds(AclDeleted, bindings),
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


ACL = AclBinding(
    AclResourceType.TOPIC, "a", AclPatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)


def test_acls_are_created_and_deleted_once() -> None:
    other = ACL._replace(host="10.0.0.7")
    created = create_acls(Image("cluster"), [ACL, other, ACL])
    assert created == [AclCreated(ACL), AclCreated(other)]
    image = Image("cluster").apply_all(created)
    assert list(image.acls) == [ACL, other]
    assert create_acls(image, [ACL]) == []
    assert delete_acls(image, [other, other, ACL._replace(principal="User:b")]) == [AclDeleted(other)]
    assert list(image.apply(AclDeleted(other)).acls) == [ACL]


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": "ANY"},
        {"resource_type": "SHELF"},
        {"pattern_type": "MATCH"},
        {"principal": None},
        {"host": 5},
        {"operation": "ANY"},
        {"permission": "ANY"},
    ],
)
def test_a_damaged_acl_is_refused(change: dict[str, object]) -> None:
    fields = json.loads(event_to_json(AclCreated(ACL)))
    assert event_from_json(json.dumps(fields)) == AclCreated(ACL)
    with pytest.raises(StoreError, match="not an event"):
        event_from_json(json.dumps(fields | change))
    with pytest.raises(StoreError, match="not an event"):
        event_from_json(json.dumps({name: value for name, value in fields.items() if name not in change}))
