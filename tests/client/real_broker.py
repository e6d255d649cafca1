"""Real brokers for tests of the client: Barnabas in the test's event loop, or another broker that is emptied."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from tests.interop.waiting import ask_until

#: For tests of what Barnabas alone has, or of its files, among those that ask for `empty_servers`.
ONLY_BARNABAS: Final = pytest.mark.parametrize("empty_servers", ["barnabas"], indirect=True)

#: Seconds that Apache Kafka may take to forget a topic or a group.
PATIENCE: Final = 60


@asynccontextmanager
async def running_broker(folder: Path, **settings: str) -> AsyncIterator[BrokerServer]:
    """A broker with keys like ``num_partitions="2"`` and its data in `folder`."""
    given = {
        "log.dir": str(folder / "data"),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    broker = await BrokerServer.start(Config(BROKER_KEYS, given), port=0)
    try:
        yield broker
    finally:
        await broker.stop()


def empty(bootstrap_servers: str) -> None:
    """Delete all groups and topics of a broker, but for its own, and wait until it knows of none."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def topics() -> list[str]:
        return [name for name in admin.list_topics(timeout=PATIENCE).topics if not name.startswith("__")]

    groups = [one.group_id for one in admin.list_consumer_groups().result(PATIENCE).valid]
    for gone in (
        admin.delete_consumer_groups(groups, request_timeout=PATIENCE) if groups else {},
        admin.delete_topics(named, operation_timeout=PATIENCE) if (named := topics()) else {},
    ):
        for answer in gone.values():
            if (error := answer.exception(PATIENCE)) is not None and not _was_gone(error):
                raise error
    ask_until(lambda: not topics(), "a broker without topics", PATIENCE)


def _was_gone(error: BaseException) -> bool:
    """A broker may still return a topic that the controller has deleted, for a while."""
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
