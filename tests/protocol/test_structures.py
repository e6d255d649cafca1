"""A message is interpreted at first and compiled when that pays."""

import io
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas_protocol import codec, structures
from barnabas_protocol.consumer_protocol import ConsumerProtocolSubscription
from barnabas_protocol.errors import EncodeError
from barnabas_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse, ResponseCursor
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from barnabas_protocol.structures import MessageCodec
from barnabas_protocol.wire import Encoded, Reader, WireError
from tests.protocol.support import slow_encode

REQUEST = HeartbeatRequest(group_id="g", generation_id=7, member_id="m", group_instance_id=None)


@pytest.fixture(autouse=True)
def as_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "_USES", 2)


def parse(made: MessageCodec, data: bytes) -> object:
    reader = Reader(data)
    reader.size = len(data)
    return made.parsefunc(reader, None)


def reads_compiled(made: MessageCodec) -> bool:
    return made.parsefunc != made._parse


def writes_compiled(made: MessageCodec) -> bool:
    return made.buildfunc not in (made._build, made._build_compiled)


def test_a_message_that_is_used_often_is_compiled() -> None:
    made, data = MessageCodec(HeartbeatRequest, 4), codec.encode(REQUEST, 4)
    found = [(parse(made, data), reads_compiled(made)) for _ in range(4)]
    assert found == [(REQUEST, False), (REQUEST, False), (REQUEST, True), (REQUEST, True)]


def test_a_large_message_is_compiled_at_once() -> None:
    many = MetadataResponse(
        brokers=[],
        topics=[MetadataResponseTopic(error_code=0, name=f"topic-{n}", partitions=[]) for n in range(200)],
    )
    made = MessageCodec(MetadataResponse, 0)
    assert parse(made, slow_encode(many, 0)) == many
    assert reads_compiled(made)


def test_a_request_is_built_the_same_before_and_after_compiling() -> None:
    made, written = MessageCodec(HeartbeatRequest, 4), []
    for _ in range(4):
        out = io.BytesIO()
        made.buildfunc(REQUEST, out, None)
        written.append(out.getvalue())
    assert set(written) == {slow_encode(REQUEST, 4)}
    assert writes_compiled(made)


def test_a_request_is_compiled_when_a_large_one_was_built() -> None:
    made = MessageCodec(HeartbeatRequest, 4)
    large = HeartbeatRequest(group_id="g" * 3_000, generation_id=7, member_id="m", group_instance_id=None)
    written = []
    for _ in range(2):
        out = io.BytesIO()
        made.buildfunc(large, out, None)
        written.append(out.getvalue())
    assert set(written) == {slow_encode(large, 4)}
    assert writes_compiled(made)


def test_a_response_is_compiled_when_it_is_first_built() -> None:
    made, out = MessageCodec(HeartbeatResponse, 4), io.BytesIO()
    made.buildfunc(HeartbeatResponse(error_code=3), out, None)
    assert out.getvalue() == slow_encode(HeartbeatResponse(error_code=3), 4)
    assert writes_compiled(made)


def test_what_a_member_writes_once_is_not_compiled_for_that() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"])
    made, out = MessageCodec(ConsumerProtocolSubscription, 3), io.BytesIO()
    made.buildfunc(subscription, out, None)
    assert out.getvalue() == slow_encode(subscription, 3)
    assert not writes_compiled(made)


def test_broken_bytes_are_refused_before_and_after_compiling() -> None:
    made = MessageCodec(HeartbeatRequest, 0)
    for _ in range(4):
        with pytest.raises(WireError):
            parse(made, b"\x7f\xffg")


def test_threads_may_compile_at_the_same_time() -> None:
    """The client does: its heartbeats run on a thread of their own."""
    data = codec.encode(REQUEST, 4)
    for _ in range(20):
        made = MessageCodec(HeartbeatRequest, 4)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _, made=made: parse(made, data), range(40)))
        assert found == [REQUEST] * 40
        assert reads_compiled(made)


@pytest.mark.parametrize("cursor", [None, ResponseCursor(topic_name="t", partition_index=3)])
def test_a_structure_that_may_be_null_is_compiled(cursor: ResponseCursor | None) -> None:
    made, message = MessageCodec(DescribeTopicPartitionsResponse, 0), DescribeTopicPartitionsResponse(topics=[])
    message.next_cursor = cursor
    made.compile_parser()
    made.compile_builder()
    out = io.BytesIO()
    made.buildfunc(message, out, None)
    assert out.getvalue() == slow_encode(message, 0)
    assert parse(made, out.getvalue()) == message
    with pytest.raises(WireError, match="structure mark 2"):
        parse(made, bytes(4) + b"\x01\x02")


def partition(number: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0,
        partition_index=number,
        leader_id=1,
        leader_epoch=number,
        replica_nodes=[1, 2],
        isr_nodes=[2],
        offline_replicas=[1],
    )


@pytest.mark.parametrize("version", list(MetadataResponse.VERSIONS))
def test_elements_that_are_encoded_already(version: int) -> None:
    partitions = [partition(number) for number in range(200)]

    def shown(listed: list[MetadataResponsePartition]) -> MetadataResponse:
        return MetadataResponse(
            brokers=[], topics=[MetadataResponseTopic(error_code=0, name="t", partitions=listed), *others]
        )

    others = [MetadataResponseTopic(error_code=0, name="u", partitions=[partition(7)])]
    parts = [codec.encode_elements(partitions[n : n + 70], MetadataResponse, version) for n in range(0, 200, 70)]
    encoded: Encoded[MetadataResponsePartition] = Encoded(200, b"".join(parts))
    expected = codec.encode(shown(partitions), version)
    assert codec.encode(shown(encoded), version) == slow_encode(shown(encoded), version) == expected


def test_elements_that_do_not_fit_are_refused() -> None:
    with pytest.raises(EncodeError, match="MetadataResponse v9"):
        codec.encode_elements([partition(0), partition(2**31)], MetadataResponse, 9)
