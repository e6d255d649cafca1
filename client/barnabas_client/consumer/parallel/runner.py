"""Runs the handlers of ``Consumer.run``: polls, starts handlers, commits finished records.

:mod:`barnabas_client.consumer.parallel.work` decides what runs next and what may be committed; here are the tasks. The
run always polls, so it never misses `max_poll_interval_ms`, and a rebalance never waits for it to poll. Instead, a
rebalance waits in the listener until the running handlers of revoked partitions are finished; then it commits, then it
calls the program's own listener. The end of a run, whatever its cause, does the same for all partitions, and leaves
positions at the first record that is not finished: another run continues there.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from barnabas_client.checks import Offset
from barnabas_client.config import ClientConfig, ConsumerConfig
from barnabas_client.consumer.commits import after_rebalance
from barnabas_client.consumer.listener import ConsumerRebalanceListener, call_listener, lost_method
from barnabas_client.consumer.parallel.config import BatchHandler, Handler, RunConfig
from barnabas_client.consumer.parallel.dead_letters import DeadLetters, dead_letters
from barnabas_client.consumer.parallel.handlers import CannotRunError, Handlers
from barnabas_client.consumer.parallel.work import Job, Order, Scheduler, Verdict
from barnabas_client.consumer.subscription import Subscription
from barnabas_client.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalStateError,
    WakeupError,
)
from barnabas_client.logs import logger
from barnabas_client.network.retries import jitter
from barnabas_client.structs import AnyRecord, TopicPartition
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.consumer")

_POLL_MS: Final = 1_000
#: The last commit may fail with these: other members own the partitions by now, and repeat finished records.
_HARMLESS: Final = (CommitFailedError, ConsumerStoppedError)


class RunConsumer(Protocol):
    """The part of a consumer that a run uses; see :class:`~barnabas_client.consumer.consumer.Consumer`."""

    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions."""

    def resume(self, *partitions: TopicPartition) -> None:
        """End a pause."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`."""

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[AnyRecord]]:
        """Poll."""

    async def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None) -> None:
        """Commit and wait."""


