"""Measures a client's use: a rate over some seconds, and a token bucket. Pure; times are seconds of a monotonic clock.

Sources: ``org.apache.kafka.common.metrics.stats.Rate``, ``SampledStat``, ``TokenBucket``;
``org.apache.kafka.server.quota.QuotaUtils``.
"""

from typing import Final, NamedTuple

#: The shortest time that a rate is measured over, in seconds.
_SHORTEST: Final = 0.001


class Window(NamedTuple):
    """How a rate is measured.

    Attributes:
        samples: how many samples count (``quota.window.num``).
        seconds: the length of each (``quota.window.size.seconds``).
    """

    samples: int = 11
    seconds: float = 1.0

    @property
    def total(self) -> float:
        """Seconds after which what was used no longer counts."""
        return self.samples * self.seconds


class Rate:
    """The rate of something over the last samples.

    As Kafka does, it measures as if there had been samples - 1 whole ones from the beginning: a client without a past
    may use the quota of that time at once.
    """

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        #: When each sample began, when it was last added to, and its sum.
        self._samples: list[list[float]] = []

    def record(self, window: Window, value: float, now: float) -> None:
        """Add `value`."""
        samples = self._samples
        if samples:
            current = samples[-1]
            if now - current[0] < window.seconds:
                current[1] = max(now, current[1])
                current[2] += value
                return
        samples.append([now, now, value])
        if len(samples) > window.samples + 1:
            del samples[0]

    def measure(self, window: Window, now: float) -> tuple[float, float]:
        """The rate per second, and the seconds that it was measured over."""
        samples, total = self._samples, window.total
        while samples and now - samples[0][1] >= total:
            del samples[0]
        elapsed = now - samples[0][0] if samples else 0.0
        whole = int(elapsed / window.seconds)
        if whole < window.samples - 1:
            elapsed += (window.samples - 1 - whole) * window.seconds
        elapsed = max(elapsed, _SHORTEST)
        return sum(sample[2] for sample in samples) / elapsed, elapsed

    def idle(self, window: Window, now: float) -> bool:
        """Whether nothing counts any more."""
        return not self._samples or now - self._samples[-1][1] >= window.total

    def wait(self, window: Window, limit: float, now: float) -> float:
        """Seconds without use until the rate is down to `limit`; 0 if it is not above it.

        If O is the observed rate over W seconds, it is O * W / (W + X) after X more: solved for the limit.
        """
        rate, elapsed = self.measure(window, now)
        return (rate - limit) / limit * elapsed if rate > limit else 0.0


class TokenBucket:
    """Tokens that are used at once and come back at a rate. It begins full.

    Args:
        now: the time.
        limit: tokens per second.
        window: of which the bucket has the tokens.
    """

    __slots__ = ("_tokens", "_updated")

    def __init__(self, window: Window, limit: float, now: float) -> None:
        self._tokens = window.total * limit
        self._updated = now

    def refill(self, window: Window, limit: float, now: float) -> float:
        """The tokens at `now`; below 0 when more were used."""
        came = limit * max(now - self._updated, 0.0)
        self._tokens = min(window.total * limit, self._tokens + came)
        self._updated = max(now, self._updated)
        return self._tokens

    def use(self, count: float) -> None:
        """Use tokens; call :meth:`refill` before."""
        self._tokens -= count

    def wait(self, window: Window, limit: float, now: float) -> float:
        """Seconds until there are no fewer than 0 tokens."""
        return max(-self.refill(window, limit, now) / limit, 0.0)

    def idle(self, window: Window, limit: float, now: float) -> bool:
        """Whether it is full, as a new one is."""
        return self.refill(window, limit, now) >= window.total * limit
