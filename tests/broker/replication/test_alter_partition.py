"""What a broker tells the cluster about its replicas: ISRs, and the ends of logs that an election waits for."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.cluster.controller import IsrChange, LogEnd
from barnabas_broker.cluster.image import (
    BrokerRegistered,
    Image,
    LastKnown,
    PartitionChanged,
    PartitionInfo,
    TopicCreated,
)
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.replication import alter_partition
from barnabas_broker.replication.alter_partition import AlterPartitionManager
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.storage import LogDirectory
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.builder import build_batch

TOPIC_ID = bytes(range(16))


class Case:
    """A broker with one replica, and what it has told the cluster."""

    def __init__(self, path: Path, info: PartitionInfo, **settings: str) -> None:
        config = Config(BROKER_KEYS, {name.replace("_", "."): value for name, value in settings.items()})
        self.now = 0.0
        image = Image("cluster").apply_all(
            [
                *(BrokerRegistered(node, {"PLAINTEXT": ("host", 9092)}, None, 7) for node in info.replicas),
                TopicCreated("t", TOPIC_ID, (PartitionInfo(1, 4, info.replicas, (1,)),), {}),
            ]
        )
        self.image = image
        self.told: list[Any] = []
        self.failures: list[KafkaError] = []
        self.happened = asyncio.Event()
        self.replicas = ReplicaManager(
            LogDirectory.open(path, config, node_id=1, now_ms=0), config, 1, lambda: 0, now=lambda: self.now
        )
        self.manager = AlterPartitionManager(
            self.replicas, config, lambda: self.image.brokers, self.hear, self.hear, self.hear, lambda: self.now
        )
        self.replicas.start(image, None, self.manager.caught_up)
        self.replicas.find("t", 0).append(build_batch([(None, b"value", (), 1000)] * 3), 0)
        self.change(info)

    def change(self, info: PartitionInfo) -> None:
        event = PartitionChanged("t", 0, info)
        self.image = self.image.apply(event)
        self.replicas.image_changed(self.image, [event])

    async def hear(self, what: Sequence[Any]) -> None:
        self.happened.set()
        if self.failures:
            raise self.failures.pop()
        self.told += what

    async def told_anything(self) -> None:
        async with asyncio.timeout(60):
            while not self.told:
                self.happened.clear()
                await self.happened.wait()


def waiting(end: int = -1) -> PartitionInfo:
    return PartitionInfo(-1, 5, (1, 2), (), 2, last_known=(LastKnown(1, "", -1, end), LastKnown(2, "b")))


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(alter_partition, "_RETRY_SECONDS", (0.01, 0.01))


async def test_the_end_of_a_log_is_reported(tmp_path: Path) -> None:
    case = Case(tmp_path, waiting())
    await case.told_anything()
    await case.manager.close()
    assert case.told == [LogEnd("t", TOPIC_ID, 0, 4, 3)]


async def test_a_fetch_with_another_directory_does_not_count_before_the_image_has_it(tmp_path: Path) -> None:
    case = Case(tmp_path, PartitionInfo(1, 5, (1, 2), (1, 2), 2))
    event = BrokerRegistered(2, {"PLAINTEXT": ("host", 9092)}, None, 8, "b")
    case.image = case.image.apply(event)
    case.replicas.image_changed(case.image, [event])
    replica = case.replicas.find("t", 0)
    before = replica.high_watermark
    with pytest.raises(KafkaError, match="not registered as the replica"):
        case.replicas.follower_fetched(replica, 2, 9, 4, directory="new")
    assert replica.high_watermark == before
    case.replicas.follower_fetched(replica, 2, 9, 3, directory="b")
    await case.manager.close()


async def test_a_report_is_repeated_until_it_is_accepted(tmp_path: Path, quickly: Callable[[], None]) -> None:
    quickly()
    case = Case(tmp_path, waiting(end=3))
    case.failures = [KafkaError(ErrorCode.STALE_BROKER_EPOCH), KafkaError(ErrorCode.REQUEST_TIMED_OUT)]
    case.change(waiting()._replace(partition_epoch=3))
    await case.told_anything()
    await case.manager.close()
    assert case.failures == []
    assert case.told == [LogEnd("t", TOPIC_ID, 0, 4, 3)]


async def test_a_leader_proposes_the_isr_that_ends_the_eligibility_of_others(tmp_path: Path) -> None:
    case = Case(tmp_path, PartitionInfo(1, 5, (1, 2), (1,), 2, elr=(2,)))
    await case.told_anything()
    await case.manager.close()
    assert case.told == [IsrChange("t", TOPIC_ID, 0, 5, 2, ((1, -1),), 1)]


async def test_resignations_that_leave_too_few_in_sync_become_rare(tmp_path: Path) -> None:
    """The brokers are cut off from each other. A leader that goes for nothing must not change the metadata for ever."""
    info = PartitionInfo(1, 5, (1, 2, 3), (1,), 2, elr=(2,))
    case = Case(tmp_path, info, min_insync_replicas="2", broker_session_timeout_ms="9000")
    resigned: list[float] = []
    for second in range(1, 1000):
        case.now = float(second)
        case.manager.caught_up(case.replicas.find("t", 0))
        for _ in range(10):
            await asyncio.sleep(0)
        if case.told:
            assert case.told == [IsrChange("t", TOPIC_ID, 0, 5, 2, ((2, -1),), 2)]
            case.told.clear()
            resigned.append(case.now)
    await case.manager.close()
    assert 9 < resigned[0] < 15
    assert 6 < resigned[1] - resigned[0] < 12
    assert 8 <= len(resigned) <= 14
    assert resigned[-1] - resigned[-2] > 100
