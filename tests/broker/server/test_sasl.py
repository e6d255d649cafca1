"""Listeners with SASL: the exchange, and what is refused before it is over."""

import asyncio
import logging
import random
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.replication.connection import BrokerConnection, BrokerSecurity
from barnabas_broker.security.sasl import PLAIN_MODULE, Credentials
from barnabas_broker.server.connection import Dispatcher
from barnabas_broker.server.sasl import REQUESTS, Gated, SaslGate, SaslLogin, own_credentials
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.sasl import exchange
from barnabas_protocol.schema import Request
from barnabas_protocol.scram import ScramMechanism
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

    async def start(
        settings: Mapping[str, str] = MappingProxyType({}), users: Mapping[str, str] = MappingProxyType({})
    ) -> BrokerServer:
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
        started.append(await BrokerServer.start(Config(BROKER_KEYS, given), users=users))
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
        assert (done.error_code, done.error_message, bytes(done.auth_bytes)) == (0, "", b"")
        assert (await wire.ask(METADATA, 12, MetadataResponse)).brokers
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:ada"]


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
    monkeypatch.setattr("barnabas_broker.server.sasl.SECONDS", 0.05)
    broker = await start_sasl()
    async with await Wire.connect(broker.port) as wire:
        assert await wire.closed()
    assert [line["reason"] for line in warnings(caplog)] == ["it has not authenticated within 0.05 s"]


async def test_the_deadline_ends_with_the_login(start_sasl: StartSasl, monkeypatch: pytest.MonkeyPatch) -> None:
    gates: list[SaslGate] = []
    begin = SaslLogin.begin

    def watched(login: SaslLogin, connection: Gated, dispatch: Dispatcher) -> SaslGate:
        gates.append(begin(login, connection, dispatch))
        return gates[-1]

    monkeypatch.setattr(SaslLogin, "begin", watched)
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


SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"}


async def scram(wire: Wire, mechanism: str, user: str = "ada", password: str = "lovelace") -> SaslAuthenticateResponse:
    """Log in; the last answer."""
    messages = exchange(mechanism, user, password, lambda: "nonce")
    assert (await handshake(wire, mechanism)).error_code == 0
    answer = await authenticate(wire, next(messages))
    with suppress(StopIteration):
        while answer.error_code == 0:
            answer = await authenticate(wire, messages.send(bytes(answer.auth_bytes)))
    return answer


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_client_logs_in_with_scram(start_sasl: StartSasl, mechanism: str) -> None:
    broker = await start_sasl(SCRAM, users={"ada": "lovelace"})
    async with await Wire.connect(broker.port) as wire:
        assert (await wire.ask(ASK, 3, ApiVersionsResponse)).error_code == 0
        assert (await scram(wire, mechanism)).error_code == 0
        assert (await wire.ask(METADATA, 12, MetadataResponse)).brokers
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:ada"]


