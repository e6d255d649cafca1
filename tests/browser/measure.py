"""Measure the page: frames per second of large lists and charts, the time until a rebalance is shown, and the CPU of a
broker with ten pages. It prints; it tests nothing, because times depend on the machine.

Usage: python -m tests.browser.measure
"""

import asyncio
import json
import sys
import tempfile
from typing import Any

from barnabas_broker.http import assets
from tests.broker.http.support import commit, join_alone, make_topic, produce
from tests.browser.chromium import browsing
from tests.browser.conftest import Page
from tests.browser.large import group_rows, show_large
from tests.browser.scenes import Orders, RawMember, start
from tests.wire import Wire

#: Counts frames while something is moved in each of them; returns their number, and frames per second.
FRAMES = """(move) => new Promise((done) => {
    const step = new Function("n", move);
    let n = 0;
    const began = performance.now();
    function frame() {
        step(n);
        n += 1;
        if (performance.now() - began > 3000) done([n, n / ((performance.now() - began) / 1000)]);
        else requestAnimationFrame(frame);
    }
    requestAnimationFrame(frame);
})"""
PAN = """
    const chart = document.querySelector(".curves");
    const event = (x) => ({ clientX: x, clientY: 500, button: 0, pointerId: 1, bubbles: true });
    const at = (type, x) => chart.dispatchEvent(new PointerEvent(type, event(x)));
    chart.setPointerCapture = () => {};
    if (n % 60 === 0) { at("pointerup", 700); at("pointerdown", 700); }
    at("pointermove", 700 + 8 * (n % 60) * (Math.floor(n / 60) % 2 ? -1 : 1));
"""
SCROLL = "scrollTo(0, (n * 97) % (document.body.scrollHeight - innerHeight))"
LANES = "const s = document.querySelector('.scroller'); s.scrollTop = (n * 61) % (s.scrollHeight - s.clientHeight)"


async def frames(tab: Any, name: str, move: str) -> None:
    session = await tab.context.new_cdp_session(tab)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def used() -> float:
        metrics = (await session.send("Performance.getMetrics"))["metrics"]
        seconds: float = next(each["value"] for each in metrics if each["name"] == "TaskDuration")
        return seconds

    before = await used()
    count, rate = await tab.evaluate(FRAMES, move)
    each = (await used() - before) / count
    print(f"{name}: {rate:.0f} frames/s; {each * 1000:.1f} ms of the page's thread in a frame")


async def measure() -> None:
    """Measure everything once."""
    found = assets.load().values()
    print(f"page: {sum(len(each.compressed) for each in found) / 1024:.1f} KB compressed in {len(found)} files")
    with tempfile.TemporaryDirectory() as log_dir:
        broker = await start(log_dir, num_partitions="4")
        wires = [await Wire.connect(broker.port) for _ in range(4)]
        assert broker.http_port is not None
        try:
            async with browsing() as browser:
                context = await browser.new_context(viewport={"width": 1280, "height": 900})
                page = Page(await context.new_page(), f"http://127.0.0.1:{broker.http_port}")
                rows = json.dumps({"unloaded_partitions": [], "groups": group_rows(1_000)})
                await page.tab.route("**/groups", lambda route: route.fulfill(status=200, body=rows))
                await page.open()
                await page.tab.wait_for_selector("td.name a")
                await page.tab.reload()
                await page.tab.wait_for_selector("td.name a")
                painted = await page.tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
                print(f"first paint: {painted:.0f} ms after the request")
                await frames(page.tab, "1,000 groups, scrolled", SCROLL)
                await show_large(page)
                await frames(page.tab, "500 members, moved in time", PAN)
                await frames(page.tab, "500 members, scrolled", LANES)
                await context.close()

                await make_topic(wires[3], Orders.TOPIC)
                names = ("one", "two", "three")
                story = Orders(*(RawMember(wire, Orders.GROUP, n) for wire, n in zip(wires, names, strict=False)))
                await story.begin()
                context = await browser.new_context(viewport={"width": 1280, "height": 900})
                page = Page(await context.new_page(), f"http://127.0.0.1:{broker.http_port}")
                await page.open(f"/#/groups/{Orders.GROUP}")
                await page.tab.wait_for_selector(".band")
                loop = asyncio.get_running_loop()
                for turn in range(2):
                    shown = await page.tab.locator("rect.band").count()
                    await (story.second_joins() if turn % 2 == 0 else story.second_leaves())
                    since = loop.time()
                    await page.tab.wait_for_selector(f".band >> nth={shown}")
                    print(f"rebalance {turn + 1}: shown {loop.time() - since:.2f} s after its assignment")
                await context.close()

                for n in range(50):
                    await make_topic(wires[3], f"t{n % 10}")
                    await produce(wires[3], f"t{n % 10}", 0, 10)
                    await commit(wires[3], f"g{n}", f"t{n % 10}", {0: 10 * (n // 10 + 1)})
                wires.append(await Wire.connect(broker.port))
                await join_alone(wires[-1], "live", "t0", 0)
                await cpu(browser, broker.http_port, broker)
        finally:
            for wire in wires:
                await wire.close()
            await broker.stop()


async def cpu(browser: Any, port: int, broker: Any) -> None:
    """The broker's CPU at rest with no page and with ten pages, which show lists and a group."""
    import time

    async def share(seconds: float) -> float:
        began, used = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        return (time.process_time() - used) / (time.monotonic() - began)

    alone = await share(10)
    contexts = []
    addresses = ["#/", "#/groups/live", "#/topics", "#/topics/t0", "#/transactions", "#/broker", *["#/groups/live"] * 4]
    for address in addresses:
        contexts.append(await browser.new_context())
        tab = await contexts[-1].new_page()
        await tab.goto(f"http://127.0.0.1:{port}/{address}")
    await asyncio.sleep(3)
    together = await share(20)
    print(f"CPU of the process, broker at rest: {alone:.2%} of a core; with ten pages {together:.2%}")
    for context in contexts:
        await context.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    asyncio.run(measure())
