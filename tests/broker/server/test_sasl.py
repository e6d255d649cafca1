"""Listeners with SASL: the exchange, and what is refused before it is over."""

import asyncio
import logging
import random
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.security.sasl import PLAIN_MODULE
from barnabas_broker.server.connection import Dispatcher
from barnabas_broker.server.sasl import REQUESTS, Gated, SaslGate, SaslSettings
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.schema import Request
from tests.certificates import Authority
from tests.wire import PATIENCE, Wire

ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")
METADATA = MetadataRequest(topics=[])
RIGHT, WRONG = b"\0ada\0lovelace", b"\0ada\0hush"

StartSasl = Callable[..., Awaitable[BrokerServer]]


@pytest.fixture
async def start_sasl(tmp_path: Path) -> AsyncIterator[StartSasl]:
    """Start a broker whose clients log in, with the user ada."""
    started: list[BrokerServer] = []

    async def start(settings: Mapping[str, str] = MappingProxyType({})) -> BrokerServer:
        given = {
            "log.dir": str(tmp_path / "data"),
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_eve="other";',
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ada="lovelace";',
            "connection.failed.authentication.delay.ms": "0",
            **settings,
        }
        started.append(await BrokerServer.start(Config(BROKER_KEYS, given)))
        return started[-1]

    yield start
    for broker in started:
        await broker.stop()