async def test_users_of_scram_change_while_the_broker_runs(
    start_sasl: StartSasl, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_sasl(SCRAM)
    answers = []
    for password in ("lovelace", "hush"):
        async with await Wire.connect(broker.port) as wire:
            answers.append(await scram(wire, "SCRAM-SHA-256", "ada", password))
            assert await wire.closed()
    async with await Wire.connect(broker.port) as wire:
        # PLAIN has other users than SCRAM.
        await handshake(wire)
        assert (await authenticate(wire, RIGHT)).error_code == 0
        salted = ScramMechanism.SCRAM_SHA_256.salted("lovelace", b"salt", 4096)
        one = ScramCredentialUpsertion(name="ada", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted)
        change = AlterUserScramCredentialsRequest(deletions=[], upsertions=[one])
        answer = await wire.ask(change, 0, AlterUserScramCredentialsResponse)
        assert [(result.user, result.error_code) for result in answer.results] == [("ada", 0)]
    for password, code in (("lovelace", 0), ("hush", ErrorCode.SASL_AUTHENTICATION_FAILED)):
        async with await Wire.connect(broker.port) as wire:
            answers.append(await scram(wire, "SCRAM-SHA-256", "ada", password))
            assert answers[-1].error_code == code
    assert answers[0] == answers[1] == answers[3]
    assert {line["user"] for line in warnings(caplog)} == {"ada"}
    assert "hush" not in caplog.text


async def test_users_that_are_given_at_the_start_are_added_once(start_sasl: StartSasl) -> None:
    broker = await start_sasl(SCRAM, users={"ada": "lovelace"})
    before = broker.services.cluster.image.users
    await broker.stop()
    broker = await start_sasl(SCRAM, users={"ada": "another", "bob": "secret"})
    after = broker.services.cluster.image.users
    assert after.secret == before.secret
    assert {user for user, _ in after.credentials} == {"ada", "bob"}
    assert {key: each for key, each in after.credentials.items() if key[0] == "ada"} == before.credentials
    for path in (broker.directory.path).glob("metadata.journal*"):
        assert path.stat().st_mode & 0o077 == 0
        assert "lovelace" not in path.read_text()


async def test_scram_needs_no_users_of_plain(start_sasl: StartSasl) -> None:
    broker = await start_sasl(
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "plain.sasl.jaas.config": "",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": "",
        }
    )
    async with await Wire.connect(broker.port) as wire:
        refused = await handshake(wire)
    assert refused == SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-256"]
    )


# Authentication again (KIP-368)

