"""``make screenshots``: write screenshots of the page, of groups that are made for them.

Usage: python -m tests.browser.screenshots FOLDER
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.broker.http.support import commit, join_alone, make_topic, produce
from tests.browser.chromium import browsing
from tests.browser.scenes import Orders, RawMember, start
from tests.wire import Wire

#: Seconds between the steps of the story, so that they can be told apart on the time axis.
_PAUSE = 1.2


async def write(folder: Path) -> None:
    """Write the screenshots of the page in light and dark into a folder."""
    with tempfile.TemporaryDirectory() as log_dir:
        broker = await start(log_dir, num_partitions="4")
        wires = [await Wire.connect(broker.port) for _ in range(4)]
        try:
            await make_topic(wires[3], Orders.TOPIC)
            for name, lag in (("fulfilment", 0), ("fraud-check", 120), ("search-index", 4_200), ("audit-archive", 0)):
                await produce(wires[3], "orders", 0, lag or 1)
                await commit(wires[3], name, "orders", {0: 0 if lag else 1})
                await join_alone(await Wire.connect(broker.port), name, "orders", 0)
            names = ("billing-1", "billing-2", "billing-3")
            scene = Orders(*(RawMember(wire, Orders.GROUP, n) for wire, n in zip(wires, names, strict=False)))
            await scene.begin()
            await asyncio.sleep(2 * _PAUSE)
            await scene.second_joins()
            await asyncio.sleep(2 * _PAUSE)
            await scene.second.leave("consumer poll timeout has expired.")
            await asyncio.sleep(_PAUSE)  # the first member is busy with its records
            await scene.alone()
            await asyncio.sleep(_PAUSE)
            await scene.third_joins_and_dies()
            await commit(wires[3], Orders.GROUP + "-replay", "orders", {0: 0, 1: 0})
            await asyncio.sleep(2 * _PAUSE)
            async with browsing() as browser:
                for theme in ("light", "dark"):
                    context = await browser.new_context(
                        color_scheme=theme, viewport={"width": 1280, "height": 980}, device_scale_factor=1
                    )
                    page = await context.new_page()
                    page.set_default_timeout(8_000)
                    await page.goto(f"http://127.0.0.1:{broker.http_port}/")
                    await page.wait_for_selector("td.name a")
                    await page.screenshot(path=folder / f"groups-{theme}.png")
                    await page.get_by_role("link", name=Orders.GROUP, exact=True).click()
                    await page.wait_for_selector(".band >> nth=4")
                    await page.wait_for_selector("section table")
                    await page.screenshot(path=folder / f"group-{theme}.png")
        finally:
            for wire in wires:
                await wire.close()
            await broker.stop()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(write(target))
