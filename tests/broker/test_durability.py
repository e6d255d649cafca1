"""What survives a kill or a stop of a broker, and who may read its files."""

import asyncio
import os
import stat
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker import stores
from barnabas_broker.broker import BrokerServer
from barnabas_broker.clock import Clock
from barnabas_broker.cluster import ClusterError
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.files import Files, RealFiles
from barnabas_broker.storage import LogDirectory, Threads, TopicPartition
from barnabas_broker.storage.disk import remove_tree
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.broker.http.support import make_topic, produce
from tests.broker.storage.support import TOPIC_ID, batch, topic_config
from tests.copies import copy_tree
from tests.wire import PATIENCE, Wire


def config(directory: Path, **given: str) -> Config:
    return Config(
        BROKER_KEYS, {"log.dir": str(directory)} | {key.replace("_", "."): text for key, text in given.items()}
    )


async def test_deleted_records_stay_deleted_after_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    broker = await BrokerServer.start(config(directory, num_partitions="3"), port=0)
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        for index in range(3):
            assert await produce(wire, "t", index, 20) == 0
        partitions = [DeleteRecordsPartition(partition_index=index, offset=13) for index in range(2)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=30_000)
        answer = await wire.ask(request, 2, DeleteRecordsResponse)
        got = [(each.error_code, each.low_watermark) for each in answer.topics[0].partitions]
        assert got == [(ErrorCode.NONE, 13)] * 2
        # What a killed process leaves.
        copy_tree(directory, tmp_path / "killed")
    await broker.stop()
    again = LogDirectory.open(tmp_path / "killed", config(tmp_path), node_id=1, now_ms=0)
    assert [again.logs[TopicPartition("t", index)].log_start_offset for index in range(3)] == [13, 13, 0]
    again.close(0)


def modes(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}


@pytest.mark.parametrize(("given", "folder", "file"), [({}, 0o700, 0o600), ({"log_dir_mode": "0750"}, 0o750, 0o640)])
async def test_only_the_owner_reads_the_data(tmp_path: Path, given: dict[str, str], folder: int, file: int) -> None:
    before = os.umask(0)
    try:
        broker = await BrokerServer.start(config(tmp_path / "data", **given), port=0)
        async with await Wire.connect(broker.port) as wire:
            await make_topic(wire, "t")
        await broker.stop()
    finally:
        os.umask(before)
    found = modes(tmp_path)
    assert len(found) > 10
    assert {
        name: mode for name, mode in found.items() if mode != (folder if (tmp_path / name).is_dir() else file)
    } == {}


async def test_only_the_owner_reads_the_image_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Files] = []

    class Connection:
        async def cluster_id(self, *_: object) -> str:
            return "c" * 22

        async def load(self, *_: object, files: Files, **__: object) -> None:
            given.append(files)
            raise ClusterError("it is not there")

        async def close(self) -> None:
            pass

    monkeypatch.setattr(stores, "open_cluster", lambda _: Connection())
    wanted = config(tmp_path / "data", log_dir_mode="0750", cluster_url="etcd://127.0.0.1:1")
    async with AsyncExitStack() as stack:
        with pytest.raises(ClusterError):
            await stores.open_stores(stack, wanted, 1, {}, Clock())
    handle = given[0].open(tmp_path / "image", create=True)
    given[0].close(handle)
    assert stat.S_IMODE((tmp_path / "image").stat().st_mode) == 0o600


def test_a_deletion_does_not_follow_links(tmp_path: Path) -> None:
    outside, partition, other = tmp_path / "outside", tmp_path / "partition", tmp_path / "linked"
    for folder in (outside, partition):
        folder.mkdir()
        (folder / "file").write_text("precious")
    (partition / "link").symlink_to(outside)
    (partition / "link to file").symlink_to(outside / "file")
    other.symlink_to(outside)
    remove_tree(RealFiles(), partition)
    remove_tree(RealFiles(), other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert (outside / "file").read_text() == "precious"


async def test_a_flush_that_ends_during_a_stop_begins_no_other(tmp_path: Path) -> None:
    class Slow(RealFiles):
        """An fsync that goes on until the stop waits for it."""

        stopping = threading.Event()

        def sync(self, handle: int) -> None:
            if threading.current_thread() is not threading.main_thread():
                assert self.stopping.wait(PATIENCE)
            super().sync(handle)

    class Closing(Threads):
        def close(self) -> None:
            Slow.stopping.set()
            super().close()

    errors: list[dict[str, Any]] = []
    seen: Callable[..., None] = lambda loop, context: errors.append(context)  # noqa: E731
    asyncio.get_running_loop().set_exception_handler(seen)
    directory = LogDirectory.open(tmp_path, config(tmp_path), node_id=1, now_ms=0, files=Slow(), background=Closing())
    log = directory.create(TopicPartition("t", 0), TOPIC_ID, topic_config({"flush.messages": "1"}), 0)
    for _ in range(3):
        log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=0)
    log.roll(0)
    directory.close(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert errors == []
