"""Produce by hand is what the schema makes of it: all versions, broken frames included."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_protocol import codec
from barnabas_protocol.errors import DecodeError, EncodeError
from barnabas_protocol.hot.produce import (
    LongRequest,
    ProduceHead,
    ProduceTopic,
    decode_produce_request,
    encode_produce_response,
)
from barnabas_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas_protocol.wire import MAX_REQUEST_ELEMENTS
from tests.protocol.support import damaged, outcome, some, structs
from tests.sampling import slow_but_each

pytestmark = pytest.mark.broad

VERSIONS = range(3, 14)
SAMPLED = slow_but_each(3, reversed(VERSIONS))
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


@pytest.mark.parametrize("version", SAMPLED)
@relaxed
@given(data=st.data())
def test_requests(version: int, data: st.DataObject) -> None:
    request = data.draw(structs(ProduceRequest, version))
    body = codec.encode(request, version)
    assert as_request(version, decode_produce_request(version, body)) == request


@pytest.mark.parametrize("version", SAMPLED)
@relaxed
@given(data=st.data())
def test_responses(version: int, data: st.DataObject) -> None:
    drawn = data.draw(structs(ProduceResponse, version))
    assert b"".join(encode_produce_response(drawn, version, 77)) == codec.encode_response(drawn, version, 77)


def response(*partitions: PartitionProduceResponse) -> ProduceResponse:
    return ProduceResponse(
        responses=[TopicProduceResponse(name="t" * 200, topic_id=b"i" * 16, partition_responses=list(partitions))],
        throttle_time_ms=5,
    )


def partition(index: int = 3, **fields: Any) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=6, base_offset=2**40, log_start_offset=9, **fields)


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("number", [0, 1, 130])
def test_the_ordinary_response_is_written_by_hand(version: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = response(*[partition(n) for n in range(number)])
    expected = codec.encode_response(answered, version, 77)
    monkeypatch.delattr(codec, "encode_response")
    assert b"".join(encode_produce_response(answered, version, 77)) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"record_errors": [BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message="no key")]},
        {"error_message": ""},
        {"current_leader": LeaderIdAndEpoch(leader_id=2, leader_epoch=5)},
    ],
)
def test_more_than_an_error_code_is_written_by_the_schema(fields: dict[str, Any]) -> None:
    answered = response(partition(), partition(**fields))
    assert encode_produce_response(answered, 11, 77) == [codec.encode_response(answered, 11, 77)]
    answered = response(partition())
    answered.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=2)]
    assert encode_produce_response(answered, 11, 77) == [codec.encode_response(answered, 11, 77)]


def test_values_that_do_not_fit_are_refused() -> None:
    short = response(partition())
    short.responses[0].topic_id = b"short"
    for answered in (response(partition(2**31)), response(partition(log_append_time_ms=2**63)), short):
        with pytest.raises(EncodeError):
            encode_produce_response(answered, 13, 1)
    with pytest.raises(EncodeError):
        encode_produce_response(response(partition(current_leader=LeaderIdAndEpoch())), 9, 1)


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


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_request_with_more_elements_than_wanted_is_left_to_a_caller_that_has_time(version: int) -> None:
    topic = TopicProduceData(
        name="" if version >= 13 else "t",
        topic_id=bytes(16),
        partition_data=[PartitionProduceData(index=index, records=None) for index in range(9)],
    )
    body = codec.encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), version)
    with pytest.raises(LongRequest):
        decode_produce_request(version, body, most=9)
    _, ((_, partitions),) = decode_produce_request(version, body, most=10)
    assert len(partitions) == 9
