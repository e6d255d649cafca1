"""The fetcher looks for a leader that cannot be reached after pauses that grow."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

from barnabas_client.config import ClientConfig
from barnabas_client.consumer.fetcher import Fetcher
from barnabas_client.consumer.subscription import Subscription
from barnabas_client.network.retries import retry_backoff
from tests.client.consumers import T0


async def test_pauses_grow_while_a_leader_is_not_known() -> None:
    config = ClientConfig(servers=(), retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    network: Any = SimpleNamespace(
        config=config, cluster=SimpleNamespace(leader=lambda tp: None), want_refresh=lambda: None
    )
    other: Any = SimpleNamespace(auto_offset_reset="latest", key_deserializer=None, value_deserializer=None)
    subscription = Subscription(partial(retry_backoff, config))
    subscription.add([T0], active=True)
    state = subscription.states[T0]
    state.position = 0
    fetcher = Fetcher(network, subscription, other, other, other, lambda: None, asyncio.Event())
    pauses = []
    for now in range(6):
        fetcher._send(now * 2.0)
        pauses.append(state.retry_at - now * 2.0)
    factors = [pause / full for pause, full in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True)]
    assert all(0.79 < factor < 1.21 for factor in factors)
    assert len({round(factor, 6) for factor in factors}) > 1, "jitter"
