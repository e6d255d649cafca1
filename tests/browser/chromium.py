"""A browser of the machine, driven by Playwright. No browser is downloaded."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str | None:
    """The path of an installed Chromium or Chrome, or of the one that CHROMIUM names."""
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """Start the browser, without a window."""
    async with async_playwright() as playwright:
        # A container has neither user namespaces nor a large /dev/shm.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path=executable(), args=arguments)
        try:
            yield browser
        finally:
            await browser.close()
