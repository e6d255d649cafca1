"""A browser of the machine, driven by Playwright. No browser is downloaded."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class Problem(NamedTuple):
    """Why no browser can be driven.

    Attributes:
        text: one line, with what to do.
        must_have: whether CI fails because of it: a browser is there, but nothing that drives it.
    """

    text: str
    must_have: bool


def executable() -> str | None:
    """The path of an installed Chromium or Chrome, or of the one that CHROMIUM names."""
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


def problem() -> Problem | None:
    """Why no browser can be driven; None if one can."""
    if executable() is None:
        return Problem(f"none of {', '.join(NAMES)} is installed: apt install chromium, or set CHROMIUM", False)
    if find_spec("playwright") is None:
        return Problem("playwright is not installed: pip install 'barnabas[dev]'", True)
    return None


@asynccontextmanager
async def browsing() -> AsyncIterator[Any]:
    """Start the browser, without a window."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        # A container has neither user namespaces nor a large /dev/shm. Each window has two popups of its field for
        # addresses, pages in a renderer of their own, which take a quarter of all processor time of these tests.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        arguments += ["--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"]
        browser = await playwright.chromium.launch(executable_path=executable(), args=arguments)
        try:
            yield browser
        finally:
            await browser.close()
