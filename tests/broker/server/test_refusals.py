"""What is not served is refused at once and logged once: by hand, and over a socket to a broker."""

import asyncio
import struct
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.broker import BrokerServer
from barnabas_broker.server.refusals import (
    HTTP,
    LONGEST_CLIENT_ID,
    REMEMBERED,
    SASL,
    STREAMS_GROUPS,
    TLS,
    Refusals,
    feature_of_api,
    feature_of_bytes,
)
from barnabas_protocol.apis import APIS
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.registry import ApiKey
from tests.wire import PATIENCE, Wire

#: A TLS 1.2 record with the beginning of a ClientHello.
CLIENT_HELLO = b"\x16\x03\x01\x00\xf8\x01\x00\x00\xf4\x03\x03" + bytes(200)


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    events = [cast(dict[str, Any], record.msg) for record in caplog.records]
    return [event for event in events if "does not serve" in event["event"]]


def test_a_feature_is_logged_once_for_each_client(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    for _ in range(3):
        refusals.warn(SASL, "10.0.0.1", "a")
        refusals.warn(SASL, "10.0.0.2", "a")
        refusals.warn(SASL, "10.0.0.1", "b")
        refusals.warn(STREAMS_GROUPS, "10.0.0.1", "b")
        refusals.warn(TLS, "10.0.0.1", None)
        refusals.warn(TLS, "10.0.0.2", None)
    assert [(line.get("client_id"), line["host"]) for line in warnings(caplog)] == [
        ("a", "10.0.0.1"),
        ("b", "10.0.0.1"),
        ("b", "10.0.0.1"),
        (None, "10.0.0.1"),
        (None, "10.0.0.2"),
    ]


def test_the_memory_is_bounded_and_keeps_what_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    refusals.warn(SASL, "h", "stubborn")
    for number in range(3 * REMEMBERED):
        refusals.warn(SASL, "h", str(number))
        refusals.warn(SASL, "h", "stubborn")
    assert len(refusals._warned) == REMEMBERED
    assert [line["client_id"] for line in warnings(caplog)].count("stubborn") == 1


@given(client_id=st.text())
def test_a_client_id_cannot_write_to_the_terminal(client_id: str) -> None:
    refusals = Refusals()
    refusals.warn(SASL, "h", client_id)
    ((shown, _),) = refusals._warned
    assert shown.isprintable()
    assert len(shown) <= 10 * LONGEST_CLIENT_ID
    if client_id and client_id.isprintable():
        assert shown == client_id[:LONGEST_CLIENT_ID]


def test_every_api_that_is_not_served_has_a_feature() -> None:
    for key in set(ApiKey) - set(APIS):
        feature = feature_of_api(key)
        assert feature.name
        assert feature.advice
    assert feature_of_api(999).name == "API 999"


@pytest.mark.parametrize(
    ("start", "feature"), [(b"\x16\x03\x01\x02", TLS), (b"GET ", HTTP), (b"PRI ", HTTP), (b"\xff\xff\xff\xff", None)]
)
def test_other_protocols_are_known_by_their_first_bytes(start: bytes, feature: object) -> None:
    assert feature_of_bytes(start) is feature


async def until_closed(broker: BrokerServer, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(data)
    async with asyncio.timeout(PATIENCE):
        said = await reader.read()
    writer.close()
    await writer.wait_closed()
    return said


async def test_tls_is_closed_without_a_word(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert await until_closed(broker, CLIENT_HELLO) == b""
    (line,) = warnings(caplog)
    assert (line["host"], line["advice"]) == ("127.0.0.1", TLS.advice)
    assert "connection closed" not in caplog.text


async def test_http_is_answered_with_the_reason(broker: BrokerServer, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        said = await until_closed(broker, b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"--http-port" in said
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(
    ("api", "version", "name"),
    [
        (ApiKey.STREAMS_GROUP_HEARTBEAT, 0, "KIP-1071"),
        (ApiKey.VOTE, 0, "Vote (API 52)"),
        (ApiKey.METADATA, 99, "Metadata version 99"),
        (999, 0, "API 999"),
    ],
)
async def test_an_api_that_is_not_served_is_logged_once(
    broker: BrokerServer, caplog: pytest.LogCaptureFixture, api: int, version: int, name: str
) -> None:
    for _ in range(3):
        assert await until_closed(broker, struct.pack(">ihhih", 10 + 3, api, version, 1, 3) + b"\x1b[c") == b""
    (line,) = warnings(caplog)
    assert name in line["event"]
    assert line["client_id"] == "\\x1b[c"


@pytest.mark.parametrize("version", [0, 1])
async def test_sasl_is_refused_as_kafka_does_without_it(
    wire: Wire, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    for _ in range(3):
        response = await wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), version, SaslHandshakeResponse)
        assert (response.error_code, response.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    (line,) = warnings(caplog)
    assert (line["client_id"], line["advice"]) == ("test", SASL.advice)
