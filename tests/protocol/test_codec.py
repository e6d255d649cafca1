"""Frames to messages and back. A broken frame raises DecodeError at once, and nothing else."""

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from barnabas_protocol import codec
from barnabas_protocol.errors import DecodeError, EncodeError
from barnabas_protocol.headers import RequestHeaderData, ResponseHeaderData
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.create_topics import CreateTopicsRequest
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas_protocol.messages.fetch import FetchResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.metadata import MetadataRequest
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_protocol.schema import Message, Request, Response
from barnabas_protocol.wire import MAX_REQUEST_ELEMENTS
from tests.lots import in_lots
from tests.protocol.support import BROKEN, MESSAGES, PAIRS, damaged, slow_decode, some

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def test_a_request_frame() -> None:
    frame = codec.encode_request(HEARTBEAT, 0, 7, "me")
    assert frame == b"\0\0\0\x16" + b"\0\x0c\0\0\0\0\0\x07\0\x02me" + b"\0\x01g\0\0\0\x03\0\x01m"
    header = codec.decode_request_header(frame[4:])
    assert header == codec.RequestHeader(12, 0, 7, "me", 12)
    assert codec.decode_request(HeartbeatRequest, header, frame[4:]) == HEARTBEAT


def test_a_flexible_request_frame() -> None:
    frame = codec.encode_request(HEARTBEAT, 4, 7, None)
    assert frame == b"\0\0\0\x15" + b"\0\x0c\0\x04\0\0\0\x07\xff\xff\0" + b"\x02g\0\0\0\x03\x02m\0\0"
    header = codec.decode_request_header(frame[4:])
    assert header == codec.RequestHeader(12, 4, 7, None, 10)
    assert codec.decode_request(HeartbeatRequest, header, memoryview(frame)[4:]) == HEARTBEAT


@pytest.mark.parametrize("version", [3, 9])
def test_the_records_of_a_request_are_not_copied(version: int) -> None:
    large = [bytearray(random.randbytes(size)) for size in (4096, 100_000)]
    records = [large[0], b"small", large[1], None]
    topic = TopicProduceData(
        name="t", partition_data=[PartitionProduceData(index=at, records=each) for at, each in enumerate(records)]
    )
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic])
    parts = codec.encode_request_parts(request, version, 7, "me")
    assert [part for part in parts if any(part is each for each in large)] == large
    assert len(parts) == 5
    frame = codec.encode_request(request, version, 7, "me")
    assert b"".join(parts) == frame
    header = codec.decode_request_header(frame[4:])
    decoded = codec.decode_request(ProduceRequest, header, frame[4:])
    assert [each.records for each in decoded.topic_data[0].partition_data] == records
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_headers_are_those_of_the_schemas() -> None:
    for version, message in ((1, HEARTBEAT), (4, HEARTBEAT)):
        frame = codec.encode_request(message, version, 7, "me")
        schema = 2 if version == 4 else 1
        header = RequestHeaderData(request_api_key=12, request_api_version=version, correlation_id=7, client_id="me")
        assert frame[4:].startswith(codec.encode(header, schema))
        answer = codec.encode_response(HeartbeatResponse(error_code=0), version, 7)
        assert answer[4:].startswith(codec.encode(ResponseHeaderData(correlation_id=7), schema - 1))


def test_a_response_frame() -> None:
    frame = codec.encode_response(HeartbeatResponse(error_code=27), 1, 7)
    assert frame == b"\0\0\0\x0a" + b"\0\0\0\x07" + b"\0\0\0\0\0\x1b"
    assert codec.decode_correlation_id(frame[4:]) == 7
    assert codec.decode_response(HeartbeatResponse, 1, frame[4:]) == HeartbeatResponse(error_code=27)
    flexible = codec.encode_response(HeartbeatResponse(error_code=27), 4, 7)
    assert flexible == b"\0\0\0\x0c" + b"\0\0\0\x07\0" + b"\0\0\0\0\0\x1b\0"
    assert codec.decode_response(HeartbeatResponse, 4, flexible[4:]) == HeartbeatResponse(error_code=27)


def test_the_response_to_api_versions_never_has_tags_in_its_header() -> None:
    frame = codec.encode_response(ApiVersionsResponse(error_code=0, api_keys=[]), 3, 7)
    assert frame == b"\0\0\0\x0c" + b"\0\0\0\x07" + b"\0\0\x01\0\0\0\0\0"
    assert codec.decode_response(ApiVersionsResponse, 3, frame[4:]).api_keys == []


