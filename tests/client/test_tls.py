"""The client over TLS, against a broker: certificates, names, and what it says when they do not fit."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_client import Admin, Consumer, Producer, TopicPartition
from barnabas_client.cli import main
from barnabas_client.errors import DeliveryTimeoutError, KafkaConnectionError
from tests.certificates import Authority
from tests.wire import PATIENCE


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def broker(tmp_path: Path, authority: Authority) -> AsyncIterator[BrokerServer]:
    settings = {
        "log.dir": str(tmp_path / "data"),
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(authority.issue("broker")),
        "ssl.truststore.location": str(authority.trust),
        "ssl.client.auth": "required",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    running = await BrokerServer.start(Config(BROKER_KEYS, settings))
    yield running
    await running.stop()


@pytest.fixture
def secure(broker: BrokerServer, authority: Authority) -> dict[str, Any]:
    certificate = authority.issue("ada", "ada@example.com", common_name="Ada", password="hush")
    return {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SSL",
        "ssl_cafile": str(authority.trust),
        "ssl_certfile": str(certificate),
        "ssl_password": "hush",
    }


async def test_produce_and_consume_as_a_group(secure: dict[str, Any], broker: BrokerServer) -> None:
    async with asyncio.timeout(PATIENCE):
        async with Producer(**secure) as producer:
            await producer.send_and_wait("t", b"one")
        async with Consumer("t", group_id="g", auto_offset_reset="earliest", **secure) as consumer:
            assert (await consumer.getone()).value == b"one"
            await consumer.commit()
            names = {str(peer.principal).partition(",")[0] for peer in broker.server.peers}
        async with Admin(**secure) as admin:
            offsets = await admin.list_consumer_group_offsets("g")
    assert names == {"User:CN=Ada"}
    assert offsets[TopicPartition("t", 0)].offset == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ssl_cafile": None}, "its certificate is not accepted, .*To do: give the authority .* as ssl_cafile"),
        ({"bootstrap_servers": "{name}:{port}"}, "not accepted, Hostname mismatch, .*connect by a name that is in it"),
    ],
)
async def test_a_broker_that_is_not_trusted(
    secure: dict[str, Any], broker: BrokerServer, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], says: str
) -> None:
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo

    async def local(host: str, *arguments: Any, **named: Any) -> Any:
        return await look_up("127.0.0.1", *arguments, **named)

    monkeypatch.setattr(loop, "getaddrinfo", local)
    given = {
        name: value.format(name="elsewhere.example", port=broker.port) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(KafkaConnectionError, match=says):
            await Admin(**{**secure, **given}, request_timeout_ms=5_000).start()


async def test_names_need_not_be_checked(secure: dict[str, Any], broker: BrokerServer, authority: Authority) -> None:
    authority.issue("broker", "elsewhere.example")
    broker.certificates.reload()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(KafkaConnectionError, match="not accepted, IP address mismatch"):
            await Admin(**secure, request_timeout_ms=5_000).start()
        async with Admin(**secure, ssl_check_hostname=False) as admin:
            assert not await admin.list_topics()


async def test_the_command_line_takes_settings_from_the_environment(
    secure: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    for name, value in secure.items():
        monkeypatch.setenv(f"BARNABAS_{name.upper()}", value)
    for words in (["ping"], ["topics", "create", "t"], ["topics", "list"]):
        assert await asyncio.to_thread(main, words) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].split()[0] == "t"
    assert "hush" not in said.out + said.err


async def test_a_client_without_tls_learns_what_may_be_wrong(broker: BrokerServer) -> None:
    with pytest.raises(KafkaConnectionError, match="To do: connect with TLS if it expects that"):
        await Admin(bootstrap_servers=f"127.0.0.1:{broker.port}").start()


async def test_a_record_that_is_not_sent_says_why(tmp_path: Path, authority: Authority) -> None:
    """The broker is reached by an address of its certificate, and advertises a name that is not in it."""
    settings = {
        "log.dir": str(tmp_path / "data"),
        "listeners": "SSL://0.0.0.0:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,OTHER:SSL",
        "inter.broker.listener.name": "OTHER",
        "advertised.listeners": "SSL://127.0.0.2:0",
        "ssl.keystore.location": str(authority.issue("broker")),
    }
    running = await BrokerServer.start(Config(BROKER_KEYS, settings))
    try:
        secure: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": str(authority.trust)}
        servers = f"127.0.0.1:{running.port}"
        async with Producer(
            bootstrap_servers=servers,
            delivery_timeout_ms=500,
            request_timeout_ms=400,
            linger_ms=0,
            enable_idempotence=False,
            **secure,
        ) as producer:
            why = ""
            async with asyncio.timeout(PATIENCE):
                # On a slow machine the first records expire before it has tried, or before the handshake is over.
                while "not valid" not in why:
                    with pytest.raises(DeliveryTimeoutError) as raised:
                        await producer.send_and_wait("t", b"v")
                    why = str(raised.value)
        assert re.search(r"attempts: 0\): cannot connect to 127\.0\.0\.2:.*not valid for '127\.0\.0\.2'\. To do", why)
    finally:
        await running.stop()
