"""The runtime of every coordinator: everything but its machines, their records and their requests. A shell.

How it works. A coordinator's state is in the partitions of an internal topic. Each id (a group id or a transactional
id, for instance) belongs to one of them, and has a machine on the broker that leads it.

1. :meth:`Runtime.home` finds the partition of an id, or says COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR or
   COORDINATOR_NOT_AVAILABLE. :meth:`Runtime.ask` gives a request to the machine of the id, or keeps it in the mailbox
   of the id: one change of an id is under way at a time, and what comes meanwhile waits in its order.
2. The machine decides, and changes nothing that is in the log: it returns a
   :class:`~barnabas_broker.coordinators.result.Result` of records, response and events.
3. The records are appended, with those of other ids of the same iteration of the event loop. When they are durable,
   the machine applies them, the events are published, the request is answered, and the mailbox goes on. An append that
   fails has changed nothing. One that takes too long is answered, but has not failed: its id waits for the log.
4. :meth:`Runtime.load` applies the records of a partition in the same way. :meth:`Runtime.unload` answers everything
   that waits with NOT_COORDINATOR; what the log reports later about an append from before has no effect.

What a new coordinator needs:

- a machine (:class:`Machine`) whose decisions are :class:`~barnabas_broker.coordinators.result.Result`, a
  :class:`Hosted` of it, and a :class:`HostedPartition`;
- a :class:`~barnabas_broker.coordinators.replay.PartitionReplay`, which reads its records;
- a :class:`Shard`, which encodes records, publishes events and makes machines from a replay; its handlers call
  :meth:`Runtime.ask`;
- a :class:`~barnabas_broker.coordinators.partitions.CoordinatorPartitions`, which calls load and unload.

Transactions are the model (:mod:`barnabas_broker.transactions.service`). A topic has one runtime, also if machines of
several kinds share it: the shard of ``__consumer_offsets`` (:mod:`barnabas_broker.groups.coordinator.service`) reads
each record with the machines that own it. Classic groups and consumer groups have machines that carry on while their
records are being appended (:mod:`barnabas_broker.groups.coordinator.hosting`): they are a :class:`HostedId`, which has
all of the above but decisions and a mailbox, and use :meth:`Runtime.append`.

Source: Kafka's ``CoordinatorRuntime``, whose ``CoordinatorShard`` is :class:`Shard` here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import chain
from math import inf
from typing import Any, Final, Generic, Protocol, TypeVar

from structlog.stdlib import BoundLogger

from barnabas_broker.backoff import jittered
from barnabas_broker.clock import Handle
from barnabas_broker.coordinators.loading import replay_partition, report_failure
from barnabas_broker.coordinators.ports import CoordinatorLog, Scheduler
from barnabas_broker.coordinators.replay import PartitionReplay, Report
from barnabas_broker.coordinators.result import APPEND_ERRORS, Result
from barnabas_broker.coordinators.timers import Timers
from barnabas_broker.coordinators.writer import Waiter, Writer
from barnabas_broker.steps import Steps, finish
from barnabas_protocol.durations import seconds
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import partition_for

#: Seconds until a step that has to succeed is taken again after its append has failed.
_RETRY_SECONDS: Final = (0.5, 10.0)
#: Requests about one id that wait at a time.
_MOST_WAITING: Final = 100
#: Ids that are freed in one iteration of the event loop.
_FREED: Final = 1_000
#: Requests that wait for a partition that is unloaded, and are answered in one iteration of the event loop.
_REFUSED: Final = 1_000
#: Seconds that a stop waits for appends.
_CLOSE_TIMEOUT: Final = 5.0


class Machine(Protocol):
    """The state machine of an id."""

    @property
    def gone(self) -> bool:
        """Whether nothing about the id is in the log: the runtime forgets it."""

    def apply(self, record: Any, /) -> None:
        """Take over what a record says, at a load and after an append alike. Nothing else changes this state."""


M = TypeVar("M", bound=Machine)
N = TypeVar("N", bound="HostedId[Any]")
H = TypeVar("H", bound="Hosted[Any, Any]")
H_contra = TypeVar("H_contra", bound="Hosted[Any, Any]", contravariant=True)
P = TypeVar("P", bound="HostedPartition[Any]")
R = TypeVar("R")


class HostedId(Generic[P]):
    """An id that this broker coordinates.

    Attributes:
        name: the id.
        home: its partition.
    """

    __slots__ = ("home", "name")

    def __init__(self, name: str, home: P) -> None:
        self.name = name
        self.home = home


class Hosted(HostedId[P], Generic[M, P]):
    """An id whose machine decides, and applies its decisions when they are durable.

    Attributes:
        name: the id.
        home: its partition.
        machine: its state machine.
        append: its append that is under way.
        waiting: its mailbox: the requests that wait, in their order; None if there are none.
    """

    __slots__ = ("append", "machine", "waiting")

    def __init__(self, name: str, home: P, machine: M) -> None:
        super().__init__(name, home)
        self.machine = machine
        self.append: _Append | None = None
        self.waiting: dict[_Request, Handle] | None = None


class HostedPartition(Generic[N]):
    """A partition of the coordinator's topic that this broker leads.

    Attributes:
        index: its number.
        leader_epoch: the leader epoch for which it was loaded.
        loading: whether its replay is still running.
        hosted: its ids.
    """

    __slots__ = ("hosted", "index", "leader_epoch", "loading")

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.loading = True
        self.hosted: dict[str, N] = {}


class Shard(Protocol[P, H_contra, R]):
    """Parts that a coordinator brings, beside its machines.

    Attributes:
        what: the coordinator's state, for the log: "transactions".
        ids: its ids, for the log: "transactional_ids".
        busy: the answer to a request that has waited too long for a change of its id.
    """

    what: str
    ids: str
    busy: R

    def partition(self, index: int, leader_epoch: int) -> P:
        """Create a partition."""

    def replay(self, report: Report, start: int) -> PartitionReplay:
        """Create the replay of a partition."""

    def restore(self, home: P, replay: Any) -> Iterator[None]:
        """Host the machines that a replay has found, a few per step."""

    def resume(self, home: P) -> Iterator[None]:
        """Go on with what earlier coordinators have begun, a few ids per step; requests are answered meanwhile.

        The first step is taken before the first request.
        """

    def unloaded(self, home: P) -> None:
        """A partition is not coordinated any more. What is being appended to it has no result yet."""

    def encode(self, hosted: H_contra, record: Any) -> tuple[bytes, bytes | None]:
        """The key and value of a record of a machine's decision."""

    def publish(self, hosted: H_contra, event: Any) -> None:
        """Carry out an event of a machine's decision."""

    def applied(self, hosted: H_contra) -> None:
        """A machine has applied records."""

    def refusal(self, error: ErrorCode) -> R:
        """The answer to a request that has failed."""