def test_tags_in_a_header_are_skipped() -> None:
    frame = codec.encode_request(HEARTBEAT, 4, 7, "me")
    tagged = frame[4:16] + b"\x01\x05\x02ab" + frame[17:]
    header = codec.decode_request_header(tagged)
    assert codec.decode_request(HeartbeatRequest, header, tagged) == HEARTBEAT
    answer = b"\0\0\0\x07" + b"\x01\x05\x02ab" + b"\0\0\0\0\0\x1b\0"
    assert codec.decode_response(HeartbeatResponse, 4, answer).error_code == 27
    for broken in (b"\x01\x05\x09ab", b"\x02\x05\0\x05\0", b"\xff\xff\xff\xff\xff\xff", b""):
        with pytest.raises(DecodeError):
            codec.body(HeartbeatRequest, header, frame[4:16] + broken)
        with pytest.raises(DecodeError):
            codec.response_body(HeartbeatResponse, 4, b"\0\0\0\x07" + broken)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\x0c\0\0\0\0\0\x07\0", id="short"),
        pytest.param(b"\0\x0c\0\0\0\0\0\x07\0\x03me", id="client id cut off"),
        pytest.param(b"\0\x0c\0\0\0\0\0\x07\xff\xfe", id="negative client id"),
        pytest.param(b"\0\x0c\0\0\0\0\0\x07\0\x02\xff\xfe", id="client id not UTF-8"),
    ],
)
def test_broken_request_headers(frame: bytes) -> None:
    for given in (frame, bytearray(frame), memoryview(frame)):
        with pytest.raises(DecodeError, match="request header"):
            codec.decode_request_header(given)


@pytest.mark.parametrize("client_id", [None, "", "Größe", "x" * 300])
def test_a_request_header_is_read_as_its_schema_reads_it(client_id: str | None) -> None:
    expected = RequestHeaderData(request_api_key=12, request_api_version=4, correlation_id=-7, client_id=client_id)
    frame = codec.encode(expected, 1)
    header = codec.decode_request_header(frame)
    assert header == codec.RequestHeader(12, 4, -7, client_id, len(frame))
    for size in range(len(frame)):
        with pytest.raises(DecodeError):
            codec.decode_request_header(frame[:size])
        with pytest.raises(DecodeError):
            codec.decode(RequestHeaderData, 1, frame[:size])


def test_a_response_without_a_correlation_id() -> None:
    for size in range(4):
        with pytest.raises(DecodeError):
            codec.decode_response(HeartbeatResponse, 0, bytes(size))


def test_trailing_bytes() -> None:
    data = codec.encode(HEARTBEAT, 0)
    with pytest.raises(DecodeError, match="HeartbeatRequest v0: 1 bytes follow"):
        codec.decode(HeartbeatRequest, 0, data + b"\0")


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, "3", None, 1.5])
def test_values_that_do_not_fit(value: Any) -> None:
    broken = HeartbeatRequest(group_id="g", generation_id=value, member_id="m")
    for version in HeartbeatRequest.VERSIONS:
        with pytest.raises(EncodeError, match=f"HeartbeatRequest v{version}"):
            codec.encode(broken, version)


@pytest.mark.parametrize("group", ["x" * 32768, "\ud800", 5, None, b"g"])
def test_strings_that_do_not_fit(group: Any) -> None:
    with pytest.raises(EncodeError):
        codec.encode(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 0)


