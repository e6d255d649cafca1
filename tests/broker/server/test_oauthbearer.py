"""Listeners with OAUTHBEARER: who gets in, who does not, and what is configured."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.config.checks import check_config
from barnabas_broker.config.keys import UNSECURED_TOKENS
from barnabas_broker.errors import BrokerError
from barnabas_broker.security.bearer import OAUTHBEARER_MODULE
from barnabas_broker.server import jwks
from barnabas_broker.server.sasl import sasl_settings
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.tokens import TokenMaker, unsecured
from tests.wire import PATIENCE, Wire

METADATA = MetadataRequest(topics=[])
URL = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
HANDLER = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
SKEW = "unsecuredValidatorAllowableClockSkewMs"
JAAS = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"

StartOauth = Callable[..., Awaitable[BrokerServer]]


@pytest.fixture
def maker(tmp_path: Path) -> TokenMaker:
    return TokenMaker(tmp_path)


@pytest.fixture
async def start(tmp_path: Path, maker: TokenMaker) -> AsyncIterator[StartOauth]:
    """Start a broker that takes the tokens of `maker`."""
    started: list[BrokerServer] = []

    async def begin(changes: Mapping[str, str] = MappingProxyType({})) -> BrokerServer:
        given = {
            "log.dir": str(tmp_path / "data"),
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            **maker.settings("SASL_PLAINTEXT"),
            "connection.failed.authentication.delay.ms": "0",
            **changes,
        }
        started.append(await BrokerServer.start(Config(BROKER_KEYS, given)))
        return started[-1]

    yield begin
    for broker in started:
        await broker.stop()


async def shake(wire: Wire) -> None:
    request = SaslHandshakeRequest(mechanism="OAUTHBEARER")
    assert (await wire.ask(request, 1, SaslHandshakeResponse)).error_code == 0


async def say(wire: Wire, message: bytes) -> SaslAuthenticateResponse:
    return await wire.ask(SaslAuthenticateRequest(auth_bytes=message), 2, SaslAuthenticateResponse)


async def log_in(wire: Wire, token: str) -> SaslAuthenticateResponse:
    await shake(wire)
    return await say(wire, f"n,,\x01auth=Bearer {token}\x01\x01".encode())


async def ask_for_ever(wire: Wire) -> None:
    while True:
        await wire.ask(METADATA, 12, MetadataResponse)


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.msg for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[misc]


async def test_a_token_says_who_a_client_is_and_for_how_long(start: StartOauth, maker: TokenMaker) -> None:
    broker = await start()
    async with await Wire.connect(broker.port) as wire:
        done = await log_in(wire, maker.token("ada", 300))
        assert (done.error_code, bytes(done.auth_bytes)) == (0, b"")
        assert 200_000 < done.session_lifetime_ms <= 300_000
        assert (await wire.ask(METADATA, 12, MetadataResponse)).brokers
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:ada"]


async def test_a_token_that_is_refused_is_acknowledged_and_fails(
    start: StartOauth, maker: TokenMaker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start()
    token = maker.token(seconds=-100)
    async with await Wire.connect(broker.port) as wire:
        answer = await log_in(wire, token)
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        assert answer.session_lifetime_ms == 0
        answer = await say(wire, b"\x01")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == '{"status":"invalid_token"}'
        assert await wire.closed()
    (line,) = warnings(caplog)
    assert (line["event"], line["reason"]) == ("authentication failed", "it has expired")
    assert token not in caplog.text


async def test_nothing_is_served_between_a_refused_token_and_its_acknowledgement(
    start: StartOauth, maker: TokenMaker
) -> None:
    broker = await start()
    async with await Wire.connect(broker.port) as wire:
        await log_in(wire, maker.token(aud="x"))
        wire.send(METADATA, 12)
        assert await wire.closed()
    async with await Wire.connect(broker.port) as wire:
        await log_in(wire, maker.token(aud="x"))
        refused = await say(wire, f"n,,\x01auth=Bearer {maker.token()}\x01\x01".encode())
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await wire.closed()


@pytest.mark.parametrize("message", [b"", b"\x01", b"hush", b"n,,\x01auth=Bearer \xff\x01\x01"])
async def test_a_message_that_is_not_valid(start: StartOauth, message: bytes) -> None:
    broker = await start()
    async with await Wire.connect(broker.port) as wire:
        await shake(wire)
        refused = await say(wire, message)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
        )
        assert await wire.closed()


async def test_a_session_ends_with_its_token_unless_there_is_another_one(
    start: StartOauth, maker: TokenMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.server.sasl.AGAIN_SECONDS", 0.0)
    broker = await start({"listener.name.sasl_plaintext.oauthbearer.connections.max.reauth.ms": "2000"})
    async with await Wire.connect(broker.port) as wire:
        assert (await log_in(wire, maker.token())).session_lifetime_ms == 2000
        assert 0 < (await log_in(wire, maker.token(seconds=1))).session_lifetime_ms <= 1000
        # Another user.
        changed = await log_in(wire, maker.token("eve"))
        assert changed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in (changed.error_message or "")
    async with await Wire.connect(broker.port) as wire:
        await log_in(wire, maker.token(seconds=0.5))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(ask_for_ever(wire), PATIENCE)


async def test_a_new_key_of_the_provider_becomes_known(
    start: StartOauth, maker: TokenMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "SOONER_SECONDS", 0.0)
    broker = await start()
    maker.rotate()
    async with asyncio.timeout(PATIENCE):
        while True:
            async with await Wire.connect(broker.port) as wire:
                if not (await log_in(wire, maker.token())).auth_bytes:
                    break


async def test_tokens_without_a_signature_are_accepted_if_that_is_asked_for(
    start: StartOauth, maker: TokenMaker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start()
    async with await Wire.connect(broker.port) as wire:
        assert (await log_in(wire, unsecured(aud=None))).auth_bytes
    await broker.stop()
    options = 'unsecuredValidatorPrincipalClaimName="name" unsecuredValidatorRequiredScope="read"'
    changes = {URL: "", HANDLER: UNSECURED_TOKENS, JAAS: f"{OAUTHBEARER_MODULE} required {options};"}
    caplog.clear()
    broker = await start(changes)
    assert [line["event"] for line in warnings(caplog)] == ["tokens are not checked: each client is whom it says"]
    async with await Wire.connect(broker.port) as wire:
        assert (await log_in(wire, unsecured(name="bob", scope="read"))).auth_bytes == b""
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:bob"]
    async with await Wire.connect(broker.port) as wire:
        refused = await log_in(wire, unsecured(name="bob"))
        assert refused.auth_bytes == b'{"status":"insufficient_scope", "scope":"[read]"}'


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({URL: ""}, ConfigError, "serves OAUTHBEARER. To do: give sasl.oauthbearer.jwks.endpoint.url"),
        ({URL: "file:///nowhere/jwks.json"}, ConfigError, "jwks.endpoint.url=file:///nowhere.*No such file"),
        ({JAAS: "x"}, ConfigError, "oauthbearer.sasl.jaas.config: must be MODULE required"),
        ({JAAS: 'a.PlainLoginModule required user_a="hush";'}, ConfigError, "must be for .*OAuthBearerLoginModule"),
        (
            {
                JAAS: f'{OAUTHBEARER_MODULE} required ssl.truststore.location="/nowhere.pem";',
                URL: "https://localhost:1",
            },
            ConfigError,
            "ssl.truststore.location=/nowhere.pem: it cannot be used: No such file",
        ),
        (
            {
                HANDLER: UNSECURED_TOKENS,
                JAAS: f"{OAUTHBEARER_MODULE} required {SKEW}=x;",
            },
            ConfigError,
            f"{SKEW} must be a number",
        ),
    ],
)
async def test_configurations_that_are_refused(
    start: StartOauth, changes: dict[str, str], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as refused:
        await start(changes)
    assert "hush" not in str(refused.value)


async def test_a_provider_that_cannot_be_reached_does_not_keep_the_broker_from_starting(
    start: StartOauth, maker: TokenMaker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start({URL: "https://localhost:1/keys"})
    async with await Wire.connect(broker.port) as wire:
        assert (await log_in(wire, maker.token())).auth_bytes == b'{"status":"invalid_token"}'
    assert "keys of tokens not read" in [line["event"] for line in warnings(caplog)]


async def test_a_package_that_is_missing_is_named(start: StartOauth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "barnabas_broker.server.jwks", None)
    with pytest.raises(BrokerError, match=r"sasl\.enabled\.mechanisms=OAUTHBEARER needs .*'barnabas\[oauth\]'"):
        await start()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", "http://example.com/keys", "anybody on the way"),
        ("sasl.oauthbearer.jwks.endpoint.url", "ftp://example.com/keys", "must be https://"),
        ("sasl.oauthbearer.jwks.endpoint.url", "https:///keys", "must be https://"),
        ("sasl.oauthbearer.jwks.endpoint.url", "file://host/keys", "must be https://"),
        ("sasl.oauthbearer.jwks.endpoint.url", "https://[::1/keys", "not a URL"),
        ("sasl.oauthbearer.jwks.endpoint.url", "https://a:hush@example.com/", "must have no user and no password"),
        ("sasl.server.callback.handler.class", "com.example.Handler", "Barnabas loads no Java classes"),
        ("sasl.oauthbearer.clock.skew.seconds", "-1", "must be from 0"),
        ("listener.name.s.oauthbearer.ssl.client.auth", "none", "write listener.name.NAME.ssl.client.auth"),
        ("listener.name.s.oauthbeare.sasl.oauthbearer.expected.audience", "x", "no such key of a listener"),
        ("listener.name.s.oauthbearer.sasl.oauthbearer.clock.skew.seconds", "x", "not a whole number"),
    ],
)
def test_values_that_are_refused(name: str, value: str, said: str) -> None:
    config = Config(BROKER_KEYS, {"listeners": "S://:9092", name: value})
    with pytest.raises(ConfigError, match=said):
        check_config(config)


@pytest.mark.parametrize(
    "url",
    ["https://example.com/keys?x=1", "file:///etc/keys.json", "http://127.0.0.1:1/keys", "http://[::1]:1/keys", ""],
)
def test_places_of_keys(url: str) -> None:
    assert check_config(Config(BROKER_KEYS, {"sasl.oauthbearer.jwks.endpoint.url": url})) == []


def test_keys_of_a_mechanism_come_before_those_of_the_listener() -> None:
    given = {
        "listeners": "S://:9092,T://:9093",
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "sasl.oauthbearer.jwks.endpoint.url": "https://all.example.com",
        "listener.name.s.sasl.oauthbearer.jwks.endpoint.url": "https://listener.example.com",
        "listener.name.s.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://mechanism.example.com",
        "connections.max.reauth.ms": "3000",
        "listener.name.s.connections.max.reauth.ms": "2000",
        "listener.name.s.oauthbearer.connections.max.reauth.ms": "1000",
    }
    config = Config(BROKER_KEYS, given)
    assert check_config(config) == []
    found = sasl_settings(config, {"S": "SASL_PLAINTEXT", "T": "SASL_PLAINTEXT"})
    assert [each.bearer and each.bearer.url for each in found.values()] == [
        "https://mechanism.example.com",
        "https://all.example.com",
    ]
    assert found["S"].lifetimes == {"OAUTHBEARER": 1.0, "SCRAM-SHA-256": 2.0}
    assert found["T"].lifetimes == {"OAUTHBEARER": 3.0, "SCRAM-SHA-256": 3.0}
