"""Reports in a real browser, opened from a file."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from barnabas_broker.http.report import report
from barnabas_explain.chart import chart
from tests.browser.conftest import Page
from tests.browser.scenes import HOSTILE
from tests.explain.offsets_log import NOON, OffsetsLog, member
from tests.sampling import slow_except

pytestmark = [pytest.mark.programs, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Any) -> AsyncIterator[Page]:
    """A page that opens files only."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="UTC")
    shown = Page(await context.new_page(), "file:/")
    yield shown
    await context.close()
    assert shown.faults == []


def story(name: str) -> OffsetsLog:
    log = OffsetsLog()
    log.generation(10, 1, member(name, 0, 1), joined=0)
    log.generation(1_010, 2, member(name, 0), member("b", 1), joined=1_000)
    log.generation(9_010, 3, member("b", 0, 1), joined=9_000)
    return log


async def test_a_report_shows_the_story_and_stands_still(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    made = {"since": NOON - 1_000, **chart(story("a").events)}
    joined = {
        "time": NOON + 1_000,
        "until": NOON + 1_005,
        "api": "JoinGroup",
        "answer": "NONE",
        "client_id": "client-b",
    }
    nothing: dict[str, Any] = dict.fromkeys(("host", "instance_id", "generation", "reason", "given"))
    sent = {"member_id": "b", "members": 1, "waited_ms": 5, "more": 0, **joined, **nothing}
    requests = {"kept_since": NOON - 1_000, "requests": [sent]}
    file.write_text(report("orders", made, time_ms=NOON + 60_000, requests=requests), encoding="utf-8")
    await page.tab.goto(file.as_uri())
    await page.tab.wait_for_selector(".band >> nth=2")
    assert await page.tab.locator(".band").count() == 3
    box = await page.tab.locator(".band >> nth=2").bounding_box()
    first = await page.tab.locator(".band >> nth=0").bounding_box()
    assert box is not None and first is not None
    assert box["x"] - first["x"] > 300, "it opens on the story, which is short"
    headline = await page.tab.locator(".headline").inner_text()
    assert "✕ client-a (10.0.0.7) was gone. t-0 to 1 had no owner for ≤ 8 s." in headline
    shown = await page.tab.locator(".range").inner_text()
    assert "live" not in shown
    await page.tab.locator(".band").nth(1).click()
    await page.tab.locator(".panel h2:has-text('Generation 2')").wait_for()
    assert "client-b (10.0.0.7) joined" in await page.tab.locator(".panel").inner_text()
    assert "JoinGroup" in await page.tab.locator("section.requests").inner_text()
    await page.tab.keyboard.press("z")
    await page.tab.wait_for_selector(f".range:not(:has-text({json.dumps(shown[:40])}))")
    assert "band=" in page.tab.url
    link = page.tab.url
    await page.tab.goto("about:blank")
    await page.tab.goto(link)
    await page.tab.locator(".panel h2:has-text('Generation 2')").wait_for()
    assert await page.tab.locator(":is(.back, .live, .facts, .below):visible").count() == 0
    page.faults = [fault for fault in page.faults if "about:blank" not in fault]


@pytest.mark.slow
async def test_two_generations_are_compared(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    log = story("a")
    log.generation(12_010, 4, member("b", 0), member("c", 1), joined=12_000)
    made = {"since": NOON - 1_000, **chart(log.events)}
    file.write_text(report("orders", made, time_ms=NOON + 20_000), encoding="utf-8")
    await page.tab.goto(file.as_uri())
    await page.tab.wait_for_selector(".band >> nth=3")
    await page.tab.select_option("#compare", str(NOON))
    shown = await page.tab.locator(".compared dd").all_inner_texts()
    assert [" ".join(text.split()) for text in shown] == [
        "generation 1 (12:00:00) and 4 (12:00:12): + 2 × a member joined ✕ 1 × a member was lost",
        "client-b (10.0.0.7), client-c (10.0.0.7)",
        "client-a (10.0.0.7)",
        "t-0 client-a (10.0.0.7) → client-b (10.0.0.7) t-1 client-a (10.0.0.7) → client-c (10.0.0.7)",
        "at most 24 s, of all partitions together",
    ]
    assert await page.tab.evaluate("document.activeElement.id") == "compare"
    await page.tab.locator(".band").nth(0).click()
    await page.tab.locator(".panel h2:has-text('Generation 1')").wait_for()
    assert await page.tab.locator(".compared").count() == 0, "a generation is not compared with itself"


@pytest.mark.parametrize("name", slow_except(HOSTILE, HOSTILE[0]))
async def test_hostile_names_are_text(page: Page, tmp_path: Path, name: str) -> None:
    file = tmp_path / "report.html"
    made = {"since": NOON - 1_000, **chart(story(name).events)}
    now = {
        "group": name, "state": name, "generation": 3, "type": "classic", "protocol": name,
        "members": [{"member_id": name, "client_id": name, "host": name, "instance_id": name, "heard_ago_ms": None,
                     "assignment": {name: [0, 1]}}],
        "offsets": [{"topic": name, "partition": 0, "current_offset": 1, "log_end_offset": 2, "lag": 1,
                     "unstable_lag": None, "member_id": name}],
    }  # fmt: skip
    file.write_text(report(name, made, time_ms=NOON + 20_000, now=now), encoding="utf-8")
    await page.tab.goto(file.as_uri())
    await page.tab.wait_for_selector(".band >> nth=2")
    await page.tab.wait_for_selector("section table >> nth=1")
    text = await page.tab.locator("body").inner_text()
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert await page.tab.title() != "taken"
    assert await page.tab.locator("main img, main script").count() == 0
    assert await page.tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


async def test_a_script_that_was_added_does_not_run(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    text = report("g", {"since": NOON, **chart(story("a").events)}, time_ms=NOON + 20_000)
    added = text.replace("</body>", "<script>document.title = 'taken'</script></body>")
    file.write_text(added, encoding="utf-8")
    await page.tab.goto(file.as_uri())
    await page.tab.wait_for_selector(".band")
    assert await page.tab.title() == "g – Barnabas"
    assert [fault for fault in page.faults if "Content Security Policy" in fault]
    page.faults.clear()
