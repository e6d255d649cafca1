"""Paths, statuses and JSON of the HTTP endpoint; health and readiness, also after failures."""

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import LastKnown, PartitionInfo, TopicCreated
from barnabas_broker.files import RealFiles
from barnabas_broker.groups.journal import Journal
from barnabas_broker.replication.coordinator_logs import CoordinatorTopicLog
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_protocol.version import VERSION
from barnabas_protocol.wire import Buffer
from tests.broker.http.conftest import Http, StartBroker
from tests.broker.http.support import commit, join_alone, make_topic, produce
from tests.wire import PATIENCE, Wire

GROUP_PATHS = ["/groups", "/groups/g", "/groups/g/history"]


@pytest.mark.parametrize("path", ["/nothing", "/groups/", "/groups/a/b", "/metrics/", "/groups/g/history/x", "/%ff"])
async def test_an_unknown_path_is_404(broker: BrokerServer, http: Http, path: str) -> None:
    response = await http.get(path)
    assert response.status == 404
    assert response.json["error"] == "no such path"
    assert "/metrics" in response.json["paths"]


async def test_the_root_lists_the_paths(broker: BrokerServer, http: Http) -> None:
    index = (await http.get("/")).json
    assert (index["node_id"], index["version"]) == (1, VERSION)
    documented = (Path(__file__).parents[3] / "docs" / "observing.md").read_text()
    for path, description in index["paths"].items():
        assert description
        assert f"| `{path}` |" in documented
        assert (await http.get(path.replace("{id}", "g").replace("{topic}", "t"))).status == (
            404 if "{" in path else 200
        )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_only_get_and_head_are_answered(broker: BrokerServer, http: Http, method: str) -> None:
    response = await http.get("/groups", method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert response.json == {"error": "only GET and HEAD are answered"}


@pytest.mark.parametrize("path", ["/", "/metrics", "/groups", "/groups/g", "/healthz", "/readyz", "/nothing"])
async def test_head_is_get_without_the_body(broker: BrokerServer, http: Http, path: str) -> None:
    get, head = await http.get(path), await http.get(path, "HEAD")
    assert (head.status, head.text) == (get.status, "")
    assert head.headers["Content-Type"] == get.headers["Content-Type"]
    if path != "/metrics":  # the values change, and so may the length
        assert head.headers["Content-Length"] == get.headers["Content-Length"] == str(len(get.text))


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/groups", "/groups/g", "/groups/g/history", "/healthz", "/readyz", "/nothing"]
)
async def test_every_response_ends_with_one_newline(wire: Wire, http: Http, path: str) -> None:
    await make_topic(wire, "t")
    await commit(wire, "g", "t", {0: 0})
    text = (await http.get(path)).text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


async def test_groups(wire: Wire, http: Http) -> None:
    assert (await http.get("/groups")).json == {"unloaded_partitions": [], "groups": []}
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    await join_alone(wire, "g", "t", 0)
    await commit(wire, "simple", "t", {0: 1})
    groups = {each["group"]: each for each in (await http.get("/groups")).json["groups"]}
    assert all(isinstance(each.pop("findings"), list) for each in groups.values())
    assert groups["simple"] == {
        "group": "simple",
        "type": "classic",
        "state": "Empty",
        "generation": 0,
        "protocol_type": None,
        "protocol": None,
        "members": 0,
        "lag": 4,
        "unstable_lag": 0,
        "lag_ms": None,
        "lag_ms_exact": True,
        "commit_rate": None,
        "produce_rate": None,
        "health": "no members",
        "health_reason": "4 records are not consumed.",
        "storm_score": 0,
    }
    assert groups["g"] == {
        "group": "g",
        "type": "classic",
        "state": "Stable",
        "generation": 1,
        "protocol_type": "consumer",
        "protocol": "range",
        "members": 1,
        "lag": None,
        "unstable_lag": None,
        "lag_ms": None,
        "lag_ms_exact": True,
        "commit_rate": None,
        "produce_rate": None,
        "health": "ok",
        "health_reason": "",
        "storm_score": 5,
    }


