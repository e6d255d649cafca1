"""Log lines that clients may cause without end: each is written at once, and after :data:`WINDOW` seconds how often it
was repeated.

Text that a client chooses stands in many lines, so that no two of them are alike. Of one client and kind of line, at
most :data:`MOST_OF_CLIENT` different ones are written in that time, and of all clients at most :data:`MOST_LINES`. The
others are only counted.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from barnabas_broker.recent import Newest

#: Seconds for which what a client repeats is counted.
WINDOW: Final = 60.0
#: Different lines of one client and kind that are written within that time; the others are only counted.
MOST_OF_CLIENT: Final = 100
#: Clients and kinds that are counted at a time.
MOST_CLIENTS: Final = 1_000
#: Lines of one kind that all clients together cause within that time; the others are only counted.
MOST_LINES: Final = 1_000

ClientT = TypeVar("ClientT", bound=Hashable)
SaidT = TypeVar("SaidT", bound=Hashable)


class _Counts(Generic[SaidT]):
    """Events of one kind of a client since `since`: how often each was repeated, and how many were others."""

    __slots__ = ("others", "repeated", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.repeated: dict[SaidT, int] = {}
        self.others = 0


class Repeated(Generic[ClientT, SaidT]):
    """Counts what clients repeat. The kind of what is counted is its type. Pure: the time is an argument.

    Args:
        most: the number of different ones of a client and kind that are written; by default :data:`MOST_OF_CLIENT`.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        #: The oldest come first.
        self._clients: Newest[tuple[ClientT, type[SaidT]], _Counts[SaidT]] = Newest(MOST_CLIENTS)

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, client: ClientT, said: SaidT, now: float) -> bool:
        """Count it; whether it is to be written, because it is new."""
        counts = self._clients.get((client, type(said)))
        if counts is None:
            counts = self._clients[client, type(said)] = _Counts(now)
        if said in counts.repeated:
            counts.repeated[said] += 1
            return False
        if len(counts.repeated) >= (MOST_OF_CLIENT if self._most is None else self._most):
            counts.others += 1
            return False
        counts.repeated[said] = 0
        return True

    def knows(self, client: ClientT, said: SaidT) -> bool:
        """Whether it has been counted."""
        counts = self._clients.get((client, type(said)))
        return counts is not None and said in counts.repeated

    def ended(self, now: float) -> Iterator[tuple[ClientT, SaidT | type[SaidT], int]]:
        """Forget what was counted for long enough.

        Returns:
            What was repeated, and how often; a kind stands for all of it that was counted, but not written.
        """
        while self._clients:
            (client, kind), counts = next(iter(self._clients.items()))
            if now < counts.since + WINDOW:
                return
            del self._clients[client, kind]
            yield from ((client, said, times) for said, times in counts.repeated.items() if times)
            if counts.others:
                yield client, kind, counts.others


class Folded:
    """Lines of one kind.

    Args:
        write: writes a line, for instance ``log.warning``.
        event: of the first line.
        repeated: of the line that says how often.
        now: a monotonic clock, in seconds.
        who: the name of the pair that tells clients apart.
    """

    def __init__(
        self,
        write: Callable[..., object],
        event: str,
        repeated: str,
        now: Callable[[], float],
        who: str = "host",
    ) -> None:
        self._write = write
        self._event = event
        self._repeated = repeated
        self._now = now
        self._who = who
        self._counted: Repeated[str, tuple[tuple[str, Hashable], ...]] = Repeated()
        #: Since when lines are counted, those that were written, and those of other clients that were not.
        self._since = now()
        self._written = self._others = 0

    def __len__(self) -> int:
        return len(self._counted)

    def add(self, client: str, peer: str = "", /, **pairs: Hashable) -> None:
        """Write the line, or count it.

        Args:
            client: who causes it, its address for instance; "" if that is not known.
            peer: the address that the first line has instead of the client, with the port.
            pairs: what makes the line differ from others of the client.
        """
        now = self._now()
        self._end(now)
        said = tuple(pairs.items())
        if self._written >= MOST_LINES and not self._counted.knows(client, said):
            self._others += 1
            return
        if not self._counted.add(client, said, now):
            return
        self._written += 1
        self._write(self._event, **({"peer": peer} if peer else self._of(client)), **pairs)

    def tick(self) -> None:
        """Write how often lines were repeated whose time is over. To be called every few seconds, or they are written
        with the next line."""
        self._end(self._now())

    def _end(self, now: float) -> None:
        for client, said, times in self._counted.ended(now):
            if isinstance(said, type):
                self._write(self._repeated, **self._of(client), others=times)
            else:
                self._write(self._repeated, **self._of(client), **dict(said), repeated=times)
        if now >= self._since + WINDOW:
            if self._others:
                self._write(self._repeated, others=self._others)
            self._since, self._written, self._others = now, 0, 0

    def _of(self, client: str) -> dict[str, str]:
        return {self._who: client} if client else {}


class FoldedLines:
    """Lines of several kinds: those of each event are folded by themselves, as :class:`Folded` does.

    Args:
        now: a monotonic clock, in seconds.
        who: the name of the pair that tells clients apart.
    """

    def __init__(self, now: Callable[[], float], who: str = "host") -> None:
        self._now = now
        self._who = who
        self._lines: dict[str, Folded] = {}

    def add(self, write: Callable[..., object], event: str, client: str, /, **pairs: Hashable) -> None:
        """Write a line, or count it.

        Args:
            write: writes a line of this event, for instance ``log.warning``.
            event: a text of the broker, not of a client.
            client: as in :meth:`Folded.add`.
            pairs: as in :meth:`Folded.add`.
        """
        lines = self._lines.get(event)
        if lines is None:
            lines = self._lines[event] = Folded(write, event, event, self._now, self._who)
        lines.add(client, **pairs)

    def tick(self) -> None:
        """Write how often lines were repeated whose time is over."""
        for lines in self._lines.values():
            lines.tick()
