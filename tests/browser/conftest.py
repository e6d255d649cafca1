"""A broker for each test, and one browser for all of them, which shows its page. All are in one event loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio

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
        tab: the page of Playwright.
        origin: what the addresses of all its requests begin with.
        faults: errors of scripts and of the console, dialogs, and requests to elsewhere.
    """

    def __init__(self, tab: Any, origin: str) -> None:
        self.tab = tab
        self.origin = origin
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
        if not url.startswith(f"{self.origin}/"):
            self.faults.append(f"request to elsewhere: {url}")

    async def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    async def open(self, address: str = "/") -> None:
        """Open an address of the broker's page, like "/#/groups/g"."""
        await self.tab.goto(f"{self.origin}{address}")

    async def texts(self, selector: str) -> list[str]:
        """The texts of all elements of a selector."""
        return [text.strip() for text in await self.tab.locator(selector).all_inner_texts()]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Any]:
    """A browser, which takes seconds of processor time to start. Each test has a context of its own in it."""
    if (why := problem()) is not None:
        missing(why.text, on_this_machine=why.must_have)
    from tests.browser.chromium import browsing

    async with browsing() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def broker(browser: object, tmp_path: Path) -> AsyncIterator[BrokerServer]:
    broker = await scenes.start(str(tmp_path / "data"), num_partitions="4")
    yield broker
    await broker.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Any, broker: BrokerServer) -> AsyncIterator[Page]:
    """A page that the test opens; it fails if a script or the console reports an error."""
    assert broker.http_port is not None
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    shown = Page(await context.new_page(), f"http://127.0.0.1:{broker.http_port}")
    yield shown
    await context.close()
    assert shown.faults == []


@pytest_asyncio.fixture(loop_scope="session")
async def connect(broker: BrokerServer) -> AsyncIterator[Callable[[], Awaitable[Wire]]]:
    """Open connections to the broker."""
    wires: list[Wire] = []

    async def more() -> Wire:
        wires.append(await Wire.connect(broker.port))
        return wires[-1]

    yield more
    for wire in wires:
        await wire.close()