async def test_a_group(wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    await commit(wire, "g", "t", {0: 3})
    member_id = await join_alone(wire, "g", "t", 0)
    response = (await http.get("/groups/g")).json
    assert response["group"] == "g"
    assert response["state"] == "Stable"
    assert response["leader"] == member_id
    assert response["coordinator"]["node_id"] == 1
    assert response["seconds_in_state"] >= 0
    (member,) = response["members"]
    assert 0 <= member.pop("heard_ago_ms") < 20_000
    assert member == {
        "member_id": member_id,
        "client_id": "test",
        "host": "/127.0.0.1",
        "instance_id": None,
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "waits_for_broker": False,
        "assignment": {"t": [0]},
        "client_metrics": None,
    }
    (offset,) = response["offsets"]
    assert offset.pop("committed_ms") > 1_600_000_000_000
    assert offset == {
        "topic": "t",
        "partition": 0,
        "current_offset": 3,
        "log_end_offset": 5,
        "last_stable_offset": 5,
        "lag": 2,
        "unstable_lag": 0,
        "member_id": member_id,
        "metadata": "mark",
    }


async def test_the_history_of_a_group(wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    member_id = await join_alone(wire, "g", "t", 0)
    response = (await http.get("/groups/g/history")).json
    assert response["group"] == "g"
    types = [event["type"] for event in response["events"]]
    assert types.index("rebalance_started") < types.index("rebalance_over")
    started = response["events"][types.index("rebalance_started")]
    assert started["cause"] == "member_joined"
    assert started["by"][0]["member_id"] == member_id
    await commit(wire, "simple", "t", {0: 0})
    assert (await http.get("/groups/simple/history")).json == {"group": "simple", "events": []}


@pytest.mark.parametrize("path", ["/groups/nobody", "/groups/nobody/history"])
async def test_an_unknown_group_is_404(wire: Wire, http: Http, path: str) -> None:
    await make_topic(wire, "t")
    await commit(wire, "g", "t", {0: 0})
    response = await http.get(path)
    assert (response.status, response.json) == (404, {"error": "this broker has no group nobody"})


@pytest.mark.parametrize(
    ("name", "path"),
    [("a/b", "a%2Fb"), ("ä b?", "%C3%A4%20b%3F"), ("50%", "50%25"), ("history", "history"), ('"\\', "%22%5C")],
)
async def test_any_group_name_works_in_a_path(wire: Wire, http: Http, name: str, path: str) -> None:
    await make_topic(wire, "t")
    await commit(wire, name, "t", {0: 0})
    assert (await http.get(f"/groups/{path}")).json["group"] == name
    assert (await http.get(f"/groups/{path}/history")).json["group"] == name


async def test_health(broker: BrokerServer, http: Http) -> None:
    response = await http.get("/healthz")
    assert (response.status, response.json["status"], response.json["node_id"]) == (200, "ok", 1)
    response = await http.get("/readyz")
    assert (response.status, response.json) == (200, {"status": "ready"})


async def test_a_broker_is_ready_and_names_partitions_that_wait_for_other_brokers(
    broker: BrokerServer, http: Http
) -> None:
    partitions = tuple(
        PartitionInfo(-1, 5, (1, number), (number,), last_known=(LastKnown(1, ""),)) for number in range(2, 32)
    )
    cluster = broker.services.cluster
    cluster.image = cluster.image.apply(TopicCreated("t", bytes(range(16)), partitions, {}))
    response = await http.get("/readyz")
    assert response.status == 200
    assert response.json["partitions_without_leader"] == 30
    assert len(response.json["waiting"]) == 20
    assert response.json["waiting"][1] == {
        "topic": "t",
        "partition": 1,
        "awaited": [3],
        "bounded": True,
        "last_known": [1],
    }


async def test_the_broker_is_not_ready_while_offsets_are_loaded(
    start_broker: StartBroker, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await start_broker()
    async with await Wire.connect(first.port) as wire:
        await make_topic(wire, "t")
        await commit(wire, "g", "t", {0: 0})
    await first.stop()
    gate = asyncio.Event()
    read = CoordinatorTopicLog.read

    async def slowly(self: CoordinatorTopicLog, partition: int, offset: int) -> Buffer:
        await gate.wait()
        return await read(self, partition, offset)

    monkeypatch.setattr(CoordinatorTopicLog, "read", slowly)
    await start_broker()
    response = await http.get("/readyz")
    assert response.status == 503
    assert response.json["status"] == "not ready"
    (reason,) = response.json["reasons"]
    assert "__consumer_offsets are not loaded" in reason
    assert (await http.get("/healthz")).status == 200
    assert (await http.get("/groups")).json["unloaded_partitions"]
    for path in GROUP_PATHS[1:]:
        response = await http.get(path)
        assert (response.status, response.json) == (503, {"error": "group g is being loaded"})
    gate.set()
    async with asyncio.timeout(PATIENCE):
        while (await http.get("/readyz")).status != 200:
            pass
    assert (await http.get("/groups/g")).json["group"] == "g"


async def test_the_broker_is_not_ready_when_the_disk_has_failed(
    wire: Wire, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(wire, "t")

    def fail(self: RealFiles, handle: int, buffers: Sequence[Buffer], position: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(RealFiles, "write", fail)
    assert await produce(wire, "t", 0, 1) == ErrorCode.KAFKA_STORAGE_ERROR
    response = await http.get("/readyz")
    assert response.status == 503
    assert "is offline" in response.json["reasons"][0]
    assert "Input/output error" in response.json["reasons"][0]
    (condition,) = response.json["conditions"]
    assert condition == {"condition": "disk_offline", "text": response.json["reasons"][0]}
    assert (await http.get("/healthz")).status == 200
    metrics = (await http.get("/metrics")).text
    assert "\nbarnabas_log_directory_online 0\n" in metrics
    assert '\nbarnabas_condition{condition="disk_offline"} 1\n' in metrics
    assert '\nbarnabas_condition{condition="disk_full"} 0\n' in metrics
    described = await wire.ask(
        DescribeClusterRequest(include_cluster_authorized_operations=False), 2, DescribeClusterResponse
    )
    assert (described.error_code, described.error_message) == (0, f"disk_offline: {condition['text']}")


async def test_the_broker_is_not_ready_while_it_stops(broker: BrokerServer, http: Http) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    fetch = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])])
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        hosted = broker.services.replicas.find("t", 0)
        wire.send(fetch, 11)
        async with asyncio.timeout(PATIENCE):
            while not hosted.waiting:
                await http.get("/healthz")
        # The fetch waits for data, and the stop waits for the fetch.
        stopping = asyncio.create_task(broker.stop())
        response = await http.get("/readyz")
        assert (response.status, response.json["reasons"]) == (503, ["the broker is shutting down"])
        for delayed in list(hosted.waiting):
            delayed.wake()
        await stopping


async def test_an_error_shows_no_internals(broker: BrokerServer, http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Journal, group_id: str) -> list[dict[str, Any]]:
        raise RuntimeError("a secret")

    monkeypatch.setattr(Journal, "recent", broken)
    response = await http.get("/groups/g/history")
    assert (response.status, response.json) == (500, {"error": "internal error, see the broker's log"})
    assert (await http.get("/healthz")).status == 200


@pytest.mark.parametrize(
    "garbage", [b"\x00\x00\x00\x10what\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nA" + b"x" * 10_000 + b"\r\n\r\n"]
)
async def test_malformed_http_is_rejected_without_a_traceback(broker: BrokerServer, http: Http, garbage: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
        writer.write(garbage)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.")
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert b"Traceback" not in answer
    assert b".py" not in answer
    assert (await http.get("/healthz")).status == 200
