"""Log lines about connections that hosts may repeat without end: refused ones, and failed handshakes."""

from collections.abc import Callable
from typing import Final

from barnabas_broker.logs import logger

log = logger("server")

#: Seconds for which a line is counted, and how many lines.
WINDOW: Final = 60.0
MOST_COUNTED: Final = 1_000


class Folded:
    """Logs each host and reason once in :data:`WINDOW` seconds, and then how often that was repeated.

    Args:
        event: of the first line.
        repeated: of the line that says how often.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, event: str, repeated: str, now: Callable[[], float]) -> None:
        self._event = event
        self._repeated = repeated
        self._now = now
        #: Since when it is counted, and how often it was repeated; the oldest come first.
        self._counted: dict[tuple[str, str], tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._counted)

    def add(self, host: str, port: int, reason: str) -> None:
        """Count a connection, and log it if it is the first of its kind."""
        known = self._counted.get((host, reason))
        if known is not None:
            self._counted[host, reason] = known[0], known[1] + 1
            return
        if len(self._counted) >= MOST_COUNTED:
            self._end(next(iter(self._counted)))
        self._counted[host, reason] = self._now(), 0
        log.warning(self._event, peer=f"{host}:{port}", reason=reason)

    def tick(self) -> None:
        """Log what was repeated and has been counted for long enough. To be called every few seconds."""
        ended = self._now() - WINDOW
        for key in [key for key, (since, _) in self._counted.items() if since <= ended]:
            self._end(key)

    def _end(self, key: tuple[str, str]) -> None:
        _, repeated = self._counted.pop(key)
        if repeated:
            log.warning(self._repeated, host=key[0], reason=key[1], repeated=repeated)
