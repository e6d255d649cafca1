"""Produce requests by hand are what the schema makes of them: all versions, broken frames included."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_protocol import codec
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.hot import ProduceHead, ProduceTopic, decode_produce_request
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_protocol.wire import MAX_REQUEST_ELEMENTS
from tests.protocol.support import damaged, outcome, some, structs

pytestmark = pytest.mark.broad

VERSIONS = range(3, 14)
relaxed = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def as_request(version: int, decoded: tuple[ProduceHead, list[ProduceTopic]]) -> ProduceRequest:
    """The decoded request as the message of the schema."""
    head, topics = decoded
    made = []
    for topic, partitions in topics:
        data = [PartitionProduceData(index=index, records=records) for index, records in partitions]
        if version < 13:
            assert isinstance(topic, str)
            made.append(TopicProduceData(name=topic, partition_data=data))
        else:
            assert isinstance(topic, bytes)
            made.append(TopicProduceData(topic_id=topic, partition_data=data))
    return ProduceRequest(
        transactional_id=head.transactional_id, acks=head.acks, timeout_ms=head.timeout_ms, topic_data=made
    )


@pytest.mark.parametrize("version", VERSIONS)
@relaxed
@given(data=st.data())
def test_requests(version: int, data: st.DataObject) -> None:
    request = data.draw(structs(ProduceRequest, version))
    body = codec.encode(request, version)
    assert as_request(version, decode_produce_request(version, body)) == request


def _produce(version: int, data: bytes) -> ProduceRequest:
    return as_request(version, decode_produce_request(version, data))


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests(version: int) -> None:
    rng = random.Random(version)
    for _ in range(4):
        body = codec.encode(some(rng, ProduceRequest, version), version)
        for size in range(len(body)):
            assert outcome(_produce, version, body[:size]) == "refused"
        for _ in range(800):
            broken = damaged(rng, body)
            assert outcome(_produce, version, broken) == outcome(codec.decode, ProduceRequest, version, broken)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_views(version: int, kind: Any) -> None:
    partition = PartitionProduceData(index=1, records=b"a batch")
    topic = {"topic_id": b"x" * 16} if version == 13 else {"name": "t"}
    request = ProduceRequest(acks=1, timeout_ms=5, topic_data=[])
    named: Any = topic
    request.topic_data = [TopicProduceData(partition_data=[partition], **named)]
    frame = bytearray(codec.encode(request, version))
    body = memoryview(frame) if kind is memoryview else kind(frame)
    _, ((_, ((_, records),)),) = decode_produce_request(version, body)
    assert records is not None
    assert records.obj is (frame if kind is memoryview else body)
    assert records.readonly is (kind is bytes)


@pytest.mark.parametrize("version", [0, 2, 14, -1])
def test_versions_that_are_not_served(version: int) -> None:
    with pytest.raises(DecodeError, match="3 to 13"):
        decode_produce_request(version, b"")


def test_elements_are_limited_in_all() -> None:
    body = (
        b"\xff\xff\0\1\0\0\0\0" + (MAX_REQUEST_ELEMENTS + 1).to_bytes(4, "big") + bytes(6 * (MAX_REQUEST_ELEMENTS + 1))
    )
    with pytest.raises(DecodeError, match="array elements"):
        decode_produce_request(3, body)
