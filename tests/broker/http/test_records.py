"""Topics, records, the broker and transactions as JSON: bounded reads, bytes of clients, what may be seen."""

import asyncio
import json
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import PartitionInfo, TopicInfo
from barnabas_broker.conditions import Conditions
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.http import json_rows as module
from barnabas_broker.http.cluster import one_broker
from barnabas_broker.http.json_rows import MOST_RECORDS, rows_of
from barnabas_broker.http.text import PIECE
from barnabas_broker.metrics import Histogram
from barnabas_client import Producer
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records import build_batch
from barnabas_protocol.wire import Buffer
from tests.broker.http.conftest import Http, StartBroker
from tests.broker.http.support import commit, make_topic, produce
from tests.wire import PATIENCE, Wire

TIME = 1_700_000_000_000
AFTER = "after: must be PARTITION:OFFSET, with commas between, for at most 16 partitions"


async def send(wire: Wire, topic: str, batch: Buffer, partition: int = 0) -> None:
    data = [PartitionProduceData(index=partition, records=bytes(batch))]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    answer = await wire.ask(request, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def offsets(found: dict[str, Any]) -> list[tuple[int, int]]:
    return [(each["partition"], each["offset"]) for each in found["records"]]


async def test_topics(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker(num_partitions="2")
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        await produce(wire, "t", 1, 7)
        (row,) = [each for each in (await http.get("/topics")).json["topics"] if each["topic"] == "t"]
        size = row.pop("size")
        assert size > 0
        assert row == {
            "topic": "t",
            "internal": False,
            "partitions": 2,
            "known": 2,
            "replicas": 1,
            "under_replicated": 0,
            "offline": 0,
            "records": 7,
            "end": 7,
            "configs": 0,
        }
        topic = (await http.get("/topics/t")).json
        assert (topic["topic"], topic["internal"], topic["shows_records"]) == ("t", False, True)
        assert topic["partitions"][1] == {
            "partition": 1,
            "leader": 1,
            "leader_epoch": 0,
            "replicas": [1],
            "isr": [1],
            "start": 0,
            "stable": 7,
            "end": 7,
            "size": size,
        }
        configs = {each["name"]: each for each in topic["configs"]}
        assert configs["cleanup.policy"] == {
            "name": "cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG", "default": True,
        }  # fmt: skip
        assert (await http.get("/topics/none")).json == {"error": "there is no topic none"}


async def test_the_last_records_are_shown_with_their_bytes(broker: BrokerServer, wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    hostile = bytes(range(256))
    rows = [(b"k", hostile, (("h<b>", b"\x1b[31m"), ("null", None)), TIME), (None, None, (), TIME + 1)]
    await send(wire, "t", build_batch(rows))
    found = (await http.get("/topics/t/records")).json
    assert offsets(found) == [(0, 0), (0, 1)]
    first, second = found["records"]
    assert b64decode(first["key"]["base64"]) == b"k"
    assert b64decode(first["value"]["base64"]) == hostile
    assert [(name, value and b64decode(value["base64"])) for name, value in first["headers"]] == [
        ("h<b>", b"\x1b[31m"),
        ("null", None),
    ]
    assert (second["key"], second["value"], second["timestamp"]) == (None, None, TIME + 1)
    assert (found["next"], found["gaps"], found["more_partitions"]) == ({"0": 2}, [], False)


async def test_reading_goes_on_after_what_was_read(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker(num_partitions="2")
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        for _ in range(3):
            await produce(wire, "t", 0, 10)
        await produce(wire, "t", 1, 1)
        found = (await http.get("/topics/t/records?count=8")).json
        # Four of each partition, the newest; sorted by time, which is that of the record.
        assert sorted(offsets(found)) == [(0, 26), (0, 27), (0, 28), (0, 29), (1, 0)]
        assert found["next"] == {"0": 30, "1": 1}
        assert (await http.get("/topics/t/records?after=0:30,1:1")).json["records"] == []
        await produce(wire, "t", 1, 2)
        assert offsets((await http.get("/topics/t/records?after=0:30,1:1")).json) == [(1, 1), (1, 2)]
        middle = (await http.get("/topics/t/records?partition=0&after=0:4&count=3")).json
        assert (offsets(middle), middle["next"]) == ([(0, 4), (0, 5), (0, 6)], {"0": 7})
        since = (await http.get(f"/topics/t/records?partition=0&since={TIME + 8}&count=3")).json
        assert offsets(since) == [(0, 8), (0, 9), (0, 10)]
        # Offsets beyond the log are its end; a time after the newest record is the end, too.
        assert (await http.get("/topics/t/records?partition=0&after=0:999999")).json["next"] == {"0": 30}
        assert (await http.get(f"/topics/t/records?partition=0&since={TIME * 2}")).json["next"] == {"0": 30}


async def test_every_read_is_bounded(broker: BrokerServer, wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    await send(wire, "t", build_batch([(b"k" * 5_000, b"v" * 50_000, ((("h" * 5_000), b"x" * 5_000),) * 30, TIME)] * 2))
    await produce(wire, "t", 0, 500)
    (first,) = (await http.get("/topics/t/records?after=0:0&count=1")).json["records"]
    assert (first["key"]["size"], len(b64decode(first["key"]["base64"]))) == (5_000, 512)
    assert (first["value"]["size"], len(b64decode(first["value"]["base64"]))) == (50_000, 4_096)
    assert (first["header_count"], len(first["headers"]), len(first["headers"][0][0])) == (30, 20, 512)
    found = (await http.get("/topics/t/records?count=999999")).json
    assert len(found["records"]) == MOST_RECORDS


async def test_a_batch_that_grows_too_much_is_an_error_in_its_place(
    wire: Wire, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(wire, "t")
    await send(wire, "t", build_batch([(None, b"\0" * 100_000, (), TIME)], compression="gzip"))
    await produce(wire, "t", 0, 1)
    monkeypatch.setattr(module, "_MOST_DECOMPRESSED", 10_000)
    bomb, after = (await http.get("/topics/t/records")).json["records"]
    assert bomb["kind"] == "error"
    assert "cannot be read" in bomb["error"]
    assert after["offset"] == 1


def test_what_is_no_batch_ends_a_read() -> None:
    good = build_batch([(None, b"a", (), TIME)])
    assert rows_of(good[:20], 0, 0, 5) == (0, [])
    following, rows = rows_of(good + good[:30], 0, 0, 5)
    assert (following, [row["offset"] for row in rows]) == (1, [0])
    assert rows_of(good, 0, 0, 5, lambda: True) == (0, [])


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("since=x", "since: must be a time in ms since 1970"),
        ("since=-1", "since: must be a time in ms since 1970"),
        ("count=1e9", "count: must be a number"),
        ("partition=" + "9" * 30, "partition: must be a number"),
        ("after=0", AFTER),
        ("after=0:x", AFTER),
        ("after=" + "0:1," * 17 + "1:1", AFTER),
    ],
)  # fmt: skip
async def test_a_query_that_cannot_be_read_is_400(wire: Wire, http: Http, query: str, error: str) -> None:
    await make_topic(wire, "t")
    response = await http.get(f"/topics/t/records?{query}")
    assert (response.status, response.json) == (400, {"error": error})


async def test_a_partition_that_is_not_here_is_404(wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    assert (await http.get("/topics/t/records?partition=99")).status == 404
    assert (await http.get("/topics/none/records")).status == 404


async def test_many_partitions_are_read_in_part(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker(num_partitions="20")
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        found = (await http.get("/topics/t/records")).json
        assert (found["partitions"], found["more_partitions"]) == (list(range(16)), True)
        assert (await http.get("/topics/t/records?partition=19")).json["partitions"] == [19]


@pytest.mark.parametrize(
    ("host", "settings", "show", "shown"),
    [
        ("127.0.0.1", {}, False, True),
        ("localhost", {}, False, True),
        ("0.0.0.0", {}, False, False),
        ("0.0.0.0", {}, True, True),
        ("127.0.0.1", {"sasl": "yes"}, False, False),
        ("127.0.0.1", {"sasl": "yes"}, True, True),
    ],
)
async def test_records_are_shown_to_those_who_could_read_them(
    tmp_path: Path, http: Http, host: str, settings: dict[str, str], show: bool, shown: bool
) -> None:
    given = {"log.dir": str(tmp_path)}
    if settings:
        login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
        given |= {
            "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
            "inter.broker.listener.name": "IN",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.out.plain.sasl.jaas.config": login,
        }
    config = Config(BROKER_KEYS, given)
    broker = await BrokerServer.start(
        config, port=0, http_host=host, http_port=0, http_show_records=show, http_insecure=host == "0.0.0.0"
    )
    http.broker = broker
    try:
        async with await Wire.connect(broker.port) as wire:
            await make_topic(wire, "t")
        response = await http.get("/topics/t/records")
        assert response.status == (200 if shown else 403)
        assert shown or "--http-show-records" in response.json["error"]
        assert (await http.get("/topics/t")).json["shows_records"] is shown
    finally:
        await broker.stop()


async def test_the_broker(broker: BrokerServer, wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 3)
    found = (await http.get("/broker")).json
    assert (found["node_id"], found["controller_id"], found["obstacles"], found["membership"]) == (1, 1, [], None)
    assert found["brokers"] == [
        {"node_id": 1, "address": f"127.0.0.1:{broker.port}", "rack": None, "leads": found["brokers"][0]["leads"],
         "replicas": found["brokers"][0]["leads"]}
    ]  # fmt: skip
    (api,) = [each for each in found["requests"] if each["api"] == "Produce"]
    assert sum(api["latency"]["counts"]) == 1
    assert len(api["latency"]["counts"]) == len(api["latency"]["bounds"]) + 1
    directory = found["log_directory"]
    assert directory["path"] == str(broker.directory.path.absolute())
    assert directory["disk_free_bytes"] > 0
    assert directory["size"] > 0
    assert found["cpu_seconds"] > 0


def test_the_broker_is_told_in_slices() -> None:
    """With 10,000 partitions in one topic, in 10,000 topics, and 10,000 logs: one step would hold the event loop."""
    partition = PartitionInfo(1, 0, (1, 2, 3), (1, 2, 3))
    wide = TopicInfo("t", bytes(16), (partition,) * 10_000)
    narrow = {f"t{n}": TopicInfo(f"t{n}", bytes(16), (partition,)) for n in range(10_000)}
    many = SimpleNamespace(size=7, damage=[SimpleNamespace(records=1)])
    traffic = SimpleNamespace(accepted=0, refused=0, dropped=0, bytes_in=0, bytes_out=0)
    view = SimpleNamespace(
        node_id=1,
        version="v",
        wall_ms=lambda: 0,
        member=lambda: None,
        obstacles=list,
        conditions=Conditions(),
        requests=[],
        cluster=SimpleNamespace(
            image=SimpleNamespace(
                topics={"t": wide} | narrow,
                cluster_id="c",
                controller_id=1,
                brokers={2: SimpleNamespace(node_id=2, address="a", rack=None)},
            )
        ),
        server=SimpleNamespace(traffic=traffic, connections=0),
        directory=SimpleNamespace(
            path=Path("d"), failure=None, shortage=None, strays=(), logs=dict.fromkeys(range(10_000), many)
        ),
    )
    pieces = one_broker(cast("Any", view), cast("Any", SimpleNamespace(lag=Histogram((1.0,)))), None)
    *turns, text = pieces
    assert set(turns) == {""}
    assert len(turns) >= 3 * 10_000 / PIECE
    found = json.loads(text)
    assert found["brokers"] == [{"node_id": 2, "address": "a", "rack": None, "leads": 0, "replicas": 20_000}]
    assert (found["log_directory"]["size"], found["log_directory"]["damaged_records"]) == (70_000, 10_000)


async def test_an_open_transaction_and_what_it_blocks(broker: BrokerServer, http: Http) -> None:
    empty = (await http.get("/transactions")).json
    assert (empty["open"], empty["blocked"], empty["loading"]) == ([], [], False)
    async with asyncio.timeout(PATIENCE):
        producer = Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", transactional_id="pay<b>", client_id="c")
        async with producer:
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"one")
            found = (await http.get("/transactions")).json
            (one,) = found["open"]
            assert (one["transactional_id"], one["state"], one["partitions"]) == ("pay<b>", "Ongoing", {"t": [0]})
            assert one["start_ms"] <= found["time"]
            (blocked,) = found["blocked"]
            assert (blocked["topic"], blocked["partition"], blocked["records"], blocked["open"]) == ("t", 0, 1, 1)
            assert blocked["producer"]["transactional_id"] == "pay<b>"
            assert blocked["producer"]["producer_id"] == one["producer_id"]
            await producer.commit_transaction()
            while (found := (await http.get("/transactions")).json)["blocked"]:
                pass
            assert found["open"] == []
            rows = (await http.get("/topics/t/records")).json["records"]
            assert [(row["kind"], row.get("marker")) for row in rows] == [("record", None), ("marker", "COMMIT")]


async def test_the_curves_of_a_group(broker: BrokerServer, wire: Wire, http: Http) -> None:
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 9)
    await commit(wire, "g", "t", {0: 4})
    async with asyncio.timeout(PATIENCE):
        while not (found := (await http.get("/groups/g/curves")).json)["times"]:
            pass
    assert found["lag"][-1] == 5
    assert found["kept"] is True
    later = (await http.get(f"/groups/g/curves?since={found['times'][-1] + 3_600_000}")).json
    assert later["times"] == []
    assert (await http.get("/groups/none/curves")).status == 404
    row = json.loads((await http.get("/groups")).text)["groups"][0]
    assert (row["lag"], row["lag_ms_exact"]) == (5, False)
