"""Transactional ids whose transactions are aborted by their timeout again and again, the newest ones. Pure.

The coordinator of transactions notes them, and that of groups looks whether a member does not get on because of them:
both on this broker. About 1.6 kB for each of at most :data:`MOST`.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from barnabas_broker.recent import Newest

#: Transactional ids that are kept.
MOST: Final = 1_000
#: Aborts of one that are kept.
_MOST_ABORTS: Final = 16
#: One that was aborted less often may have been slow once.
_LEAST: Final = 2
#: A client read again because of aborts if one was before each of the last times, of which so many are needed.
_LEAST_READS: Final = 4


class TimedOut:
    """A transactional id whose last transactions were aborted by their timeout.

    Attributes:
        transactional_id: the id.
        host: the address of its producer, as Kafka prints it; "" if it is not known.
        timeout_ms: of its transactions, in ms.
        open_ms: for how long the longest of them was open, in ms.
        aborts: when they were aborted, the last 16, in seconds on the coordinator's clock.
    """

    __slots__ = ("_first", "_total", "aborts", "host", "open_ms", "timeout_ms", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.host = ""
        self.timeout_ms = self.open_ms = 0
        self.aborts: deque[float] = deque(maxlen=_MOST_ABORTS)
        self._first, self._total = 0.0, 0

    def add(self, open_ms: int, now: float) -> None:
        """A transaction was aborted that had been open for so many milliseconds."""
        self._first = self._first if self.aborts else now
        self._total += 1
        self.open_ms = max(self.open_ms, open_ms)
        self.aborts.append(now)

    def since(self, time: float) -> int:
        """How often it was aborted since then, as far as that is known; 0 if it was so once."""
        times = self._total if self._first >= time else sum(each >= time for each in self.aborts)
        return times if times >= _LEAST else 0

    def explains(self, host: str, reads: Sequence[float]) -> bool:
        """Whether a client probably read the same records again because of these aborts: one was between any two of the
        times at which it did, which are the last ones, and both come from one address."""
        first, last = (reads[0], reads[-1]) if reads else (0.0, 0.0)
        if not host or self.host != host or len(reads) <= _LEAST_READS or not self.aborts or self.aborts[0] > last:
            return False
        known = [(one, other) for one, other in pairwise(reads) if one >= self.aborts[0] or one == first]
        return len(known) >= _LEAST_READS and all(
            sum(one < each <= other for each in self.aborts) == 1 for one, other in known
        )


class TimedOutTransactions:
    """These transactional ids of a broker."""

    def __init__(self) -> None:
        self._newest: Newest[str, TimedOut] = Newest(MOST)

    def aborted(self, transactional_id: str, host: str, timeout_ms: int, open_ms: int, now: float) -> None:
        """A transaction was aborted by its timeout."""
        known = self._newest[transactional_id] = self._newest.get(transactional_id) or TimedOut(transactional_id)
        known.host = host or known.host
        known.timeout_ms = timeout_ms
        known.add(open_ms, now)

    def committed(self, transactional_id: str) -> None:
        """A transaction was committed: the id is well."""
        self._newest.pop(transactional_id, None)

    def get(self, transactional_id: str | None, since: float) -> TimedOut | None:
        """The id, if its transactions were aborted several times since then, and none was committed."""
        known = None if transactional_id is None else self._newest.get(transactional_id)
        return known if known is not None and known.since(since) else None

    def find(self, host: str, reads: Sequence[float]) -> TimedOut | None:
        """The only id whose aborts probably made a client of a host read again at these times; None if there are
        several, or none."""
        found = [each for each in self._newest.values() if each.explains(host, reads)]
        return found[0] if len(found) == 1 else None
