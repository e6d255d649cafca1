"""Share groups over HTTP: the list, and the window of each share partition."""

import re
from typing import Any

import pytest

from barnabas_broker.groups.share.partition import Acknowledged
from barnabas_broker.http import shares
from barnabas_broker.http.sampler import Sampler
from barnabas_client import Admin, TopicPartition
from barnabas_explain.catalog import ShareRecordsReleased
from tests.broker.http.conftest import Http, StartBroker
from tests.broker.http.support import make_topic, produce
from tests.client.share_member import share_member
from tests.wire import Wire


async def test_a_share_group_is_listed_and_its_windows_are_shown(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker(num_partitions="2")
    servers = f"127.0.0.1:{broker.port}"
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        await produce(wire, "t", 0, 5)

    async def listed() -> dict[str, Any]:
        (group,) = (await http.get("/groups")).json["groups"]
        return {key: group[key] for key in ("group", "type", "state", "members", "lag", "health")}

    async with share_member(servers, "queue", "t"):
        assert await listed() == {
            "group": "queue",
            "type": "share",
            "state": "Stable",
            "members": 1,
            "lag": None,
            "health": "ok",
        }
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.alter_share_group_offsets("queue", {TopicPartition("t", 0): 1})
    empty = await listed()
    assert (empty["state"], empty["members"], empty["lag"], empty["health"]) == ("Empty", 0, 4, "no members")
    async with share_member(servers, "queue", "t", "worker-1") as member:
        assert await member.acquire() == 4
        group = (await http.get("/groups/queue")).json
        assert (group["type"], group["state"], group["lag"]) == ("share", "Stable", 4)
        (described,) = group["members"]
        assert (described["member_id"], described["client_id"], described["assignment"]) == (
            "worker-1",
            "worker",
            {"t": [0, 1]},
        )
        first, second = group["offsets"]
        (part,) = first.pop("window")
        assert 0 < part.pop("expires_in_ms") <= 30_000
        one: dict[str, Any] = {"state": "acquired", "delivery_count": 1, "member_id": "worker-1"}
        assert part == {"first_offset": 1, "last_offset": 4, **one}
        assert first == {
            "topic": "t",
            "partition": 0,
            "start_offset": 1,
            "end_offset": 5,
            "log_end_offset": 5,
            "lag": 4,
            "available": 0,
            "acquired": 4,
            "full": False,
            "blocked_by": {"offset": 1, "member_id": "worker-1"},
            "more_parts": 0,
        }
        assert (second["acquired"], second["blocked_by"], second["window"]) == (0, None, [])
    for path, status in (("chart", 200), ("curves", 200), ("requests", 200), ("history", 200)):
        assert (await http.get(f"/groups/queue/{path}")).status == status
    assert (await http.get("/groups/other")).status == 404


async def test_the_parts_of_windows_are_bounded(
    start_broker: StartBroker, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        await produce(wire, "t", 0, 9)
    servers = f"127.0.0.1:{broker.port}"
    async with share_member(servers, "queue", "t"):
        pass
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.alter_share_group_offsets("queue", {TopicPartition("t", 0): 0})
    async with share_member(servers, "queue", "t", "worker-1") as member:
        assert await member.acquire() == 9
        (hosted,) = [each for each in broker.services.queues.hosted if each.place.group == "queue"]
        await hosted.acknowledge("worker-1", [Acknowledged(0, 8, [2, 1, 2, 1, 2, 1, 2, 1, 2])])
        monkeypatch.setattr(shares, "_MOST_PARTS", 3)
        (row,) = (await http.get("/groups/queue")).json["offsets"]
        states = [(part["state"], part["first_offset"]) for part in row["window"]]
        assert states == [("available", 0), ("acknowledged", 1), ("available", 2)]
        assert row["more_parts"] == 6
        monkeypatch.setattr(shares, "_MOST_OF_GROUP", 2)
        (row,) = (await http.get("/groups/queue")).json["offsets"]
        assert (len(row["window"]), row["more_parts"]) == (2, 7)


async def test_the_lag_and_the_age_of_the_oldest_record_are_metrics(
    start_broker: StartBroker, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()
    servers = f"127.0.0.1:{broker.port}"
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        async with share_member(servers, "queue", "t"):
            pass
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.alter_share_group_offsets("queue", {TopicPartition("t", 0): 0})
        await Sampler(broker.view).sample()
        await produce(wire, "t", 0, 3)
    async with share_member(servers, "queue", "t", "worker-1") as member:
        assert await member.acquire() == 3
        (hosted,) = [each for each in broker.services.queues.hosted if each.place.group == "queue"]
        await hosted.acknowledge("worker-1", [Acknowledged(2, 2, [1])])
        await Sampler(broker.view).sample()
        text = (await http.get("/metrics")).text
        assert 'barnabas_share_group_lag{consumergroup="queue"} 2' in text
        (age,) = re.findall(r'barnabas_share_group_oldest_seconds\{consumergroup="queue"\} ([0-9.]+)', text)
        assert float(age) > 0
        (group,) = (await http.get("/groups")).json["groups"]
        assert (group["lag"], group["lag_ms"] > 0) == (2, True)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(type(broker.services.groups.share_groups), "all", lambda _: [])
            text = (await http.get("/metrics")).text
            assert 'barnabas_share_group_lag{consumergroup="queue"} 2' in text, "another broker coordinates the group"
        await hosted.acknowledge("worker-1", [Acknowledged(0, 1, [1])])
        text = (await http.get("/metrics")).text
        assert 'barnabas_share_group_lag{consumergroup="queue"} 0' in text
        assert 'barnabas_share_group_oldest_seconds{consumergroup="queue"} 0' in text


async def test_records_that_come_back_are_findings(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
    async with share_member(f"127.0.0.1:{broker.port}", "queue", "t"):
        broker.services.groups.journal.add(
            ShareRecordsReleased(
                generation=1,
                group="queue",
                time=broker.view.wall_ms(),
                topic="t",
                partition=0,
                records=1,
                first_offset=7,
                last_offset=7,
                deliveries=4,
            )
        )
        await Sampler(broker.view).sample()
        (group,) = (await http.get("/groups")).json["groups"]
        (found,) = group["findings"]
        assert (found["kind"], found["severity"]) == ("share_records_released", "odd")
        metrics = (await http.get("/metrics")).text
        assert 'barnabas_group_finding{consumergroup="queue",finding="share_records_released"} 1\n' in metrics
