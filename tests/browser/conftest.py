"""A broker with the page, and a browser that shows it. Both are in the test's event loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from tests.browser import scenes
from tests.browser.chromium import problem
from tests.needs import missing
from tests.wire import Wire

#: Milliseconds that the browser may take for one step.
PATIENCE_MS = 20_000


class Page:
    """A page in the browser, and what it reported.

    Attributes:
        port: of the HTTP endpoint.
        tab: the page of Playwright.
        faults: errors of scripts and of the console, dialogs, and requests to elsewhere.
    """

    def __init__(self, tab: Any, port: int) -> None:
        self.tab = tab
        self.port = port
        self.faults: list[str] = []
        tab.set_default_timeout(PATIENCE_MS)
        tab.on("pageerror", lambda error: self._fault(f"error: {error}"))
        tab.on("console", self._logged)
        tab.on("request", lambda request: self._asked(request.url))
        tab.on("dialog", self._dialog)

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    def _logged(self, line: Any) -> None:
        if line.type in ("error", "warning"):
            self._fault(f"console: {line.text}")

    def _asked(self, url: str) -> None:
        if not url.startswith(f"http://127.0.0.1:{self.port}/"):
            self.faults.append(f"request to elsewhere: {url}")

    async def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    async def open(self, address: str = "/") -> None:
        """Open an address of the broker's page, like "/#/groups/g"."""
        await self.tab.goto(f"http://127.0.0.1:{self.port}{address}")

    async def texts(self, selector: str) -> list[str]:
        """The texts of all elements of a selector."""
        return [text.strip() for text in await self.tab.locator(selector).all_inner_texts()]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    if (why := problem()) is not None:
        missing(why.text, on_this_machine=why.must_have)
    broker = await scenes.start(str(tmp_path / "data"), num_partitions="4")
    yield broker
    await broker.stop()


@pytest.fixture
async def page(broker: BrokerServer) -> AsyncIterator[Page]:
    """A page that the test opens; it fails if a script or the console reports an error."""
    from tests.browser.chromium import browsing

    assert broker.http_port is not None
    async with browsing() as browser:
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        shown = Page(await context.new_page(), broker.http_port)
        yield shown
        assert shown.faults == []


@pytest.fixture
async def connect(broker: BrokerServer) -> AsyncIterator[Callable[[], Awaitable[Wire]]]:
    """Open connections to the broker."""
    wires: list[Wire] = []

    async def more() -> Wire:
        wires.append(await Wire.connect(broker.port))
        return wires[-1]

    yield more
    for wire in wires:
        await wire.close()
