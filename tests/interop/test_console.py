"""The console of Apache Kafka in a browser: a story from ``__consumer_offsets``, beside what really happened."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas_client.cli import main
from tests.browser.chromium import browsing, problem
from tests.browser.conftest import Page
from tests.client.console.running import console
from tests.interop.server import Server
from tests.interop.test_explain import PARTITIONS, SESSION_MS, SLACK_MS, Story, create
from tests.needs import missing

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.slow
async def test_a_story_on_the_page_is_what_happened(
    server: Server, fresh: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """join, join, death, leave; on the page while it happens, and in a report afterwards"""
    if (why := problem()) is not None:
        missing(why.text, on_this_machine=why.must_have)
    create(server, fresh, PARTITIONS)
    story = Story(server, fresh, "classic")
    try:
        await asyncio.to_thread(story.start, "a")
        async with console(server.bootstrap_servers, source="offsets") as port, browsing() as browser:
            page = Page(await (await browser.new_context()).new_page(), f"http://127.0.0.1:{port}")
            page.tab.set_default_timeout(60_000)
            await page.open()
            await page.tab.click(f"td.name a:text('{fresh}')")
            await page.tab.wait_for_selector(".headline:has-text('a (127.0.0.1) joined')")
            await asyncio.to_thread(story.start, "b")
            await page.tab.wait_for_selector(".headline:has-text('b (127.0.0.1) joined')")
            await asyncio.to_thread(story.start, "c")
            await page.tab.wait_for_selector(".headline:has-text('c (127.0.0.1) joined')")
            await asyncio.to_thread(story.end, "b", patience=0)  # its session expires
            await page.tab.wait_for_selector(".headline:has-text('b (127.0.0.1) was gone')")
            await asyncio.to_thread(story.end, "c")
            await page.tab.wait_for_selector(".headline:has-text('c (127.0.0.1) was gone')")
            assert "Requests are not recorded here" in await page.tab.locator("section.requests").inner_text()
            made = await page.tab.evaluate(
                "async (path) => (await fetch(path)).json()", f"/groups/{fresh}/chart?since=0"
            )
            drawn = await page.tab.locator(".band").count()
            assert page.faults == []
    finally:
        story.close()

    # Each step is one band on the axis, at its time, by its member.
    bands: list[dict[str, Any]] = made["bands"]
    assert drawn == len(bands) == len(story.truth)
    kinds = {"joined": "joined", "gone": "lost"}
    assert [(band["kind"], [each["client_id"] for each in band["members"]]) for band in bands] == [
        (kinds[kind], [name]) for kind, name, _, _ in story.truth
    ]
    for band, (_, _, begin, end) in zip(bands, story.truth, strict=True):
        assert begin - SLACK_MS <= band["assigned"] <= end + SLACK_MS
        assert band["inferred"]
    assert [band["generation"] for band in bands] == [
        *range(bands[0]["generation"], bands[0]["generation"] + len(bands))
    ]
    # The partitions of the dead member had no owner for about its session; those of the others were moved at once.
    paused = [each for each in made["pauses"] if each["band"] == 3]
    assert len(paused) == PARTITIONS
    dead = story.truth[3]
    assert max(each["at_most_ms"] for each in paused) >= SESSION_MS - 1_000
    assert max(each["at_least_ms"] for each in paused) <= dead[3] - dead[2]
    # Nothing is missing, and no member owns anything that was not assigned.
    assert made["gaps"] == []
    (last,) = [lane for lane in made["lanes"] if lane["end"] is None]
    assert (last["name"], last["spans"][-1]["partitions"]) == ("a (127.0.0.1)", {fresh: [*range(PARTITIONS)]})

    file = tmp_path / "report.html"
    command = ["groups", "report", fresh, "-o", str(file), "-b", server.bootstrap_servers, "--source", "offsets"]
    assert await asyncio.to_thread(main, command) == 0, capsys.readouterr()
    async with browsing() as browser:
        page = Page(await (await browser.new_context()).new_page(), "file:/")
        await page.tab.goto(file.as_uri())
        await page.tab.wait_for_selector(".headline:has-text('c (127.0.0.1) was gone')")
        assert page.faults == []
