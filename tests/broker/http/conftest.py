"""A broker with an HTTP endpoint in the test's event loop, and an HTTP client."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import pytest
from yarl import URL

from barnabas_broker.broker import BrokerServer
from tests.broker.conftest import StartBroker
from tests.wire import PATIENCE

__all__ = ["Http", "HttpResponse", "StartBroker"]


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
def start_broker(http: Http, start_broker: StartBroker) -> StartBroker:
    """Start a broker as that of `tests/broker/conftest.py` does; `http` connects to the one that was started last."""

    async def start(**given: Any) -> BrokerServer:
        http.broker = await start_broker(http_port=0, **given)
        return http.broker

    return start
