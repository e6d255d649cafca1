"""Pauses between retries as the client's settings define them, with jitter (KIP-580)."""

import random

from barnabas_client.config import ClientConfig
from barnabas_client.network.backoff import Backoff


def jitter() -> float:
    """Return a random factor from 0.8 to 1.2, as Kafka's clients use."""
    return random.uniform(0.8, 1.2)


def retry_backoff(config: ClientConfig) -> Backoff:
    """Create the back-off from `retry_backoff_ms` to `retry_backoff_max_ms`."""
    return Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, jitter)
