"""The keys of a provider of tokens: when they are read, and what is not accepted."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from barnabas_broker.security.tokens import LARGEST_SET, KeysRefused
from barnabas_broker.server import jwks
from barnabas_broker.server.jwks import KeySource, reader
from tests.certificates import Authority
from tests.tokens import TokenMaker, ec_key, jwk
from tests.wire import PATIENCE

FIRST, SECOND = (
    json.dumps({"keys": [jwk(ec_key(), kid=str(number)) for number in range(count)]}).encode() for count in (1, 2)
)


class Provider:
    """Answers what it is given, and counts the readings."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.read_once = asyncio.Event()
        self.readings = 0

    async def read(self) -> bytes:
        self.readings += 1
        answer = self.answers[min(self.readings, len(self.answers)) - 1]
        self.read_once.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def until(self, readings: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.readings < readings:
                self.read_once.clear()
                await self.read_once.wait()


Start = Callable[..., Awaitable[tuple[KeySource, Provider]]]


@pytest.fixture
async def start(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Start to read the keys of a provider; an hour between two readings unless a test says otherwise."""
    sources: list[KeySource] = []
    monkeypatch.setattr(jwks, "SHORTEST_SECONDS", 0.0)

    async def begin(
        *answers: bytes | Exception, refresh: float = 3600, sooner: float = 0.0
    ) -> tuple[KeySource, Provider]:
        monkeypatch.setattr(jwks, "SOONER_SECONDS", sooner)
        provider = Provider(*answers)
        source = KeySource(provider.read, "here", refresh, 0.001, 0.01)
        sources.append(source)
        await source.start()
        return source, provider

    yield begin
    for source in sources:
        await source.stop()


def number_of(source: KeySource) -> int:
    return len(source.keys or ())


async def test_the_keys_are_there_at_the_start_and_read_again(start: Start) -> None:
    source, provider = await start(FIRST, SECOND, refresh=0.001)
    assert number_of(source) == 1
    await provider.until(3)  # what the second has brought counts
    assert number_of(source) == 2


async def test_a_token_with_an_unknown_key_brings_a_reading(start: Start) -> None:
    source, provider = await start(FIRST, SECOND)
    for readings in (2, 3):
        source.missing()
        await provider.until(readings)
    assert number_of(source) == 2


async def test_many_such_tokens_bring_one(start: Start) -> None:
    source, provider = await start(FIRST, sooner=3600)
    for _ in range(100):
        source.missing()
        await asyncio.sleep(0)
    assert provider.readings == 1


async def test_the_earlier_keys_stay_if_a_reading_fails(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    failures = [OSError("no route"), KeysRefused("no keys"), b"hush", b'{"keys":[]}', TimeoutError()]
    source, provider = await start(FIRST, *failures, SECOND, refresh=0.001)
    await provider.until(7)
    assert number_of(source) == 1
    await provider.until(8)
    assert number_of(source) == 2
    lines: list[Any] = [record.msg for record in caplog.records if record.levelno == logging.WARNING]
    # The first, the second, the fourth, ...: not each.
    reasons = ["no route", "no keys", "it has no RSA, EC or Ed25519 key for signatures"]
    assert [line["reason"] for line in lines] == reasons
    assert {line["result"] for line in lines} == {"the earlier keys stay"}
    assert "hush" not in caplog.text


async def test_the_first_reading_is_repeated(start: Start) -> None:
    source, provider = await start(OSError("no route"), OSError("no route"), FIRST, refresh=0.001)
    assert source.keys is None
    await provider.until(4)
    assert number_of(source) == 1


async def test_the_pauses_after_failures_become_longer() -> None:
    source = KeySource(Provider(FIRST).read, "here", 3600, 0.2, 1.0)
    pauses = []
    for source._failures in (1, 2, 3, 4, 1000):
        pauses.append(source._pause())
    assert pauses == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert KeySource(Provider(FIRST).read, "here", 3600, 0.001, 0.001)._pause() == jwks.SHORTEST_SECONDS


async def test_a_file(tmp_path: Path) -> None:
    maker = TokenMaker(tmp_path)
    assert await reader(maker.url, "")() == maker.keys
    maker.file.write_bytes(b" " * (LARGEST_SET + 10))
    assert len(await reader(maker.url, "")()) == LARGEST_SET + 1
    maker.file.unlink()
    with pytest.raises(FileNotFoundError):
        await reader(maker.url, "")()


Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[str]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Serve HTTPS with a certificate of `tmp_path`/ca.pem; the address."""
    runners: list[web.AppRunner] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Authority(tmp_path).issue("provider"))

    async def begin(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> str:
        app = web.Application()
        app.router.add_get("/{path:.*}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        return f"https://localhost:{runner.addresses[0][1]}/keys"

    yield begin
    for runner in runners:
        await runner.cleanup()


async def test_a_provider(serve: Serve, tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.path == "/keys"
        return web.Response(body=FIRST, content_type="application/json")

    url = await serve(handler)
    assert await reader(url, str(tmp_path / "ca.pem"))() == FIRST
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        await reader(url, "")()
    with pytest.raises(OSError, match=r"."):
        reader(url, str(tmp_path / "missing.pem"))


async def test_answers_of_a_provider_that_are_refused(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path == "/moved":
            return web.Response(status=302, headers={"Location": "/keys"})
        if request.path == "/broken":
            return web.Response(status=500, body=FIRST)
        response = web.StreamResponse()
        await response.prepare(request)
        if request.path == "/silent":
            await going_on.wait()
            return response
        while True:  # without an end
            await response.write(b" " * 65_536)
            # asyncio drops what is written to a TLS connection that the peer has closed. Without a turn of its own, the
            # event loop never closes this side, and the handler never ends.
            await asyncio.sleep(0)

    base = (await serve(handler)).removesuffix("/keys")
    for path, said in (("moved", "status 302"), ("broken", "status 500"), ("endless", "more than 1048576 bytes")):
        with pytest.raises(KeysRefused, match=said):
            await reader(f"{base}/{path}", str(tmp_path / "ca.pem"))()
    monkeypatch.setattr(jwks, "ANSWER_SECONDS", 0.2)
    with pytest.raises(TimeoutError):
        await reader(f"{base}/silent", str(tmp_path / "ca.pem"))()
    going_on.set()
