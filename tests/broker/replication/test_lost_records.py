"""Replicas that have lost records: they leave the ISR first, and remove what they must fetch again afterwards."""

import asyncio
import errno
import os
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.cluster.controller import Withdrawal
from barnabas_broker.cluster.image import (
    BrokerRegistered,
    Image,
    LastKnown,
    PartitionChanged,
    PartitionInfo,
    TopicCreated,
)
from barnabas_broker.config import BROKER_KEYS, TOPIC_KEYS, Config, TopicConfig
from barnabas_broker.memory_files import Crash, MemoryFiles
from barnabas_broker.replication.alter_partition import AlterPartitionManager
from barnabas_broker.replication.coordinator_logs import CoordinatorTopicLog
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import Inline, Log, LogDirectory, TopicPartition
from barnabas_broker.storage.corruption import Damage, DamagedLog
from barnabas_broker.storage.names import LOST_RECORDS
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.builder import build_batch

TOPIC_ID = bytes(range(16))
WHERE = TopicPartition("t", 0)
ROOT = Path("/data")
FOLDER = ROOT / "t-0"
ALL = (1, 2, 3)


def led_by(leader: int, epoch: int, isr: tuple[int, ...] = ALL) -> PartitionInfo:
    return PartitionInfo(leader, epoch, ALL, isr)


CONFIG = Config(BROKER_KEYS, {"log.segment.bytes": "300", "replica.lag.time.max.ms": "1000000"})


def opened(files: MemoryFiles) -> LogDirectory:
    return LogDirectory.open(
        ROOT, CONFIG, node_id=1, now_ms=0, files=files, background=Inline(), random_bytes=random.Random(1).randbytes
    )


class Broker:
    """Broker 1 of a cluster, with a disk that outlives it. The tests play the cluster."""

    def __init__(self, files: MemoryFiles, info: PartitionInfo, *, serves: bool = True) -> None:
        self.files = files
        self.directory = opened(files)
        self.image = Image("cluster").apply_all(
            [
                *(BrokerRegistered(node, {"PLAINTEXT": ("host", 9092)}, None, 10 * node) for node in ALL),
                TopicCreated("t", TOPIC_ID, (info,), {}),
            ]
        )
        self.serves = serves
        self.time = 0.0
        self.fetches: list[int] = []
        self.left: list[Withdrawal] = []
        self.asked = asyncio.Event()
        self.replicas = ReplicaManager(
            self.directory, CONFIG, 1, lambda: 0, now=lambda: self.time, may_serve=lambda: self.serves
        )
        self.isr = AlterPartitionManager(
            self.replicas, CONFIG, lambda: self.image.brokers, self.ignore, self.ignore, self.leave, lambda: 0.0
        )
        self.replicas.start(self.image, lambda replica, leader: self.fetches.append(leader), self.isr.caught_up)

    async def ignore(self, what: Sequence[Any]) -> None:
        """ISRs and ends of logs are not what these tests are about."""

    async def leave(self, withdrawals: Sequence[Withdrawal]) -> None:
        self.left += withdrawals
        self.asked.set()

    async def has_left(self) -> Withdrawal:
        async with asyncio.timeout(60):
            await self.asked.wait()
        return self.left[0]

    @property
    def log(self) -> Log:
        return self.directory.logs[WHERE]

    @property
    def replica(self) -> Replica:
        return next(iter(self.replicas.each()))

    @property
    def marked(self) -> bool:
        return self.files.exists(FOLDER / LOST_RECORDS)

    @property
    def condition(self) -> str:
        """What the broker says about the lost records."""
        return "".join(each.text for each in self.replicas.conditions())

    def changed(self, info: PartitionInfo) -> None:
        """The cluster changes the partition."""
        event = PartitionChanged("t", 0, info)
        self.image = self.image.apply(event)
        self.replicas.image_changed(self.image, [event])

    def later(self, seconds: int) -> None:
        """Let time pass: the replicas are looked after each second."""
        for _ in range(seconds):
            self.time += 1
            self.replicas.retry()

    async def close(self) -> None:
        await self.isr.close()
        self.directory.close(0)


def written(files: MemoryFiles, records: int = 10) -> None:
    """What a broker leaves that led the partition and was stopped cleanly: some segments."""
    directory = opened(files)
    log = directory.create(WHERE, TOPIC_ID, TopicConfig(CONFIG, {}, TOPIC_KEYS), 0)
    for _ in range(records):
        log.append_as_leader(build_batch([(None, b"value" * 10, (), 1000)]), leader_epoch=3, now_ms=0)
    log.set_high_watermark(records)
    directory.close(0)