@in_lots("cls", MESSAGES)
def test_truncation_at_every_byte(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in cls.VERSIONS:
        data = codec.encode(some(rng, cls, version), version)
        for size in range(len(data)):
            with pytest.raises(DecodeError):
                codec.decode(cls, version, data[:size])
        if version == cls.VERSIONS.high:
            for size in range(0, len(data), 7):
                with pytest.raises(BROKEN):
                    slow_decode(cls, version, data[:size])


def _decoder(cls: type[Message], version: int) -> tuple[bytes, Callable[[bytes], Message]]:
    """A frame of that message, and the function that reads it."""
    message = some(random.Random(f"{cls.__name__} {version}"), cls, version)
    if isinstance(message, Request):
        request = type(message)

        def read(frame: bytes) -> Message:
            header = codec.decode_request_header(frame)
            # The header may be damaged as well: read the body in the version that was sent.
            return codec.decode_request(request, header._replace(api_version=version), frame)

        return codec.encode_request(message, version, 77, "client")[4:], read
    if isinstance(message, Response):
        response = type(message)
        return codec.encode_response(message, version, 77)[4:], lambda f: codec.decode_response(response, version, f)
    return codec.encode(message, version), lambda data: codec.decode(cls, version, data)


@pytest.mark.parametrize("seed", range(4))
def test_mutations(seed: int) -> None:
    """100,000 damaged frames in all, over every message and version."""
    rng = random.Random(seed)
    damages = 25_000 // len(PAIRS) + 1
    survived = 0
    for cls, version in PAIRS:
        frame, read = _decoder(cls, version)
        for _ in range(damages):
            broken = damaged(rng, frame)
            try:
                read(broken)
            except DecodeError:
                continue
            survived += 1
    assert 0 < survived < 25_000  # most are noticed; a changed number is still a number


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(MetadataRequest, 1, b"\x7f\xff\xff\xff", id="two billion topics"),
        pytest.param(MetadataRequest, 9, b"\xff\xff\xff\xff\x0f", id="four billion topics"),
        pytest.param(DeleteGroupsRequest, 0, b"\x7f\xff\xff\xff" + b"\0\0" * 100, id="groups"),
        pytest.param(OffsetCommitRequest, 0, b"\0\x01g\0\0\0\x01\0\x01t\x7f\xff\xff\xff", id="nested"),
        pytest.param(CreateTopicsRequest, 5, b"\x02\x01\0\0\0\0\0\0\xff\xff\xff\xff\x07", id="nested compact"),
        pytest.param(
            ProduceRequest, 3, b"\xff\xff\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\x01\0\0\0\0\x7f\xff\xff\xff", id="bytes"
        ),
        pytest.param(HeartbeatRequest, 4, b"\xff\xff\xff\xff\x0f", id="string"),
        pytest.param(MetadataRequest, 0, b"\xff\xff\xff\xff", id="null"),
        pytest.param(MetadataRequest, 1, b"\xff\xff\xff\xfe\0\0\0\0", id="less than null"),
    ],
)
def test_counts_beyond_the_frame(cls: type[Message], version: int, data: bytes) -> None:
    codec.decode(HeartbeatResponse, 0, b"\0\0")  # compiled before anything is measured
    with pytest.raises(DecodeError):
        codec.decode(cls, version, data)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            codec.decode(cls, version, data)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    with pytest.raises(BROKEN):
        slow_decode(cls, version, data)


@pytest.mark.broad
def test_elements_in_one_message_are_limited() -> None:
    count = MAX_REQUEST_ELEMENTS + 1
    flat = count.to_bytes(4, "big") + b"\0\0" * count
    with pytest.raises(DecodeError, match="array elements"):
        codec.decode(DeleteGroupsRequest, 0, flat)


@pytest.mark.slow
def test_elements_in_one_message_are_limited_in_all() -> None:
    """In two levels: 2,001 topics of 1,000 aborted transactions are counted together."""
    partition = b"\0" * 22 + (1000).to_bytes(4, "big") + b"\0" * 16_000 + b"\0\0\0\0"
    head = b"\0\0\0\0" + b"\0\0\0\x01\0\0"
    nested = head + (2001).to_bytes(4, "big") + partition * 2001
    with pytest.raises(DecodeError, match="array elements"):
        codec.decode(FetchResponse, 4, nested)


def test_memory_is_in_proportion_to_the_frame() -> None:
    data = (100_000).to_bytes(4, "big") + b"\0\0" * 100_000
    codec.decode(DeleteGroupsRequest, 0, b"\0\0\0\0")
    tracemalloc.start()
    try:
        codec.decode(DeleteGroupsRequest, 0, data)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(data)
    finally:
        tracemalloc.stop()


def test_the_body_of_a_request_is_a_view() -> None:
    frame = codec.encode_request(ApiVersionsRequest(), 0, 1, "me")[4:]
    body = codec.body(ApiVersionsRequest, codec.decode_request_header(frame), frame)
    assert isinstance(body, memoryview)
    assert body.obj is frame
