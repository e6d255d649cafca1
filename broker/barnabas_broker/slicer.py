"""Shares the event loop among all clients: one budget of a few milliseconds in each turn, for whatever takes longer.

What waits for its turn is a job of a client: the steps of a long request (:meth:`Slicer.run`), or a connection whose
requests or responses did not fit into a turn (:meth:`Slicer.wait`). Each turn of the event loop gives all jobs together
:data:`SLICE` seconds, a :data:`QUANTUM` at a time, always to the client that has used least: start-time fair queueing.
So a flood of many connections takes no more of a turn than one connection.

A quiet client, of which a single request waits and which has used no more than its share and a :data:`CREDIT` of late,
comes before all that send more: its heartbeat is answered at the beginning of the next turn, whatever others have sent.
Only other quiet clients, in the order in which they came, are before it: `n` of them delay it for `n` single requests.

What a coroutine does between two waits is a piece of work as well (:meth:`Slicer.start`): it goes on at once while
there is time left in the turn, and waits for its client's turn otherwise.

While there is time left in a turn, requests are carried out as they arrive: no job, no timer. A callback for the next
turn, which costs one more look at the sockets, is only scheduled once those of a turn have taken a quantum.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, Final, Protocol, Self, TypeVar, final

from barnabas_broker.steps import Steps

T = TypeVar("T")

#: Seconds that all jobs together get in a turn of the event loop.
SLICE: Final = 0.005
#: Seconds that a client gets before the next one.
QUANTUM: Final = 0.0005
#: A client is charged the whole time of a job up to so many seconds: the processor's time costs a system call.
_SHORT: Final = 0.0001
#: Seconds that a client may use with single requests before it has to wait as those with many do: some hundred
#: heartbeats, as many as there are while a flood has its first turn.
CREDIT: Final = SLICE


class SlicerClient(Protocol):
    """Whose jobs share their time.

    Attributes:
        used: seconds of the event loop that it has had while others waited, on the slicer's scale.
        spent: seconds for which its steps held the loop; the owner of the client takes them.
    """

    used: float
    spent: float


class Account:
    """A client that is no connection, such as the broker itself."""

    def __init__(self) -> None:
        self.used = self.spent = 0.0


class Work(asyncio.Future[T]):
    """The result of steps that did not end at once. Cancelling it ends them."""

    def __init__(self, steps: Steps[T]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.steps = steps

    def close(self) -> None:
        """Do no further step."""
        self.steps.close()
        self.cancel()


@final
class _Turn(asyncio.Future[None]):
    """The future that a task awaits until it is its client's turn. The slicer calls it.

    The task goes on within the call, and not in a later turn of the event loop, so that its client is charged for it,
    and the slicer knows when the time of the turn is used up.
    """

    _resume: "Callable[[Self], object] | None" = None
    _context: Context | None = None

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        """Let the task that waits go on with `fn`."""
        self._resume, self._context = fn, context

    def cancel(self, msg: object = None) -> bool:
        """Cancel the task: it goes on at once, to end."""
        cancelled = super().cancel(msg)
        if cancelled and self._resume is not None:
            self.get_loop().call_soon(self._resume, self, context=self._context)
            self._resume = None
        return cancelled

    def close(self) -> None:
        """Cancel the task."""
        self.cancel()

    def __call__(self) -> None:
        if self.done():
            return
        self.set_result(None)
        resume, self._resume = self._resume, None
        try:
            if resume is not None and self._context is not None:
                self._context.run(resume, self)
        finally:
            del resume  # the task; the traceback of its error may have this frame


class InTurns(Coroutine[Any, Any, T]):
    """A coroutine that goes on when it is its client's turn, if the budget of the event loop's turn is used up.

    Args:
        coroutine: does the work.
        client: whose work it is; it is charged for it.
        slicer: gives turns.
    """

    __slots__ = ("_client", "_coroutine", "_slicer", "_turn")

    def __init__(self, coroutine: Coroutine[Any, Any, T], client: SlicerClient, slicer: "Slicer") -> None:
        self._coroutine = coroutine
        self._client = client
        self._slicer = slicer
        #: What it waits for, or what it has just been given.
        self._turn: _Turn | None = None

    def send(self, value: Any, /) -> Any:
        """Go on; or ask the task to wait for the client's turn."""
        slicer = self._slicer
        began = slicer.now()
        if self._turn is not None:
            self._turn = None
        elif not slicer.starts(began):
            self._turn = turn = _Turn(loop=asyncio.get_running_loop())
            turn._asyncio_future_blocking = True
            slicer.wait(self._client, turn)
            return turn
        try:
            return self._coroutine.send(value)
        finally:
            self._did(began)

    def throw(self, *error: Any) -> Any:
        """Go on with an error, at once: what waits has failed, or the task is cancelled."""
        self._turn = None
        began = self._slicer.now()
        try:
            return self._coroutine.throw(*error)
        finally:
            del error  # its traceback has this frame
            self._did(began)

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return (yield from self._coroutine.__await__())

    def _did(self, began: float) -> None:
        seconds = self._slicer.now() - began
        self._client.spent += seconds
        self._slicer.did(seconds)


