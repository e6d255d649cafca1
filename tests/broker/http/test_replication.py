"""Metrics and readiness of a broker in a cluster: its lease and its replicas."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import Event, Image, PartitionChanged, PartitionInfo, TopicCreated, TopicInfo
from barnabas_broker.conditions import Conditions
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.http.metrics import _broker, _led
from barnabas_broker.http.text import PIECE
from barnabas_broker.http.view import View
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.storage import LogDirectory, TopicPartition
from barnabas_broker.storage.corruption import Damage
from tests.broker.http.conftest import Http, StartBroker
from tests.broker.http.support import make_topic
from tests.broker.http.test_metrics import at, scrape
from tests.cluster.harness import SHORT_LEASE, Etcd, eventually
from tests.wire import Wire

REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"


def partition(*isr: int, leader: int = 1, epoch: int = 0, partition_epoch: int = 0) -> PartitionInfo:
    return PartitionInfo(leader, epoch, (1, 2, 3), isr, partition_epoch)


async def change(broker: BrokerServer, *events: Event) -> None:
    """Apply cluster events to a broker."""

    def decide(image: Image) -> tuple[list[Event], None]:
        return list(events), None

    await broker.services.cluster.change(decide)


async def test_partitions_are_counted(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    partitions = (
        partition(1, 2, 3),
        partition(1, 2),
        partition(1),
        partition(2, leader=2),
        partition(1, leader=-1),
    )
    await change(broker, TopicCreated("t", b"t" * 16, partitions, {"min.insync.replicas": "2"}))
    _, samples = await scrape(http)
    found = {name.removeprefix(REPLICAS): value for (name, _), value in samples.items() if name.startswith(REPLICAS)}
    assert found == {
        "partitioncount": 5,
        "leadercount": 3,
        "underreplicatedpartitions": 2,
        "underminisrpartitioncount": 1,
        "atminisrpartitioncount": 1,
        "isrshrinks_total": 0,
        "isrexpands_total": 0,
    }
    found = {
        name.removeprefix(CONTROLLER): value for (name, _), value in samples.items() if name.startswith(CONTROLLER)
    }
    assert found == {
        "activecontrollercount": 1,
        "globalpartitioncount": 5,
        "offlinepartitionscount": 1,
        "preferredreplicaimbalancecount": 2,
    }
    assert at(samples, "barnabas_controller_id") == 1
    assert at(samples, "barnabas_registered") is None, "a single broker has no lease"


def test_the_partitions_of_a_broker_are_walked_in_slices() -> None:
    """With 10,000 partitions in one topic and 10,000 topics: one step would hold the event loop."""
    info = partition(1, 2, 3)
    replica = SimpleNamespace(leading=object(), info=info, min_isr=4)
    names = [f"t{n}" for n in range(10_000)]
    replicas = ReplicaManager.__new__(ReplicaManager)
    replicas.isr_shrinks = replicas.isr_expands = 0
    replicas._replicas = cast(
        "Any", {name: {0: replica} for name in names} | {"t": dict.fromkeys(range(10_000), replica)}
    )
    bad = Damage(0, 10, 5, 7, Path("f"), "r")
    logs = dict.fromkeys((TopicPartition("t", n) for n in range(20_000)), SimpleNamespace(damage=[]))
    logs[TopicPartition("t", 19_998)] = SimpleNamespace(damage=[bad])
    topics = {name: TopicInfo(name, bytes(16), (info,)) for name in names}
    topics["t"] = TopicInfo("t", bytes(16), (partition(leader=-1), *((info,) * 9_999)))
    view = View.__new__(View)
    view.node_id, view.version, view.lifecycle, view.replicas = 1, "v", None, replicas
    view.directory = cast("Any", SimpleNamespace(logs=logs, failure=None))
    view.groups = cast("Any", SimpleNamespace(loaded=()))
    view.conditions = Conditions()
    image = cast("Any", SimpleNamespace(topics=topics, brokers={}, fenced={}, controller_id=-1, cluster_id="c"))
    view.cluster = cast("Any", SimpleNamespace(image=image, may_serve=lambda: True))
    turns = 20_000 // PIECE

    damaged = list(view.damage())
    assert damaged.count(None) == turns
    assert [each["offset"] for each in damaged if each is not None] == [5]
    waiting = list(view.waiting())
    assert waiting.count(None) == turns
    assert [(each["topic"], each["partition"]) for each in waiting if each is not None] == [("t", 0)]
    for part, shown in (
        (_led(view), f"{REPLICAS}underminisrpartitioncount 20000\n"),
        (_broker(view, image), 'barnabas_log_damaged_records{topic="t",partition="19998"} 2\n'),
    ):
        pieces = list(part)
        assert pieces.count("") == turns
        assert shown in "".join(pieces)
    # Replicas and logs may go while others are shown.
    walk, damage = _led(view), view.damage()
    next(walk)
    next(damage)
    replicas._replicas.clear()
    logs.clear()
    assert list(walk)
    assert not [each for each in damage if each is not None]


async def test_controller_metrics_are_0_on_other_brokers(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    await change(broker, TopicCreated("t", b"t" * 16, (partition(1, leader=-1),), {}))
    broker.services.cluster.may_serve = lambda: False
    _, samples = await scrape(http)
    assert at(samples, f"{CONTROLLER}activecontrollercount") == 0
    assert at(samples, f"{CONTROLLER}offlinepartitionscount") == 0


def test_isrs_that_shrink_and_grow_are_counted(tmp_path: Path) -> None:
    config = Config(BROKER_KEYS, {})
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
    replicas = ReplicaManager(directory, config, 1, lambda: 0, now=lambda: 0.0)
    image = Image("cluster").apply(TopicCreated("t", b"t" * 16, (partition(1, 2, 3),), {}))
    replicas.start(image)
    for number, info in enumerate(
        [
            partition(1, 2, partition_epoch=1),
            partition(1, partition_epoch=2),
            partition(1, 3, partition_epoch=3),
            partition(3, leader=3, epoch=1, partition_epoch=4),
            partition(1, 3, leader=3, epoch=1, partition_epoch=5),
        ]
    ):
        event = PartitionChanged("t", 0, info)
        image = image.apply(event)
        replicas.image_changed(image, [event])
        assert (replicas.isr_shrinks, replicas.isr_expands) == [(1, 0), (2, 0), (2, 1), (2, 1), (2, 1)][number]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd for fault injection."""
    server = Etcd(tmp_path)
    yield server
    server.kill()


