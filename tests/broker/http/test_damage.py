"""A broker whose files were damaged: groups are coordinated, the rest is served, and the damage is shown."""

import asyncio
import shutil
from pathlib import Path

import pytest

from barnabas_broker.storage.inspect import DumpedBatch, dump
from tests.broker.http.conftest import Http, StartBroker
from tests.broker.http.support import commit, make_topic
from tests.sampling import slow
from tests.wire import PATIENCE, Wire

PARTITIONS = 12


async def committed(http: Http, group: str) -> dict[int, int]:
    answer = (await http.get(f"/groups/{group}")).json
    return {
        each["partition"]: each["current_offset"] for each in answer["offsets"] if each["current_offset"] is not None
    }


@pytest.mark.parametrize("clean", [True, slow(False)])
async def test_commits_around_flipped_bits_are_kept(
    start_broker: StartBroker, http: Http, tmp_path: Path, clean: bool
) -> None:
    settings = {"offsets_topic_num_partitions": "1", "num_partitions": str(PARTITIONS)}
    broker = await start_broker(**settings)
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        for index in range(PARTITIONS):
            await commit(wire, "group", "t", {index: 100 + index})
    await broker.stop()
    folder = tmp_path / "data" / "__consumer_offsets-0"
    batches = [each for each in dump(folder / f"{0:020d}.log") if isinstance(each, DumpedBatch)]
    hit = batches[5]
    lost = next(index for index, each in enumerate(batches[-PARTITIONS:]) if each is hit)
    for at in (0, 5, 7, 9, 16, 20, 26, 60, hit.header.size - 1):
        data = tmp_path / f"flip-{at}"
        shutil.copytree(tmp_path / "data", data)
        if not clean:
            (data / ".kafka_cleanshutdown").unlink()
            (data / "recovery-point-offset-checkpoint").unlink()
        path = data / folder.name / f"{0:020d}.log"
        content = bytearray(path.read_bytes())
        content[hit.position + at] ^= 0x04
        path.write_bytes(content)
        broker = await start_broker(**settings, log_dir=str(data))
        async with asyncio.timeout(PATIENCE):
            while (await http.get("/readyz")).status != 200:
                pass
        expected = {index: 100 + index for index in range(PARTITIONS)}
        damaged = (await http.get("/readyz")).json.get("damaged", [])
        if at >= 8:
            del expected[lost]
            assert [(each["topic"], each["offset"], each["records"]) for each in damaged] == [
                ("__consumer_offsets", hit.header.base_offset, hit.header.count)
            ]
            metrics = (await http.get("/metrics")).text
            assert 'barnabas_log_damaged_records{topic="__consumer_offsets",partition="0"} 1' in metrics
        else:
            assert damaged == []  # the neighbours of a batch prove its base offset
        assert await committed(http, "group") == expected
        await broker.stop()