#: Does a part of what waits; it is queued again if there is more.
Job = Callable[[], None]


class Slicer:
    """Gives turns of the event loop to jobs.

    Args:
        now: a monotonic clock, in seconds.
        processor: seconds for which this thread had a processor, by which clients are charged: a client must not pay
            for the time in which another thread or program had it. None for `now`.

    Attributes:
        now: the clock.
        until: when what runs now has to end. In the past if nothing has run in this turn: :meth:`starts` begins it.
    """

    def __init__(self, now: Callable[[], float], processor: Callable[[], float] | None = None) -> None:
        self.now = now
        self._processor = processor or now
        self.until = 0.0
        #: Clients whose jobs wait, by what they have used; and their jobs, those of the client that runs included.
        self._heap: list[tuple[float, int, SlicerClient]] = []
        self._jobs: dict[SlicerClient, deque[Job | Work[Any]]] = {}
        self._count = 0
        #: What the client that runs had used when it began. While nothing waits, it follows the clock, so that clients
        #: that have been quiet are before those that come now.
        self._reached = 0.0
        self._idle_since = 0.0
        #: The processor's time when it was asked last, and the seconds of short jobs since.
        self._asked = self._unasked = 0.0
        #: Seconds that requests have taken at once since the last turn that was scheduled.
        self._done = 0.0
        #: Whether the budget is that of this turn, because the next one will begin another.
        self._scheduled = False

    def join(self, client: SlicerClient) -> None:
        """Let a new client wait behind those who have been quiet: it has used a quantum."""
        if not self._jobs:
            self._idled()
        client.used = self._reached + QUANTUM

    def starts(self, now: float) -> bool:
        """Whether a connection may start the first of the requests that it has. It states the time with :meth:`did`."""
        if self._scheduled:
            return now < self.until
        self.until = now + SLICE
        return True

    def did(self, seconds: float) -> None:
        """Count the time of requests that a connection has started."""
        self._done += seconds
        if self._done > QUANTUM:
            self._schedule()

    def wait(self, client: SlicerClient, job: Job, used: float = 0.0, *, quiet: bool = False) -> None:
        """Call `job` when it is the client's turn, once.

        Args:
            client: whose job it is.
            job: does one piece of work in any case, goes on until :attr:`until`, and waits again if there is more.
            used: seconds that it has had in this turn; a slice at most counts, the rest had other programs.
            quiet: the job is a single request that has just arrived.
        """
        self._add(client, job, min(used, SLICE), quiet=quiet)

    def run(self, steps: Steps[T], client: SlicerClient) -> "T | Work[T]":
        """Run `steps`: the first at once, others as far as this turn's budget goes; the rest in later turns.

        The turn has begun: the request whose steps they are was started by :meth:`starts`, or as a job. A first step
        that uses up the budget, and one that begins after it, is the only one in this turn.

        Returns:
            The result, or a future of it.

        Raises:
            Exception: what `steps` raised before the budget was over.
        """
        # As _do, written out: every Produce and Fetch takes this path, and most end with the first step.
        try:
            next(steps)
            now, until = self.now, self.until
            while now() < until:
                next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        return self.enqueue(steps, client)

    def enqueue(self, steps: Steps[T], client: SlicerClient) -> "Work[T]":
        """Run `steps` when it is the client's turn. Cancelling the future ends them."""
        work = Work(steps)
        self._add(client, work, 0.0, quiet=False)
        return work

    def start(self, coroutine: Coroutine[Any, Any, T], client: SlicerClient) -> "asyncio.Task[T]":
        """Run a coroutine as a task, which goes on when it is the client's turn and is charged to the client."""
        return asyncio.get_running_loop().create_task(InTurns(coroutine, client, self))

    def close(self) -> None:
        """End all that waits for its turn: futures are cancelled."""
        waiting = [job for jobs in self._jobs.values() for job in jobs]
        self._jobs.clear()
        self._heap.clear()
        for job in waiting:
            if isinstance(job, Work | _Turn):
                job.close()

    def _add(self, client: SlicerClient, job: Job | Work[Any], used: float, *, quiet: bool) -> None:
        jobs = self._jobs.get(client)
        if jobs is not None:
            client.used += used
            jobs.append(job)
            return
        if not self._jobs:
            self._idled()
        # All that are not quiet have used as much as the one that runs, or more.
        client.used = max(client.used, self._reached - CREDIT if quiet else self._reached) + used
        self._jobs[client] = deque((job,))
        self._push(client)
        self._schedule()

    def _idled(self) -> None:
        now = self.now()
        self._reached += now - self._idle_since
        self._idle_since = now

    def _push(self, client: SlicerClient) -> None:
        self._count += 1
        heappush(self._heap, (client.used, self._count, client))

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        now, self._asked, self._unasked = self.now(), self._processor(), 0.0
        self.until = end = now + SLICE
        try:
            while self._heap and now < end:
                now = self._serve(now, end)
        finally:
            self.until = end
            self._scheduled = False
            self._done = 0.0
            if not self._heap:
                self._idle_since = now
            if self._heap or now >= end:  # what arrives before the next turn waits for it
                self._schedule()

    def _serve(self, now: float, end: float) -> float:
        """Do the jobs of the next client for a quantum; when that was over."""
        used, _, client = heappop(self._heap)
        if used > self._reached:
            self._reached = used
        until = now + QUANTUM
        self.until = until = until if until < end else end
        jobs = self._jobs[client]
        try:
            while jobs and now < until:
                steps = self._do(jobs)
                began, now = now, self.now()
                seconds = now - began
                if seconds > _SHORT:
                    seconds = self._processor_time(seconds)
                else:
                    self._unasked += seconds
                client.used += seconds
                if steps:
                    client.spent += seconds
        finally:
            if jobs:
                self._push(client)
            else:
                self._jobs.pop(client, None)
        return now

    def _processor_time(self, seconds: float) -> float:
        """For how much of the last `seconds` this thread had a processor."""
        asked = self._processor()
        had = asked - self._asked - self._unasked
        self._asked, self._unasked = asked, 0.0
        return min(max(had, 0.0), seconds)

    def _do(self, jobs: deque[Job | Work[Any]]) -> bool:
        """Do the first of a client's jobs for a quantum; whether it has steps."""
        work = jobs.popleft()
        if not isinstance(work, Work):
            work()
            return False
        steps = work.steps
        try:
            if work.done():
                work.close()
            else:
                next(steps)
                now = self.now
                while now() < self.until:
                    next(steps)
                jobs.append(work)
        except StopIteration as stop:
            if not work.done():  # cancelled by its last step: other work continues
                work.set_result(stop.value)
        except Exception as error:
            if not work.done():
                work.set_exception(error)
        finally:
            del steps, work  # the traceback of an error has this frame: a reference cycle with the whole request
        return True