@pytest.mark.cluster
async def test_readiness_follows_the_lease(etcd: Etcd, start_broker: StartBroker, http: Http) -> None:
    key, _, value = SHORT_LEASE.partition("=")
    broker = await start_broker(**{key.replace(".", "_"): value, "cluster_url": f"etcd://127.0.0.1:{etcd.port}/http"})

    def ready(expected: int) -> Callable[[], Awaitable[bool]]:
        async def look() -> bool:
            return (await http.get("/readyz")).status == expected

        return look

    await eventually("it is ready", ready(200))
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
    health = (await http.get("/healthz")).json["cluster"]
    _, samples = await scrape(http)
    assert health["registered"] is True
    assert health["controller_id"] == at(samples, "barnabas_controller_id") == 1
    assert health["broker_epoch"] == at(samples, "barnabas_broker_epoch")
    assert at(samples, "barnabas_registered") == 1
    assert 0 <= health["lease_remaining_ms"] <= int(value)
    age, remaining = at(samples, "barnabas_lease_age_seconds"), at(samples, "barnabas_lease_remaining_seconds")
    assert age is not None and age >= 0
    assert remaining is not None and remaining * 1000 <= int(value)

    await asyncio.to_thread(etcd.kill)
    await eventually("it is not ready", ready(503))
    not_ready = (await http.get("/readyz")).json
    (reason,) = not_ready["reasons"]
    assert reason.startswith("the broker's lease is not renewed, or the cluster has not taken note of it yet: ")
    conditions = {each["condition"]: each["text"] for each in not_ready["conditions"]}
    assert conditions["lease_not_renewed"] == reason
    assert "No leader can change" in conditions["metadata_unreachable"]
    health = await http.get("/healthz")
    assert health.status == 200, "that is no reason to restart it"
    assert health.json["cluster"]["serving"] is False
    assert health.json["cluster"]["lease_remaining_ms"] == 0
    _, samples = await scrape(http)
    assert at(samples, "barnabas_serving") == 0
    await asyncio.to_thread(etcd.start)
    await eventually("it is ready again", ready(200))
