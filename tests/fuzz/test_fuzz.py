"""A short attack. `make fuzz` is the long one."""

import logging
import random
from pathlib import Path

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_protocol.apis import APIS
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_protocol.registry import ApiKey
from tests.fuzz.attack import AUTHORIZER, TOPICS, Attack, stored
from tests.wire import Wire

pytestmark = pytest.mark.broad

#: Seconds. The promise is 0.05 s; other tests run on the same cores, where a step takes more processor time.
HELD = 0.25


@pytest.mark.parametrize("keys", [{}, AUTHORIZER], ids=["all may do everything", "with an authorizer"])
async def test_odd_and_damaged_requests_hold_nobody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: dict[str, str]
) -> None:
    caplog.set_level(logging.CRITICAL, "barnabas_broker")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    broker = await BrokerServer.start(Config(BROKER_KEYS, {"log.dirs": str(tmp_path), **keys}), port=0)
    try:
        found = await Attack(broker, seed).run(3_000)
        assert found.requests == 3_000
        assert set(found.names) == {ApiKey(key).name for key in APIS}
        assert found.holds[-1].seconds < HELD, f"seed {seed}: {found.holds[-1]}"
        for topic in TOPICS:
            count, unreadable = stored(broker, topic)
            assert count
            assert not unreadable, f"seed {seed}"
        async with await Wire.connect(broker.port) as wire:
            response = await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)
        assert [each.port for each in response.brokers] == [broker.port]
    finally:
        await broker.stop()