class _Request:
    """A request that is answered by a machine.

    Attributes:
        step: asks the machine.
        respond: called once, with the answer.
        until: when it is answered in any case, in seconds on the monotonic clock.
    """

    __slots__ = ("respond", "step", "until")

    def __init__(self, step: Callable[[Any], Result[Any, Any, Any]], respond: Callable[[Any], None]) -> None:
        self.step = step
        self.respond = respond
        self.until = inf


class _Append:
    """The append of a decision.

    Attributes:
        result: the decision.
        respond: gets the answer; None if there is no request, or it was answered.
        retry: decides again after a failure; None for a decision that need not succeed.
    """

    __slots__ = ("respond", "result", "retry")

    def __init__(
        self,
        result: Result[Any, Any, Any],
        respond: Callable[[Any], None] | None,
        retry: Callable[[], object] | None,
    ) -> None:
        self.result = result
        self.respond = respond
        self.retry = retry


class Runtime(Generic[P, H, R]):
    """The partitions of a coordinator's topic that this broker leads, their ids, and what the machines of these decide.

    Args:
        topic: the coordinator's topic.
        partition_count: the number of its partitions, until :meth:`resized` says another one.
        shard: the coordinator.
        topic_log: appends to and reads the topic.
        log: the coordinator's logger.
        loop: the event loop.
        clock: the timers of `now`.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        timeout: seconds after which a request whose records are being appended is answered.
        patience: seconds after which a request that waits in a mailbox is answered.

    Attributes:
        topic: see there.
        partitions: the partitions that are loaded or being loaded, by number.
        closed: whether :meth:`close` was called.
        timers: one timer for all deadlines.
        writer: appends records.
    """

    def __init__(
        self,
        topic: str,
        partition_count: int,
        shard: Shard[P, H, R],
        topic_log: CoordinatorLog,
        log: BoundLogger,
        loop: Scheduler,
        clock: Scheduler,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        *,
        timeout: float,
        patience: float,
    ) -> None:
        self.topic = topic
        self.partitions: dict[int, P] = {}
        self.closed = False
        self.timers = Timers(clock, now)
        self.writer = Writer(topic, topic_log, loop, self.timers, now, wall_ms, timeout)
        self._partition_count = partition_count
        self._shard = shard
        self._topic_log = topic_log
        self._log = log
        self._loop = loop
        self._clock = clock
        self._now = now
        self._patience = patience
        self._backoff = jittered(*_RETRY_SECONDS, seed=topic)
        #: The ids with requests that wait, in the order in which they began to.
        self._waiting: dict[H, None] = {}
        #: The next turn of each kind of regular work.
        self._regular: dict[Callable[[], Iterator[None]], Handle] = {}

    # Which ids there are

    def partition_for(self, name: str) -> int:
        """The partition of the topic that an id belongs to."""
        return partition_for(name, self._partition_count)

    def resized(self, partition_count: int) -> None:
        """Set the number of partitions that the topic has."""
        self._partition_count = partition_count

    def home(self, name: str) -> P:
        """The loaded partition that an id belongs to.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._check_open()
        home = self.partitions.get(self.partition_for(name))
        if home is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if home.loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return home

    def homes(self) -> list[P]:
        """All partitions.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._check_open()
        if any(home.loading for home in self.partitions.values()):
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return list(self.partitions.values())

    def _check_open(self) -> None:
        if self.closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def wanted(self, hosted: HostedId[P]) -> bool:
        """Whether this broker still coordinates an id, as it did when `hosted` was made."""
        return self._serves(hosted.home)

    def _serves(self, home: "HostedPartition[Any]") -> bool:
        """Whether this broker still coordinates a partition, for the leader epoch for which `home` was made."""
        return self.partitions.get(home.index) is home

    @property
    def count(self) -> int:
        """The number of ids that this broker coordinates."""
        return sum(len(home.hosted) for home in self.partitions.values())

    # Appends

    def append(self, hosted: HostedId[P], records: list[tuple[bytes, bytes | None]], waiter: Waiter) -> None:
        """Append records (key, value) of an id, with those of other ids of the same iteration of the loop.

        Args:
            hosted: the id. If it was unloaded its records are not appended: NOT_COORDINATOR.
            records: all of them are appended, or none is.
            waiter: gets the result, later.
        """
        home = hosted.home
        if self.partitions.get(home.index) is home:  # _serves, written out: every commit takes this path
            self.writer.add(home.index, records, waiter)
        else:
            self._loop.call_soon(waiter, ErrorCode.NOT_COORDINATOR)

    # Decisions

    def ask(self, hosted: H, step: Callable[[H], Result[Any, R, Any]], respond: Callable[[R], None]) -> None:
        """Give a request to a machine, after the requests about its id that wait.

        Args:
            hosted: whose machine.
            step: asks it, once or more often: a machine that has to wait is asked again after its next change.
            respond: called once with the answer, unless a decision has none.
        """
        self._take(hosted, _Request(step, respond))
        if hosted.machine.gone and hosted.append is None and hosted.waiting is None:
            self._forget(hosted)  # its first request was refused

    def do(
        self, hosted: H, step: Callable[[H], Result[Any, R, Any]], *, retry: Callable[[], object] | None = None
    ) -> bool:
        """Take a step that no client asks for. It does not wait for requests that wait.

        Args:
            hosted: whose machine.
            step: asks it.
            retry: called if the append of the records fails.

        Returns:
            False if the machine was not asked: an append of its id is under way.
        """
        if hosted.append is not None:
            return False
        if self.wanted(hosted):
            self._carry_out(hosted, step(hosted), None, retry)
        return True

    def insist(self, hosted: H, step: Callable[[H], Result[Any, R, Any]], failures: int = 0) -> None:
        """Take a step again and again, with back-off, until its records are in the log or it has none."""
        pause = self._backoff.pause_after(failures + 1)
        retry = partial(self._loop.call_later, pause, self.insist, hosted, step, failures + 1)
        if not self.do(hosted, step, retry=retry):
            retry()

    def _take(self, hosted: H, request: _Request) -> None:
        if hosted.append is not None:
            self._wait(hosted, request)
            return
        result = request.step(hosted)
        if result.waits:
            self._wait(hosted, request)
        else:
            self._carry_out(hosted, result, request.respond, None)

    def _carry_out(
        self,
        hosted: H,
        result: Result[Any, R, Any],
        respond: Callable[[R], None] | None,
        retry: Callable[[], object] | None,
    ) -> None:
        """Append the records of a decision; if there are none, what follows from it follows at once."""
        if not result.records:
            self._follow(hosted, result, respond)
            return
        records = [self._shard.encode(hosted, record) for record in result.records]
        append = hosted.append = _Append(result, respond, retry)
        self.append(hosted, records, partial(self._appended, hosted, append))

    def _appended(self, hosted: H, append: _Append, error: ErrorCode) -> None:
        """The result of an append, or REQUEST_TIMED_OUT before it."""
        if error is ErrorCode.REQUEST_TIMED_OUT:
            self._refuse(append, error)  # The records may become durable: the log decides.
            return
        if not self.wanted(hosted):
            self._refuse(append, ErrorCode.NOT_COORDINATOR)  # The next coordinator finds what is in the log.
            return
        hosted.append = None
        if error is ErrorCode.NONE:
            for record in append.result.records:
                hosted.machine.apply(record)
            self._follow(hosted, append.result, append.respond)
            self._shard.applied(hosted)
        else:
            # The log of the partition says so once; clients and this coordinator try again.
            self._log.debug(f"{self._shard.what} cannot be written", name=hosted.name, error=error.name)
            self._refuse(append, error)
            if append.retry is not None:
                append.retry()
        self._go_on(hosted)
        if hosted.machine.gone and hosted.append is None:
            self._forget(hosted)

    def _forget(self, hosted: H) -> None:
        """Forget an id about which nothing is in the log."""
        hosted_there = hosted.home.hosted
        if hosted_there.get(hosted.name) is hosted:
            del hosted_there[hosted.name]

    def _follow(self, hosted: H, result: Result[Any, R, Any], respond: Callable[[R], None] | None) -> None:
        """Publish and answer a decision whose records are durable and applied."""
        if respond is not None and result.response is not None:
            respond(result.response)
        for event in result.events:
            self._shard.publish(hosted, event)

    def _refuse(self, append: _Append, error: ErrorCode) -> None:
        """Answer the request whose records were not appended in time."""
        respond, append.respond = append.respond, None
        if respond is not None:
            respond(self._shard.refusal(APPEND_ERRORS.get(error, error)))

    # Mailboxes

    def _wait(self, hosted: H, request: _Request) -> None:
        """Put a request into the mailbox. A change takes some ms; refused, most clients would wait longer."""
        waiting = hosted.waiting
        if waiting is None:
            waiting = hosted.waiting = {}
            self._waiting[hosted] = None
        elif len(waiting) >= _MOST_WAITING:
            request.respond(self._shard.busy)
            return
        now = self._now()
        request.until = min(request.until, now + self._patience)
        pause = max(request.until - now, 0.0)
        waiting[request] = self._loop.call_later(pause, self._give_up, hosted, request)

    def _give_up(self, hosted: H, request: _Request) -> None:
        """The change takes long: answer a request that waits for it."""
        waiting = hosted.waiting or {}
        waiting.pop(request, None)
        self._keep_waiting(hosted, waiting)
        request.respond(self._shard.busy)

    def _go_on(self, hosted: H) -> None:
        """Ask the machine again, until a request begins a change.

        At once: a request that came in between would be served before older ones.
        """
        waiting, hosted.waiting = hosted.waiting, None
        if waiting is None:
            return
        while waiting and hosted.append is None:
            request = next(iter(waiting))
            waiting.pop(request).cancel()
            self._take(hosted, request)
        self._keep_waiting(hosted, (hosted.waiting or {}) | waiting)

    def _keep_waiting(self, hosted: H, waiting: "dict[_Request, Handle]") -> None:
        hosted.waiting = waiting or None
        if not waiting:
            self._waiting.pop(hosted, None)

    # Partitions

    @property
    def loaded(self) -> frozenset[int]:
        """The partitions that are loaded."""
        return frozenset(index for index, home in self.partitions.items() if not home.loading)

    async def load(self, index: int, leader_epoch: int) -> None:
        """Replay a partition, a little at a time, and continue with what is in the log.

        Meanwhile requests get COORDINATOR_LOAD_IN_PROGRESS. Does nothing if the partition was loaded for the same
        leader epoch or a newer one. A failure is logged; the partition is then not loaded.
        """
        shard, started = self._shard, self._now()
        before = self.partitions.get(index)
        if before is not None:
            if before.leader_epoch >= leader_epoch:
                return
            self.unload(index)
        home = self.partitions[index] = shard.partition(index, leader_epoch)
        try:
            replay = shard.replay(partial(self._report_corruption, index), self._topic_log.start_offset(index))
            complete = await replay_partition(self._topic_log, index, replay, partial(self._serves, home))
            complete = complete and await self._all(home, shard.restore(home, replay))
        except Exception as error:
            # Without its log the partition cannot be coordinated: clients get NOT_COORDINATOR.
            report_failure(self._log, shard.what, index, error)
            if self._serves(home):
                del self.partitions[index]
            return
        if not complete:
            return
        home.loading = False
        # Fifty empty partitions are not worth fifty lines.
        report = self._log.info if replay.records else self._log.debug
        report(
            f"loaded {shard.what}",
            partition=index,
            leader_epoch=leader_epoch,
            **{shard.ids: len(home.hosted)},
            records=replay.records,
            took=seconds(self._now() - started),
        )
        await self._all(home, shard.resume(home))

    async def _all(self, home: P, steps: Iterator[None]) -> bool:
        """Do all steps, with other tasks in between; False as soon as the partition is not wanted any more."""
        for _ in chain(steps, (None,)):
            await asyncio.sleep(0)
            if not self._serves(home):
                return False
        return True

    def _report_corruption(self, partition: int, offset: int, reason: str) -> None:
        self._log.error(f"corrupt record in {self.topic} skipped", partition=partition, offset=offset, reason=reason)

    def unload(self, index: int) -> None:
        """Stop to coordinate a partition: requests that wait fail with NOT_COORDINATOR."""
        home, shard = self.partitions.pop(index, None), self._shard
        if home is None:
            return
        count = len(home.hosted)
        shard.unloaded(home)
        self.writer.drop(index, ErrorCode.NOT_COORDINATOR)
        report = self._log.info if count else self._log.debug
        report(f"unloaded {shard.what}", partition=index, **{shard.ids: count})
        self._free(home)
        self.gradually(self._refuse_waiting())

    def _refuse_waiting(self) -> Steps[None]:
        """Answer the requests that wait in the mailboxes of partitions that are unloaded, some per step."""
        work = 0
        for hosted in [each for each in self._waiting if not self.wanted(each)]:
            waiting = hosted.waiting or {}
            for request, timer in waiting.items():
                timer.cancel()
                request.respond(self._shard.refusal(ErrorCode.NOT_COORDINATOR))
            self._keep_waiting(hosted, {})
            work += len(waiting)
            if work >= _REFUSED:
                work = 0
                yield

    def _free(self, home: P) -> None:
        """Free the memory of a partition that is unloaded, a little at a time: a million objects take long."""
        for _ in range(min(_FREED, len(home.hosted))):
            home.hosted.popitem()
        if home.hosted:
            self._loop.call_soon(self._free, home)

    # Time

    def regularly(self, interval: float, work: Callable[[], Iterator[None]]) -> None:
        """Do `work` again and again until :meth:`close`, a step in each iteration of the loop.

        Args:
            interval: seconds before each time, the first one included.
            work: begins it.
        """

        def turn(steps: Iterator[None]) -> None:
            if next(steps, steps) is steps:
                self._regular[work] = self._clock.call_later(interval, start)
            else:
                self._regular[work] = self._loop.call_soon(turn, steps)

        def start() -> None:
            turn(work())

        self._regular[work] = self._clock.call_later(interval, start)

    def gradually(self, steps: Iterator[None]) -> None:
        """Do some work once, a step in each iteration of the loop, until :meth:`close`."""
        if not self.closed and next(steps, steps) is not steps:
            self._loop.call_soon(self.gradually, steps)

    def close(self) -> Awaitable[None]:
        """Refuse all requests from now on. The result appends what was collected, answers what waits, and stops."""
        self.closed = True
        for handle in self._regular.values():
            handle.cancel()
        return self._close()

    async def _close(self) -> None:
        self.writer.flush()
        settled: asyncio.Future[None] = self._loop.create_future()
        self.writer.when_settled(self.partitions, partial(settled.set_result, None))
        await asyncio.wait([settled], timeout=_CLOSE_TIMEOUT)
        for index in list(self.partitions):
            self.unload(index)
        finish(self._refuse_waiting())
        self.timers.close()


def answer_once(reply: "asyncio.Future[R]", answer: R) -> None:
    """Answer a request, unless its client has given up."""
    if not reply.done():
        reply.set_result(answer)
