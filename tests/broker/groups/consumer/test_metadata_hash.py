"""The hash of a group's topics: values that Kafka computed, and what changes it.

``tests/interop/test_server_assignors.py`` compares random topics with Kafka's class.
"""

import random

from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.metadata_hash import group_hash, topic_hash
from tests.broker.groups.consumer.topic_hashes import HASHES, some_topics


def test_hashes_are_those_of_kafka() -> None:
    hashes = {topic.name: topic_hash(topic) for topic in some_topics()}
    assert hashes == HASHES["topics"]
    assert group_hash(hashes) == HASHES["group"]


def test_a_group_without_topics_has_the_hash_0() -> None:
    assert group_hash({}) == 0


def test_the_order_of_topics_and_of_racks_does_not_matter() -> None:
    hashes = list(HASHES["topics"].items())
    random.Random(1).shuffle(hashes)
    assert group_hash(dict(hashes)) == HASHES["group"]
    one, other = (Topic(bytes(16), "t", 1, (racks,)) for racks in (("a", "b", "b"), ("b", "a", "b")))
    assert topic_hash(one) == topic_hash(other)


def test_each_part_of_a_topic_changes_its_hash() -> None:
    topic = Topic(bytes(16), "ab", 2, (("x",), ("y",)))
    others = [
        topic._replace(topic_id=bytes(15) + b"\x01"),
        topic._replace(name="ac"),
        topic._replace(partitions=1),
        topic._replace(racks=(("y",), ("x",))),
        topic._replace(racks=(("x", "x"), ("y",))),
        topic._replace(racks=(("x", ""), ("y",))),
        topic._replace(racks=((), ("xy",))),
        topic._replace(racks=()),
    ]
    assert len({topic_hash(one) for one in (topic, *others)}) == len(others) + 1
