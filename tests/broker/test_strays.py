"""Metadata that are older than the logs, or damaged: partitions are set aside, listed and adopted, never deleted."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cli.log_strays import find
from barnabas_broker.cluster.local import COPY, NAME
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.storage import names
from barnabas_client.cli import main
from tests.broker.http.support import make_topic, produce
from tests.wire import Wire

Run = Callable[..., Awaitable[tuple[int, str]]]


async def start(directory: Path) -> BrokerServer:
    return await BrokerServer.start(Config(BROKER_KEYS, {"log.dir": str(directory), "num.partitions": "2"}), port=0)


async def ends(directory: Path) -> dict[str, int]:
    """Start and stop a broker; the log end offset of each partition."""
    broker = await start(directory)
    found = {str(where): log.log_end_offset for where, log in broker.directory.logs.items()}
    await broker.stop()
    return found


async def filled(directory: Path) -> bytes:
    """A broker's directory with the topics `old` and `new`; the journal before `new` was created."""
    broker = await start(directory)
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "old")
        journal = (directory / NAME).read_bytes()
        await make_topic(wire, "new")
        for topic in ("old", "new"):
            assert await produce(wire, topic, 1, 5) == 0
    await broker.stop()
    return journal


EVERYTHING = {"old-0": 0, "old-1": 5, "new-0": 0, "new-1": 5}


async def status(broker: BrokerServer, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What `barnabas cluster status` prints of a healthy cluster."""
    argv = ["cluster", "status", "-b", f"127.0.0.1:{broker.port}", *options]
    assert await asyncio.to_thread(main, argv) == 0
    return capsys.readouterr().out


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    async def command(*arguments: Any) -> tuple[int, str]:
        status = await asyncio.to_thread(main, ["log", "strays", *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return command


async def test_partitions_that_older_metadata_do_not_know_are_kept_and_adopted(tmp_path: Path, run: Run) -> None:
    journal = await filled(tmp_path)
    for name in (NAME, COPY):
        (tmp_path / name).write_bytes(journal)
    assert await ends(tmp_path) == {"old-0": 0, "old-1": 5}
    assert await ends(tmp_path) == {"old-0": 0, "old-1": 5}
    assert [str(stray.where) for stray in find(tmp_path)] == ["new-0", "new-1"]
    status, text = await run(tmp_path)
    assert status == 0
    assert "new-1" in text
    assert (await run(tmp_path, "--adopt", "other"))[0] == 1
    assert (await run(tmp_path, "--adopt", "new"))[0] == 0
    assert await ends(tmp_path) == EVERYTHING
    assert await run(tmp_path) == (0, "no strays\n")


async def test_a_stray_is_removed_only_by_the_command(tmp_path: Path, run: Run) -> None:
    journal = await filled(tmp_path)
    for name in (NAME, COPY):
        (tmp_path / name).write_bytes(journal)
    await ends(tmp_path)
    first, second = find(tmp_path)
    assert (await run(tmp_path, "--remove", "old-1"))[0] == 1
    assert (await run(tmp_path, "--remove", first.path.name))[0] == 0
    assert find(tmp_path) == [second]
    broker = await start(tmp_path)
    assert "a broker uses" in (await run(tmp_path, "--remove", second.path.name))[1]
    await broker.stop()


async def test_a_cut_journal_or_a_flip_in_partition_metadata_costs_nothing(tmp_path: Path) -> None:
    await filled(tmp_path)
    journal = (tmp_path / NAME).read_bytes()
    metadata = tmp_path / "new-1" / names.PARTITION_METADATA
    content = metadata.read_bytes()
    for size in (0, 10, len(journal) // 2, len(journal) - 1):
        (tmp_path / NAME).write_bytes(journal[:size])
        (tmp_path / COPY).write_bytes(journal)
        assert await ends(tmp_path) == EVERYTHING
    for at in (3, 15, 30, len(content) - 4):
        damaged = bytearray(content)
        damaged[at] ^= 4
        metadata.write_bytes(damaged)
        assert await ends(tmp_path) == EVERYTHING
        assert metadata.read_bytes() == content


async def test_another_topic_id_sets_the_log_aside(tmp_path: Path, run: Run) -> None:
    """As a flip in a file without a checksum, which Apache Kafka wrote."""
    await filled(tmp_path)
    metadata = tmp_path / "new-1" / names.PARTITION_METADATA
    content = b"\n".join(metadata.read_bytes().splitlines()[:2])
    metadata.write_bytes(content[:-4] + b"AAAA")
    assert await ends(tmp_path) == EVERYTHING | {"new-1": 0}
    (stray,) = find(tmp_path)
    assert (await run(tmp_path, "--adopt", "new"))[0] == 1  # it seems to be of another topic
    (stray.path / names.PARTITION_METADATA).unlink()
    assert (await run(tmp_path, "--adopt", "new"))[0] == 0
    assert await ends(tmp_path) == EVERYTHING


async def test_the_status_of_the_cluster_shows_what_is_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found at this start or at an earlier one, and whether or not a topic of that name exists again."""
    journal = await filled(tmp_path)
    for name in (NAME, COPY):
        (tmp_path / name).write_bytes(journal)
    for _ in range(2):
        broker = await start(tmp_path)
        empty, full = find(tmp_path)
        async with await Wire.connect(broker.port) as wire:
            await make_topic(wire, "new")
        found = json.loads(await status(broker, capsys, "--json"))
        assert found["counts"]["strays"] == 2
        common = {"broker": 1, "topic": "new", "log_dir": str(tmp_path)}
        assert sorted(found["strays"], key=lambda one: one["partition"]) == [
            common | {"partition": stray.where.partition, "size": stray.size, "directory": stray.path.name}
            for stray in (empty, full)
        ]
        assert full.size > 0
        for options in ((), ("--watch", "--max", "1")):
            printed = await status(broker, capsys, *options)
            assert "  2 stray  " in printed
            assert f"{tmp_path}/{full.path.name}" in printed
        await broker.stop()
