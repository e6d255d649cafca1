"""The exactly-once example, killed at 50 random moments while a producer feeds it: every record is applied once."""

import asyncio
import random
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker
from barnabas_client import Consumer, Producer, TopicPartition
from tests.interop import process

KILLS = 50
PARTITIONS = 3
KEYS = [b"amber", b"blue", b"crimson", b"dun"]


class Nursery:
    """Runs of the example, one after the other."""

    def __init__(self, *arguments: str | Path) -> None:
        command = [sys.executable, "-m", "tests.examples.nursery", *map(str, arguments)]
        self._process = process.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def command(self, word: str, answer: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == f"{answer}\n"

    def close(self) -> None:
        process.end(self._process, 5)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def nursery(*arguments: str | Path) -> Iterator[Nursery]:
    one = Nursery(*arguments)
    try:
        yield one
    finally:
        one.close()


class Feed:
    """A producer that runs all the time, and the expected sums."""

    def __init__(self, servers: str, topic: str, chance: random.Random) -> None:
        self.totals: Counter[bytes] = Counter()
        self.records: Counter[bytes] = Counter()
        self._servers = servers
        self._topic = topic
        self._chance = chance

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ending = asyncio.Event()
        task = asyncio.create_task(self._run(ending))
        try:
            yield
        finally:
            ending.set()
            await task

    async def _run(self, ending: asyncio.Event) -> None:
        async with Producer(bootstrap_servers=self._servers) as producer:
            while not ending.is_set():
                for _ in range(20):
                    key, number = self._chance.choice(KEYS), self._chance.randrange(1_000_000)
                    await producer.send(
                        self._topic, b"%d" % number, key=key, partition=self._chance.randrange(PARTITIONS)
                    )
                    self.totals[key] += number
                    self.records[key] += 1
                await producer.flush()
                await asyncio.sleep(0.004)  # limits the rate


class Applied:
    """What the example has written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, question: str) -> list[tuple[bytes | int, ...]]:
        if not self._path.exists():
            return []
        database = sqlite3.connect(self._path, timeout=30)
        try:
            return database.execute(question).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
        finally:
            database.close()

    def progress(self) -> int:
        return sum(int(next) for (next,) in self.ask("SELECT next FROM offsets"))

    async def beyond(self, before: int) -> None:
        deadline = time.monotonic() + 30
        while self.progress() <= before:
            assert time.monotonic() < deadline, f"stuck at {before} records"
            await asyncio.sleep(0.005)


@pytest.mark.programs
@pytest.mark.slow
async def test_fifty_kills_apply_every_record_once(broker: Broker, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    topic, group = f"t-{uuid.uuid4().hex}", f"g-{uuid.uuid4().hex}"
    await asyncio.to_thread(broker.create_topic, topic, partitions=PARTITIONS)
    feed = Feed(broker.bootstrap_servers, topic, random.Random(seed))
    applied = Applied(tmp_path / "totals.sqlite")
    moments = set()
    with nursery(broker.bootstrap_servers, topic, group, tmp_path / "totals.sqlite") as lives:
        async with feed.running():
            for life in range(KILLS):
                before = applied.progress()
                lives.command("start", "started")
                if life % 2:  # killed while it works; the others may be killed at any step: connect, join, restore
                    await applied.beyond(before)
                await asyncio.sleep(chance.uniform(0.0, 0.06))
                lives.command("kill", "killed")
                moments.add(applied.progress())
        lives.command("start", "started")
        total = feed.records.total()
        await applied.beyond(total - 1)
        lives.command("kill", "killed")
    assert len(moments) > KILLS // 2
    rows = applied.ask("SELECT key, total, records FROM totals")
    assert {key: (total, records) for key, total, records in rows} == {
        key: (feed.totals[key], feed.records[key]) for key in feed.totals
    }
    async with Consumer(bootstrap_servers=broker.bootstrap_servers) as reader:
        ends = await reader.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
    assert applied.progress() == total == sum(ends.values())
