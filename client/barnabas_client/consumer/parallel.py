"""``Consumer.run``: polls, runs handlers, commits what is finished.

What runs next and what may be committed is decided by :mod:`barnabas_client.consumer.parallel_core`; here are the
tasks. The run is always in a poll, so it never misses `max_poll_interval_ms`, and a rebalance never waits for it to
come to one. A rebalance waits, in the listener, for what is running of the partitions that go, then commits, then tells
the program's own listener. The end of a run, whatever its cause, does the same for all partitions, and leaves positions
at the first record that is not finished: another run goes on there.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import BrokenExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas_client.consumer.core import ConsumerCore
from barnabas_client.consumer.dead_letters import DeadLetters
from barnabas_client.consumer.parallel_config import Handler, RunConfig
from barnabas_client.consumer.parallel_core import Job, Order, Scheduler, Verdict
from barnabas_client.consumer.rebalance import ConsumerRebalanceListener
from barnabas_client.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalStateError,
    RebalanceInProgressError,
    WakeupError,
)
from barnabas_client.logs import logger
from barnabas_client.network.backoff import Backoff
from barnabas_client.network.retries import jitter
from barnabas_client.structs import ConsumerRecord, TopicPartition
from barnabas_protocol.errors import KafkaError

if TYPE_CHECKING:
    from barnabas_client.consumer.consumer import Consumer

_log: Final = logger("barnabas_client.consumer.consumer")

_POLL_MS: Final = 1_000
#: Seconds that a handler gets to clean up after it was cancelled.
_GRACE: Final = 5.0


#: Why a last commit may fail without harm: what was finished is read again by whoever reads the partition next.
_OTHERS_READ_ON: Final = (CommitFailedError, ConsumerStoppedError, RebalanceInProgressError)


class _CannotRunError(Exception):
    """Nothing that a retry or a dead letter could help; the cause says what."""


class Runner:
    """One run of a consumer."""

    def __init__(self, consumer: "Consumer", core: ConsumerCore, handler: Handler, config: RunConfig) -> None:
        config.check_handler(handler)
        self._consumer = consumer
        self._core = core
        self._handler = handler
        self._config = config
        self._letters = self._dead_letters()
        first, most = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
        self._scheduler = Scheduler(
            Order(config.order),
            config.concurrency,
            config.retries,
            lambda: Backoff(first, most, jitter),
            config.max_in_flight,
            config.max_in_flight_bytes,
        )
        milliseconds = config.drain_timeout_ms
        if milliseconds is None:
            milliseconds = (core.config.rebalance_timeout_ms or core.config.max_poll_interval_ms) // 2
        self._drain_timeout = milliseconds / 1000
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Job, asyncio.Task[None]] = {}
        self._cancelled: set[Job] = set()
        self._paused: set[TopicPartition] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._committing = asyncio.Lock()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._failure: BaseException | None = None
        self._over = asyncio.Event()

    def _dead_letters(self) -> DeadLetters | None:
        topic, producer, settings = self._config.dead_letter_topic, self._config.producer, self._core.config
        if topic is None:
            return None
        if producer is None and not (settings.key_deserializer is None and settings.value_deserializer is None):
            raise TypeError(
                "dead_letter_topic is given and the consumer has deserializers: what was consumed is no bytes any "
                "more. To do: give a producer= whose serializers undo that, or deserialize in the handler"
            )
        return DeadLetters(topic, settings.group_id, self._core.client, producer)

    # The run.

    async def run(self) -> None:
        """Handle records until told to end.

        Raises:
            KafkaError: what polls and commits raise.
            Exception: what the handler raised for a record that had all its tries, if there is no dead-letter topic.
        """
        if self._core.config.group_id is not None and self._core.config.enable_auto_commit:
            raise IllegalStateError(
                "run(): this consumer commits whatever was polled, finished or not. To do: make it with "
                "enable_auto_commit=False; run() commits what is finished"
            )
        self._core.check_running()
        if self._letters is not None:
            await self._letters.start()
        inner = self._core.listener
        outer = _Listener(self, inner)
        self._core.listen(outer)
        try:
            try:
                await self._consume()
            except (WakeupError, ConsumerStoppedError):
                pass
            except BaseException:
                await self._wind_up(quietly=True)
                raise
            await self._wind_up(quietly=self._failure is not None)
            if self._failure is not None:
                raise self._failure
        finally:
            self._leave()
            if self._core.listener is outer:
                self._core.listen(inner)
            self._over.set()
            if self._letters is not None:
                await self._letters.stop()

    async def stop(self, timeout: float) -> None:
        """End the run, as `wakeup` does, and wait for it; all within `timeout` seconds.

        Raises:
            IllegalStateError: called in a handler.
        """
        if asyncio.current_task() in self._tasks.values():
            raise IllegalStateError(
                "a handler cannot stop the consumer: that would wait for the handler to return. To do: call wakeup() "
                "in the handler; run() returns then, and the consumer can be stopped"
            )
        self._drain_timeout = min(self._drain_timeout, timeout / 2)
        self._finish(None)
        try:
            async with asyncio.timeout(timeout):
                await self._over.wait()
        except TimeoutError:
            _log.warning("a run did not end in time", group=self._core.config.group_id)

    def _finish(self, failure: BaseException | None) -> None:
        if not self._end.done():
            self._failure = failure
            self._end.set_result(None)
        elif failure is not None:
            _log.error("a run that ends anyway met an error", group=self._core.config.group_id, reason=repr(failure))

    async def _consume(self) -> None:
        """Poll and commit until the end is called for or one of the two fails."""
        poller = self._loop.create_task(self._poll_forever(), name="barnabas-run-poll")
        committer = self._loop.create_task(self._commit_forever(), name="barnabas-run-commit")
        try:
            await asyncio.wait({poller, committer, self._end}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            poller.cancel()
            committer.cancel()
            await asyncio.gather(poller, committer, return_exceptions=True)
        for task in (poller, committer):
            if self._failure is None and not task.cancelled():
                task.result()

    async def _wind_up(self, *, quietly: bool) -> None:
        """Let what is running finish, commit, put positions where another run should go on."""
        self._finish(None)
        try:
            await self._drain(self._scheduler.hold(list(self._scheduler.partitions)), self._drain_timeout)
            await self._commit()
        except KafkaError as error:
            self._not_committed(error)
            if not (quietly or isinstance(error, _OTHERS_READ_ON)):
                raise

    def _leave(self) -> None:
        self._cancel(self._tasks)
        if self._timer is not None:
            self._timer.cancel()
        assigned = self._consumer.assignment()
        for partition, offset in self._scheduler.unfinished().items():
            if partition in assigned:
                self._consumer.seek(partition, offset)
        self._consumer.resume(*(self._paused & assigned))
        self._scheduler.forget(list(self._scheduler.partitions))

    # Polls.

    async def _poll_forever(self) -> None:
        consumer, scheduler = self._consumer, self._scheduler
        while True:
            assigned = consumer.assignment()
            # A partition may go without a call of the listener, such as one that was assigned by hand.
            await self.lose([one for one in scheduler.partitions if one not in assigned])
            most = min(scheduler.divide(len(assigned)), self._core.config.max_poll_records)
            # Nothing is awaited between the two, so that what was polled is known to the scheduler.
            taken = await consumer.getmany(timeout_ms=_POLL_MS, max_records=most)
            for partition, records in taken.items():
                scheduler.add(partition, records)
                if scheduler.full(partition):
                    consumer.pause(partition)
                    self._paused.add(partition)
            self._begin()

    # Handlers.

    def _begin(self) -> None:
        """Start what may run, and the timer for what rests."""
        if self._end.done():
            return
        for job in self._scheduler.start(self._loop.time()):
            self._spawn(job, self._handle(job.record))
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._scheduler.next_deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._begin)

    def _spawn(self, job: Job, work: Any) -> None:
        task = self._tasks[job] = self._loop.create_task(work)
        task.add_done_callback(partial(self._handled, job))

    async def _handle(self, record: ConsumerRecord) -> None:
        if self._config.executor is not None:
            await self._in_executor(record)
            return
        result = self._handler(record)
        if not inspect.isawaitable(result):
            raise _CannotRunError from TypeError(
                f"the handler returned {result!r}: it is a plain function. To do: make it `async def`, or give an "
                "executor= to run it in"
            )
        await result

    async def _in_executor(self, record: ConsumerRecord) -> None:
        assert self._config.executor is not None
        try:
            future = self._config.executor.submit(self._handler, record)
        except Exception as error:  # it is broken, or was shut down
            raise _CannotRunError from error
        wrapped = asyncio.wrap_future(future)
        wrapped.add_done_callback(_look_at)
        try:
            await asyncio.wait({wrapped})
        except asyncio.CancelledError:
            if not future.cancel():
                await asyncio.wait({wrapped})  # it cannot be stopped, and what must not overtake it waits
            raise
        try:
            wrapped.result()
        except BrokenExecutor as error:
            raise _CannotRunError from error

    def _handled(self, job: Job, task: asyncio.Task[None]) -> None:
        del self._tasks[job]
        if task.cancelled():
            if job in self._cancelled:
                self._cancelled.discard(job)
                self._scheduler.abandoned(job)
            else:
                self._failed(job, RuntimeError("the handler was cancelled from within"))
        else:
            error = task.exception()
            if error is None:
                self._cancelled.discard(job)
                self._scheduler.finished(job)
            elif isinstance(error, _CannotRunError):
                self._scheduler.abandoned(job)
                self._finish(error.__cause__)
            elif isinstance(error, Exception):
                self._failed(job, error)
            else:  # the program is being ended
                self._scheduler.abandoned(job)
                self._finish(error)
        if job.partition in self._paused and self._scheduler.drained(job.partition):
            self._paused.discard(job.partition)
            if job.partition in self._consumer.assignment():
                self._consumer.resume(job.partition)
        self._begin()

    def _failed(self, job: Job, error: Exception) -> None:
        self._cancelled.discard(job)
        verdict = self._scheduler.failed(job, self._loop.time())
        where = {"topic": job.record.topic, "partition": job.record.partition, "offset": job.record.offset}
        if verdict is not Verdict.GIVE_UP:
            _log.info("a handler raised", **where, attempt=job.attempts, then=verdict.value, reason=repr(error))
        elif self._letters is None:
            self._scheduler.abandoned(job)
            error.add_note(
                f"raised for {job.partition} at offset {job.record.offset}, attempt {job.attempts}; to go on after "
                "such errors, give run() a dead_letter_topic"
            )
            self._finish(error)
        else:
            self._spawn(job, self._bury(job, error))

    async def _bury(self, job: Job, error: Exception) -> None:
        assert self._letters is not None
        try:
            await self._letters.write(job.record, error, job.attempts)
        except Exception as failure:
            raise _CannotRunError from failure

    async def _drain(self, jobs: Collection[Job], timeout: float) -> None:
        """Wait up to `timeout` seconds for jobs to finish, then cancel them and let them clean up."""
        tasks = {self._tasks[job] for job in jobs}
        if not tasks:
            return
        try:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            if late:
                if timeout:
                    _log.warning(
                        "handlers are cancelled: they did not finish in time",
                        handlers=len(late),
                        drain_timeout_ms=round(timeout * 1000),
                    )
                self._cancel(jobs)
                await asyncio.wait(late, timeout=_GRACE)
        except asyncio.CancelledError:
            self._cancel(jobs)
            raise

    def _cancel(self, jobs: Collection[Job]) -> None:
        for job in jobs:
            task = self._tasks.get(job)
            if task is not None and not task.done() and job not in self._cancelled:
                self._cancelled.add(job)
                task.cancel()

    # Partitions go.

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are revoked: finish what runs, commit it."""
        try:
            await self._drain(self._scheduler.hold(partitions), self._drain_timeout)
            await self._commit()
        except KafkaError as error:
            self._not_committed(error)
        finally:
            self._forget(partitions)

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are gone, and others may have them."""
        if partitions:
            jobs = self._scheduler.hold(partitions)
            self._forget(partitions)
            await self._drain(jobs, 0)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        self._scheduler.forget(partitions)
        self._paused.difference_update(partitions)
        for partition in partitions:
            self._committed.pop(partition, None)

    # Commits.

    async def _commit_forever(self) -> None:
        while True:
            await asyncio.sleep(self._config.commit_interval_ms / 1000)
            try:
                await self._commit()
            except CommitFailedError as error:
                self._not_committed(error)  # the membership is lost; the listener will be told
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._not_committed(error)

    async def _commit(self) -> None:
        if self._core.config.group_id is None:
            return
        async with self._committing:  # a later commit must not be overtaken by an earlier one
            new = {
                partition: offset
                for partition, offset in self._scheduler.committable().items()
                if self._committed.get(partition) != offset
            }
            if new:
                await self._consumer.commit(new)
                self._committed.update(new)

    def _not_committed(self, error: KafkaError) -> None:
        _log.warning("finished records are not committed", group=self._core.config.group_id, reason=str(error))


class _Listener(ConsumerRebalanceListener):
    """The run's, around the program's own."""

    def __init__(self, runner: Runner, inner: ConsumerRebalanceListener | None) -> None:
        self._runner = runner
        self._inner = inner

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._runner.release(revoked)
        if self._inner is not None:
            await _call(self._inner.on_partitions_revoked, revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        if self._inner is not None:
            await _call(self._inner.on_partitions_assigned, assigned)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        await self._runner.lose(lost)
        if self._inner is not None:
            # A listener written for aiokafka does not know that partitions can be lost.
            method = getattr(self._inner, "on_partitions_lost", self._inner.on_partitions_revoked)
            await _call(method, lost)


async def _call(
    method: Callable[[Collection[TopicPartition]], Awaitable[None] | None], partitions: Collection[TopicPartition]
) -> None:
    result = method(partitions)
    if inspect.isawaitable(result):
        await result


def _look_at(future: asyncio.Future[Any]) -> None:
    """An error that comes after nobody waits any more is no news."""
    if not future.cancelled():
        future.exception()
