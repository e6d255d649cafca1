"""Long work of many clients in one thread, in fair turns.

The work of one client waits neither for all of another's nor for its own that takes longer: a slice goes to the client
that has used the thread least since it has work, and of its work to what has used it least.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, NamedTuple

from barnabas_broker.offload import Offload
from barnabas_broker.steps import Steps

#: Minimum seconds of one slice; it ends with a step.
SLICE: Final = 0.01

#: Whose work it is: its principal, and its address.
Client = tuple[str, str]


class TooSlowError(Exception):
    """The work took longer than it may. The text says why it ended."""


class _Sliced(NamedTuple):
    """A slice of work: its seconds, and whether the work has ended, with which result or exception."""

    seconds: float
    ended: bool
    result: Any = None


@dataclass(slots=True)
class _Line:
    """The work of one client: the seconds that it has used, and what is left of it, least used first."""

    used: float
    work: list[tuple[float, int, Steps[Any], Callable[[Any], None]]] = field(default_factory=list)


class Turns:
    """Runs the work of all clients, a slice at a time.

    Args:
        offload: runs a slice, perhaps in a thread.
        clock: a monotonic clock in seconds, for that thread.
        limit: seconds that one piece of work may take.
    """

    def __init__(self, offload: Offload, clock: Callable[[], float], limit: float) -> None:
        self._offload = offload
        self._clock = clock
        self._limit = limit
        self._lines: dict[Client, _Line] = {}
        self._numbers = count()
        #: What the client that had the last turn had used: one that comes back has not saved up what it did not use.
        self._least = 0.0
        self._running = self._choosing = self._closed = False

    def run(self, client: Client, steps: Steps[Any], done: Callable[[Any], None]) -> None:
        """Run `steps` in turns with those of others.

        Args:
            client: whose work it is.
            steps: run in the thread; between two of them, others get their turns.
            done: gets the result, or the exception that ended it: :class:`TooSlowError` if it took too long.
        """
        if self._closed:
            done(TooSlowError("the broker stops"))
            return
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = _Line(self._least)
        heappush(line.work, (0.0, next(self._numbers), steps, done))
        self._go_on()

    def close(self) -> None:
        """End all work: it counts as too slow."""
        self._closed = True
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for *_, done in line.work:
                done(TooSlowError("the broker stops"))

    def _go_on(self) -> None:
        if self._choosing:
            return  # A slice has ended at once.
        self._choosing = True
        try:
            while self._lines and not self._running:
                client = min(self._lines, key=lambda each: self._lines[each].used)
                line = self._lines[client]
                used, number, steps, done = heappop(line.work)
                self._least = line.used
                self._running = True
                self._offload(partial(self._slice, steps), partial(self._sliced, client, used, number, steps, done))
        finally:
            self._choosing = False

    def _slice(self, steps: Steps[Any]) -> _Sliced:
        """In the thread."""
        clock = self._clock
        began = now = clock()
        try:
            while now < began + SLICE and not self._closed:
                next(steps)
                now = clock()
        except StopIteration as stop:
            return _Sliced(clock() - began, ended=True, result=stop.value)
        except Exception as error:
            return _Sliced(clock() - began, ended=True, result=error)
        return _Sliced(now - began, ended=False)

    def _sliced(
        self,
        client: Client,
        used: float,
        number: int,
        steps: Steps[Any],
        done: Callable[[Any], None],
        sliced: _Sliced,
    ) -> None:
        self._running = False
        used += sliced.seconds
        result = sliced.result
        over = sliced.ended
        if self._closed and not over:
            over, result = True, TooSlowError("the broker stops")
        elif not over and used > self._limit:
            over, result = True, TooSlowError(f"it took more than {self._limit:g} s")
        line = self._lines.get(client)
        if line is not None:
            line.used += sliced.seconds
            if not over:
                heappush(line.work, (used, number, steps, done))
            elif not line.work:
                del self._lines[client]
        if over:
            done(result)
        self._go_on()
