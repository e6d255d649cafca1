"""The client logs in to a broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.security.sasl import PLAIN_MODULE
from barnabas_client import Admin, Consumer, Producer
from barnabas_client.cli import main
from barnabas_client.errors import AuthenticationFailedError
from tests.certificates import Authority
from tests.wire import PATIENCE


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    authority = Authority(tmp_path)
    settings = {
        "log.dir": str(tmp_path / "data"),
        "listeners": "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
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
