"""Back-off for the broker's own loops: growing pauses with jitter."""

from random import Random
from typing import Final

from barnabas_protocol.backoff import Backoff

#: The range of factors, as Kafka's clients use.
_JITTER: Final = (0.8, 1.2)


def jittered(first: float, most: float, *, seed: str) -> Backoff:
    """Create a back-off with jitter.

    Args:
        first: the pause after the first failure, in seconds; each further one doubles it.
        most: the longest pause, in seconds.
        seed: makes the jitter differ between brokers that fail at the same moment. The same seed gives the same pauses,
            so that simulations can be repeated.
    """
    chance = Random(seed)
    return Backoff(first, most, lambda: chance.uniform(*_JITTER))
