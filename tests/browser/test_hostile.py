"""Charts of forged, broken and hostile events in a real browser: everything is text, and no page is blank.

What the chart is made of is tested as data in ``explain/test_validation.py``; here it is drawn.
"""

import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import pytest

from barnabas_broker.http import endpoint
from barnabas_broker.http.view import View
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.records import decode_event
from tests.broker.http.support import join_alone, make_topic
from tests.browser.conftest import Page
from tests.browser.scenes import HOSTILE
from tests.browser.test_pages import axe
from tests.explain.test_validation import GOOD, TYPES
from tests.sampling import slow_except
from tests.wire import Wire

pytestmark = [pytest.mark.programs, pytest.mark.asyncio(loop_scope="session")]

Connect = Callable[[], Awaitable[Wire]]
GROUP: Final = "g"
#: Values that no field of an event has.
ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 2**63, "", "x" * 5_000, "<b>\x1b[31m", [], [None], {}, {"t": ["0"]}, [{"member_id": []}], 1e300,
)  # fmt: skip
Event = dict[str, Any]


def event(kind: str, time_ms: int, **fields: Any) -> Event:
    return {"version": 1, "group": GROUP, "generation": 3, "time": time_ms, "type": kind, **fields}


def member(name: str, at: int = 0) -> Event:
    return {"member_id": f"{name}-{at}", "client_id": name, "host": f"/{name}", "instance_id": None}


def rebalance(time_ms: int, generation: int, cause: str, by: Sequence[Event], moves: Sequence[Event]) -> list[Event]:
    """A rebalance, whose assignment is there half a second later."""
    started = event("rebalance_started", time_ms, cause=cause, by=list(by), reason="why <i>not</i>")
    over = event("rebalance_over", time_ms + 500, members=len(moves), moves=list(moves), protocol="range")
    return [{**each, "generation": generation} for each in (started, over)]


def forged(dice: random.Random, now: int) -> list[Event]:
    """Events of all types with fields that are right, odd or missing, and names that are hostile."""
    found = []
    for _ in range(300):
        fields = {name: value for name, value in GOOD.items() if dice.random() < 0.95}
        name = dice.choice((*HOSTILE, "one", "two"))
        fields |= dict.fromkeys(("client_id", "host", "reason", "client_reason", "topic", "regex"), name)
        fields |= {"by": [member(name)], "moves": [{**member(name), "gained": {name: [0, 1]}, "lost": {"t": [2]}}]}
        if dice.random() < 0.3:
            fields[dice.choice(sorted(fields))] = dice.choice(ODD)
        at = now - dice.randrange(3_000_000) if dice.random() < 0.9 else dice.choice((10**13, 10**14, -1, 1.5, "1"))
        found.append({**event(dice.choice(TYPES), 0, **fields), "time": at, "generation": dice.randrange(-2, 9)})
    for number in range(3):
        found += rebalance(
            now - 60_000 * number - 10_000, 20 - number, "member_joined", [member("one")], [member("two")]
        )
    return found


def disagreeing(dice: random.Random, now: int) -> list[Event]:
    """Brokers whose clocks differ by minutes write in turn; some are years ahead."""
    found = []
    for number in range(40):
        clock = dice.choice((0, -400_000, 300_000, 86_400_000 * 400))
        moves = [{**member(name), "gained": {"t": [number % 3]}, "lost": {}} for name in ("one", "two")]
        found += rebalance(now - 600_000 + 10_000 * number + clock, number, "member_joined", moves[:1], moves)
    return found


def gaps(dice: random.Random, now: int) -> list[Event]:
    """A history with holes of each kind, and hostile reasons."""
    found = []
    for number in range(30):
        at = now - 600_000 + 10_000 * number
        moves = [{**member("one"), "gained": {"t": [number]}, "lost": {}}]
        found += rebalance(at, number, "member_left", [member("two")], moves)
        kind = ("compacted", "clock", "unreadable", "too_many", "went_back", "not_read", "none")[number % 7]
        found.append(
            event("history_gap", at + 5_000, gap=kind, reason=dice.choice(HOSTILE), between=[at, at + 1], first=1)
        )
    return found


