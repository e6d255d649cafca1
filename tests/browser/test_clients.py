"""Clients that push metrics, in a real browser."""

from collections.abc import Awaitable, Callable

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.uuids import uuid_text
from tests.broker.handlers.test_telemetry import asked, push, subscribe
from tests.broker.http.support import join_alone, make_topic
from tests.broker.telemetry.test_points import gauge, message, point, total
from tests.browser.conftest import Page
from tests.browser.scenes import HOSTILE
from tests.browser.test_pages import NARROW, axe, is_narrow_enough
from tests.wire import Wire

pytestmark = [pytest.mark.programs, pytest.mark.asyncio(loop_scope="session")]

Connect = Callable[[], Awaitable[Wire]]
NONE = ErrorCode.NONE
#: The client id of the member.
NAME = "test"


async def test_from_a_member_to_its_metrics(page: Page, broker: BrokerServer, connect: Connect) -> None:
    await page.open("/#/client-metrics")
    await page.tab.wait_for_selector("text=barnabas client-metrics set all --metrics '*'")
    wire = await connect()
    await make_topic(wire, "t")
    member_id = await join_alone(wire, "g", "t", 0)
    await subscribe(wire, {"metrics": "*"})
    await page.tab.wait_for_selector("text=No client has asked this broker")
    pusher = await connect()
    answer = await asked(pusher, client_id=NAME)
    await page.tab.wait_for_selector("td.c-pushed:text-is('not yet')")
    pushed = message(
        gauge("org.apache.kafka.consumer.lag.max", point(12345.6789, topic="t"), point(float("inf"), topic="u")),
        total("org.apache.kafka.consumer.records.total", 2, point(1_234_567)),
        group_id="g", group_member_id=member_id,
    )  # fmt: skip
    assert await push(pusher, answer, pushed, client_id=NAME) is NONE
    await page.open("/#/groups/g")
    await page.tab.click("section td a:text-is('metrics')")
    await page.tab.wait_for_selector(f"h1:text-is('{NAME}')")
    assert await page.texts("td.name b") == ["consumer_lag_max", "consumer_lag_max", "consumer_records_total"]
    assert await page.texts("td.name .why") == ["topic=t", "topic=u"]
    assert await page.texts("td.c-value") == ["12,345.68", "–", "1,234,567"]
    facts = " ".join(await page.texts(".facts .chip"))
    assert "every 5 min" in facts
    assert f"group_member_id {member_id}" in facts
    await page.tab.fill("#filter", "topic=u")
    assert await page.texts("td.c-value") == ["–"]
    await page.tab.click(".facts a:text-is('g')")
    await page.tab.wait_for_selector("section td a:text-is('metrics')")
    await page.tab.click("nav a:text-is('Client metrics')")
    await page.tab.wait_for_selector("td.c-series:text-is('3')")
    assert await page.texts("section table.plain td") == ["all", "5 min", "*", "all"]
    assert await push(pusher, answer, b"\xff", client_id=NAME) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await page.tab.click(".chip:text-is('▲ 1 refused')")
    await page.tab.wait_for_selector("td.c-pushed:has-text('THROTTLING_QUOTA_EXCEEDED')")


async def test_hostile_names_and_labels_are_text(page: Page, broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await subscribe(wire, {"metrics": "*"})
    identities = []
    for name in HOSTILE:
        pusher = await connect()
        answer = await asked(pusher, client_id=NAME)
        identities.append(uuid_text(answer.client_instance_id))
        pushed = message(gauge(name, point(1, **{name: name})), gauge("b", point(2)), group_id=name)
        assert await push(pusher, answer, pushed, client_id=NAME) is NONE
    for address in ("", *(f"/{each}" for each in identities)):
        await page.open(f"/#/client-metrics{address}")
        await page.tab.wait_for_selector("td.c-value" if address else "td.c-series")
        text = await page.tab.locator("body").inner_text()
        assert not set(text) & {"\x1b", "\x07", "\u202e"}
        assert await page.tab.title() != "taken"
        assert await page.tab.locator("main img, main script, main i").count() == 0
        await page.tab.evaluate(axe())
        assert await page.tab.evaluate("axe.run().then((result) => result.violations)") == []
        await page.tab.set_viewport_size(NARROW)
        assert await is_narrow_enough(page)
        await page.tab.set_viewport_size({"width": 1280, "height": 900})
    rows = await page.tab.evaluate(
        "fetch('/client-metrics').then((got) => got.json()).then((got) => got.clients.length)"
    )
    assert rows == len(HOSTILE)
