"""Pauses between retries as the client's settings define them, with jitter (KIP-580)."""

import random
from typing import Final

from barnabas_client.config import ClientConfig
from barnabas_protocol.backoff import Backoff

#: The client's own: draws from Python's shared generator would change what a program that has seeded it gets.
RANDOM: Final = random.Random()


def jitter() -> float:
    """Return a random factor from 0.8 to 1.2, as Kafka's clients use."""
    return RANDOM.uniform(0.8, 1.2)


def retry_backoff(config: ClientConfig) -> Backoff:
    """Create the back-off from `retry_backoff_ms` to `retry_backoff_max_ms`."""
    return Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, jitter)
