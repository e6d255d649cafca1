"""A broker of ours in the test's own event loop, for tests of the client that need a real one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from barnabas_broker.broker import Broker
from barnabas_broker.config import Config
from barnabas_broker.config_keys import BROKER_KEYS


@asynccontextmanager
async def running_broker(folder: Path, **settings: str) -> AsyncIterator[Broker]:
    """A broker with keys like ``num_partitions="2"`` and its data in `folder`."""
    given = {
        "log.dir": str(folder / "data"),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    broker = Broker(Config(BROKER_KEYS, given), port=0)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
