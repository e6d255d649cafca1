"""Fetch responses by hand are what the schema makes of them: all versions, broken frames included."""

import random
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_protocol import codec
from barnabas_protocol.errors import DecodeError, EncodeError
from barnabas_protocol.hot.fetch import (
    Unread,
    chain,
    decode_fetch_response,
    encode_aborted,
    encode_fetch_response,
)
from barnabas_protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchNodeEndpoint,
    FetchResponse,
    PartitionData,
)
from barnabas_protocol.wire import MAX_ELEMENTS, Buffer, Encoded
from tests.lots import in_lots
from tests.protocol.support import damaged, outcome, some, structs
from tests.sampling import slow_but_each

pytestmark = pytest.mark.broad

VERSIONS = range(4, 19)
SAMPLED = slow_but_each(3, reversed(VERSIONS))
relaxed = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def whole(parts: Sequence[Buffer | Unread]) -> bytes:
    return b"".join(part.read(len(part)) if isinstance(part, InFile) else cast(Buffer, part) for part in parts)


class InFile:
    """Records in a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def read(self, size: int, /) -> bytes:
        return self.data[:size]

    def send(self, socket: int, size: int, /) -> int:
        raise AssertionError("there is no socket")


@pytest.mark.parametrize("version", SAMPLED)
@relaxed
@given(data=st.data())
def test_responses(version: int, data: st.DataObject) -> None:
    response = data.draw(structs(FetchResponse, version))
    frame = codec.encode_response(response, version, 77)
    assert whole(encode_fetch_response(response, version, 77)) == frame
    assert decode_fetch_response(version, frame[4:]) == response


@pytest.mark.parametrize("version", SAMPLED)
def test_damaged_responses(version: int) -> None:
    rng = random.Random(version)
    for _ in range(4):
        frame = codec.encode_response(some(rng, FetchResponse, version), version, 77)[4:]
        for size in range(len(frame)):
            assert outcome(decode_fetch_response, version, frame[:size]) == "refused"
        for _ in range(800):
            broken = damaged(rng, frame)
            twin = outcome(codec.decode_response, FetchResponse, version, broken)
            assert outcome(decode_fetch_response, version, broken) == twin


@pytest.mark.parametrize("version", [4, 12, 18])
def test_fetched_records_are_not_copied(version: int) -> None:
    first, second, third = b"one batch", memoryview(b"another"), InFile(b"third")
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                partitions=[
                    PartitionData(partition_index=0, error_code=0, high_watermark=5, records=first),
                    PartitionData(partition_index=1, error_code=0, high_watermark=5, records=chain([second, third])),
                    PartitionData(partition_index=2, error_code=0, high_watermark=5, records=chain([])),
                    PartitionData(partition_index=3, error_code=1, high_watermark=5, records=None),
                ]
            )
        ]
    )
    buffers = encode_fetch_response(response, version, 1)
    for records in (first, second, third):
        assert sum(buffer is records for buffer in buffers) == 1
    assert all(len(buffer) > 0 for buffer in buffers)
    frame = whole(buffers)
    held = [partition.records for partition in decode_fetch_response(version, frame[4:]).responses[0].partitions]
    assert held == [b"one batch", b"anotherthird", b"", None]
    assert [type(each) for each in held] == [memoryview] * 3 + [type(None)]
    partitions = response.responses[0].partitions
    partitions[1].records, partitions[2].records = b"anotherthird", b""
    assert codec.encode_response(response, version, 1) == frame


def _with(partition: dict[str, Any], **fields: Any) -> FetchResponse:
    whole: dict[str, Any] = {"partition_index": 0, "error_code": 0, "high_watermark": 5, "records": None} | partition
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(**whole)])], **fields)


@in_lots("version", VERSIONS)
@pytest.mark.parametrize(
    "response",
    [
        pytest.param(_with({"preferred_read_replica": 3}), id="preferred replica, from 11"),
        pytest.param(_with({"diverging_epoch": FetchEpochEndOffset(epoch=1)}), id="a tag, from 12"),
        pytest.param(_with({}, session_id=5), id="a session, from 7"),
        pytest.param(_with({}, node_endpoints=[FetchNodeEndpoint(node_id=1)]), id="endpoints, from 16"),
        pytest.param(_with({}, throttle_time_ms=5, error_code=3), id="what is ignorable"),
        pytest.param(_with({"aborted_transactions": None}), id="null"),
        pytest.param(_with({"aborted_transactions": [AbortedTransaction(first_offset=3)]}), id="aborted"),
        pytest.param(_with({"high_watermark": 2**63}), id="too large a number"),
        pytest.param(_with({"partition_index": None}), id="no number"),
        pytest.param(_with({"aborted_transactions": [None]}), id="no transaction"),
        pytest.param(FetchResponse(responses=[FetchableTopicResponse(topic="x" * 40_000, partitions=[])]), id="name"),
        pytest.param(FetchResponse(responses=[FetchableTopicResponse(topic_id=b"x", partitions=[])]), id="short id"),
    ],
)
def test_both_write_or_refuse_the_same(version: int, response: FetchResponse) -> None:
    try:
        expected = codec.encode_response(response, version, 1)
    except EncodeError:
        with pytest.raises(EncodeError, match=f"FetchResponse v{version}"):
            encode_fetch_response(response, version, 1)
    else:
        assert whole(encode_fetch_response(response, version, 1)) == expected


@in_lots("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 300])
def test_transactions_that_are_encoded_already(version: int, count: int) -> None:
    pairs = [(number, 2**62 - number) for number in range(count)]
    listed = [AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in pairs]
    content = b"".join(encode_aborted(pairs[n : n + 7], version) for n in range(0, count, 7))
    done = _with({"aborted_transactions": Encoded(count, content), "records": b"x"})
    expected = codec.encode_response(_with({"aborted_transactions": listed, "records": b"x"}), version, 1)
    assert whole(encode_fetch_response(done, version, 1)) == expected
    assert codec.encode_response(done, version, 1) == expected


@pytest.mark.parametrize("version", [3, 19])
def test_versions_that_are_not_served(version: int) -> None:
    with pytest.raises(DecodeError, match="4 to 18"):
        decode_fetch_response(version, bytes(20))
    with pytest.raises(EncodeError, match="4 to 18"):
        encode_fetch_response(FetchResponse(responses=[]), version, 1)


@pytest.mark.slow
def test_elements_are_limited_in_all() -> None:
    partition = bytes(22) + (1000).to_bytes(4, "big") + bytes(16_000) + bytes(4)
    count = MAX_ELEMENTS // 1000 + 1
    frame = bytes(8) + b"\0\0\0\x01\0\0" + count.to_bytes(4, "big") + partition * count
    with pytest.raises(DecodeError, match="array elements"):
        decode_fetch_response(4, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schema_refuses_records_in_parts(version: int) -> None:
    with pytest.raises(EncodeError):
        codec.encode_response(_with({"records": chain([b"one", b"two"])}), version, 1)


def test_a_response_without_topics_is_one_buffer() -> None:
    for version in VERSIONS:
        buffers = encode_fetch_response(FetchResponse(responses=[], session_id=0), version, 9)
        assert len(buffers) == 1
        assert buffers[0] == codec.encode_response(FetchResponse(responses=[]), version, 9)