def segments(files: MemoryFiles) -> list[Path]:
    return [FOLDER / name for name in files.names(FOLDER) if name.endswith(".log")]


def flip(files: MemoryFiles, path: Path) -> None:
    """Flip a bit of the first batch of a segment."""
    content = bytearray(files.content(path))
    content[70] ^= 1
    files.damage(path, bytes(content))


def read_all(log: Log) -> Damage:
    """Read a log up to the damage in it."""
    try:
        for offset in range(10):
            log.read(offset, 1, 10, min_one=True)
    except DamagedLog as error:
        return error.damage
    raise AssertionError("nothing is damaged")


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    written(made)
    return made


async def test_a_replica_leaves_the_isr_before_it_removes_anything_and_returns_when_it_is_whole(
    files: MemoryFiles,
) -> None:
    lost = segments(files)[1]
    files.lose(lost)
    broker = Broker(files, led_by(2, 4))
    first = broker.replica.log.loss
    assert first is not None and first.file == lost
    assert (broker.marked, broker.fetches, broker.replicas.lost()) == (True, [-1], [(TOPIC_ID, 0)])
    assert "The replica leaves the in-sync replicas" in broker.condition
    assert await broker.has_left() == Withdrawal("t", TOPIC_ID, 0, -1, 1)
    assert broker.log.log_end_offset == 10
    broker.changed(led_by(2, 5, (2, 3)))
    assert (broker.log.log_end_offset, broker.fetches, broker.marked) == (first.offset, [-1, 2], True)
    assert "They are fetched again from broker 2" in broker.condition
    broker.changed(led_by(2, 5))
    assert (broker.log.loss, broker.marked, broker.replicas.lost(), broker.fetches[-1]) == (None, False, [], 2)
    assert not broker.condition
    await broker.close()


async def test_a_leader_that_finds_damage_lets_another_replica_lead_before_it_removes_anything(
    files: MemoryFiles,
) -> None:
    flip(files, segments(files)[1])
    broker = Broker(files, led_by(1, 4))
    replica = broker.replica
    assert replica.log.loss is None, "what is before the recovery point is checked when it is read"
    loss = read_all(replica.log)
    assert await broker.has_left() == Withdrawal("t", TOPIC_ID, 0, 4, 1)
    assert (replica.leading is not None, broker.marked, replica.log.log_end_offset) == (True, True, 10)
    broker.changed(led_by(2, 4))
    assert replica.log.log_end_offset == 10, "the leader of this epoch may count what was fetched in it"
    broker.changed(led_by(2, 5))
    assert replica.log.log_end_offset == 10, "it is in the ISR"
    broker.changed(led_by(2, 5, (2, 3)))
    assert (replica.log.log_end_offset, broker.fetches[-1]) == (loss.offset, 2)
    await broker.close()


async def test_a_damaged_leader_that_no_replica_can_follow_goes_on(files: MemoryFiles) -> None:
    flip(files, segments(files)[1])
    broker = Broker(files, led_by(1, 4, (1,)))
    read_all(broker.log)
    await broker.has_left()
    broker.replicas.retry()
    assert str(segments(files)[1]) in broker.condition
    assert "t-0 has lost records" in broker.condition
    assert "this broker leads without them" in broker.condition
    assert (broker.replica.leading is not None, broker.log.loss is not None, broker.marked) == (True, True, True)
    # The damage goes with the records.
    broker.log.delete_records(10)
    broker.replicas.retry()
    assert (broker.log.loss, broker.marked) == (None, False)
    await broker.close()


async def test_a_replica_that_leads_because_no_replica_has_more_is_whole(files: MemoryFiles) -> None:
    for path in segments(files)[1:]:
        files.lose(path)
    broker = Broker(files, PartitionInfo(-1, 4, ALL, (), last_known=(LastKnown(1, ""),)))
    assert broker.marked
    broker.log.drop_lost()
    broker.changed(led_by(1, 5, (1,)))
    assert (broker.log.loss, broker.marked, broker.replica.leading is not None) == (None, False, True)
    await broker.close()