class Runner:
    """One run of a consumer.

    Args:
        consumer: polls and commits.
        subscription: its rebalance listener is replaced during the run.
        client: settings of the client.
        settings: settings of the consumer.
        handler: handles a record, or a batch.
        config: settings of the run.

    Raises:
        TypeError: the handler, or the combination with deserializers, is invalid.
        IllegalStateError: the consumer commits automatically.
    """

    def __init__(
        self,
        consumer: RunConsumer,
        subscription: Subscription,
        client: ClientConfig,
        settings: ConsumerConfig,
        handler: Handler[Any, Any] | BatchHandler[Any, Any],
        config: RunConfig,
    ) -> None:
        config.check_handler(handler)
        self._consumer = consumer
        self._subscription = subscription
        self._client = client
        self._settings = settings
        self._config = config
        deserialized = settings.key_deserializer is not None or settings.value_deserializer is not None
        self._dead_letters = dead_letters(config, settings.group_id, client, deserialized=deserialized)
        if settings.group_id is not None and settings.enable_auto_commit:
            raise IllegalStateError(
                "run(): this consumer commits all records that were polled, finished or not. To do: make it with "
                "enable_auto_commit=False; run() commits what is finished"
            )
        first, most = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
        self._scheduler = Scheduler(
            Order(config.order),
            config.concurrency,
            config.retries,
            lambda: Backoff(first, most, jitter),
            config.max_in_flight,
            config.max_in_flight_bytes,
            config.batch_size or 1,
            config.batch_timeout_ms / 1000,
        )
        milliseconds = config.drain_timeout_ms
        if milliseconds is None:
            milliseconds = (settings.rebalance_timeout_ms or settings.max_poll_interval_ms) // 2
        self.handlers: Handlers[Job] = Handlers(self, handler, config.executor, settings.group_id, milliseconds / 1000)
        self._loop = asyncio.get_running_loop()
        self._paused: set[TopicPartition] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._committing = asyncio.Lock()

    # The run.

    async def run(self) -> None:
        """Handle records until the run is ended.

        Raises:
            KafkaError: polls or commits fail.
            Exception: the handler's error, for a record without attempts left, if there is no dead-letter topic.
        """
        if self._dead_letters is not None:
            await self._dead_letters.start()
        inner = self._subscription.listener
        outer = self._subscription.listener = _RunListener(self, inner)
        try:
            try:
                await self.handlers.until_end(self._poll_forever(), self._commit_forever())
            except (WakeupError, ConsumerStoppedError):
                pass
            except BaseException:
                await self._drain_all(quietly=True)
                raise
            await self._drain_all(quietly=self.handlers.failure is not None)
            if self.handlers.failure is not None:
                raise self.handlers.failure
        finally:
            self._clean_up()
            if self._subscription.listener is outer:
                self._subscription.listener = inner
            self.handlers.over()
            if self._dead_letters is not None:
                await self._dead_letters.stop()

    async def stop(self, timeout: float) -> None:
        """End the run, as `wakeup` does, and wait for its end, for at most `timeout` seconds.

        Raises:
            IllegalStateError: called in a handler.
        """
        await self.handlers.stop(timeout)

    async def _drain_all(self, *, quietly: bool) -> None:
        """Wait until running handlers are finished, and commit, after a rebalance in progress."""
        self.handlers.end()
        try:
            jobs = self._scheduler.hold(list(self._scheduler.partitions))
            await self.handlers.drain(jobs, self.handlers.drain_timeout)
            # A run that fails or is cancelled ends soon, even if no broker answers.
            async with asyncio.timeout(self._settings.close_timeout_ms / 1000 if quietly else None):
                await after_rebalance(self._commit, self._client)
        except TimeoutError:
            _log.warning("finished records are not committed: no answer in time", group=self._settings.group_id)
        except KafkaError as error:
            self._not_committed(error)
            if not (quietly or isinstance(error, _HARMLESS)):
                raise

    def _clean_up(self) -> None:
        """Put positions where another run continues, and end pauses."""
        self.handlers.cancel_all()
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
            most = min(scheduler.divide(len(assigned)), self._settings.max_poll_records)
            # There is no await between the poll and `add`: the scheduler knows every record that a poll returned.
            taken = await consumer.getmany(timeout_ms=_POLL_MS, max_records=most)
            for partition, records in taken.items():
                scheduler.add(partition, records, self._loop.time())
                if scheduler.full(partition):
                    consumer.pause(partition)
                    self._paused.add(partition)
            self._start_jobs()

    # Handlers.

    def _start_jobs(self) -> None:
        """Start the jobs that may run, and the timer for the next retry."""
        if self.handlers.ending:
            return
        for job in self._scheduler.start(self._loop.time()):
            self.handlers.handle(job, job.record if self._config.batch_size is None else job.records)
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._scheduler.next_deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._start_jobs)

    def finished(self, job: Job) -> None:
        """See :class:`HandlerOwner`."""
        self._scheduler.finished(job)
        self._ended(job)

    def abandoned(self, job: Job) -> None:
        """See :class:`HandlerOwner`."""
        self._scheduler.abandoned(job)
        self._ended(job)

    def failed(self, job: Job, error: Exception) -> None:
        """See :class:`HandlerOwner`."""
        self._decide(job, error)
        self._ended(job)

    def _ended(self, job: Job) -> None:
        """A handler has ended: there may be room for more."""
        if job.partition in self._paused and self._scheduler.drained(job.partition):
            self._paused.discard(job.partition)
            if job.partition in self._consumer.assignment():
                self._consumer.resume(job.partition)
        self._start_jobs()

    def _decide(self, job: Job, error: Exception) -> None:
        """Retry a job, write its dead letters, or end the run."""
        verdict = self._scheduler.failed(job, self._loop.time())
        where = {"topic": job.record.topic, "partition": job.record.partition, "offset": job.record.offset}
        if verdict is not Verdict.GIVE_UP:
            then = verdict.name.lower()
            _log.info("a handler raised", **where, attempt=job.attempts, then=then, reason=repr(error))
        elif self._dead_letters is None:
            self._scheduler.abandoned(job)
            error.add_note(
                f"raised for {job.partition} at offset {_offsets(job)}, attempt {job.attempts}; to continue after "
                "such errors, give run() a dead_letter_topic"
            )
            self.handlers.end(error)
        else:
            self.handlers.spawn(job, self._write_dead_letter(self._dead_letters, job, error))

    async def _write_dead_letter(self, dead_letters: DeadLetters, job: Job, error: Exception) -> None:
        try:
            for record in job.records:
                await dead_letters.write(record, error, job.attempts)
        except Exception as failure:
            raise CannotRunError from failure

    # Partitions are revoked or lost.

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are about to be revoked: finish running handlers and commit."""
        try:
            await self.handlers.drain(self._scheduler.hold(partitions), self.handlers.drain_timeout)
            await self._commit()
        except KafkaError as error:
            self._not_committed(error)
        finally:
            self._forget(partitions)

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are lost, and other members may own them."""
        if partitions:
            jobs = self._scheduler.hold(partitions)
            self._forget(partitions)
            await self.handlers.drain(jobs, 0)

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
                self._not_committed(error)  # the membership is lost; the listener will be called
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._not_committed(error)

    async def _commit(self) -> None:
        if self._settings.group_id is None:
            return
        async with self._committing:  # an earlier commit must not overtake a later one
            new = {
                partition: offset
                for partition, offset in self._scheduler.committable().items()
                if self._committed.get(partition) != offset
            }
            if new:
                await self._consumer.commit(new)
                self._committed.update(new)

    def _not_committed(self, error: KafkaError) -> None:
        _log.warning("finished records are not committed", group=self._settings.group_id, reason=str(error))


class _RunListener(ConsumerRebalanceListener):
    """The rebalance listener of a run; calls the program's own one afterwards."""

    def __init__(self, runner: Runner, inner: ConsumerRebalanceListener | None) -> None:
        self._runner = runner
        self._inner = inner

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        await self._runner.revoke(revoked)
        if self._inner is not None:
            await call_listener(self._inner.on_partitions_revoked, revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        if self._inner is not None:
            await call_listener(self._inner.on_partitions_assigned, assigned)

    async def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        await self._runner.lose(lost)
        if self._inner is not None:
            await call_listener(lost_method(self._inner), lost)


def _offsets(job: Job) -> str:
    first, last = job.records[0].offset, job.records[-1].offset
    return str(first) if first == last else f"{first} to {last}"
