"""The console in a real browser, of a real broker that it knows by its port for clients only."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_client import Admin, Producer
from barnabas_client.admin.acls import AclBinding
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from tests.broker.http.support import commit, make_topic, produce
from tests.browser.conftest import Page
from tests.browser.scenes import HOSTILE, Orders, RawMember, start
from tests.client.console.running import TOKEN, console
from tests.sampling import slow
from tests.wire import Wire

pytestmark = [pytest.mark.programs, pytest.mark.asyncio(loop_scope="session")]

Connect = Callable[[], Awaitable[Wire]]
GROUP = f"/#/groups/{Orders.GROUP}"


@asynccontextmanager
async def shown(
    browser: Any, broker: BrokerServer, *, source: str | None = None, changes: bool = False
) -> AsyncIterator[Page]:
    """A page of a console; it fails if a script or the browser's console reports an error."""
    async with console(f"127.0.0.1:{broker.port}", source=source, changes=changes) as port:
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        page = Page(await context.new_page(), f"http://127.0.0.1:{port}")
        yield page
        await context.close()
        assert page.faults == []


async def orders(connect: Connect) -> Orders:
    await make_topic(await connect(), Orders.TOPIC)
    return Orders(*[RawMember(await connect(), Orders.GROUP, name) for name in ("billing-1", "billing-2", "billing-3")])


@pytest.mark.parametrize("source", ["events", slow("offsets")])
async def test_a_rebalance_appears_live(browser: Any, broker: BrokerServer, connect: Connect, source: str) -> None:
    """From recorded events, and rebuilt as for Apache Kafka: then the cause is what the records leave open."""
    story = await orders(connect)
    await story.begin()
    async with shown(browser, broker, source=source) as page:
        await page.open()
        await page.tab.wait_for_selector("#pages a")
        assert await page.texts("#pages a") == ["Groups", "Topics", "Transactions", "Brokers", "ACLs"]
        assert f"brokers 127.0.0.1:{broker.port}" in await page.tab.locator("#broker").inner_text()
        await page.tab.click(f"td.name a:text('{Orders.GROUP}')")
        await page.tab.wait_for_selector(".band >> nth=0")
        await story.second_joins()
        await page.tab.wait_for_selector(".headline:has-text('billing-2 (127.0.0.1) joined')")
        await story.second_leaves("consumer poll timeout has expired.")
        said = {"events": "left", "offsets": "was gone"}[source]
        await page.tab.wait_for_selector(f".headline:has-text('billing-2 (127.0.0.1) {said}')")
        panel = page.tab.locator(".panel")
        await panel.locator("h2:has-text('Generation 3')").wait_for()
        text = await panel.inner_text()
        assert ("“consumer poll timeout has expired.”" in text) == (source == "events")
        assert ("(concluded, not recorded)" in text) == (source == "offsets")
        said = {
            "events": "Requests are not recorded in __group_events.",
            "offsets": "Requests are not recorded here: __consumer_offsets has only what came of them.",
        }[source]
        assert said in await page.tab.locator("section.requests").inner_text()
        if source == "offsets":
            await page.tab.wait_for_selector(".gaps >> text=From __consumer_offsets since")
        assert await page.tab.locator("#reset").count() == 0


async def test_topics_and_their_records(browser: Any, broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "orders")
    await produce(wire, "orders", 0, 7)
    await produce(wire, "orders", 1, 5)
    async with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
        await producer.send_and_wait("orders", HOSTILE[1].encode(), key=HOSTILE[0].encode(), partition=2)
    async with shown(browser, broker) as page:
        await page.open("/#/topics")
        await page.tab.wait_for_selector("td.c-records:text-is('13')")
        await page.tab.click("td.name a")
        await page.tab.wait_for_selector(".facts .chip:text-is('13 records')")
        await page.tab.wait_for_selector("table.records td.one:text-is('value')")
        await page.tab.locator("table.records td.one", has_text=HOSTILE[0]).wait_for()
        assert await page.tab.title() == "orders – Barnabas"
        await page.tab.click("button:text-is('Follow')")
        await produce(wire, "orders", 3, 1)
        await page.tab.wait_for_selector("table.records tr[data-row='3/0']")
        await page.tab.wait_for_selector("summary:has-text('defaults')")
        await page.open("/#/topics/none")
        await page.tab.wait_for_selector(".facts:has-text('this cluster has no topic none')")
        page.faults = [fault for fault in page.faults if "status of 404" not in fault]