def many(dice: random.Random, now: int) -> list[Event]:
    """A thousand members, each with a hostile name, join and leave."""
    names = [f"{HOSTILE[number % len(HOSTILE)][:300]}{number}" for number in range(1_000)]
    found = []
    for turn in range(5):
        at = now - 600_000 + 60_000 * turn
        some = names[turn * 200 : turn * 200 + 200]
        found += [event("member_joined", at + n, **member(name)) for n, name in enumerate(some)]
        moves = [{**member(name), "gained": {"t": [n]}, "lost": {}} for n, name in enumerate(some)]
        found += rebalance(at + 1_000, turn, "member_joined", [member(name) for name in some[:50]], moves)
    return found + [event("member_left", now - 1_000 + n, **member(name)) for n, name in enumerate(names[:50])]


STORIES: Final = (forged, disagreeing, gaps, many)


def recorded(values: Sequence[bytes]) -> Callable[[View, str, int], Awaitable[list[GroupEvent]]]:
    """What the broker reads if these are the values of the records of a group."""

    async def read(view: View, group_id: str, since_ms: int) -> list[GroupEvent]:
        events = [each for each in map(decode_event, values) if each is not None]
        return [each for each in events if each.time >= since_ms]

    return read


async def look(page: Page) -> None:
    """What is shown is text, is not blank, is not wider than the window, and has no barrier."""
    text = await page.tab.locator("body").inner_text()
    assert not set(text) & {"\x1b", "\x07", "\u202e"}
    assert (await page.tab.locator(".headline").inner_text()).strip()
    assert await page.tab.locator("svg.chart text").count() > 3
    assert await page.tab.locator("#trouble:visible").count() == 0
    assert await page.tab.title() != "taken"
    assert await page.tab.locator("main img, main script, main b b, main i").count() == 0
    wide = await page.tab.evaluate(
        """document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll("body *")]
            .map((each) => [Math.round(each.getBoundingClientRect().right), each.outerHTML.slice(0, 150)])
            .sort((one, other) => other[0] - one[0]).slice(0, 5)"""
    )
    assert wide == []
    # An attribute that is not a number leaves its element out, and the browser says so only on the console.
    odd = await page.tab.evaluate(
        """[...document.querySelectorAll("svg.chart *")].filter((each) => ["x", "y", "width", "height", "x1", "x2", "d"]
            .some((name) => /NaN|Infinity|undefined/.test(each.getAttribute(name) ?? ""))).length"""
    )
    assert odd == 0


@pytest.mark.parametrize("seed", slow_except(range(4), 0))
@pytest.mark.parametrize("story", slow_except(STORIES, forged), ids=lambda each: str(each.__name__))
async def test_no_history_breaks_the_page(
    page: Page,
    connect: Connect,
    story: Callable[[random.Random, int], list[Event]],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = await connect()
    await make_topic(wire, "t")
    await join_alone(wire, GROUP, "t", 0)
    dice = random.Random(seed)
    values = [json.dumps(each).encode() for each in story(dice, round(time.time() * 1000))]
    broken = [b"", b"\xff\xfe", b"{", b"[]", b"null", b'{"version": 2}', b"9" * 5_000, b"[" * 3_000, values[0][:-3]]
    for value in broken:
        values.insert(dice.randrange(len(values) + 1), value)
    monkeypatch.setattr(endpoint, "recorded", recorded(values))
    await page.open(f"/#/groups/{GROUP}")
    await page.tab.wait_for_selector(".band >> nth=2")
    await page.tab.locator(".panel dd").first.wait_for()
    await look(page)
    for key in ("0", "ArrowLeft", "z", "+", "-", "-", "l"):
        await page.tab.keyboard.press(key)
        await look(page)
    await page.tab.keyboard.press("0")
    await page.tab.evaluate("document.querySelector('.scroller').scrollTop = 1e6")
    choices = await page.tab.locator("#compare option").count()
    await page.tab.select_option("#compare", index=choices // 2 or 1)
    await page.tab.wait_for_selector(".compared")
    await look(page)
    await page.tab.evaluate(axe())
    found = await page.tab.evaluate("axe.run().then((result) => result.violations)")
    assert [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found] == []
