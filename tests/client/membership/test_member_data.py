"""The blobs that members exchange, beside those of kafka-python's and aiokafka's coordinators."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client.assignors import MemberSubscription
from barnabas_client.membership.member_data import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas_client.structs import TopicPartition, by_topic
from barnabas_protocol.errors import DecodeError

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 1000)), unique=True).map(sorted).map(tuple)


@given(
    subscription=st.builds(
        MemberSubscription,
        topics=st.lists(names).map(tuple),
        owned=partitions,
        generation=st.integers(-1, 1000),
        user_data=st.none() | st.binary(),
        instance_id=st.none() | names,
        rack=st.none() | names,
    )
)
def test_subscriptions_survive_encoding(subscription: MemberSubscription) -> None:
    blob = encode_subscription(subscription)
    assert decode_subscription(blob, subscription.instance_id) == subscription


@given(assigned=partitions)
def test_assignments_survive_encoding(assigned: tuple[TopicPartition, ...]) -> None:
    assert decode_assignment(encode_assignment(assigned)) == assigned


def test_a_subscription_of_version_0() -> None:
    blob = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\x00\x00\x00\x02hi"
    assert decode_subscription(blob) == MemberSubscription(("t",), user_data=b"hi")


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    blob = encode_assignment([TopicPartition("t", 1)])
    assert decode_assignment(b"\x00\x63" + blob[2:]) == (TopicPartition("t", 1),)


def test_fields_of_a_newer_version_are_ignored() -> None:
    blob = encode_assignment([TopicPartition("t", 1)])
    assert decode_assignment(b"\x00\x63" + blob[2:] + b"of the future") == (TopicPartition("t", 1),)


def test_empty_bytes_are_an_empty_assignment() -> None:
    assert decode_assignment(b"") == ()


@pytest.mark.parametrize("blob", [b"\x00", b"\xff\xff\x00\x00", b"\x00\x01\x00\x00\x00\x05"])
def test_invalid_bytes(blob: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_assignment(blob)
    with pytest.raises(DecodeError):
        decode_subscription(blob)


def test_partitions_are_grouped_by_topic() -> None:
    given = [TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("b", 0)]
    assert by_topic(given) == [("a", [2]), ("b", [0, 1])]