@pytest.mark.slow
async def test_brokers_and_what_no_request_tells(browser: Any, broker: BrokerServer) -> None:
    async with shown(browser, broker) as page:
        await page.open("/#/brokers")
        await page.tab.wait_for_selector(".facts .chip:text-is('1 broker')")
        row = await page.tab.locator("section table").first.locator("tbody tr").inner_text()
        assert row.split("\t")[1] == f"127.0.0.1:{broker.port}"
        assert row.endswith("● live, controller")
        assert "no request of Kafka’s protocol tells them" in (await page.tab.inner_text("main")).replace("'", "’")
        assert "Requests by API" not in await page.texts("h2")


@pytest.mark.slow
async def test_transactions_of_any_cluster(browser: Any, broker: BrokerServer, connect: Connect) -> None:
    await make_topic(await connect(), "orders")
    name = HOSTILE[0]
    async with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"a", partition=1)
        async with shown(browser, broker) as page:
            await page.open("/#/transactions")
            await page.tab.locator("section:has(h2:text('Open transactions')) b", has_text=name).wait_for()
            await page.tab.locator("section:has(h2:text('Partitions that wait')) b", has_text=name).wait_for()
            await page.tab.wait_for_selector("text=The client of a transaction is known to its coordinator only.")
        await producer.abort_transaction()


@pytest.mark.slow
async def test_without_an_authorizer_that_is_said(browser: Any, broker: BrokerServer) -> None:
    async with shown(browser, broker) as page:
        await page.open("/#/acls")
        await page.tab.wait_for_selector(".empty:has-text('No authorizer is configured')")


async def test_acls_with_hostile_names_are_text(browser: Any, tmp_path: Path) -> None:
    """On the page of the broker, and on that of the console."""
    broker = await start(
        str(tmp_path / "acls"),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:ANONYMOUS",
    )
    names = [name for name in HOSTILE if len(name) < 1_000]
    try:
        async with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            group, topic = AclResourceType.GROUP, AclResourceType.TOPIC
            await admin.create_acls(
                [
                    *(AclBinding(f"User:{name}", AclOperation.READ, group, name, host=name) for name in names),
                    AclBinding("User:*", AclOperation.WRITE, topic, "or", AclPatternType.PREFIXED),
                    AclBinding("User:x", AclOperation.ALL, topic, "*", permission_type=AclPermissionType.DENY),
                ]
            )
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        own = Page(await context.new_page(), f"http://127.0.0.1:{broker.http_port}")
        async with shown(browser, broker) as page:
            for each, note in (
                (own, "Super users, who may do everything: User:ANONYMOUS."),
                (page, "no request tells"),
            ):
                await each.open("/#/acls")
                await each.tab.locator("td.name", has_text=f"User:{names[0]}").wait_for()
                assert len(await each.texts("td.name")) == len(names) + 2
                assert await each.tab.title() == "ACLs – Barnabas"
                assert await each.tab.locator("td img, td script").count() == 0
                await each.tab.locator("p.quiet", has_text=note).wait_for()
                await each.tab.click("button.chip:has-text('1 denied')")
                assert await each.texts("td.resource") == ["all topics"]
                await each.tab.fill("#filter", "everyone")
                assert await each.texts("td.resource") == []
                await each.tab.fill("#filter", "User:* write")
                assert await each.texts("td.resource") == ["topics that begin with or"]
                assert await each.texts("td.name") == ["everyone"]
        await context.close()
        assert own.faults == []
    finally:
        await broker.stop()


