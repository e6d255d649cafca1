"""The replicas of a broker whose disk is full when it starts."""

import asyncio
import errno
import os
from pathlib import Path

from barnabas_broker.cluster.image import BrokerRegistered, Image, PartitionInfo, TopicCreated
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.replication.manager import ReplicaManager
from tests.broker.storage.support import open_directory
from tests.sim import virtual


def test_a_broker_starts_on_a_full_disk_and_creates_replicas_when_there_is_room() -> None:
    async def main() -> None:
        files = MemoryFiles()
        directory = open_directory(files)
        partitions = tuple(PartitionInfo(1, 0, (1,), (1,)) for _ in range(3))
        image = Image("cluster").apply_all(
            [BrokerRegistered(1, {}, None, 1), TopicCreated("t", bytes(range(16)), partitions, {})]
        )

        def full(doing: str, path: Path) -> None:
            if doing.startswith(("write", "create")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        files.fault = full
        now = asyncio.get_running_loop().time
        replicas = ReplicaManager(directory, Config(BROKER_KEYS, {}), 1, lambda: 0, now=now)
        replicas.start(image)
        assert replicas.creating("t")
        assert not any(replicas.holds("t", index) for index in range(3))
        before = files.steps
        await asyncio.sleep(60)
        assert files.steps - before < 60, "it does not try all the time"
        files.fault = None
        await asyncio.sleep(15)
        assert all(replicas.holds("t", index) for index in range(3))
        assert not replicas.creating("t")
        replicas.wake_fetches()

    virtual.run(main())
