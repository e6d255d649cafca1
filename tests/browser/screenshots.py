"""``make screenshots``: write screenshots of the pages, of groups and topics that are made for them.

Usage: python -m tests.browser.screenshots FOLDER
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from barnabas_broker.broker import BrokerServer
from barnabas_client import Admin, Producer
from barnabas_client.admin.acls import AclBinding
from barnabas_client.cli import main
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from tests.broker.handlers.test_telemetry import asked, push, subscribe
from tests.broker.http.support import commit, join_alone, make_topic, produce
from tests.broker.telemetry.test_points import gauge, message, point, total
from tests.browser.chromium import browsing
from tests.browser.scenes import Orders, RawMember, start
from tests.client.console.running import TOKEN, console
from tests.wire import Wire

#: Seconds between the steps of the story, so that they can be told apart on the time axis.
_PAUSE = 1.2
#: Widths of the window: of a laptop, and of half of one.
_WIDTHS = (1280, 600)
#: Widths of the window for the list of groups, from a telephone to a large screen.
_LIST_WIDTHS = (360, 768, 1_024, 1_400, 2_560)
_ACLS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}


async def _grant(broker: BrokerServer) -> None:
    """ACLs for the page to show; the clients of the story are a super user."""
    topic, group, id_ = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
    prefix, deny = AclPatternType.PREFIXED, AclPermissionType.DENY
    async with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        await admin.create_acls(
            [
                AclBinding("User:billing", AclOperation.READ, topic, Orders.TOPIC),
                AclBinding("User:billing", AclOperation.READ, group, Orders.GROUP, prefix),
                AclBinding("User:shop", AclOperation.WRITE, topic, Orders.TOPIC, host="10.0.0.7"),
                AclBinding("User:payments", AclOperation.ALL, id_, "payments-", prefix),
                AclBinding("User:audit", AclOperation.READ, topic, "*"),
                AclBinding("User:intern", AclOperation.DELETE, topic, "*", permission_type=deny),
                AclBinding("User:*", AclOperation.DESCRIBE, AclResourceType.CLUSTER, "kafka-cluster"),
            ]
        )


async def _push(wire: Wire, member_id: str) -> None:
    """The member of the story pushes metrics."""
    await subscribe(wire, {"metrics": "org.apache.kafka.", "match": "client_id=billing-.*"}, "billing")
    latencies = [point(value, node_id=str(node)) for node, value in enumerate((0.8, 1.25, 7.5), 1)]
    pushed = message(
        gauge("org.apache.kafka.consumer.node.request.latency.avg", *latencies),
        gauge("org.apache.kafka.consumer.poll.idle.ratio.avg", point(0.92)),
        total("org.apache.kafka.consumer.fetch.manager.records.consumed.total", 2, point(70_514)),
        group_id=Orders.GROUP, group_member_id=member_id,
    )  # fmt: skip
    answer = await asked(wire, client_id="billing-1")
    await push(wire, answer, pushed, client_id="billing-1")


async def _trade(broker: BrokerServer, scene: Orders) -> None:
    """Orders come all the time; they are consumed while the first member has its partitions."""
    address = f"127.0.0.1:{broker.port}"
    ends: dict[int, int] = {}
    async with Producer(bootstrap_servers=address) as producer, await Wire.connect(broker.port) as wire:
        for number in range(100_000):
            order = {
                "order": 7_000 + number,
                "customer": f"c-{number * 37 % 911}",
                "total": number * 731 % 25_000 / 100,
            }
            sent = await producer.send_and_wait(Orders.TOPIC, json.dumps(order).encode(), key=str(number).encode())
            ends[sent.partition] = sent.offset + 1
            if scene.consuming and number % 5 == 0:
                await scene.first.commit(wire, Orders.TOPIC, ends)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def _story() -> AsyncIterator[BrokerServer]:
    """A broker with groups, topics, records and an open transaction."""
    with tempfile.TemporaryDirectory() as log_dir:
        broker = await start(log_dir, num_partitions="4", **_ACLS)
        wires = [await Wire.connect(broker.port) for _ in range(4)]
        tasks: list[asyncio.Task[None]] = []
        try:
            await _grant(broker)
            await make_topic(wires[3], Orders.TOPIC)
            for name, lag in (("fulfilment", 0), ("fraud-check", 120), ("search-index", 4_200), ("audit-archive", 0)):
                topic = f"{name}-in"
                await make_topic(wires[3], topic)
                await produce(wires[3], topic, 0, lag or 1)
                await commit(wires[3], name, topic, {0: 0 if lag else 1})
                wires.append(await Wire.connect(broker.port))
                await join_alone(wires[-1], name, topic, 0)
            names = ("billing-1", "billing-2", "billing-3")
            scene = Orders(*(RawMember(wire, Orders.GROUP, n) for wire, n in zip(wires, names, strict=False)))
            await scene.begin()
            tasks.append(asyncio.create_task(_trade(broker, scene)))
            await asyncio.sleep(5 * _PAUSE)
            await scene.second_joins()
            await asyncio.sleep(3 * _PAUSE)
            scene.consuming = False
            await scene.second.leave("consumer poll timeout has expired.")
            await asyncio.sleep(2 * _PAUSE)  # the first member is busy with its records
            await scene.alone()
            scene.consuming = True
            await asyncio.sleep(3 * _PAUSE)
            await scene.third_joins_and_dies()
            await commit(wires[3], Orders.GROUP + "-replay", "orders", {0: 0, 1: 0})
            await _push(wires[0], scene.first.member_id)
            address = f"127.0.0.1:{broker.port}"
            async with Producer(
                bootstrap_servers=address,
                transactional_id="payments-7",
                client_id="payments",
                transaction_timeout_ms=600_000,
            ) as paying:
                await paying.begin_transaction()
                for number in range(3):
                    await paying.send_and_wait(
                        "payments", json.dumps({"payment": number, "state": "captured"}).encode()
                    )
                await asyncio.sleep(3 * _PAUSE)
                yield broker
                await paying.abort_transaction()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for wire in wires:
                await wire.close()
            await broker.stop()


async def _console(browser: Any, bootstrap: str, folder: Path) -> None:
    """The console, with the past from ``__consumer_offsets`` as for Apache Kafka; and a report."""
    async with console(bootstrap, source="offsets", changes=True) as port:
        context = await browser.new_context(viewport={"width": 1280, "height": 1100}, color_scheme="light")
        page = await context.new_page()
        page.set_default_timeout(20_000)
        await page.goto(f"http://127.0.0.1:{port}/#/?token={TOKEN}")
        await page.get_by_role("link", name=Orders.GROUP, exact=True).click()
        await page.wait_for_selector(".band >> nth=4")
        await page.wait_for_selector("section table")
        await asyncio.sleep(5 * _PAUSE)  # the console's samples begin with its start
        await page.wait_for_selector(".curves:not(:has-text('not known'))")
        await page.screenshot(path=folder / "console-light.png")
        await page.goto(f"http://127.0.0.1:{port}/#/groups/{Orders.GROUP}-replay")
        await page.locator("#reset-to").select_option("latest")
        await page.locator("#reset button[type=submit]").click()
        await page.locator("#reset-execute").wait_for()
        await page.locator("#reset").screenshot(path=folder / "reset-light.png")
        for name, address, wanted in (
            ("topics", "#/topics", "td.c-rate:has-text('/s')"),
            ("topic", f"#/topics/{Orders.TOPIC}", "table.records td.one"),
            ("transactions", "#/transactions", "section table"),
            ("brokers", "#/brokers", "section table"),
            ("acls", "#/acls", "td.name"),
        ):
            await page.goto(f"http://127.0.0.1:{port}/{address}")
            await page.locator(wanted).first.wait_for()
            await page.screenshot(path=folder / f"console-{name}-light.png")
    file = folder / "report.html"
    command = ["groups", "report", Orders.GROUP, "-o", str(file), "-b", bootstrap]
    assert await asyncio.to_thread(main, command) == 0
    page = await (await browser.new_context(viewport={"width": 1280, "height": 980})).new_page()
    await page.goto(file.resolve().as_uri())
    await page.wait_for_selector(".band >> nth=4")
    await page.screenshot(path=folder / "report-light.png")


async def _shoot(page: Any, folder: Path, port: int, suffix: str) -> None:
    """All pages in one theme and width."""
    at = f"http://127.0.0.1:{port}/"
    for name, address, wanted in (
        ("groups", "#/", "td.name a"),
        ("group", f"#/groups/{Orders.GROUP}", ".band >> nth=4"),
        ("requests", f"#/groups/{Orders.GROUP}", ".band >> nth=4"),
        ("topics", "#/topics", "td.name a"),
        ("topic", f"#/topics/{Orders.TOPIC}", "table.records td.one"),
        ("transactions", "#/transactions", "section table"),
        ("broker", "#/broker", "section table"),
        ("clients", "#/client-metrics", "td.name a"),
        ("client", "#/client-metrics", "td.name a"),
        ("acls", "#/acls", "td.name"),
    ):
        await page.goto(at + address)
        await page.wait_for_selector(wanted)
        if name == "requests":
            await page.locator(".band").nth(2).click()
            listed = page.locator("section.requests")
            await listed.locator("tr:has-text('LeaveGroup')").wait_for()
            await listed.screenshot(path=folder / f"{name}-{suffix}.png")
            continue
        if name == "client":
            await page.locator("td.name a").first.click()
            await page.wait_for_selector("td.c-value")
        if name == "group":
            await page.wait_for_selector("section table")
            await page.wait_for_selector(".curve.lag", state="attached")
        if name == "groups":
            await page.wait_for_selector("td.c-consumed:has-text('/s')")
        if name == "topic":
            await page.locator("table.records td button").first.click()
            await page.wait_for_selector(".detail")
        if name in ("topics", "topic", "broker"):
            await page.wait_for_selector("td.numeric:has-text('/s')")
        await page.screenshot(
            path=folder / f"{name}-{suffix}.png", full_page=name not in ("group", "topic") or "600" in suffix
        )


async def _lists(browser: Any, folder: Path, port: int) -> None:
    """The list of groups at the widths where its columns change."""
    for width in _LIST_WIDTHS:
        context = await browser.new_context(viewport={"width": width, "height": 700})
        page = await context.new_page()
        await page.goto(f"http://127.0.0.1:{port}/")
        await page.wait_for_selector("td.name .why")
        await page.screenshot(path=folder / f"groups-list-{width}.png")
        await context.close()


async def write(folder: Path) -> None:
    """Write the screenshots into a folder: each page in light and dark, in two widths, and the list in more."""
    began = time.monotonic()
    async with _story() as broker, browsing() as browser:
        assert broker.http_port is not None
        for theme in ("light", "dark"):
            for width in _WIDTHS:
                context = await browser.new_context(
                    color_scheme=theme, viewport={"width": width, "height": 1010}, device_scale_factor=1
                )
                page = await context.new_page()
                page.set_default_timeout(20_000)
                suffix = theme if width == _WIDTHS[0] else f"{theme}-{width}"
                await _shoot(page, folder, broker.http_port, suffix)
                await context.close()
        await _lists(browser, folder, broker.http_port)
        await _console(browser, f"127.0.0.1:{broker.port}", folder)
    print(f"screenshots in {folder}, after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(write(target))
