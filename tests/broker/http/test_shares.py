"""Share groups over HTTP: the list, and the window of each share partition."""

from typing import Any

from barnabas_client import Admin, TopicPartition
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
        (lock,) = first.pop("locks")
        assert 0 < lock.pop("expires_in_ms") <= 30_000
        assert lock == {"first_offset": 1, "last_offset": 4, "delivery_count": 1, "member_id": "worker-1"}
        assert first == {
            "topic": "t",
            "partition": 0,
            "start_offset": 1,
            "log_end_offset": 5,
            "lag": 4,
            "available": 0,
            "acquired": 4,
            "blocked_by": {"offset": 1, "member_id": "worker-1"},
        }
        assert (second["acquired"], second["blocked_by"], second["locks"]) == (0, None, [])
    for path, status in (("chart", 200), ("curves", 200), ("requests", 200), ("history", 200)):
        assert (await http.get(f"/groups/queue/{path}")).status == status
    assert (await http.get("/groups/other")).status == 404
