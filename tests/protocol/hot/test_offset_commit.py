"""OffsetCommit by hand is what the schema makes of it: all versions, broken frames included."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_protocol import codec
from barnabas_protocol.codec import decode_request_header
from barnabas_protocol.errors import EncodeError
from barnabas_protocol.hot.offset_commit import _request, decode_offset_commit, encode_offset_commit
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.protocol.support import damaged, outcome, some, structs
from tests.sampling import slow_but_each

pytestmark = pytest.mark.broad

VERSIONS = range(10)
SAMPLED = slow_but_each(3, reversed(VERSIONS))
relaxed = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def by_hand(frame: bytes) -> Any:
    return decode_offset_commit(OffsetCommitRequest, decode_request_header(frame), bytearray(frame))


def by_schema(frame: bytes) -> Any:
    return codec.decode_request(OffsetCommitRequest, decode_request_header(frame), frame)


def request(partitions: int, name: str = "topic") -> OffsetCommitRequest:
    asked = [
        OffsetCommitRequestPartition(
            partition_index=n, committed_offset=n * 7, committed_metadata=None if n % 2 else ""
        )
        for n in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=3,
        member_id="member",
        topics=[OffsetCommitRequestTopic(name=name, partitions=asked)],
    )


@pytest.mark.parametrize("version", SAMPLED)
@relaxed
@given(data=st.data())
def test_requests(version: int, data: st.DataObject) -> None:
    drawn = data.draw(structs(OffsetCommitRequest, version))
    assert by_hand(codec.encode_request(drawn, version, 7, "client")[4:]) == drawn


@pytest.mark.parametrize("version", SAMPLED)
@relaxed
@given(data=st.data())
def test_responses(version: int, data: st.DataObject) -> None:
    drawn = data.draw(structs(OffsetCommitResponse, version))
    assert b"".join(encode_offset_commit(drawn, version, 77)) == codec.encode_response(drawn, version, 77)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests(version: int) -> None:
    rng = random.Random(version)
    for _ in range(4):
        frame = codec.encode_request(some(rng, OffsetCommitRequest, version), version, 7, "client")[4:]
        body = decode_request_header(frame).end
        for size in range(body, len(frame)):
            assert outcome(by_hand, frame[:size]) == "refused"
        for _ in range(800):
            broken = frame[:body] + damaged(rng, frame[body:])
            assert outcome(by_hand, broken) == outcome(by_schema, broken)


@pytest.mark.parametrize("partitions", [0, 1, 126, 127, 128, 3000])
def test_many_partitions(partitions: int) -> None:
    asked = request(partitions)
    assert by_hand(codec.encode_request(asked, 9, 7, None)[4:]) == asked


@pytest.mark.parametrize("partitions", [1, 500])
def test_the_ordinary_form_is_read_by_hand(partitions: int) -> None:
    asked = request(partitions, "t" * 200)
    frame = codec.encode_request(asked, 8, 7, "client")[4:]
    assert _request(frame, decode_request_header(frame).end, by_id=False) == asked


def test_values_that_do_not_fit_are_refused() -> None:
    for partition in (
        OffsetCommitResponsePartition(partition_index=2**31, error_code=0),
        OffsetCommitResponsePartition(partition_index=0, error_code=2**15),
    ):
        response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])
        with pytest.raises(EncodeError):
            encode_offset_commit(response, 8, 1)