async def handshake(wire: Wire, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    return await wire.ask(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)


async def authenticate(wire: Wire, message: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return await wire.ask(SaslAuthenticateRequest(auth_bytes=message), version, SaslAuthenticateResponse)


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.msg for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[misc]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_client_logs_in(start_sasl: StartSasl, version: int) -> None:
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        assert (await wire.ask(ASK, 3, ApiVersionsResponse)).error_code == 0
        assert (await handshake(wire)) == SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        done = await authenticate(wire, RIGHT, version)
        assert (done.error_code, done.error_message, bytes(done.auth_bytes)) == (0, None, b"")
        assert (await wire.ask(METADATA, 12, MetadataResponse)).brokers
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:ada"]


async def test_a_client_logs_in_without_headers_after_version_0(start_sasl: StartSasl) -> None:
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        assert (await handshake(wire, version=0)).error_code == 0
        wire.writer.write(struct.pack(">i", len(RIGHT)) + RIGHT)
        assert await wire.frame() == b""
        assert (await wire.ask(METADATA, 12, MetadataResponse)).brokers


async def test_a_request_that_comes_with_the_password_is_served_after_it(start_sasl: StartSasl) -> None:
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        wire.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        wire.send(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
        last = wire.send(METADATA, 12)
        frames = [await wire.frame() for _ in range(3)]
    assert struct.unpack_from(">i", frames[-1]) == (last,)


@pytest.mark.parametrize("message", [WRONG, b"\0eve\0hush", b"\0ada\0hush\0", b"\xff", b""])
async def test_a_wrong_password_closes_the_connection(
    start_sasl: StartSasl, message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        await handshake(wire)
        refused = await authenticate(wire, message)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert (refused.error_message or "").startswith("Authentication failed: ")
        assert await wire.closed()
    (line,) = warnings(caplog)
    assert (line["event"], line["listener"]) == ("authentication failed", "SASL_PLAINTEXT")
    assert "hush" not in caplog.text


async def test_an_unknown_user_is_answered_as_a_wrong_password(start_sasl: StartSasl) -> None:
    broker = await start_sasl()
    answers = []
    for message in (WRONG, b"\0eve\0hush"):
        async with await Wire.connect(broker.port) as wire:
            await handshake(wire)
            answers.append(await authenticate(wire, message))
    assert answers[0] == answers[1]


async def test_a_failure_is_answered_after_the_delay(start_sasl: StartSasl) -> None:
    broker = await start_sasl({"connection.failed.authentication.delay.ms": "150"})
    loop = asyncio.get_running_loop()
    async with await Wire.connect(broker.port) as wire:
        await handshake(wire)
        began = loop.time()
        # Other passwords that come with it are not tried.
        for message in (WRONG, RIGHT, WRONG):
            wire.send(SaslAuthenticateRequest(auth_bytes=message), 2)
        assert await wire.frame()
        assert loop.time() - began >= 0.15
        assert await wire.closed()


async def test_a_wrong_password_without_headers(start_sasl: StartSasl) -> None:
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        await handshake(wire, version=0)
        wire.writer.write(struct.pack(">i", len(WRONG)) + WRONG)
        assert await wire.closed()


async def test_a_mechanism_that_is_not_served(start_sasl: StartSasl, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        refused = await handshake(wire, "GSS\x1b")
        assert refused == SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN"])
        assert await wire.closed()
    assert [line["reason"] for line in warnings(caplog)] == ["the mechanism GSS\\x1b is not served"]


@pytest.mark.parametrize(
    "requests",
    [
        [(METADATA, 12)],
        [(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)],
        [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (METADATA, 12)],
        [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (ASK, 3)],
        [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (SaslHandshakeRequest(mechanism="PLAIN"), 1)],
    ],
)
async def test_nothing_else_is_served_before(
    start_sasl: StartSasl, requests: list[tuple[Request, int]], caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        for request, version in requests:
            wire.send(request, version)
        for _ in requests[1:]:
            await wire.frame()
        assert await wire.closed()
    (line,) = warnings(caplog)
    assert "before it has authenticated" in line["reason"]


async def test_requests_before_are_few_and_small(start_sasl: StartSasl, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start_sasl({"sasl.server.max.receive.size": "1000"})
    async with await Wire.connect(broker.port) as wire:
        for _ in range(REQUESTS):
            await wire.ask(ASK, 3, ApiVersionsResponse)
        wire.send(ASK, 3)
        assert await wire.closed()
    async with await Wire.connect(broker.port) as wire:
        wire.writer.write(struct.pack(">i", 1001))
        assert await wire.closed()
    async with await Wire.connect(broker.port) as wire:
        await handshake(wire)
        await authenticate(wire, RIGHT)
        names = MetadataRequest(topics=None)
        wire.send(names, 12, client_id="x" * 2000)
        assert await wire.frame()
    assert [line["reason"] for line in warnings(caplog)] == [
        f"it has not authenticated within {REQUESTS} requests",
        "frame of 1001 bytes, at most 1000 are accepted",
    ]


async def test_the_exchange_has_a_deadline(
    start_sasl: StartSasl, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SaslGate.__init__, "__defaults__", (0.05,))
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        assert await wire.closed()
    assert [line["reason"] for line in warnings(caplog)] == ["it has not authenticated within 0.05 s"]


async def test_the_deadline_ends_with_the_login(start_sasl: StartSasl, monkeypatch: pytest.MonkeyPatch) -> None:
    gates: list[SaslGate] = []
    begin = SaslSettings.begin

    def watched(settings: SaslSettings, connection: Gated, dispatch: Dispatcher) -> SaslGate:
        gates.append(begin(settings, connection, dispatch))
        return gates[-1]

    monkeypatch.setattr(SaslSettings, "begin", watched)
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        await handshake(wire)
        assert not gates[0]._deadline.cancelled()
        await authenticate(wire, RIGHT)
        assert gates[0]._deadline.cancelled()


async def test_authentication_again_is_refused_as_in_kafka(start_sasl: StartSasl) -> None:
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        await handshake(wire)
        await authenticate(wire, RIGHT)
        assert (await handshake(wire)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        again = await authenticate(wire, RIGHT)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert again.error_message == "SaslAuthenticate request received after successful authentication"


async def test_hostile_bytes_before_the_login(start_sasl: StartSasl, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start_sasl()
    dice = random.Random(20)
    whole = [
        struct.pack(">hhih", key, version, 1, -1) + dice.randbytes(dice.randrange(40))
        for key in (17, 18, 36, 3)
        for version in range(-1, 4)
        for _ in range(20)
    ]
    for data in whole:
        wire = await Wire.connect(broker.port)
        if dice.random() < 0.5:
            await handshake(wire, version=dice.randrange(2))
        wire.writer.write(struct.pack(">i", len(data)) + data)
        wire.writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            await wire.reader.read()
        await wire.close()
    async with await Wire.connect(broker.port) as wire:
        await handshake(wire)
        assert (await authenticate(wire, RIGHT)).error_code == 0
    assert {line["event"] for line in warnings(caplog)} <= {
        "connection closed",
        "authentication failed",
        "a client asks for SaslHandshake version 2, which this broker does not serve",
    }
    assert "Traceback" not in caplog.text


async def test_over_tls_the_user_counts_and_not_the_certificate(start_sasl: StartSasl, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    broker = await start_sasl(
        {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_SSL",
            "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ada="lovelace";',
            "ssl.keystore.location": str(authority.issue("broker")),
            "ssl.truststore.location": str(authority.trust),
            "ssl.client.auth": "required",  # is for listeners without SASL
        }
    )
    context = ssl.create_default_context(cafile=authority.trust)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
    async with Wire(reader, writer) as wire:
        await handshake(wire)
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:ANONYMOUS"]
        await authenticate(wire, RIGHT)
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:ada"]
