"""The client logs in to a broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka.abc
import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.security.sasl import PLAIN_MODULE
from barnabas_client import Admin, Consumer, Producer
from barnabas_client.cli import main
from barnabas_client.errors import AuthenticationFailedError, KafkaConnectionError
from barnabas_client.network.connection import Connection
from barnabas_client.tokens import AbstractTokenProvider, Login
from barnabas_protocol.codec import decode_response
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.certificates import Authority
from tests.tokens import TokenMaker
from tests.wire import PATIENCE


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    authority = Authority(tmp_path)
    settings = {
        "log.dir": str(tmp_path / "data"),
        "listeners": "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ada="lovelace";',
        "listener.name.sasl_plaintext.connections.max.reauth.ms": "1000",
        "ssl.keystore.location": str(authority.issue("broker")),
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ada="lovelace";',
        "connection.failed.authentication.delay.ms": "0",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    running = await BrokerServer.start(Config(BROKER_KEYS, settings))
    yield running
    await running.stop()


@pytest.fixture
def login(broker: BrokerServer, tmp_path: Path) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(tmp_path / "ca.pem"),
        "sasl_plain_username": "ada",
        "sasl_plain_password": "lovelace",
    }


async def test_produce_and_consume_as_a_group(login: dict[str, Any], broker: BrokerServer) -> None:
    async with asyncio.timeout(PATIENCE):
        async with Producer(**login) as producer:
            await producer.send_and_wait("t", b"one")
        async with Consumer("t", group_id="g", auto_offset_reset="earliest", **login) as consumer:
            assert (await consumer.getone()).value == b"one"
            assert {str(peer.principal) for peer in broker.server.peers} == {"User:ada"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"sasl_plain_password": "hush"},
            "does not accept the user 'ada': Authentication failed: Invalid username or password. To do: check",
        ),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, "does not serve the mechanism SCRAM-SHA-256, only PLAIN. To do: give"),
        (
            {"bootstrap_servers": "{plain}", "security_protocol": "SASL_PLAINTEXT", "ssl_cafile": None},
            "does not take logins .ILLEGAL_SASL_STATE.. To do: connect to a listener with SASL",
        ),
    ],
)
async def test_a_login_that_is_refused(
    login: dict[str, Any], broker: BrokerServer, changes: dict[str, Any], says: str
) -> None:
    plain = f"127.0.0.1:{broker.listeners[1].port}"
    changes = {name: value.format(plain=plain) if value else None for name, value in changes.items()}
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(AuthenticationFailedError, match=says) as refused:
            await Admin(**{**login, **changes}).start()
    assert "hush" not in str(refused.value)


async def connected(broker: BrokerServer) -> Connection:
    login = Login("PLAIN", "ada", "lovelace")
    address = broker.listeners[2]
    return await Connection.open(address.host, address.port, client_id="c", timeout=PATIENCE, login=login)


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who has logged in so far; the broker accepts it again at once."""
    seen: list[str] = []
    log_in = Connection._log_in

    async def watched(connection: Connection, login: Login, timeout: float) -> None:
        await log_in(connection, login, timeout)
        seen.append(login.user)

    monkeypatch.setattr(Connection, "_log_in", watched)
    monkeypatch.setattr("barnabas_client.network.connection._LEAST", 0.0)
    monkeypatch.setattr("barnabas_broker.server.sasl.AGAIN_SECONDS", 0.0)
    return seen


DECODE = partial(decode_response, MetadataResponse)


@pytest.mark.parametrize("depth", [1, 20])
async def test_a_connection_logs_in_again_while_it_is_used(broker: BrokerServer, logins: list[str], depth: int) -> None:
    connection = await connected(broker)
    async with asyncio.timeout(PATIENCE):
        while len(logins) < 3:
            connection._renew_at = 0.0  # instead of waiting for most of the session, as the next test does
            sent = [connection.send(MetadataRequest(topics=[]), DECODE, timeout=PATIENCE) for _ in range(depth)]
            assert all(response.brokers for response in await asyncio.gather(*sent))
    assert connection._held == []
    await connection.close()


async def test_a_connection_that_is_never_idle_logs_in_again(broker: BrokerServer, logins: list[str]) -> None:
    connection = await connected(broker)
    async with asyncio.timeout(PATIENCE):
        before = connection.send(MetadataRequest(topics=[]), DECODE, timeout=PATIENCE)
        while len(logins) < 3:
            after = connection.send(MetadataRequest(topics=[]), DECODE, timeout=PATIENCE)
            assert (await before).brokers
            before = after
        assert (await before).brokers
    await connection.close()


@pytest.mark.usefixtures("logins")
async def test_a_connection_that_cannot_log_in_again_ends(broker: BrokerServer) -> None:
    connection = await connected(broker)
    connection._login = Login("PLAIN", "ada", "changed")
    connection._renew_at = connection._renew_by = 0.0
    sent = [connection.send(MetadataRequest(topics=[]), DECODE, timeout=PATIENCE) for _ in range(3)]
    async with asyncio.timeout(PATIENCE):
        for one in sent:
            with pytest.raises(KafkaConnectionError, match=r"it could not log in again: .* does not accept the user"):
                await one
    assert connection.closed


# Tokens


class Tokens(AbstractTokenProvider):
    """Gives what it is given, and counts."""

    def __init__(self, give: Callable[[], Any]) -> None:
        self.give = give
        self.asked = 0

    async def token(self) -> str:
        self.asked += 1
        token: str = self.give()
        return token

    def extensions(self) -> dict[str, str]:
        return {"traceId": "1"}


@pytest.fixture
def maker(tmp_path: Path) -> TokenMaker:
    return TokenMaker(tmp_path)