async def test_nothing_is_removed_before_this_broker_is_registered(files: MemoryFiles) -> None:
    files.lose(segments(files)[1])
    broker = Broker(files, led_by(2, 4, (2, 3)))
    assert broker.log.log_end_offset < 10
    await broker.close()
    again = MemoryFiles()
    written(again)
    again.lose(segments(again)[1])
    broker = Broker(again, led_by(2, 4, (2, 3)), serves=False)
    assert (broker.log.log_end_offset, broker.fetches) == (10, [-1])
    broker.serves = True
    event = BrokerRegistered(1, {"PLAINTEXT": ("host", 9092)}, None, 11)
    broker.image = broker.image.apply(event)
    broker.replicas.image_changed(broker.image, [event])
    assert broker.log.log_end_offset < 10
    assert broker.fetches == [-1, 2]
    await broker.close()


async def test_nothing_is_removed_while_the_mark_cannot_be_written(files: MemoryFiles) -> None:
    files.lose(segments(files)[1])

    def full(what: str, path: Path) -> None:
        if path.name.startswith(LOST_RECORDS):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files.fault = full
    broker = Broker(files, led_by(2, 4, (2, 3)))
    assert (broker.log.log_end_offset, broker.marked, broker.replicas.lost()) == (10, False, [(TOPIC_ID, 0)])
    files.fault = None
    broker.later(2)
    assert (broker.log.log_end_offset < 10, broker.marked, broker.fetches) == (True, True, [-1, 2])
    await broker.close()


@pytest.mark.parametrize("takes_mark", [False, True])
async def test_lost_records_that_cannot_be_dropped_are_tried_less_and_less_often(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture, takes_mark: bool
) -> None:
    """A full disk, which may still take the mark: then the truncation fails. It is done when there is room."""
    files.lose(segments(files)[1])
    broker = Broker(files, led_by(2, 4))
    attempts: list[float] = []
    mark_lost = broker.log.mark_lost

    def full(doing: str, path: Path) -> None:
        if not doing.startswith("sync") and path.name.startswith(LOST_RECORDS) != takes_mark:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def attempt(damage: Damage | None = None) -> None:
        attempts.append(broker.time)
        mark_lost(damage)

    broker.log.mark_lost = attempt  # type: ignore[method-assign]
    broker.log.marked = False
    files.fault = full
    broker.changed(led_by(2, 5, (2, 3)))
    assert broker.log.log_end_offset == 10
    caplog.clear()
    broker.later(600)
    assert max(after - before for before, after in pairwise(attempts)) > 20
    assert len(attempts) < 40
    assert len(caplog.records) < 30
    files.fault = None
    broker.later(60)
    assert broker.log.log_end_offset < 10
    await broker.close()


def test_the_mark_survives_a_kill_at_any_step(files: MemoryFiles) -> None:
    flip(files, segments(files)[1])
    for step in range(1, 100):
        disk = files.kill()
        directory = opened(disk)
        log = directory.logs[WHERE]
        damage = read_all(log)
        disk.crash_at = disk.steps + step
        try:
            log.mark_lost(damage)
            log.drop_lost()
        except Crash:
            after = opened(disk.kill()).logs[WHERE]
            assert after.loss is not None or after.log_end_offset == 10
        else:
            assert step > 5
            assert opened(disk.kill()).logs[WHERE].loss is not None
            return
    raise AssertionError("it does not come to an end")


async def test_the_directory_of_a_replica_that_should_have_everything_is_missing(files: MemoryFiles) -> None:
    files.lose(FOLDER)
    broker = Broker(files, led_by(2, 4))
    loss = broker.log.loss
    assert loss is not None and (loss.offset, loss.next_offset, loss.file) == (0, 10, FOLDER)
    assert (broker.marked, broker.replicas.lost(), broker.fetches) == (True, [(TOPIC_ID, 0)], [-1])
    await broker.close()


async def test_a_replica_that_was_not_in_sync_has_lost_nothing_with_its_directory(files: MemoryFiles) -> None:
    files.lose(FOLDER)
    broker = Broker(files, led_by(2, 4, (2, 3)))
    assert (broker.log.loss, broker.fetches) == (None, [2])
    await broker.close()


async def test_a_coordinator_does_not_go_on_without_damaged_records_while_another_replica_has_them(
    files: MemoryFiles,
) -> None:
    flip(files, segments(files)[0])
    broker = Broker(files, led_by(1, 4))
    log = CoordinatorTopicLog("t", broker.replicas, lambda: 0)
    broker.replica.log.set_high_watermark(10)
    with pytest.raises(KafkaError) as refused:
        await log.read(0, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.changed(led_by(1, 4, (1,))._replace(partition_epoch=1))
    assert await log.read(0, 0), "alone in sync it reads what is left"
    await broker.close()