@pytest.mark.slow
async def test_a_storm_is_told_in_one_sentence(browser: Any, broker: BrokerServer, connect: Connect) -> None:
    story = await orders(connect)
    await story.begin()
    for _ in range(4):
        await story.second_joins()
        await story.second_leaves()
        story.second.member_id = ""  # the next one is a new process of the same program
    async with shown(browser, broker) as page:
        own = Page(await page.tab.context.new_page(), f"http://127.0.0.1:{broker.http_port}")
        for each in (page, own):
            await each.open(GROUP)
            await each.tab.wait_for_selector(".findings:has-text('Storm score')")
            said = await each.tab.inner_text(".findings")
            assert re.search(r"Storm score \d+ of 100: 9 rebalances in the last 10 minutes, 4 of them because", said)
        await own.open("/#/")
        await own.tab.wait_for_selector(f"tr:has(a:text-is('{Orders.GROUP}')) td.health:has-text('flapping')")
        await own.tab.wait_for_selector("td.name .why:has-text('sick')")
        assert int((await own.texts("td.c-storm"))[0]) >= 45
        assert own.faults == []


async def test_offsets_are_reset_after_a_dry_run_and_a_confirmation(
    browser: Any, broker: BrokerServer, connect: Connect
) -> None:
    wire = await connect()
    await make_topic(wire, "orders")
    await produce(wire, "orders", 0, 10)
    await commit(wire, HOSTILE[0], "orders", {0: 4, 1: 0})
    async with shown(browser, broker, changes=True) as page:
        await page.open(f"/#/?token={TOKEN}")
        await page.tab.click("td.name a")
        assert TOKEN not in page.tab.url
        form = page.tab.locator("#reset")
        await form.locator("#reset-to").select_option("latest")
        await form.locator("#reset-topics").fill("orders:0,1")
        await form.locator("button[type=submit]").click()
        await form.locator("text=Dry run, nothing was changed.").wait_for()
        assert await form.locator("tbody tr").all_inner_texts() == ["orders-0\t4\t10\t", "orders-1\t0\t0\t"]
        await form.locator("#reset-topics").fill("orders")
        assert await form.locator("#reset-execute").count() == 0, "the dry run is not that of the form any more"
        await form.locator("button[type=submit]").click()
        await form.locator("#reset-execute").click()
        await form.locator("text=The offsets are committed.").wait_for()
        await page.tab.wait_for_selector("section:has(h2:text('Committed offsets')) td:text('10') >> nth=0")
        await page.tab.reload()  # the token stays in this tab
        await form.locator("#reset-to").select_option("offset")
        await form.locator("#reset-value").fill("not a number")
        await form.locator("button[type=submit]").click()
        await form.locator(".refused:has-text('is not a whole number')").wait_for()
        page.faults = [fault for fault in page.faults if "status of 400" not in fault]


async def test_without_the_token_nothing_can_be_changed(browser: Any, broker: BrokerServer, connect: Connect) -> None:
    wire = await connect()
    await make_topic(wire, "orders")
    await commit(wire, "g", "orders", {0: 4})
    async with shown(browser, broker, changes=True) as page:
        await page.open("/#/groups/g")
        await page.tab.wait_for_selector("#reset:has-text('open the page by the address that the console printed')")
        assert await page.tab.locator("#reset form").count() == 0


async def test_brokers_that_stop_are_shown_as_such(browser: Any, broker: BrokerServer) -> None:
    async with shown(browser, broker) as page:
        await page.open()
        await page.tab.wait_for_selector("text=This cluster has no group yet")
        await broker.stop()
        await page.tab.wait_for_selector(".connection.lost")
        page.faults = [fault for fault in page.faults if "status of 502" not in fault]
