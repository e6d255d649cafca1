"""Constructs of declarations round-trip, and the compiled form agrees with the interpreted one."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_protocol import codec, schema
from barnabas_protocol.errors import DecodeError, EncodeError
from barnabas_protocol.messages.fetch import FetchResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_protocol.schema import INT32, STRING, Message, Struct, Versions, array, field
from barnabas_protocol.structures import construct_for
from barnabas_protocol.wire import WireError
from tests.lots import in_lots
from tests.protocol.support import MESSAGES, name_of, slow_decode, slow_encode, some, structs
from tests.sampling import slow_but_each

pytestmark = pytest.mark.broad


@in_lots("cls", MESSAGES)
def test_round_trips_in_every_version(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in cls.VERSIONS:
        for _ in range(8):
            message = some(rng, cls, version)
            data = codec.encode(message, version)
            assert codec.decode(cls, version, data) == message
            assert slow_encode(message, version) == data
            assert slow_decode(cls, version, data) == message


@pytest.mark.parametrize("cls", slow_but_each(4, MESSAGES), ids=name_of)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_round_trips(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.integers(cls.VERSIONS.low, cls.VERSIONS.high))
    message = data.draw(structs(cls, version))
    encoded = codec.encode(message, version)
    assert codec.decode(cls, version, encoded) == message
    assert slow_encode(message, version) == encoded
    assert slow_decode(cls, version, encoded) == message


def test_versions_read_kafkas_notation() -> None:
    assert [Versions.of(text) for text in ("0-4", "3+", "2", "none")] == [
        Versions(0, 4),
        Versions(3, 32767),
        Versions(2, 2),
        Versions(32768, 32767),
    ]
    assert [str(Versions.of(text)) for text in ("0-4", "3+", "2", "none")] == ["0-4", "3+", "2", "none"]
    assert 2 in Versions.of("0-4")
    assert 5 not in Versions.of("0-4")
    assert list(Versions.of("1-3")) == [1, 2, 3]


@pytest.mark.parametrize("plain", [0, 2])
def test_instances_are_the_same_before_and_after_their_init_is_generated(
    monkeypatch: pytest.MonkeyPatch, plain: int
) -> None:
    class Sample(Struct):
        name: str = field(STRING)
        size: int = field(INT32, default=7)
        numbers: list[int] = field(array(INT32), default=[])

    monkeypatch.setattr(schema, "_PLAIN", plain)
    make: Any = Sample
    with pytest.raises(TypeError, match="name"):
        make(size=1)
    with pytest.raises(TypeError, match="nmae"):
        make(name="a", nmae="b")
    first, second = make(name="a"), make(name="a")
    assert first == second == Sample(name="a", size=7, numbers=[])
    assert first.numbers is not second.numbers


def test_lists_are_not_shared() -> None:
    first, second = FetchResponse(responses=[]), FetchResponse(responses=[])
    assert first.node_endpoints is not second.node_endpoints
    old = codec.decode(FetchResponse, 4, codec.encode(first, 4))
    assert old.node_endpoints is not codec.decode(FetchResponse, 4, codec.encode(first, 4)).node_endpoints


def test_instances_compare_and_print_by_value() -> None:
    message = HeartbeatResponse(error_code=27)
    assert message == HeartbeatResponse(error_code=27)
    assert message != HeartbeatResponse(error_code=0)
    assert message != 27
    assert repr(message) == "HeartbeatResponse(throttle_time_ms=0, error_code=27)"


def test_a_version_that_would_lose_a_value_is_refused() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
    for encode in (codec.encode, slow_encode):
        assert b"i" in encode(request, 3)
        with pytest.raises((EncodeError, WireError), match="group_instance_id"):
            encode(request, 2)


def test_ignorable_fields_are_left_out() -> None:
    message = HeartbeatResponse(throttle_time_ms=5, error_code=0)
    assert codec.encode(message, 0) == slow_encode(message, 0) == b"\0\0"


def test_versions_that_do_not_exist() -> None:
    with pytest.raises(WireError, match="has no version 5"):
        construct_for(HeartbeatRequest, 5)
    with pytest.raises(DecodeError, match="has no version 5"):
        codec.decode(HeartbeatRequest, 5, b"")
    with pytest.raises(EncodeError, match="has no version -1"):
        codec.encode(HeartbeatResponse(error_code=0), -1)


@pytest.mark.parametrize("version", [0, 4])
def test_null_in_a_field_that_is_not_nullable(version: int) -> None:
    null: Any = None
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=null)
    with pytest.raises(EncodeError):
        codec.encode(request, version)
    with pytest.raises(EncodeError, match="an array must not be null"):
        codec.encode(FetchResponse(responses=null), 4 + 2 * version)


def test_tagged_fields_at_their_default_are_left_out() -> None:
    partition = PartitionProduceResponse(index=0, error_code=6, base_offset=-1)
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    without = codec.encode(response, 10)
    partition.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    tagged = codec.encode(response, 10)
    # After the tags of the partition follow those of the topic, the throttle time and those of the response. Tag 0 has
    # nine bytes: leader, epoch and no tags of its own.
    assert tagged == without[:-7] + b"\x01\0\x09\0\0\0\x02\0\0\0\x09\0" + without[-6:]
    assert codec.decode(ProduceResponse, 10, tagged) == response


def _with_tags(section: bytes) -> bytes:
    return b"\0\0\0\0\0\0" + section


def test_unknown_tags_are_skipped() -> None:
    data = _with_tags(b"\x02\x05\x03abc\x80\x01\0")
    assert codec.decode(HeartbeatResponse, 4, data) == HeartbeatResponse(error_code=0)
    assert slow_decode(HeartbeatResponse, 4, data) == HeartbeatResponse(error_code=0)


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(b"\x02\x05\0\x05\0", id="twice the same"),
        pytest.param(b"\x02\x05\0\x04\0", id="descending"),
        pytest.param(b"\x01\x05\x03ab", id="truncated"),
        pytest.param(b"\x01\x05\xff\xff\xff\xff\x0fab", id="four gigabytes"),
        pytest.param(b"\xff\xff\xff\xff\x0f", id="four billion tags"),
        pytest.param(b"", id="no section"),
        pytest.param(b"\0\0", id="something follows"),
    ],
)
def test_broken_tag_sections(section: bytes) -> None:
    for decode in (codec.decode, slow_decode):
        with pytest.raises((DecodeError, WireError)):
            decode(HeartbeatResponse, 4, _with_tags(section))


def test_a_known_tag_takes_the_size_it_announces() -> None:
    # The node endpoints of a Produce response: a compact array that is empty takes one byte.
    good, short, long = (b"\x01\0\0\0\0\x01\0" + tag for tag in (b"\x01\x01", b"\0\x01", b"\x02\x01\0"))
    assert codec.decode(ProduceResponse, 10, good) == ProduceResponse(responses=[])
    for data in (short, long):
        with pytest.raises(DecodeError, match="announced"):
            codec.decode(ProduceResponse, 10, data)
