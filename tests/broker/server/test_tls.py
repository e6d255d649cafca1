"""Listeners with TLS: handshakes, client certificates and their principals, reload, and what is not TLS."""

import asyncio
import gc
import logging
import os
import random
import shutil
import socket
import ssl
import weakref
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from barnabas_broker import log_throttle
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.replication.connection import BrokerConnection, BrokerSecurity
from barnabas_broker.security.tls import _Connection
from barnabas_broker.server import server, tls
from barnabas_broker.server.connection import Connection, Peer
from barnabas_broker.server.tls import AT_ONCE, HandshakeSteps
from barnabas_protocol.codec import encode_request
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.conftest import StartBroker
from tests.certificates import Authority
from tests.wire import PATIENCE, Wire, until

ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")

StartTls = Callable[..., Awaitable[BrokerServer]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def start_tls(authority: Authority, start_broker: StartBroker) -> StartTls:
    """Start a broker with the listeners PLAINTEXT and SSL."""
    keystore = authority.issue("broker")

    async def start(**settings: str) -> BrokerServer:
        given = {"ssl_keystore_location": str(keystore), "ssl_truststore_location": str(authority.trust), **settings}
        return await start_broker(listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **given)

    return start


def port(broker: BrokerServer, name: str = "SSL") -> int:
    return next(each.port for each in broker.listeners if each.name == name)


def trusting(authority: Authority, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.trust)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


async def connect(broker: BrokerServer, context: ssl.SSLContext) -> Wire:
    async with asyncio.timeout(PATIENCE):
        return Wire(*await asyncio.open_connection("localhost", port(broker), ssl=context, family=socket.AF_INET))


async def principal(broker: BrokerServer, context: ssl.SSLContext) -> str:
    """Connect, ask something, and return what the broker takes the client for."""
    async with await connect(broker, context) as wire:
        await wire.ask(ASK, 3, ApiVersionsResponse)
        (peer,) = broker.server.peers
        return str(peer.principal)


def failures(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The log lines that are warnings or errors."""
    return [record.msg for record in caplog.records if record.levelno >= logging.WARNING]  # type: ignore[misc]


async def failure(caplog: pytest.LogCaptureFixture) -> str:
    """The reason in the one line that a failed handshake causes."""
    await until(lambda: bool(failures(caplog)))
    (line,) = failures(caplog)
    assert line["event"] == "TLS handshake failed"
    assert line["peer"].startswith("127.0.0.1:")
    return str(line["reason"])


async def test_requests_over_tls(start_tls: StartTls, authority: Authority) -> None:
    broker = await start_tls()
    async with await connect(broker, trusting(authority)) as wire:
        assert (await wire.ask(ASK, 3, ApiVersionsResponse)).error_code == 0
        metadata = await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)
    assert [each.port for each in metadata.brokers] == [port(broker)]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_of_tls(start_tls: StartTls, authority: Authority, version: ssl.TLSVersion) -> None:
    broker = await start_tls()
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    assert await principal(broker, context) == "User:ANONYMOUS"


@pytest.mark.parametrize("setting", [{"ssl_enabled_protocols": "TLSv1.3"}, {"ssl_keystore_type": "pem"}])
async def test_a_downgrade_is_refused(
    start_tls: StartTls, authority: Authority, setting: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls(**setting)
    context = trusting(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    if "ssl_enabled_protocols" in setting:
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    else:
        with pytest.deprecated_call():
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert await rejected(broker, context) == "TLSV1_ALERT_PROTOCOL_VERSION"
    assert await failure(caplog) == "it has no version of TLS in common with ssl.enabled.protocols"


async def test_ssl_protocol_is_the_newest_version(start_tls: StartTls, authority: Authority) -> None:
    broker = await start_tls(ssl_protocol="TLSv1.2")
    async with await connect(broker, trusting(authority)) as wire:
        assert wire.writer.get_extra_info("ssl_object").version() == "TLSv1.2"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [("DEFAULT", "User:CN=Duke,OU={unit},O=Tests"), ("RULE:^CN=(.*?),.*$/$1/L", "User:duke")],
)
async def test_the_principal_of_a_certificate(
    start_tls: StartTls, authority: Authority, rules: str, expected: str
) -> None:
    broker = await start_tls(ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    duke = trusting(authority, authority.issue("duke", "duke@example.com", common_name="Duke"))
    found = await principal(broker, duke)
    unit = found.partition("OU=")[2].partition(",")[0]
    assert found == expected.format(unit=unit)


@pytest.mark.parametrize(("auth", "expected"), [("none", "User:ANONYMOUS"), ("requested", "User:CN=Duke")])
async def test_a_certificate_counts_if_it_is_asked_for(
    start_tls: StartTls, authority: Authority, auth: str, expected: str
) -> None:
    broker = await start_tls(ssl_client_auth=auth)
    duke = trusting(authority, authority.issue("duke", "duke@example.com", common_name="Duke"))
    assert (await principal(broker, duke)).startswith(expected)
    await until(lambda: not broker.server.connections)
    assert await principal(broker, trusting(authority)) == "User:ANONYMOUS"


async def test_plain_text_has_no_principal_but_anonymous(start_tls: StartTls) -> None:
    broker = await start_tls()
    async with await Wire.connect(port(broker, "PLAINTEXT")) as wire:
        await wire.ask(ASK, 3, ApiVersionsResponse)
        assert [str(peer.principal) for peer in broker.server.peers] == ["User:ANONYMOUS"]


async def rejected(broker: BrokerServer, context: ssl.SSLContext) -> str:
    """Connect; what the alert says. With TLS 1.3 it comes after the client has completed its handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with await Wire.connect(port(broker)) as wire:
        steps: list[Callable[[], object]] = [client.do_handshake, lambda: client.read(1)]
        while True:
            try:
                steps[0]()
                del steps[0]
            except ssl.SSLWantReadError:
                wire.writer.write(outgoing.read())
                async with asyncio.timeout(PATIENCE):
                    received = await wire.reader.read(65536)
                assert received, "closed without an alert"
                incoming.write(received)
            except ssl.SSLError as error:
                wire.writer.write(outgoing.read())
                return str(error.reason)


async def test_a_required_certificate_is_missing(
    start_tls: StartTls, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls(ssl_client_auth="required")
    assert await rejected(broker, trusting(authority)) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert await failure(caplog) == "it has sent no certificate, which ssl.client.auth=required asks for"


@pytest.mark.parametrize("auth", ["required", "requested"])
async def test_a_certificate_of_another_authority(
    start_tls: StartTls, authority: Authority, auth: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls(ssl_client_auth=auth)
    mallory = Authority(tmp_path, "other").issue("mallory", "m@example.com", common_name="Duke")
    assert await rejected(broker, trusting(authority, mallory)) == "TLSV1_ALERT_UNKNOWN_CA"
    assert (await failure(caplog)).startswith("its certificate is not trusted: ")


async def test_a_name_to_which_no_rule_applies_is_refused(
    start_tls: StartTls, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=Duke$/duke/")
    wire = await connect(broker, trusting(authority, authority.issue("eve", "e@example.com", common_name="Eve")))
    assert await wire.closed()
    await wire.close()
    (line,) = failures(caplog)
    assert line["reason"].startswith("no rule of ssl.principal.mapping.rules applies to CN=Eve,")


async def test_a_client_that_does_not_trust_the_broker(
    start_tls: StartTls, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls()
    assert await rejected(broker, trusting(Authority(tmp_path, "other"))) == "CERTIFICATE_VERIFY_FAILED"
    assert await failure(caplog) == "it does not trust the certificate of this broker"


@pytest.mark.parametrize("said", [b"\0\0\0\x10\0\x12\0\x03", b"GET / HTTP/1.1\r\n\r\n", b"\x80"])
async def test_what_is_not_tls(start_tls: StartTls, said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start_tls()
    async with await Wire.connect(port(broker)) as wire:
        wire.writer.write(said)
        assert await wire.closed()
    assert await failure(caplog) == "it does not speak TLS: set security.protocol=SSL in the client"


async def test_what_a_host_repeats_is_logged_once(
    start_tls: StartTls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls()
    for _ in range(50):
        async with await Wire.connect(port(broker)) as wire:
            wire.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await wire.closed()
    reason = await failure(caplog)
    monkeypatch.setattr(log_throttle, "WINDOW", 0.0)
    broker.server.sweep()
    line = failures(caplog)[-1]
    assert (line["event"], line["reason"], line["repeated"]) == ("TLS handshakes failed", reason, 49)


async def test_a_client_without_tls_is_told_what_a_listener_with_logins_speaks(
    start_tls: StartTls, caplog: pytest.LogCaptureFixture
) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="lovelace";'
    broker = await start_tls(
        **{
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": jaas,
        }
    )
    async with await Wire.connect(port(broker)) as wire:
        wire.writer.write(b"\0\0\0\x10\0\x12\0\x03")
        assert await wire.closed()
    assert await failure(caplog) == "it does not speak TLS: set security.protocol=SASL_SSL in the client"


async def test_a_connection_that_says_nothing_is_not_logged(
    start_tls: StartTls, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls()
    async with await Wire.connect(port(broker)):
        pass
    assert await principal(broker, trusting(authority)) == "User:ANONYMOUS"
    assert failures(caplog) == []


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
async def test_a_handshake_has_a_deadline(
    start_tls: StartTls, said: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.05)
    broker = await start_tls()
    async with await Wire.connect(port(broker)) as wire:
        wire.writer.write(said)
        assert await wire.closed()
    assert await failure(caplog) == "it has not completed a TLS handshake within 0.05 s"


async def test_hostile_bytes_close_the_connection_and_nothing_else(
    start_tls: StartTls, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls()
    dice = random.Random(20)
    for _ in range(300):
        wire = await Wire.connect(port(broker))
        data = dice.randbytes(dice.randrange(1, 300))
        wire.writer.write(dice.choice((b"", b"\x16\x03\x01" + len(data).to_bytes(2, "big"))) + data)
        wire.writer.write_eof()
        assert await wire.closed() or await wire.reader.read() is not None  # an alert
        await wire.close()
    assert await principal(broker, trusting(authority)) == "User:ANONYMOUS"
    assert {line["event"] for line in failures(caplog)} == {"TLS handshake failed"}
    assert len(failures(caplog)) <= 300
    assert "Traceback" not in caplog.text


#: A client that is refused because it has no certificate, one that goes away in the middle, and one without TLS.
FAILING = {"refused": b"", "cut": b"\x16\x03\x01\x02\x00\x01\x00", "plain": b"GET / HTTP/1.1\r\n"}


@pytest.mark.parametrize("said", FAILING.values(), ids=FAILING)
def test_a_failed_handshake_leaves_nothing_for_the_collector(
    authority: Authority, tmp_path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that fail again and again would fill the memory until the collector runs, and make its pauses longer."""
    connections = weakref.WeakSet[Connection]()
    make = Connection.__init__

    def made(connection: Connection, *args: Any, **named: Any) -> None:
        make(connection, *args, **named)
        connections.add(connection)

    async def run() -> None:
        settings = {
            "log.dir": str(tmp_path / "data"),
            "listeners": "SSL://127.0.0.1:0",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.location": str(authority.issue("broker")),
            "ssl.truststore.location": str(authority.trust),
            "ssl.client.auth": "required",
        }
        broker = await BrokerServer.start(Config(BROKER_KEYS, settings), port=0)
        try:
            if said:
                wire = await Wire.connect(port(broker))
                wire.writer.write(said)
                if said.startswith(b"\x16"):
                    await until(lambda: bool(connections))
                else:
                    assert await wire.closed()
                    assert not connections
                await wire.close()
            else:
                assert await rejected(broker, trusting(authority)) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
            await until(lambda: not connections)
        finally:
            await broker.stop()

    monkeypatch.setattr(Connection, "__init__", made)
    gc.disable()
    try:
        # asyncio's own loop makes a cycle of a failed handshake, and the broker does not use it.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    finally:
        gc.enable()


async def test_pending_handshakes_count_as_connections_and_make_room_for_others(
    start_tls: StartTls, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls(max_connections="2")
    oldest = await Wire.connect(port(broker))
    await until(lambda: broker.server.handshakes == 1)
    newer = await Wire.connect(port(broker))
    await until(lambda: broker.server.handshakes == 2)
    async with await connect(broker, trusting(authority)) as client:
        await client.ask(ASK, 3, ApiVersionsResponse)
        assert await oldest.closed()
        (line,) = failures(caplog)
        assert (line["event"], line["host"]) == ("connection refused", "127.0.0.1")
        assert line["reason"] == "max.connections=2: it was not in use, and another one needed its place"
        async with await connect(broker, trusting(authority)) as another:
            await another.ask(ASK, 3, ApiVersionsResponse)
            assert await newer.closed()
            # Those that are served stay.
            async with await Wire.connect(port(broker)) as refused:
                assert await refused.closed()
            assert failures(caplog)[-1]["reason"] == "max.connections=2"
            await client.ask(ASK, 3, ApiVersionsResponse)
    for each in oldest, newer:
        await each.close()
    await until(lambda: not broker.server.connections)
    assert await principal(broker, trusting(authority)) == "User:ANONYMOUS"


def hello(context: ssl.SSLContext) -> bytes:
    """The first message of a handshake."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def test_handshakes_that_are_not_ended_take_few_descriptors_and_make_room_for_others(
    start_tls: StartTls, authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HANDSHAKES", (1, 3, 3))
    monkeypatch.setattr(tls, "PATIENCE_SECONDS", 0.05)
    broker = await start_tls()
    made, first = 0, hello(trusting(authority))
    make = Connection.__init__

    def counted(connection: Connection, *args: Any, **named: Any) -> None:
        nonlocal made
        made += 1
        make(connection, *args, **named)

    before = len(os.listdir("/proc/self/fd"))
    silent = [await Wire.connect(port(broker)) for _ in range(20)]
    await until(lambda: broker.server.handshakes == 20)
    assert len(os.listdir("/proc/self/fd")) == before + 40
    monkeypatch.setattr(Connection, "__init__", counted)
    for each in silent[:10]:
        each.writer.write(first)
    # Three at a time, which give way to the others.
    assert await principal(broker, trusting(authority)) == "User:ANONYMOUS"
    assert len(os.listdir("/proc/self/fd")) <= before + 40 + 3 + 2
    await until(lambda: made == 11)
    assert len(os.listdir("/proc/self/fd")) <= before + 40 + 3
    reasons = {line["reason"] for line in failures(caplog)}
    assert reasons == {"it has sent nothing for 0.05 s while other handshakes waited"}
    for each in silent:
        await each.close()
    await until(lambda: not broker.server.handshakes)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_the_handshake_that_came_last_has_the_next_place() -> None:
    steps, entered, release = HandshakeSteps(1), list[int](), asyncio.Event()

    async def handshake(number: int) -> None:
        async with steps.handshake():
            entered.append(number)
            await release.wait()

    tasks = [asyncio.create_task(handshake(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert (entered, steps.waiting) == ([0], 4)
    tasks[4].cancel()
    release.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert (entered, steps.waiting) == ([0, 3, 2, 1], 0)


async def test_a_handshake_that_gives_up_does_not_keep_its_place() -> None:
    steps, never = HandshakeSteps(1), asyncio.Event()

    async def handshake() -> None:
        async with steps.handshake():
            await never.wait()

    first, second, third = (asyncio.create_task(handshake()) for _ in range(3))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    third.cancel()  # while it has been given the place, and does not know it yet
    second.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    async with asyncio.timeout(PATIENCE), steps.handshake():
        assert steps.waiting == 0


async def test_few_steps_of_handshakes_are_done_together() -> None:
    steps, inside, most = HandshakeSteps(1), 0, 0

    async def step() -> None:
        nonlocal inside, most
        async with steps.step():
            inside += 1
            most = max(most, inside)
            for _ in range(3):
                await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(step() for _ in range(20)))
    assert most == AT_ONCE


async def test_a_step_that_gives_up_does_not_keep_its_place() -> None:
    steps, never = HandshakeSteps(1), asyncio.Event()

    async def step() -> None:
        async with steps.step():
            await never.wait()

    tasks = [asyncio.ensure_future(step()) for _ in range(5 * AT_ONCE)]
    await asyncio.sleep(0)
    for each in (*tasks[AT_ONCE:], *tasks[:AT_ONCE]):
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # All places have come back, and none twice.
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        for _ in range(AT_ONCE):
            await stack.enter_async_context(steps.step())
        assert steps._turns.locked()


@pytest.mark.parametrize("client_auth", ["none", "required"])
async def test_many_clients_that_go_on_together_do_not_hold_the_loop(
    start_tls: StartTls, authority: Authority, client_auth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that wait in the middle of their handshakes, and then all send the rest at once."""
    broker = await start_tls(ssl_client_auth=client_auth)
    context = trusting(authority, authority.issue("duke", "duke@example.com", common_name="Duke"))
    clients = []
    for _ in range(20):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        clients.append((await Wire.connect(port(broker)), client, incoming, outgoing))
    turn, turns = 0, defaultdict[int, set[_Connection]](set)
    do_handshake = _Connection.do_handshake

    def counted(connection: _Connection) -> None:
        turns[turn].add(connection)
        do_handshake(connection)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    monkeypatch.setattr(_Connection, "do_handshake", counted)
    for wire, client, _, outgoing in clients:
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        wire.writer.write(outgoing.read())
    for wire, client, incoming, _ in clients:
        done = False
        while not done:
            async with asyncio.timeout(PATIENCE):
                incoming.write(await wire.reader.read(65536))
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
                done = True
    assert broker.server.handshakes == len(clients)
    for wire, client, _, outgoing in clients:
        client.write(encode_request(ASK, 0, 1, "test"))
        wire.writer.write(outgoing.read())
    for wire, *_ in clients:
        assert await wire.reader.read(1)
        await wire.close()
    counting.cancel()
    steps = [len(each) for each in turns.values()]
    assert sum(steps) >= 2 * len(clients)
    assert max(steps) == AT_ONCE


@pytest.mark.parametrize("said", [b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
async def test_slow_handshakes_do_not_keep_others_out(start_tls: StartTls, authority: Authority, said: bytes) -> None:
    broker = await start_tls()
    slow = [await Wire.connect(port(broker)) for _ in range(10 * AT_ONCE)]
    for each in slow:
        each.writer.write(said)
    await until(lambda: broker.server.handshakes == len(slow))
    async with await connect(broker, trusting(authority)) as wire:
        assert (await wire.ask(ASK, 3, ApiVersionsResponse)).error_code == 0
        await until(lambda: broker.server.handshakes == len(slow))
        for each in slow:
            each.writer.write(b"\0")
        assert (await wire.ask(ASK, 3, ApiVersionsResponse)).error_code == 0
    for each in slow:
        await each.close()
    await until(lambda: not broker.server.handshakes)


# Certificates from files and text, and their reload


async def test_certificate_and_key_as_text(start_tls: StartTls, authority: Authority, tmp_path: Path) -> None:
    text = (tmp_path / "broker.pem").read_text()
    broker = await start_tls(
        ssl_keystore_location="",
        ssl_keystore_key=text,
        ssl_keystore_certificate_chain=text,
        ssl_truststore_location="",
        ssl_truststore_certificates=authority.trust.read_text(),
        ssl_client_auth="required",
    )
    duke = authority.issue("duke", "duke@example.com", common_name="Duke")
    assert (await principal(broker, trusting(authority, duke))).startswith("User:CN=Duke")


async def test_secrets_are_not_described(start_tls: StartTls, authority: Authority, tmp_path: Path) -> None:
    keystore = authority.issue("locked", password="hush")
    broker = await start_tls(ssl_keystore_location=str(keystore), ssl_key_password="hush")
    resource = DescribeConfigsResource(resource_type=4, resource_name=str(broker.node_id), configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    async with await connect(broker, trusting(authority)) as wire:
        (result,) = (await wire.ask(request, 4, DescribeConfigsResponse)).results
    rows = {row.name: row for row in result.configs}
    assert rows["ssl.keystore.location"].value == str(keystore)
    for name in ("ssl.key.password", "ssl.keystore.key", "ssl.truststore.certificates"):
        row = rows[name]
        assert (row.value, row.is_sensitive, row.config_type) == (None, True, 9)
        assert {synonym.value for synonym in row.synonyms} <= {None}
    assert "hush" not in repr(result)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"ssl_keystore_location": "/no/such/file"},
            r"ssl\.keystore\.location=/no/such/file: it cannot be read: No such",
        ),
        ({"ssl_keystore_location": "{ca}"}, r"ca\.pem: it has no private key .*\. To do: give PEM with the key"),
        ({"ssl_keystore_location": "{jks}"}, r"it is in the format JKS\. To do: keytool"),
        ({"ssl_keystore_location": "{mixed}"}, r"key values mismatch\. To do: give the key of the first certificate"),
        (
            {"ssl_keystore_location": "{locked}"},
            r"the key cannot be read\. To do: check the key, and ssl\.key\.password",
        ),
        ({"ssl_keystore_location": "{locked}", "ssl_key_password": "xyzzy"}, r"the key cannot be read"),
        ({"ssl_truststore_location": "{key}"}, r"ssl\.truststore\.location=.*it has no certificate"),
        ({"ssl_truststore_location": "", "ssl_client_auth": "required"}, r"no certificates are trusted"),
        ({"ssl_keystore_key": "x"}, r"listener SSL: ssl\.keystore\.location and .* are given: give either"),
        ({"ssl_keystore_location": "", "ssl_keystore_key": "x"}, r"listener SSL: give both"),
        (
            {"ssl_truststore_certificates": "x"},
            r"ssl\.truststore\.location and ssl\.truststore\.certificates are given",
        ),
        ({"ssl_enabled_protocols": "TLSv1.3", "ssl_protocol": "TLSv1.2"}, r"leaves none of ssl\.enabled\.protocols"),
        ({"ssl_principal_mapping_rules": "RULE:"}, r"ssl\.principal\.mapping\.rules: must be DEFAULT or RULE"),
    ],
)
async def test_what_cannot_be_used_is_refused(
    start_tls: StartTls, authority: Authority, tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    (tmp_path / "jks.pem").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    authority.issue("locked", password="hush")
    key, _, _ = (tmp_path / "broker.pem").read_text().partition("-----BEGIN CERT")
    (tmp_path / "key.pem").write_text(key)
    (tmp_path / "mixed.pem").write_text(
        key + "-----BEGIN" + authority.issue("second").read_text().split("-----BEGIN")[2]
    )
    paths = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "jks", "mixed", "locked", "key")}
    with pytest.raises(ConfigError, match=said) as refused:
        await start_tls(**{name: value.format(**paths) for name, value in settings.items()})
    assert "xyzzy" not in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_certificates_are_reloaded(
    start_tls: StartTls, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_tls()
    newer = Authority(tmp_path, "newer")
    async with await connect(broker, trusting(authority)) as before:
        await before.ask(ASK, 3, ApiVersionsResponse)
        shutil.copy(newer.issue("rotated"), tmp_path / "broker.pem")
        broker.certificates.reload()
        assert await principal_of_new_connection(broker, newer) == "User:ANONYMOUS"
        # What was open stays.
        assert (await before.ask(ASK, 3, ApiVersionsResponse)).error_code == 0
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(broker, trusting(authority))
        caplog.clear()
        (tmp_path / "broker.pem").write_text("broken")
        broker.certificates.reload()
        (line,) = failures(caplog)
        assert line["event"] == "certificates not reloaded, the earlier ones stay"
        assert line["listener"] == "SSL"
        assert await principal_of_new_connection(broker, newer) == "User:ANONYMOUS"


async def test_a_certificate_that_is_not_for_the_advertised_host_is_a_warning(
    start_tls: StartTls, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keystore = tmp_path / "keystore.pem"
    right, wrong = (
        authority.issue("right").read_text(),
        authority.issue("wrong", "10.0.0.7", "*.example.com").read_text(),
    )
    keystore.write_text(wrong)
    broker = await start_tls(ssl_keystore_location=str(keystore))
    try:
        (line,) = failures(caplog)
        assert line["event"].startswith("the certificate is not for the advertised host")
        assert (line["listener"], line["host"]) == ("SSL", "127.0.0.1")
        assert line["certificate"] == "*.example.com, 10.0.0.7"
        assert "advertised.listeners" in line["advice"]
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(broker, trusting(authority))
        await until(lambda: len(failures(caplog)) == 2)  # the client has refused it
        for text, lines in ((right, 0), (wrong, 1)):
            keystore.write_text(text)
            caplog.clear()
            broker.certificates.reload()
            assert len(failures(caplog)) == lines
    finally:
        await broker.stop()


async def test_the_host_that_clients_get_is_the_advertised_one(
    start_tls: StartTls, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    keystore = authority.issue("named", "kafka.example.com")
    names = {"advertised_listeners": "SSL://kafka.example.com:9093", "ssl_keystore_location": str(keystore)}
    await start_tls(**names)
    assert failures(caplog) == []


async def principal_of_new_connection(broker: BrokerServer, authority: Authority) -> str:
    known = set(broker.server.peers)
    async with await connect(broker, trusting(authority)) as wire:
        await wire.ask(ASK, 3, ApiVersionsResponse)
        (peer,) = set[Peer](broker.server.peers) - known
        return str(peer.principal)


# Brokers among themselves


async def test_a_broker_connects_to_others_with_its_own_certificate(start_tls: StartTls, authority: Authority) -> None:
    broker = await start_tls(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^.*O=Tests.*$/broker/")
    mine = broker.certificates.of("SSL")
    connection = await BrokerConnection.open("localhost", port(broker), "broker-2", PATIENCE, BrokerSecurity(mine))
    assert await connection.send(ASK, 3, PATIENCE)
    assert [str(peer.principal) for peer in broker.server.peers] == ["User:broker"]
    connection.close()
    authority.issue("broker", "elsewhere.example")
    broker.certificates.reload()
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await BrokerConnection.open("localhost", port(broker), "broker-2", PATIENCE, BrokerSecurity(mine))


async def test_the_names_of_brokers_need_not_be_checked(start_tls: StartTls, authority: Authority) -> None:
    broker = await start_tls(ssl_endpoint_identification_algorithm="")
    authority.issue("broker", "elsewhere.example")
    broker.certificates.reload()
    mine = broker.certificates.of("SSL")
    connection = await BrokerConnection.open("localhost", port(broker), "broker-2", PATIENCE, BrokerSecurity(mine))
    assert await connection.send(ASK, 3, PATIENCE)
    connection.close()
