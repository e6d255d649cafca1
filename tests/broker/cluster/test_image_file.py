"""The cluster image as a file, and what a broker concludes from the one that it has kept."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from barnabas_broker.cluster.etcd_restore import EPOCH_STEP, Restorer, RestoreRefused, restored_image
from barnabas_broker.cluster.etcd_store import EtcdStore, read_history
from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerRegistered,
    ClientMetricsConfigured,
    GroupConfigured,
    Image,
    PartitionInfo,
    ProducerIdsAllocated,
    TopicCreated,
)
from barnabas_broker.cluster.image_file import (
    NAME,
    ImageFileError,
    ImageKeeper,
    SavedImage,
    format_image,
    parse_image,
    read_image,
    write_image,
)
from barnabas_broker.cluster.kv import Put
from barnabas_broker.cluster.member import lost_metadata
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.store import Restored
from tests.broker.cluster.test_store_contract import PREFIX
from tests.cluster.harness import eventually
from tests.lots import in_lots
from tests.sim.etcd_model import EtcdModel, Fault, ModelKv

IMAGE = Image("cluster").apply_all(
    [
        BrokerRegistered(1, {"PLAINTEXT": ("host", 9092)}, "rack", 70, "directory-1"),
        BrokerRegistered(2, {"PLAINTEXT": ("höst", 9093)}, None, 80, "directory-2"),
        TopicCreated("topic", b"i" * 16, (PartitionInfo(1, 7, (1, 2), (1,), 9, (2,), ()),), {"retention.ms": "5"}),
        BrokerConfigured("", {"log.retention.ms": "7"}),
        GroupConfigured("group", {"consumer.session.timeout.ms": "50000"}),
        ClientMetricsConfigured("all", {"metrics": "*"}),
        ProducerIdsAllocated(123_456_789),
    ]
)
SAVED = SavedImage(IMAGE, 41, (Restored("first", 12),))


def test_an_image_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert parse_image(format_image(SAVED)) == SAVED
    write_image(tmp_path / NAME, SAVED)
    assert read_image(tmp_path) == read_image(tmp_path / NAME) == SAVED
    assert [each.name for each in tmp_path.iterdir()] == [NAME]


def test_a_damaged_image_is_refused_at_every_byte() -> None:
    data = format_image(SAVED)
    for cut in range(len(data) - 2):
        with pytest.raises(ImageFileError):
            parse_image(data[:cut])
    for place in range(data.index(b"BrokerRegistered"), len(data) - 4):
        flipped = bytearray(data)
        flipped[place] ^= 1
        try:
            assert parse_image(bytes(flipped)) == SAVED  # a space between two values
        except ImageFileError:
            pass


@pytest.mark.parametrize("key", ["format", "version", "cluster_id", "sequence", "history", "crc32c", "events"])
@in_lots("value", [None, -1, "", [], {}, [[]], 1e400, "x", True])
def test_odd_fields_are_refused(key: str, value: object) -> None:
    fields = json.loads(format_image(SAVED)) | {key: value}
    with pytest.raises(ImageFileError):
        parse_image(json.dumps(fields).encode())


def test_a_file_that_is_missing_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImageFileError, match="cannot be read: No such file"):
        read_image(tmp_path)
    (tmp_path / NAME).write_bytes(b"[" * 1000)
    with pytest.raises(ImageFileError, match=r"cluster\.image is not a cluster image, or is damaged"):
        read_image(tmp_path)
    monkeypatch.setattr("barnabas_broker.cluster.image_file.MAX_BYTES", 100)
    with pytest.raises(ImageFileError, match="larger than 100 bytes"):
        read_image(tmp_path)


@pytest.mark.parametrize(
    ("sequence", "history", "lost"),
    [
        (41, ("first",), None),
        (40, ("first",), "has lost the metadata after batch 40, and this broker had applied batch 41"),
        (99, ("first", "second at 41"), None),
        (99, ("first", "second at 40"), "was restored to batch 40 of the metadata, and this broker had applied 41"),
        (99, (), "another history"),
        (99, ("other",), "another history"),
    ],
)
def test_what_a_broker_has_kept_must_be_in_etcd(sequence: int, history: tuple[str, ...], lost: str | None) -> None:
    restores = [
        Restored(name.partition(" ")[0], int(at)) if (at := name.rpartition(" ")[2]).isdigit() else Restored(name, 12)
        for name in history
    ]
    found = lost_metadata(SAVED, "cluster", sequence, restores)
    assert (found is None) if lost is None else (found is not None and lost in found)
    assert lost_metadata(SAVED, "other", sequence, restores) is not None


async def test_the_keeper_writes_the_newest_image(tmp_path: Path) -> None:
    kv = ModelKv(EtcdModel(), time.monotonic)
    cluster = ClusterMetadata(IMAGE, EtcdStore(kv, PREFIX, "me", time.monotonic), 41)
    keeper = ImageKeeper(tmp_path, cluster, SAVED.history, time.monotonic)
    working = asyncio.create_task(keeper.work())

    async def written() -> bool:
        return (tmp_path / NAME).exists()

    await eventually("the image is written", written)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await keeper.save()
    assert read_image(tmp_path) == SAVED


async def test_the_keeper_survives_a_disk_that_fails(tmp_path: Path) -> None:
    kv = ModelKv(EtcdModel(), time.monotonic)
    cluster = ClusterMetadata(IMAGE, EtcdStore(kv, PREFIX, "me", time.monotonic), 41)
    directory = tmp_path / "data"
    keeper = ImageKeeper(directory, cluster, SAVED.history, time.monotonic)
    await keeper.save()
    directory.mkdir()
    await keeper.save()
    assert read_image(directory) == SAVED


def test_a_restored_image_has_later_epochs_and_everything_else() -> None:
    restored = restored_image(IMAGE)
    (partition,) = restored.topics["topic"].partitions
    assert partition == PartitionInfo(1, 7 + EPOCH_STEP, (1, 2), (1,), 9 + EPOCH_STEP, (2,), ())
    assert restored.topics["topic"]._replace(partitions=()) == IMAGE.topics["topic"]._replace(partitions=())
    assert [broker.directory for broker in restored.brokers.values()] == ["directory-1", "directory-2"]
    assert (restored.next_producer_id, restored.broker_configs) == (IMAGE.next_producer_id, IMAGE.broker_configs)
    assert restored.group_configs == IMAGE.group_configs


def restorer(model: EtcdModel, *faults: Fault | None) -> Restorer:
    kv = ModelKv(model, time.monotonic)
    kv.faults = list(faults)
    return Restorer(kv, PREFIX, lambda: "second")


async def test_an_image_is_stored_in_an_empty_etcd() -> None:
    model = EtcdModel()
    kv = ModelKv(model, time.monotonic)
    plan = await restorer(model).plan(SAVED)
    assert (plan.found, model.entries) == (None, {})
    assert await restorer(model).execute(plan) == 42
    store = EtcdStore(kv, PREFIX, "me", time.monotonic)
    assert await store.cluster_id(None) == "cluster"
    loaded = await store.load()
    assert (loaded.sequence, Image("cluster").apply_all(loaded.events)) == (42, restored_image(IMAGE))
    assert await read_history(kv, PREFIX) == (Restored("first", 12), Restored("second", 41)) == store.history
    with pytest.raises(RestoreRefused, match="up to batch 42, and the image up to batch 41 only"):
        await restorer(model).plan(SAVED)


async def test_a_restore_after_a_lost_response_is_whole_or_absent() -> None:
    for step in range(3):
        model = EtcdModel()
        plan = await restorer(model).plan(SAVED)
        with pytest.raises(Exception, match="did not arrive"):
            await restorer(model, *[None] * step, Fault.LOST).execute(plan)
        store = EtcdStore(ModelKv(model, time.monotonic), PREFIX, "me", time.monotonic)
        assert await store.cluster_id(None) is None
        assert await restorer(model).execute(await restorer(model).plan(SAVED)) == 42
        assert (await store.load()).sequence == 42


async def test_restores_that_are_refused() -> None:
    model = EtcdModel()
    kv = ModelKv(model, time.monotonic)
    await kv.txn([], [Put(f"{PREFIX}cluster-id", b"other")])
    with pytest.raises(RestoreRefused, match="etcd has cluster other, the image is of cluster cluster"):
        await restorer(model).plan(SAVED)
    await kv.txn([], [Put(f"{PREFIX}cluster-id", b"cluster"), Put(f"{PREFIX}head", b"41")])
    with pytest.raises(RestoreRefused, match="up to batch 41"):
        await restorer(model).plan(SAVED)
    await kv.txn([], [Put(f"{PREFIX}head", b"40")])
    plan = await restorer(model).plan(SAVED)
    assert plan.found == 40
    await kv.txn([], [Put(f"{PREFIX}head", b"41")])
    with pytest.raises(RestoreRefused, match="has changed meanwhile"):
        await restorer(model).execute(plan)
    fields = {"node_id": 3, "endpoints": {"A": ["h", 1]}, "rack": None, "incarnation": "i", "directory": "d"}
    value = json.dumps({**fields, "leaving": False}).encode()
    await kv.txn([], [Put(f"{PREFIX}head", b"40"), Put(f"{PREFIX}live/broker/3", value)])
    with pytest.raises(RestoreRefused, match="1 broker is registered in etcd: 3"):
        await restorer(model).plan(SAVED)