REAUTH = {"connections.max.reauth.ms": "3600000"}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients may authenticate again at once."""
    monkeypatch.setattr("barnabas_broker.server.sasl.AGAIN_SECONDS", 0.0)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_client_authenticates_again(start_sasl: StartSasl, mechanism: str) -> None:
    broker = await start_sasl(SCRAM | REAUTH, users={"ada": "lovelace"})
    async with await Wire.connect(broker.port) as wire:
        for _ in range(3):
            assert (await scram(wire, mechanism)).session_lifetime_ms == 3_600_000
            for _ in range(REQUESTS + 1):
                assert (await wire.ask(METADATA, 12, MetadataResponse)).brokers
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:ada"]


async def test_a_client_that_comes_too_late_is_disconnected(
    start_sasl: StartSasl, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_sasl(SCRAM | {"connections.max.reauth.ms": "50"}, users={"ada": "lovelace"})
    loop = asyncio.get_running_loop()
    async with await Wire.connect(broker.port) as wire:
        assert (await scram(wire, "PLAIN")).session_lifetime_ms == 50
        began = loop.time()
        async with asyncio.timeout(PATIENCE):
            while True:
                wire.send(METADATA, 12)
                try:
                    await wire.frame()
                except (EOFError, ConnectionError):
                    break
        assert loop.time() - began >= 0.04
    assert [line["reason"] for line in warnings(caplog)] == [
        "it has not authenticated again in time (connections.max.reauth.ms)"
    ]


@pytest.mark.usefixtures("soon")
async def test_a_client_stays_who_it_is(start_sasl: StartSasl) -> None:
    broker = await start_sasl(SCRAM | REAUTH, users={"ada": "lovelace", "bob": "builder"})
    for mechanism, user, password in (("SCRAM-SHA-256", "ada", "lovelace"), ("SCRAM-SHA-512", "bob", "builder")):
        async with await Wire.connect(broker.port) as wire:
            assert (await scram(wire, "SCRAM-SHA-512")).error_code == 0
            again = await scram(wire, mechanism, user, password)
            assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "Cannot change principals or SASL mechanisms" in (again.error_message or "")
            assert await wire.closed()


@pytest.mark.usefixtures("soon")
async def test_nothing_else_is_served_while_a_client_authenticates_again(start_sasl: StartSasl) -> None:
    broker = await start_sasl(SCRAM | REAUTH, users={"ada": "lovelace"})
    for large in (False, True):
        async with await Wire.connect(broker.port) as wire:
            await scram(wire, "PLAIN")
            await handshake(wire)
            if large:
                wire.send(SaslAuthenticateRequest(auth_bytes=bytes(600_000)), 2)
            else:
                wire.send(METADATA, 12)
            assert await wire.closed()


async def test_authentication_again_within_a_second_is_refused_as_in_kafka(start_sasl: StartSasl) -> None:
    broker = await start_sasl(SCRAM | REAUTH, users={"ada": "lovelace"})
    async with await Wire.connect(broker.port) as wire:
        # The first time may come at once.
        for _ in range(2):
            assert (await scram(wire, "PLAIN")).error_code == 0
        assert (await handshake(wire)).error_code == ErrorCode.ILLEGAL_SASL_STATE


# Brokers among themselves


def login_of(mechanism: str, password: str = "lovelace") -> BrokerSecurity:
    return BrokerSecurity(login=Credentials(mechanism, "ada", password))


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_broker_logs_in_to_another_one_and_again(start_sasl: StartSasl, mechanism: str) -> None:
    broker = await start_sasl(SCRAM | {"connections.max.reauth.ms": "60000"}, users={"ada": "lovelace"})
    connection = await BrokerConnection.open("127.0.0.1", broker.port, "b", PATIENCE, login_of(mechanism))
    assert connection._renew_at > 0
    connection._renew_at = 0.0  # now
    async with asyncio.timeout(PATIENCE):
        while connection._renew_at == 0.0:
            # Together: one of them logs in again, and the others wait for it.
            assert all(await asyncio.gather(*(connection.send(METADATA, 12, PATIENCE) for _ in range(5))))
    assert [str(peer.principal) for peer in broker.server.peers] == ["User:ada"]
    connection.close()


@pytest.mark.parametrize(
    ("security", "says"),
    [
        (login_of("PLAIN", "hush"), "the login is refused: Authentication failed: Invalid username or password"),
        (login_of("SCRAM-SHA-512", "hush"), "the login is refused: Authentication failed during authentication"),
        (login_of("SCRAM-SHA-256"), "the login is refused: UNSUPPORTED_SASL_MECHANISM"),
    ],
)
async def test_a_broker_that_is_refused_by_another_one(
    start_sasl: StartSasl, security: BrokerSecurity, says: str
) -> None:
    settings = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
    broker = await start_sasl(settings, users={"ada": "lovelace"})
    with pytest.raises(ConnectionError, match=says) as refused:
        await BrokerConnection.open("127.0.0.1", broker.port, "b", PATIENCE, security)
    assert "hush" not in f"{refused.value} {security!r}"


JAAS = 'Module required username="broker" password="hush";'


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "PLAIN", "listener.name.a.plain.sasl.jaas.config": JAAS},
            Credentials("PLAIN", "broker", "hush"),
        ),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512", "sasl.jaas.config": JAAS},
            Credentials("SCRAM-SHA-512", "broker", "hush"),
        ),
        (
            {
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "sasl.jaas.config": "other",
                "scram-sha-512.sasl.jaas.config": JAAS,
            },
            Credentials("SCRAM-SHA-512", "broker", "hush"),
        ),
        ({}, "sasl.mechanism.inter.broker.protocol=GSSAPI: must be one of sasl.enabled.mechanisms of the listener A"),
        (
            {"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER", "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN"},
            "brokers log in to each other with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 only. To do: add one of them to "
            "listener.name.a.sasl.enabled.mechanisms and name it here",
        ),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "log in to each other: PLAIN, SCRAM-SHA-512"),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
            "listener.name.a.scram-sha-512.sasl.jaas.config: must be MODULE required",
        ),
        (
            {
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "sasl.jaas.config": "Module required password=hush;",
            },
            'must have username="..." and password="..."',
        ),
    ],
)
def test_by_what_a_broker_logs_in(settings: dict[str, str], expected: Credentials | str) -> None:
    config = Config(BROKER_KEYS, {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512", **settings})
    if isinstance(expected, Credentials):
        assert own_credentials(config, "A") == expected
        return
    with pytest.raises(ConfigError) as refused:
        own_credentials(config, "A")
    assert expected in str(refused.value)
    assert "hush" not in str(refused.value)


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