@pytest.fixture
async def oauth(tmp_path: Path, maker: TokenMaker) -> AsyncIterator[BrokerServer]:
    """A broker whose clients log in by tokens."""
    settings = {
        "log.dir": str(tmp_path / "data"),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        **maker.settings("SASL_PLAINTEXT"),
        "connection.failed.authentication.delay.ms": "0",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    running = await BrokerServer.start(Config(BROKER_KEYS, settings))
    yield running
    await running.stop()


def by_token(broker: BrokerServer, provider: object) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


class OfAiokafka(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, give: Callable[[], str]) -> None:
        self.give = give

    async def token(self) -> str:
        return self.give()


@pytest.mark.parametrize("kind", [Tokens, OfAiokafka])
async def test_produce_and_consume_by_tokens(oauth: BrokerServer, maker: TokenMaker, kind: type[Tokens]) -> None:
    settings = by_token(oauth, kind(maker.token))
    async with asyncio.timeout(PATIENCE):
        async with Producer(**settings) as producer:
            await producer.send_and_wait("t", b"one")
        async with Consumer("t", group_id="g", auto_offset_reset="earliest", **settings) as consumer:
            assert (await consumer.getone()).value == b"one"
            assert {str(peer.principal) for peer in oauth.server.peers} == {"User:ada"}


async def test_a_token_that_is_refused(oauth: BrokerServer, maker: TokenMaker) -> None:
    token = maker.token(seconds=-100)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(
            AuthenticationFailedError, match=r'does not accept the token: .*"invalid_token".*To do: check sasl_oauth'
        ) as refused:
            await Admin(**by_token(oauth, Tokens(lambda: token))).start()
    assert token not in str(refused.value)


@pytest.mark.parametrize(
    ("give", "says"),
    [
        (lambda: 1 / 0, "gives no token, ZeroDivisionError: division by zero"),
        (lambda: None, "gives no token, SaslError: the token is empty"),
        (lambda: "a b", "the token is empty, or has characters that no token has"),
        (lambda: "", "the token is empty"),
    ],
)
async def test_a_provider_that_fails(oauth: BrokerServer, give: Callable[[], Any], says: str) -> None:
    async with asyncio.timeout(PATIENCE):
        with pytest.raises((KafkaConnectionError, AuthenticationFailedError), match=says):
            await Admin(**by_token(oauth, Tokens(give))).start()


async def test_a_provider_is_asked_again_after_it_has_failed(oauth: BrokerServer, maker: TokenMaker) -> None:
    answers = iter([maker.token(), None, maker.token()])

    def give() -> str:
        answer = next(answers, maker.token())
        if answer is None:
            raise OSError("the provider is away")
        return answer

    provider = Tokens(give)
    async with asyncio.timeout(PATIENCE), Admin(**by_token(oauth, provider), retry_backoff_ms=1) as admin:
        oauth.server.disconnect(oauth.server.peers)
        while provider.asked < 3:
            with suppress(KafkaConnectionError):
                await admin.list_topics()
        assert await admin.list_topics() == []


async def test_a_connection_gets_another_token_before_its_session_ends(
    oauth: BrokerServer, maker: TokenMaker, logins: list[str]
) -> None:
    provider = Tokens(lambda: maker.token(seconds=1))
    address = oauth.listeners[0]
    login = Login("OAUTHBEARER", tokens=provider)
    connection = await Connection.open(address.host, address.port, client_id="c", timeout=PATIENCE, login=login)
    async with asyncio.timeout(PATIENCE):
        while len(logins) < 3:
            sent = [connection.send(MetadataRequest(topics=[]), DECODE, timeout=PATIENCE) for _ in range(5)]
            assert all(response.brokers for response in await asyncio.gather(*sent))
    assert provider.asked == 3
    await connection.close()


async def test_the_command_line_takes_a_file_with_a_token(
    oauth: BrokerServer,
    maker: TokenMaker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{maker.token()}\n")
    settings = {
        "bootstrap_servers": f"127.0.0.1:{oauth.port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_file": str(file),
    }
    (tmp_path / "barnabas").mkdir()
    lines = [f'{name} = "{value}"' for name, value in settings.items()]
    (tmp_path / "barnabas" / "config.toml").write_text("\n".join(["[clusters.far]", *lines]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for words in (["ping"], ["topics", "create", "t"]):
        assert await asyncio.to_thread(main, [*words, "--cluster", "far"]) == 0, capsys.readouterr().err
    monkeypatch.setenv("BARNABAS_SASL_OAUTH_TOKEN_FILE", str(file))
    monkeypatch.setenv("BARNABAS_SASL_MECHANISM", "OAUTHBEARER")
    monkeypatch.setenv("BARNABAS_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    words = ["topics", "list", "-b", settings["bootstrap_servers"]]
    assert await asyncio.to_thread(main, words) == 0, capsys.readouterr().err
    file.write_text("expired")
    assert await asyncio.to_thread(main, words) != 0
    assert "does not accept the token" in capsys.readouterr().err
    file.unlink()
    assert await asyncio.to_thread(main, words) != 0
    assert "No such file" in capsys.readouterr().err


async def test_the_command_line_logs_in(
    login: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = [f'{name} = "{value}"' for name, value in login.items()]
    (tmp_path / "barnabas").mkdir()
    (tmp_path / "barnabas" / "config.toml").write_text("\n".join(["[clusters.far]", *lines]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for words in (["ping"], ["topics", "create", "t"]):
        assert await asyncio.to_thread(main, [*words, "--cluster", "far"]) == 0, capsys.readouterr().err
    assert "lovelace" not in "".join(capsys.readouterr())
