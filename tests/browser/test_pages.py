"""Topics, records, transactions, the broker and curves in a real browser; accessibility, and work per frame."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_client import Producer
from tests.broker.http.support import commit, join_alone, make_topic, produce
from tests.browser.conftest import Page
from tests.browser.large import show_large
from tests.browser.scenes import HOSTILE, Orders, RawMember, until
from tests.sampling import slow
from tests.wire import Wire

pytestmark = [pytest.mark.programs, pytest.mark.asyncio(loop_scope="session")]

Connect = Callable[[], Awaitable[Wire]]
NARROW = {"width": 600, "height": 900}

#: The addresses of all pages, and the last thing that each shows. Looking for barriers takes a second of processor time
#: for each: `make test` looks at two, with a chart, a form and a table of records.
PAGES = (
    (f"/#/groups/{Orders.GROUP}", ".band >> nth=1"),
    ("/#/topics/t", "table.records td.one"),
    ("/#/", "td.name a"),
    ("/#/topics", "td.name a"),
    ("/#/transactions", "section table >> nth=1"),
    ("/#/broker", "section table"),
    ("/#/acls", ".empty:has-text('No authorizer')"),
)


def axe() -> str:
    """The source of axe-core, which checks a page for barriers."""
    package = pytest.importorskip("axe_playwright_python")
    return (Path(package.__file__).parent / "axe.min.js").read_text("utf-8")


async def filled(broker: BrokerServer, connect: Connect) -> None:
    """Groups of several states, topics with records, and a rebalance."""
    wire = await connect()
    await make_topic(wire, Orders.TOPIC)
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 1_500)
    await commit(wire, "behind", "t", {0: 0})
    await join_alone(await connect(), "behind", "t", 0)
    await commit(wire, "without", "t", {0: 7})
    first, second, third = [RawMember(await connect(), Orders.GROUP, name) for name in ("one", "two", "three")]
    story = Orders(first, second, third)
    await story.begin()
    await story.second_joins()
    await first.commit(wire, Orders.TOPIC, {0: 0, 1: 0})


async def is_narrow_enough(page: Page) -> bool:
    width: int = await page.tab.evaluate("document.documentElement.scrollWidth - innerWidth")
    return width <= 0


@pytest.mark.parametrize(
    ("scheme", "pages"),
    [("light", PAGES[:2]), slow(("light", PAGES[2:])), slow(("dark", PAGES))],
    ids=["light, some", "light, the others", "dark"],
)
async def test_no_page_has_a_barrier_or_is_too_wide(
    page: Page, broker: BrokerServer, connect: Connect, scheme: str, pages: tuple[tuple[str, str], ...]
) -> None:
    await filled(broker, connect)
    await page.tab.emulate_media(color_scheme=scheme)
    barriers: list[Any] = []
    async with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", transactional_id="pay") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b'{"a": [1, 2]}', key=b"k")
        for address, wanted in pages:
            await page.open(address)
            await page.tab.locator(wanted).first.wait_for()
            if address == "/#/topics/t":
                await page.tab.locator("table.records td button").first.click()
                await page.tab.locator("details summary").click()
            if Orders.GROUP in address:
                await page.tab.locator("section table").first.wait_for()
                await page.tab.locator(".curves text").first.wait_for()
            await page.tab.evaluate(axe())
            found = await page.tab.evaluate("axe.run().then((result) => result.violations)")
            barriers += [
                (address, each["id"], each["help"], [node["html"][:200] for node in each["nodes"][:3]])
                for each in found
            ]
            await page.tab.set_viewport_size(NARROW)
            if not await is_narrow_enough(page):
                barriers.append((address, "is wider than a narrow window"))
            await page.tab.set_viewport_size({"width": 1280, "height": 900})
        await producer.abort_transaction()
    assert barriers == []


@pytest.mark.slow
async def test_topics_are_listed_with_their_rates(page: Page, broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    for name, count in (("few", 3), ("many", 3_000)):
        await make_topic(wire, name)
        await produce(wire, name, 0, count)
    await page.open("/#/topics")
    await page.tab.wait_for_selector("td.name a")
    assert (await page.texts("td.name a"))[:2] == ["few", "many"]
    await page.tab.click("th button:text-is('Records')")
    assert (await page.texts("td.name a"))[0] == "many"
    await page.tab.press("body", "/")
    await page.tab.keyboard.type("FEW")
    assert await page.texts("td.name a") == ["few"]
    assert await page.texts("td.c-records") == ["3"]
    await page.tab.wait_for_selector("td.c-rate:text-is('0/s')")

    async def rises() -> bool:
        await produce(wire, "few", 0, 50)
        return (await page.texts("td.c-rate"))[0] not in ("0/s", "–")

    await until(rises)
    await page.tab.click("td.name a")
    await page.tab.wait_for_selector("h1:text-is('few')")
    assert (await page.texts("nav a[aria-current]")) == ["Topics"]
    await page.tab.wait_for_selector("table.records td.one:text-is('value')")


async def test_records_are_text_json_or_hex(page: Page, broker: BrokerServer, connect: Connect) -> None:
    await make_topic(await connect(), "t")
    async with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
        for key, value in (
            (b"json", b'{"b": {"c": "<i>"}, "a": 1}'),
            (b"bytes", bytes(range(200, 256)) * 100),
            (b"script", b"<script>document.title='taken'</script>\nline"),
            (None, None),
        ):
            await producer.send_and_wait("t", value, key=key, partition=0)
    await page.open("/#/topics/t")
    await page.tab.wait_for_selector("table.records td.one")
    keys = await page.texts("table.records td.one:nth-child(4)")
    assert keys == ["null", "script", "bytes", "json"]
    values = await page.texts("table.records td.one:nth-child(5)")
    assert values[1] == r"<script>document.title='taken'</script>\x0aline"
    assert values[2].startswith("c8 c9 ca")
    await page.tab.locator("table.records tr:has-text('json') button").click()
    detail = page.tab.locator(".detail")
    assert '"c": "<i>"' in await detail.inner_text()
    assert "Value (json)" in await detail.inner_text()
    await page.tab.select_option("select[aria-label=Format]", "hex")
    assert "00000000  7b 22 62 22 3a 20 7b" in await detail.inner_text()
    await page.tab.select_option("select[aria-label=Format]", "text")
    assert '{"b": {"c": "<i>"}, "a": 1}' in await detail.inner_text()
    await page.tab.keyboard.press("Escape")
    await page.tab.locator("table.records tr:has-text('json') button").press("Enter")
    await detail.wait_for(state="detached")
    assert await page.tab.title() != "taken"
    assert await page.tab.locator("main script").count() == 0


@pytest.mark.slow
async def test_records_are_followed_and_read_from_a_time(page: Page, broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 10)
    await page.open("/#/topics/t")
    await page.tab.wait_for_selector("table.records td.one")
    await page.tab.click("button:text-is('Follow')")
    await produce(wire, "t", 1, 1)
    await page.tab.wait_for_selector("table.records tr[data-row='1/0']")
    assert await page.tab.locator("table.records tbody tr").count() == 11
    await page.tab.click("button:text-is('Follow')")
    # The records have times of 2023, in the browser's zone.
    zone = await page.tab.evaluate("new Date(1700000000000).getTimezoneOffset() * 60000")
    time = datetime.fromtimestamp((1_700_000_001_000 - zone) / 1000, UTC).isoformat()[:19]
    await page.tab.fill("input[type=datetime-local]", time)
    await page.tab.wait_for_selector("text=No records here.")
    await page.tab.click("button:text-is('Last records')")
    await page.tab.wait_for_selector("table.records tr[data-row='0/9']")


@pytest.mark.slow
async def test_an_open_transaction_shows_what_it_blocks(page: Page, broker: BrokerServer, connect: Connect) -> None:
    await make_topic(await connect(), "t")
    await page.open("/#/transactions")
    await page.tab.wait_for_selector("text=No transaction is open at this coordinator.")
    address = f"127.0.0.1:{broker.port}"
    async with Producer(bootstrap_servers=address, transactional_id="pay<b>-7", client_id="shop") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x", partition=2)
        await page.tab.wait_for_selector("b:text-is('pay<b>-7') >> nth=1")
        text = await page.tab.locator("main").inner_text()
        assert "Ongoing" in text
        assert re.search(r"t-2\s+0\s+1\s+1\s+pay<b>-7", text)
        await producer.commit_transaction()
        await page.tab.wait_for_selector("text=No partition that this broker leads waits for a transaction.")


@pytest.mark.slow
async def test_the_broker_page(page: Page, broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 1)
    await page.open("/")
    await page.tab.click("nav a:text-is('Broker')")
    await page.tab.wait_for_selector("tr:has-text('Produce') >> text=/µs|ms/")
    text = await page.tab.locator("main").inner_text()
    assert "● ready" in text
    assert str(broker.directory.path.absolute()) in text
    assert f"127.0.0.1:{broker.port}" in text
    quantiles = await page.tab.evaluate(
        """async () => {
            const { quantile, since, countOf } = await import("/page/broker.js");
            const seen = { bounds: [0.001, 0.01], counts: [90, 9, 1], total: 2 };
            const later = { bounds: [0.001, 0.01], counts: [90, 10, 1], total: 2.5 };
            const none = { bounds: [1], counts: [0, 0], total: 0 };
            return [quantile(seen, 0.5), quantile(seen, 0.99), quantile(seen, 1) === Infinity,
                    quantile(since(later, seen), 0.5), countOf(since(seen, later)), quantile(none, 0.5)];
        }"""
    )
    assert quantiles == [1, 10, True, 10, 100, None]


@pytest.mark.slow
async def test_curves_are_on_the_axis_of_the_chart(page: Page) -> None:
    await page.open()
    drawn = await page.tab.evaluate(
        """async () => {
            const { curveItems, niceCeiling, sampleAt } = await import("/page/curves.js");
            const { LEFT, scaleOf } = await import("/page/layout.js");
            const times = [1000, 3000, 5000, 7000, 90000];
            const curves = { times, lag: [0, 100, null, 50, 80], lag_ms: [0, 2000, null, 1000, 1000],
                commit_rate: [null, 5, 5, 5, 5], produce_rate: [null, 10, 10, 10, 10] };
            const view = { from: 0, to: 100000, now: 100000, width: 1000, pointed: 3500 };
            const { items, height } = curveItems(curves, [{ kind: "joined", start: 3000, assigned: 3500 }], view);
            const { x, right } = scaleOf(view);
            const none = curveItems({ times: [], lag: [], lag_ms: [], commit_rate: [], produce_rate: [] }, [], view);
            return { items, height, at: times.map(x), left: x(0) === LEFT, right,
                none: none.items.map((each) => each.text), nice: [0, 0.3, 1, 3, 999, 1001].map(niceCeiling),
                found: [0, 1000, 2999, 1e9].map((time) => sampleAt(times, time)) };
        }"""
    )
    items = {each["id"]: each for each in drawn["items"]}
    assert len(items) == len(drawn["items"])
    path = items["lag/lag"]["d"]
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]
    assert [x for x, _ in points] == [pytest.approx(at, abs=0.06) for n, at in enumerate(drawn["at"]) if n != 2]
    # A value that is not known, and a time in which nothing was sampled, interrupt the line.
    assert re.sub(r"[\d. ]", "", path) == "MLMM"
    base = float(items["lag/base"]["y1"])
    heights = [base - y for _, y in points]
    assert heights[0] == 0
    assert heights[1] / heights[3] == pytest.approx(100 / 80, abs=0.05)
    assert items["lag/lag/value"]["text"] == "100"
    assert items["rates/commit_rate/value"]["text"] == "5/s"
    assert items["age/most"]["text"] == "2 s"
    assert items["rebalance/0"]["x"] == pytest.approx(drawn["at"][1], abs=0.06)
    assert "No samples yet: they begin some seconds after the first committed offset." in drawn["none"]
    assert drawn["left"] is True
    assert drawn["nice"] == [1, pytest.approx(0.5), 1, 5, 1000, 2000]
    assert drawn["found"] == [-1, 0, 0, 4]


@pytest.mark.slow
async def test_the_lag_of_a_group_is_drawn_and_said(page: Page, broker: BrokerServer, connect: Connect) -> None:
    await filled(broker, connect)
    wire = await connect()
    await produce(wire, Orders.TOPIC, 0, 1_200)
    await page.open(f"/#/groups/{Orders.GROUP}")
    await page.tab.wait_for_selector(".curves text.value:text-is('1,200')")
    # The first sample of these records says only that they are there; their age is known from the next one on.
    health = await page.tab.wait_for_selector(".facts .chip[title*='the oldest for']")
    assert health is not None
    assert re.match(
        r"1,200 records are not consumed, the oldest for \d+ s\.", await health.get_attribute("title") or ""
    )
    chips = await page.texts(".facts .chip")
    assert chips[0].startswith("▲ lagging")
    assert any(re.fullmatch(r"lag 1,200, (≥ )?\d.*", chip) for chip in chips)
    both = await page.tab.evaluate(
        "[...document.querySelectorAll('.chart')].map((each) => [each.getBoundingClientRect().left, each.clientWidth])"
    )
    assert both[0] == both[1], "the curves have the time axis of the lanes"


@pytest.mark.slow
@pytest.mark.parametrize("at", range(len(HOSTILE)))
async def test_hostile_names_of_clients_and_bytes_are_text(
    page: Page, broker: BrokerServer, connect: Connect, at: int
) -> None:
    name = HOSTILE[at]
    await make_topic(await connect(), "t")
    address = f"127.0.0.1:{broker.port}"
    async with Producer(bootstrap_servers=address, transactional_id=name, client_id=name[:200]) as producer:
        await producer.begin_transaction()
        data = name.encode("utf-8", "surrogatepass")
        await producer.send_and_wait("t", data, key=data, headers=[(name, data)], partition=0)
        for where, wanted in (("/#/transactions", "section table >> nth=1"), ("/#/topics/t", "table.records td.one")):
            await page.open(where)
            await page.tab.locator(wanted).first.wait_for()
            if "topics" in where:
                await page.tab.locator("table.records td button").first.click()
                await page.tab.locator(".detail li").first.wait_for()
            text = await page.tab.locator("body").inner_text()
            assert not set(text) & {"\x1b", "\x07", "\u202e"}
            assert name[:3].replace("\x1b", r"\x1b")[:3] in text
            assert await page.tab.title() != "taken"
            assert await page.tab.locator("main img, main script").count() == 0
            assert await is_narrow_enough(page)
        await producer.abort_transaction()


async def test_records_that_are_not_shown_say_why(page: Page, broker: BrokerServer, connect: Connect) -> None:
    await make_topic(await connect(), "t")
    broker.view.shows_records = False
    await page.open("/#/topics/t")
    await page.tab.wait_for_selector("text=start the broker with --http-show-records")
    page.faults.clear()  # Chromium reports a response with status 403 on the console


async def lane_names(page: Page) -> list[str]:
    names: list[str] = await page.tab.evaluate(
        "[...document.querySelectorAll('text.lane')].map((each) => each.firstChild.data)"
    )
    return names


@pytest.mark.slow
async def test_a_frame_of_500_members_draws_only_what_is_visible(page: Page) -> None:
    await show_large(page)
    assert await page.tab.locator(".chart *").count() < 4_500
    lanes = await lane_names(page)
    assert "consumer-0 (10.0.0.0)" in lanes
    assert len(lanes) < 60
    await page.tab.evaluate("document.querySelector('.scroller').scrollTop = 499 * 30")
    await page.tab.wait_for_selector("text.lane:has-text('consumer-499 ')")
    assert len(await lane_names(page)) < 110, "the partitions without an owner are visible, too"
    # Nothing is drawn while nothing changes.
    changes = await page.tab.evaluate(
        """() => new Promise((done) => {
            let count = 0;
            const observer = new MutationObserver((seen) => { count += seen.length; });
            const all = { subtree: true, childList: true, attributes: true, characterData: true };
            observer.observe(document.querySelector("main"), all);
            setTimeout(() => { observer.disconnect(); done(count); }, 900);
        })"""
    )
    assert changes == 0


@pytest.mark.slow
async def test_a_link_to_the_past_asks_for_nothing_else(page: Page) -> None:
    asked: list[str] = []
    page.tab.on("request", lambda request: asked.extend([request.url] if "since=" in request.url else []))
    await show_large(page)
    await until(lambda: min(sum(what in url for url in asked) for what in ("/chart", "/curves")) >= 2)
    moment = 1_699_996_400_000 // 60_000 * 60_000
    path = f"{page.origin}/groups/big"
    assert set(asked) == {f"{path}/chart?since={moment}", f"{path}/curves?since={moment}"}


@pytest.mark.slow
async def test_the_chart_is_moved_and_zoomed_with_the_pointer(page: Page) -> None:
    await show_large(page)

    def times() -> tuple[int, int]:
        found = re.search(r"from=(\d+)&to=(\d+)", page.tab.url)
        assert found is not None
        return int(found[1]), int(found[2])

    before = times()
    curves = page.tab.locator(".curves")
    await curves.scroll_into_view_if_needed()
    box = await curves.bounding_box()
    x, y = box["x"] + 700, box["y"] + 40
    await page.tab.mouse.move(x, y)
    await page.tab.wait_for_selector(".pointed", state="attached")
    await page.tab.mouse.down()
    await page.tab.mouse.move(x + 100, y, steps=4)
    await page.tab.mouse.up()
    await until(lambda: times() != before)
    moved = times()
    assert moved[0] < before[0], "dragging to the right shows what was earlier"
    assert moved[1] - moved[0] == pytest.approx(before[1] - before[0], abs=2)
    await page.tab.keyboard.down("Control")
    await page.tab.mouse.wheel(0, -100)
    await page.tab.keyboard.up("Control")
    await until(lambda: times()[1] - times()[0] < 0.9 * (moved[1] - moved[0]))
    zoomed = times()
    await page.tab.keyboard.press("-")
    await until(lambda: times()[1] - times()[0] > zoomed[1] - zoomed[0])


@pytest.mark.slow
async def test_a_rebalance_is_shown_soon(page: Page, broker: BrokerServer, connect: Connect) -> None:
    """Usually within a second; a machine that is busy with other tests may take longer."""
    await make_topic(await connect(), Orders.TOPIC)
    first, second, third = [RawMember(await connect(), Orders.GROUP, name) for name in ("one", "two", "three")]
    story = Orders(first, second, third)
    await story.begin()
    await page.open(f"/#/groups/{Orders.GROUP}")
    await page.tab.wait_for_selector(".band >> nth=0")
    async with asyncio.timeout(8):
        await story.second_joins()
        await page.tab.wait_for_selector(".band >> nth=1")
