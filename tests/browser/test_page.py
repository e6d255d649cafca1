"""The page in a real browser, on real groups of a real broker."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.groups import requests
from barnabas_broker.groups.share.partition import Acknowledged
from barnabas_broker.http import history
from barnabas_client import Admin, Consumer, TopicPartition
from barnabas_protocol.errors import ErrorCode
from tests.broker.http.support import commit, join_alone, make_topic, produce
from tests.browser.conftest import Page
from tests.browser.large import group_rows
from tests.browser.scenes import HOSTILE, Orders, RawMember, until
from tests.client.share_member import share_member
from tests.sampling import slow_except
from tests.wire import Wire

pytestmark = [pytest.mark.programs, pytest.mark.asyncio(loop_scope="session")]

Connect = Callable[[], Awaitable[Wire]]
GROUP = f"/#/groups/{Orders.GROUP}"


async def orders(connect: Connect, names: tuple[str, str, str] = ("billing-1", "billing-2", "billing-3")) -> Orders:
    await make_topic(await connect(), Orders.TOPIC)
    return Orders(*[RawMember(await connect(), Orders.GROUP, name) for name in names])


async def test_groups_are_listed_filtered_and_sorted(page: Page, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 1_500)
    await commit(wire, "behind", "t", {0: 0})
    await join_alone(wire, "behind", "t", 0)
    await commit(wire, "without", "t", {0: 7})
    await join_alone(await connect(), "fine", "t", 0)
    await page.open()
    await page.tab.wait_for_selector("td.name")
    assert await page.texts("td.name a") == ["behind", "without", "fine"]
    assert await page.texts("td.health") == ["▲ lagging", "○ no members", "● ok"]
    assert await page.texts("tbody td.c-lag") == ["1,500", "1,493", "–"]
    assert await page.texts("tbody td.c-consumed") == ["–"] * 3
    await page.tab.click("th button:text('Group')")
    assert await page.texts("td.name a") == ["behind", "fine", "without"]
    await page.tab.press("body", "/")
    await page.tab.keyboard.type("stable FI")
    assert await page.texts("td.name a") == ["fine"]
    assert page.tab.url.endswith("#/?filter=stable+FI&sort=group")
    await page.tab.fill("#filter", "nothing like this")
    assert await page.tab.locator("main .empty").inner_text() == "No group matches the filter."


async def test_a_share_group_shows_who_has_which_records(page: Page, connect: Connect, broker: BrokerServer) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 1_500)
    servers = f"127.0.0.1:{broker.port}"
    async with share_member(servers, "queue", "t"):
        pass
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.alter_share_group_offsets("queue", {TopicPartition("t", 0): 1_000})
    async with share_member(servers, "queue", "t") as member:
        assert await member.acquire() == 500
        await page.open()
        await page.tab.wait_for_selector("td.name a")
        assert await page.texts("td.name a") == ["queue"]
        assert (await page.texts("tbody tr:not(.space) td:nth-child(4)"))[0].startswith("share")
        assert await page.texts("tbody td.c-lag") == ["500"]
        await page.open("/#/groups/queue")
        await page.tab.wait_for_selector("h2:text('Share partitions')")
        assert "share group" in await page.texts(".facts .chip")
        (row,) = [each for each in await page.texts("tbody tr") if each.startswith("t-0")]
        assert "1,000–1,499: worker, delivery 1, " in row and "left" in row
        assert "1,000 (worker)" in row
        (hosted,) = [
            each for each in broker.services.queues.hosted if (each.place.group, each.place.partition) == ("queue", 0)
        ]
        said = [Acknowledged(1_001, 1_200, [1]), Acknowledged(1_300, 1_399, [3]), Acknowledged(1_450, 1_499, [2])]
        await hosted.acknowledge("m", said)
        await page.tab.wait_for_selector("svg.window .w-available")
        assert await page.tab.locator("svg.window").get_attribute("aria-label") == (
            "200 processed, 150 with a member, 50 to be delivered again, 100 not delivered any more"
        )
        parts = await page.tab.locator("svg.window rect title").all_text_contents()
        assert [part.partition(":")[0] for part in parts[:-1]] == [
            *("1,000", "1,001–1,200", "1,201–1,299", "1,300–1,399", "1,400–1,449", "1,450–1,499")
        ]
        assert parts[-1] == "The start of the window waits for this record"


async def test_rates_are_sorted_and_an_unknown_one_is_not_zero(page: Page) -> None:
    rows = group_rows(4)
    for row, commits, grows in zip(rows, (0, None, 1_234.5, 7.25), (0.5, None, 1_300, None), strict=True):
        row |= {"commit_rate": commits, "produce_rate": grows}

    async def answer(route: Any) -> None:
        body = json.dumps({"unloaded_partitions": [], "groups": rows})
        await route.fulfill(status=200, content_type="application/json", body=body)

    await page.tab.route("**/groups", answer)
    await page.open()
    await page.tab.wait_for_selector("td.name a")
    assert await page.texts("tbody td.c-consumed") == ["0/s", "–", "1,235/s", "7.3/s"]
    assert await page.texts("tbody td.c-produced") == ["0.5/s", "–", "1,300/s", "–"]
    assert "Not known yet" in (await page.tab.locator("tbody td.c-consumed").nth(1).get_attribute("title") or "")
    await page.tab.click("th button:text('Consumed')")
    assert await page.texts("tbody td.c-consumed") == ["1,235/s", "7.3/s", "0/s", "–"]
    await page.tab.click("th button:text('Produced')")
    assert await page.texts("tbody td.c-produced") == ["1,300/s", "0.5/s", "–", "–"]


@pytest.mark.parametrize("width", [360, 400, 768, 900, 1_024, 1_400, 2_560])
async def test_the_name_of_a_group_keeps_its_place_at_any_width(page: Page, width: int) -> None:
    rows = group_rows(30)
    for row in rows[::3]:
        row |= {
            "group": row["group"] + "-of-a-service",
            "health": "stuck",
            "health_reason": "Its rebalance lasts. " * 9,
        }
    rows[0]["findings"] = [{"kind": "slow_poll", "severity": "sick", "text": "worker-1 probably polled too slowly."}]

    async def answer(route: Any) -> None:
        body = json.dumps({"unloaded_partitions": [], "groups": rows})
        await route.fulfill(status=200, content_type="application/json", body=body)

    await page.tab.set_viewport_size({"width": width, "height": 800})
    await page.tab.route("**/groups", answer)
    await page.open()
    await page.tab.wait_for_selector("td.name a")
    wide, high, all_wide = await page.tab.evaluate(
        """() => [document.querySelector("td.name").clientWidth,
            [...document.querySelectorAll("tbody tr:not(.space)")].map((each) => each.getBoundingClientRect().height),
            document.documentElement.scrollWidth]"""
    )
    assert wide >= 12 * 14
    assert all_wide <= width
    assert len(set(high)) == 2, "rows have the heights that the list computes with"
    assert "worker-1 probably polled too slowly." in (await page.texts("td.name .why"))[0]


async def test_a_client_that_joins_again_and_again_is_one_row_and_generations_are_one_tab_stop(
    page: Page, connect: Connect
) -> None:
    story = await orders(connect)
    await story.begin()
    for _ in range(4):
        await story.second_joins()
        await story.second_leaves()
        story.second.member_id = ""
    await page.open(GROUP)
    await page.tab.wait_for_selector(".band >> nth=8")
    names = "[...document.querySelectorAll('text.lane')].map((each) => each.firstChild.data)"
    rows = [name for name in await page.tab.evaluate(names) if not name.startswith("orders-")]  # nor partitions
    assert rows == ["billing-1 (127.0.0.1)", "billing-2 (127.0.0.1)"]
    stops = ".band[tabindex='0']"
    assert await page.tab.locator(stops).count() == 1
    await page.tab.locator(stops).focus()
    await page.tab.keyboard.press("ArrowLeft")
    await page.tab.locator(".panel h2:has-text('Generation 8')").wait_for()
    focused = "document.activeElement.getAttribute('data-band')"
    await until(lambda: page.tab.evaluate(f"{focused} === '7'"))
    assert await page.tab.locator(stops).count() == 1


@pytest.mark.slow
async def test_a_new_group_appears_by_itself(page: Page, connect: Connect) -> None:
    await page.open()
    await page.tab.wait_for_selector("text=This broker coordinates no group yet")
    wire = await connect()
    await make_topic(wire, "t")
    await join_alone(wire, "later", "t", 0)
    await page.tab.wait_for_selector("a:text('later')")


async def test_a_rebalance_appears_live_and_its_band_tells_its_cause(page: Page, connect: Connect) -> None:
    story = await orders(connect)
    await story.begin()
    await page.open(GROUP)
    await page.tab.wait_for_selector(".band >> nth=0")
    assert await page.tab.locator(".band").count() == 1
    await story.second_joins()
    await page.tab.wait_for_selector(".band >> nth=1")
    await story.second_leaves("consumer poll timeout has expired.")
    await page.tab.wait_for_selector(".band >> nth=2")
    await page.tab.wait_for_selector(".headline:has-text('billing-2 (127.0.0.1) left')")
    panel = page.tab.locator(".panel")
    await panel.locator("text=Generation 3").first.wait_for()
    text = await panel.inner_text()
    assert "“consumer poll timeout has expired.”" in text
    assert "raise max.poll.interval.ms" in text
    assert re.search(r"billing-2 \(127\.0\.0\.1\) − orders-2 to 3", text)
    await page.tab.locator(".band").nth(1).click()
    await panel.locator("h2:has-text('Generation 2')").wait_for()
    assert "billing-2 (127.0.0.1) joined" in await panel.inner_text()
    assert re.search(r"band=\d+$", page.tab.url)
    await page.tab.keyboard.press("ArrowLeft")
    await panel.locator("h2:has-text('Generation 1')").wait_for()
    await page.tab.locator(".band").nth(2).focus()
    await page.tab.keyboard.press("Enter")
    await panel.locator("h2:has-text('Generation 3')").wait_for()


def _times(rows: list[str]) -> list[str]:
    """The first column of a table."""
    return [row.split("\t")[0] for row in rows]


async def test_a_band_lists_the_requests_around_it_in_their_order(page: Page, connect: Connect) -> None:
    story = await orders(connect)
    await story.begin()
    await page.open(GROUP)
    listed = page.tab.locator("section.requests")
    await listed.locator("tbody tr >> nth=1").wait_for()
    first = [row.split("\t") for row in await page.texts("section.requests tbody tr")]
    assert [row[1] for row in first] == ["JoinGroup", "SyncGroup generation 1"]
    assert [row[2].split(", after")[0] for row in first] == ["ok, generation 1", "ok"]
    await story.second_joins()
    await page.tab.wait_for_selector(".band >> nth=1")
    assert await story.second.commit(await connect(), Orders.TOPIC, {2: 0}) == 0
    story.second.generation = 1
    assert await story.second.commit(await connect(), Orders.TOPIC, {2: 0}) == ErrorCode.ILLEGAL_GENERATION
    await listed.locator("td:has-text('ILLEGAL_GENERATION')").wait_for()
    rows = await page.texts("section.requests tbody tr")
    assert _times(rows) == sorted(_times(rows))
    asked = [(row.split("\t")[1], row.split("\t")[4]) for row in rows]
    assert asked == [
        ("JoinGroup", "billing-2"),
        ("Heartbeat generation 1", "billing-1"),
        ("JoinGroup", "billing-1"),
        ("SyncGroup generation 2", asked[3][1]),
        ("SyncGroup generation 2", asked[4][1]),
        ("OffsetCommit generation 1", "billing-2"),
    ]
    assert {asked[3][1], asked[4][1]} == {"billing-1", "billing-2"}
    assert rows[1].split("\t")[2] == "REBALANCE_IN_PROGRESS"
    assert rows[0].split("\t")[2].startswith("ok, generation 2, after ")
    assert {row.split("\t")[5] for row in rows} == {"127.0.0.1"}
    assert rows[0].split("\t")[3] == story.second.member_id
    # The rebalance before has its own.
    await page.tab.locator(".band").nth(0).click()
    await page.tab.locator(".panel h2:has-text('Generation 1')").wait_for()
    before = await page.texts("section.requests tbody tr")
    assert [row.split("\t")[1] for row in before] == ["JoinGroup", "SyncGroup generation 1"]
    await page.tab.locator(".band").nth(1).focus()
    await page.tab.keyboard.press("Enter")
    await page.tab.locator(".panel h2:has-text('Generation 2')").wait_for()
    assert await page.texts("section.requests tbody tr") == rows


async def test_a_request_that_waits_is_shown(page: Page, connect: Connect) -> None:
    """The first member does not rejoin: what the second one waits for can be seen."""
    story = await orders(connect)
    await story.begin()
    await page.open(GROUP)
    joining = asyncio.create_task(story.second.join(Orders.TOPIC))
    await page.tab.wait_for_selector("section.requests tr:has-text('billing-2') td:has-text('waits')")
    await story.rejoin()
    await joining
    await page.tab.wait_for_selector("section.requests tr:has-text('billing-2') td:has-text('ok, generation 2')")


@pytest.mark.slow
async def test_many_requests_that_are_alike_are_counted(page: Page, connect: Connect) -> None:
    story = await orders(connect)
    await story.begin()
    story.first.generation = 9
    for _ in range(50):
        assert await story.first.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    await page.open(GROUP)
    await page.tab.wait_for_selector("section.requests td:has-text('34 more Heartbeat like this')")
    assert await page.tab.locator("section.requests td:has-text('ILLEGAL_GENERATION')").count() == 16


async def test_requests_that_are_not_kept_are_said(
    page: Page, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "GROUPS", 1)
    story = await orders(connect)
    await story.begin()
    await join_alone(await connect(), "other", Orders.TOPIC, 0)
    await page.open(GROUP)
    await page.tab.wait_for_selector("section.requests :text('Its requests are not kept: a broker has the newest')")


@pytest.mark.slow
async def test_a_link_to_a_moment_shows_it_again(page: Page, connect: Connect) -> None:
    story = await orders(connect)
    await story.begin()
    await story.second_joins()
    await page.open(GROUP)
    await page.tab.wait_for_selector(".band >> nth=1")
    await page.tab.keyboard.press("ArrowLeft")
    await page.tab.keyboard.press("z")
    await page.tab.wait_for_selector(".range:not(:has-text('live'))")
    link, range_ = page.tab.url, await page.tab.locator(".range").inner_text()
    assert re.search(r"\?from=\d+&to=\d+&band=\d+$", link)
    await page.tab.goto("about:blank")
    page.faults.clear()  # about:blank is not of the broker
    await page.tab.goto(link)
    await page.tab.locator(".panel h2:has-text('Generation 1')").wait_for()
    assert await page.tab.locator(".range").inner_text() == range_
    await page.tab.keyboard.press("l")
    await page.tab.wait_for_selector(".range:has-text('live')")


@pytest.mark.slow
async def test_the_drawing_is_the_chart(page: Page, broker: BrokerServer, connect: Connect) -> None:
    """Every element of the SVG is an item of the layout, and every event that has a place in the chart is drawn."""
    story = await orders(connect)
    await story.begin()
    await story.second_joins()
    await story.second_leaves()
    await story.third_joins_and_dies()
    await page.open(GROUP)
    await page.tab.wait_for_selector(".band >> nth=4")
    drawn = await page.tab.evaluate(
        """async () => {
            const { layout } = await import("/page/layout.js");
            const { draw } = await import("/page/dom.js");
            const chart = await (await fetch("/groups/orders-service/chart?since=0")).json();
            const now = Math.max(...chart.bands.map((band) => band.assigned)) + 1000;
            const from = chart.bands[0].start - 100;
            const made = layout(chart, { from, to: now, now, width: 1000, selected: 1 });
            const parent = document.createElementNS("http://www.w3.org/2000/svg", "g");
            draw(parent, []);
            draw(parent, made.items);
            draw(parent, made.items);
            const elements = [...parent.children].map((each) => ({
                id: each.getAttribute("data-id"), tag: each.tagName, class: each.getAttribute("class"),
                x: each.getAttribute("x"), width: each.getAttribute("width") }));
            return { chart, from, now, items: made.items, elements };
        }"""
    )
    items = drawn["items"]
    assert len({each["id"] for each in items}) == len(items)
    assert [(each["id"], each["tag"], each.get("class")) for each in items] == [
        (each["id"], each["tag"], each["class"]) for each in drawn["elements"]
    ]
    chart, ids = drawn["chart"], {each["id"]: each for each in drawn["elements"]}
    assert [(band["kind"], band["cause_text"]) for band in chart["bands"]] == [
        ("joined", "joined"),
        ("joined", "joined"),
        ("left", "left"),
        ("joined", "joined"),
        ("lost", "missed its session"),
    ]
    scale = (1000 - 14 - 210) / (drawn["now"] - drawn["from"])
    for at, band in enumerate(chart["bands"]):
        element = ids[f"band/{at}"]
        assert abs(float(element["x"]) - (210 + (band["start"] - drawn["from"]) * scale)) <= 0.1 + 3
        assert f"rebalance/{at}" in ids
        assert ("selected" in element["class"]) == (at == 1)
    for at, lane in enumerate(chart["lanes"]):
        assert f"lane/{at}/joined" in ids
        assert (f"lane/{at}/end" in ids) == (lane["end"] is not None)
        for n in range(len(lane["spans"])):
            assert f"lane/{at}/owns/{n}" in ids
        for n in range(len(lane["silent"])):
            assert f"lane/{at}/silent/{n}" in ids
    assert [len(lane["silent"]) for lane in chart["lanes"]] == [0, 0, 1]
    paused = {(each["topic"], each["partition"]) for each in chart["pauses"]}
    assert paused == {("orders", n) for n in range(4)}
    assert len([each for each in ids if re.fullmatch(r"paused/orders/\d/\d+", each)]) == len(chart["pauses"])


@pytest.mark.parametrize("at", slow_except(range(len(HOSTILE)), 0))
async def test_hostile_names_are_text(page: Page, connect: Connect, at: int) -> None:
    name = HOSTILE[at]
    wire = await connect()
    await make_topic(wire, "t")
    client = RawMember(wire, name, name)
    await client.join("t")
    await client.sync("t", {client.member_id: [0]})
    await client.leave(name[:400])
    again = RawMember(await connect(), name, name)
    await again.join("t")
    await again.sync("t", {again.member_id: [0]})
    await page.open()
    link = page.tab.locator("td.name a")
    await link.wait_for()
    shown = await link.inner_text()
    assert len(shown) <= 120
    assert shown.startswith(name[:3].replace("\x1b", "\\x1b")[:3])
    assert not set(shown) & {"\x1b", "\x07", "\u202e"}
    await link.click()
    await page.tab.wait_for_selector(".band >> nth=0")
    await page.tab.locator(".panel dd").first.wait_for()
    await page.tab.wait_for_selector("section.requests tr:has-text('JoinGroup')")
    await page.tab.keyboard.press("ArrowLeft")
    await page.tab.wait_for_selector("section.requests tr:has-text('LeaveGroup')")
    text = await page.tab.locator("body").inner_text()
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    asked = await page.tab.locator("section.requests tr:has-text('LeaveGroup') td").nth(4).inner_text()
    assert asked[:3] == name[:3].replace("\x1b", "\\x1b")[:3]
    assert await page.tab.title() != "taken"
    assert await page.tab.locator("main img, main script").count() == 0
    width = await page.tab.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, "a long name makes the page wider than the window"


@pytest.mark.slow
async def test_a_group_that_does_not_exist_and_a_broker_that_stops(page: Page, broker: BrokerServer) -> None:
    await page.open("/#/groups/nobody")
    await page.tab.wait_for_selector("text=this broker has no group nobody")
    page.faults.clear()  # Chromium reports a response with status 404 on the console
    await page.open("/#/")
    await page.tab.wait_for_selector("text=This broker coordinates no group yet")
    await broker.stop()
    await page.tab.wait_for_selector(".connection.lost")
    assert "no answer since" in await page.tab.locator("#connection").inner_text()
    page.faults.clear()  # and one that cannot be had


@pytest.mark.slow
async def test_a_gap_is_shown_with_its_reason(page: Page, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    story = await orders(connect)
    await story.begin()
    monkeypatch.setattr(history, "MOST_BYTES", 1)
    await page.open(GROUP)
    await page.tab.wait_for_selector(".gaps >> text=older events were not read: there are too many")
    assert await page.tab.locator(".band").count() == 1


@pytest.mark.slow
async def test_members_of_the_consumer_protocol_have_lanes(page: Page, broker: BrokerServer, connect: Connect) -> None:
    await make_topic(await connect(), "t")

    def consumer(name: str) -> Consumer:
        return Consumer(
            "t", bootstrap_servers=f"127.0.0.1:{broker.port}", group_id="g", client_id=name, group_protocol="consumer"
        )

    async with consumer("one") as one:
        await until(lambda: bool(one.assignment()))
        await page.open("/#/groups/g")
        await page.tab.wait_for_selector(".owning >> nth=0")
        async with consumer("two") as two:

            async def polled() -> bool:
                await asyncio.gather(one.getmany(timeout_ms=50), two.getmany(timeout_ms=50))
                return bool(two.assignment())

            await until(polled)
            await page.tab.wait_for_selector(".headline:has-text('two (127.0.0.1) joined')")
            await page.tab.wait_for_selector("text.lane:has-text('two (127.0.0.1)')")
            assert "consumer protocol" in await page.texts(".facts .chip")
        await page.tab.wait_for_selector(".headline:has-text('two (127.0.0.1) left')")


@pytest.mark.slow
async def test_a_thousand_groups_have_few_rows_in_the_document(page: Page, connect: Connect) -> None:
    rows = group_rows(1_000)

    async def answer(route: Any) -> None:
        body = json.dumps({"unloaded_partitions": [], "groups": rows})
        await route.fulfill(status=200, content_type="application/json", body=body)

    await page.tab.route("**/groups", answer)
    await page.open()
    await page.tab.wait_for_selector("a:text('group-0000')")
    assert await page.tab.locator("tbody tr").count() < 60
    await page.tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    await page.tab.wait_for_selector("a:text('group-0999')")
    assert await page.tab.locator("tbody tr").count() < 60
    await page.tab.fill("#filter", "group-0500")
    assert await page.texts("td.name a") == ["group-0500"]


@pytest.mark.parametrize("scheme", slow_except(["light", "dark"], "dark"))
async def test_the_theme_follows_the_system_and_can_be_changed(page: Page, scheme: str) -> None:
    await page.tab.emulate_media(color_scheme=scheme)
    await page.open()
    assert await page.tab.evaluate("document.documentElement.dataset.theme") == scheme
    await page.tab.click("#theme")
    await page.tab.reload()
    other = {"light": "dark", "dark": "light"}[scheme]
    assert await page.tab.evaluate("document.documentElement.dataset.theme") == other


@pytest.mark.slow
async def test_a_chart_is_made_once_for_all_pages(page: Page, broker: BrokerServer, connect: Connect) -> None:
    story = await orders(connect)
    await story.begin()
    await page.open(GROUP)
    await page.tab.wait_for_selector(".band")
    statuses: list[int] = []
    page.tab.on("response", lambda got: statuses.extend([got.status] if "/chart" in got.url else []))
    await until(lambda: len(statuses) >= 2)
    assert set(statuses) == {304}
