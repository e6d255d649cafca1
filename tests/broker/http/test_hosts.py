"""Host headers: what a browser sends for a page of this machine is answered, what a rebound name sends is not."""

import asyncio
from pathlib import Path

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.http.access import AllowedHosts
from tests.broker.http.conftest import Http
from tests.wire import PATIENCE

ALLOWED = AllowedHosts(["Broker-1", "console.example.org.", "127.0.0.1", ""], "--name")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:9308",
        "localhost.",
        "page.localhost:1",
        "127.0.0.1:9308",
        "127.8.9.1",
        "10.0.0.7:9308",
        "[::1]:9308",
        "[fe80::1%25eth0]",
        "broker-1:9308",
        "BROKER-1.",
        "console.example.org",
        "localhost:",
    ],
)
def test_names_of_this_machine_and_addresses_are_answered(host: str) -> None:
    assert ALLOWED.refusal([host]) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9308",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notlocalhost",
        "broker-1.evil.example",
        "evil.example:9308:1",
        "localhost@evil.example",
        "localhost/evil.example",
        "127.0.0.1 evil.example",
        "[evil.example]",
        "[::1",
        "",
        " ",
        "0x7f.1",
        "l\u00f6calhost",
        "e" * 10_000,
    ],
)
def test_other_names_are_refused(host: str) -> None:
    why = ALLOWED.refusal([host])
    assert why is not None
    assert len(why) < 700


def test_a_request_without_the_header_is_not_of_a_browser() -> None:
    assert ALLOWED.refusal([]) is None
    assert ALLOWED.refusal(["localhost", "evil.example"]) == "the request has several Host headers"


async def ask(broker: BrokerServer, host: str | None, path: str = "/groups", version: str = "1.1") -> bytes:
    """The whole response to a request with a Host header."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
        header = "" if host is None else f"Host: {host}\r\n"
        writer.write(f"GET {path} HTTP/{version}\r\n{header}Connection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer


@pytest.mark.parametrize("path", ["/", "/groups", "/metrics", "/page/page.js", "/healthz", "/none"])
async def test_a_rebound_name_reads_nothing(broker: BrokerServer, http: Http, path: str) -> None:
    answer = await ask(broker, "evil.example:9308", path)
    assert answer.startswith(b"HTTP/1.1 421 ")
    body = answer.partition(b"\r\n\r\n")[2]
    assert body == (
        b'{"error": "requests for the host evil.example are not answered, as a protection against DNS rebinding. '
        b'To do: use an IP address, or start this program with --http-allow-host evil.example"}\n'
    )
    assert not (await ask(broker, f"localhost:{broker.http_port}", path)).startswith(b"HTTP/1.1 421")
    assert (await ask(broker, None, path, "1.0")).startswith(b"HTTP/1.0 404" if path == "/none" else b"HTTP/1.0 200")


async def test_a_name_that_is_given_is_answered(tmp_path: Path) -> None:
    config = Config(BROKER_KEYS, {"log.dir": str(tmp_path)})
    broker = await BrokerServer.start(config, port=0, http_port=0, http_allow_hosts=["kafka.internal"])
    try:
        assert (await ask(broker, "kafka.internal:80")).startswith(b"HTTP/1.1 200")
        assert (await ask(broker, "evil.example")).startswith(b"HTTP/1.1 421")
    finally:
        await broker.stop()
