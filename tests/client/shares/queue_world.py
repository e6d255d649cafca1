"""A broker with a queue for tests: records in one partition, and a group that reads them from the beginning."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from barnabas_broker.broker import BrokerServer
from barnabas_client import Admin, AlterConfigOp, ConfigResource, NewTopic, Producer, ShareConsumer
from tests.client.real_broker import running_broker

GROUP: Final = "workers"
TOPIC: Final = "orders"


@asynccontextmanager
async def queue(folder: Path, *values: bytes, **configs: str) -> AsyncIterator[BrokerServer]:
    """A broker with the records, and configs of the group such as ``share_record_lock_duration_ms="1000"``."""
    async with running_broker(folder, group_share_min_record_lock_duration_ms="1000") as broker:
        servers = servers_of(broker)
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, num_partitions=1)])
            given = {"share.auto.offset.reset": "earliest"}
            given |= {key.replace("_", "."): value for key, value in configs.items()}
            ops = [AlterConfigOp(key, value) for key, value in given.items()]
            await admin.incremental_alter_configs({ConfigResource.group(GROUP): ops})
        async with Producer(bootstrap_servers=servers) as producer:
            for value in values:
                await producer.send_and_wait(TOPIC, value)
        yield broker


def servers_of(broker: BrokerServer) -> str:
    return f"127.0.0.1:{broker.port}"


def worker(broker: BrokerServer, mode: Any = "explicit", **settings: Any) -> ShareConsumer:
    given = {"group_id": GROUP, "share_acknowledgement_mode": mode, "fetch_max_wait_ms": 50, **settings}
    return ShareConsumer(TOPIC, bootstrap_servers=servers_of(broker), **given)
