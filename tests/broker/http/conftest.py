"""A broker with an HTTP endpoint in the test's event loop, and an HTTP client."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from yarl import URL

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from tests.wire import PATIENCE

StartBroker = Callable[..., Awaitable[BrokerServer]]


class HttpResponse(NamedTuple):
    """A response of the HTTP endpoint."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        assert self.headers["Content-Type"] == "application/json; charset=utf-8"
        return json.loads(self.text)


class Http:
    """Client of a broker's HTTP endpoint."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.broker: BrokerServer | None = None

    async def get(self, path: str, method: str = "GET") -> HttpResponse:
        assert self.broker is not None
        url = URL(f"http://127.0.0.1:{self.broker.http_port}{path}", encoded=True)
        async with asyncio.timeout(PATIENCE), self._session.request(method, url) as response:
            return HttpResponse(response.status, dict(response.headers), await response.text())


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with aiohttp.ClientSession() as session:
        yield Http(session)


@pytest.fixture
async def start_broker(tmp_path: Path, http: Http) -> AsyncIterator[StartBroker]:
    """Start a broker with keys like ``num_partitions="2"``; `http` connects to the one that was started last."""
    started: list[BrokerServer] = []

    async def start(**settings: str) -> BrokerServer:
        given = {
            "log.dir": str(tmp_path / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        http.broker = broker = await BrokerServer.start(Config(BROKER_KEYS, given), port=0, http_port=0)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        await broker.stop()
