"""Interpreted at first, compiled when it pays."""

import io

import pytest

from barnabas_protocol import codec, structures
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from barnabas_protocol.structures import Both
from barnabas_protocol.wire import Reader, WireError
from tests.protocol.support import slow_encode

REQUEST = HeartbeatRequest(group_id="g", generation_id=7, member_id="m", group_instance_id=None)


@pytest.fixture(autouse=True)
def as_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "_USES", 2)


def parse(both: Both, data: bytes) -> object:
    reader = Reader(data)
    reader.size = len(data)
    return both.parsefunc(reader, None)


def compiled(both: Both) -> bool:
    return both.parsefunc != both._parse


def test_what_is_used_often_is_compiled() -> None:
    both, data = Both(HeartbeatRequest, 4), codec.encode(REQUEST, 4)
    found = [(parse(both, data), compiled(both)) for _ in range(4)]
    assert found == [(REQUEST, False), (REQUEST, False), (REQUEST, True), (REQUEST, True)]


def test_what_is_large_is_compiled_at_once() -> None:
    many = MetadataResponse(
        brokers=[],
        topics=[MetadataResponseTopic(error_code=0, name=f"topic-{n}", partitions=[]) for n in range(200)],
    )
    both = Both(MetadataResponse, 0)
    assert parse(both, slow_encode(many, 0)) == many
    assert compiled(both)


def test_a_request_is_built_alike_before_and_after() -> None:
    both, written = Both(HeartbeatRequest, 4), []
    for _ in range(4):
        out = io.BytesIO()
        both.buildfunc(REQUEST, out, None)
        written.append(out.getvalue())
    assert set(written) == {slow_encode(REQUEST, 4)}
    assert compiled(both)


def test_a_response_is_built_at_full_speed() -> None:
    both, out = Both(HeartbeatResponse, 4), io.BytesIO()
    both.buildfunc(HeartbeatResponse(error_code=3), out, None)
    assert out.getvalue() == slow_encode(HeartbeatResponse(error_code=3), 4)
    assert compiled(both)


def test_broken_bytes_are_refused_before_and_after() -> None:
    both = Both(HeartbeatRequest, 0)
    for _ in range(4):
        with pytest.raises(WireError):
            parse(both, b"\x7f\xffg")
