"""Runs the handlers of ``ShareConsumer.run``: acquires records, starts handlers, acknowledges, renews locks.

Records are acquired for the handlers that are free, and as many more as handlers work off in :data:`_AHEAD` seconds, so
that quick ones do not wait for a round trip.

Every record is held from its poll to its acknowledgement, whether it waits for a handler, is being handled, or waits
to be released after a failure. A lock is renewed after a third of its time. A record whose lock could not be renewed
is lost at the end of that time: others may have it, so its handler is cancelled.
"""

import asyncio
import math
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from barnabas_client.config import ClientConfig
from barnabas_client.consumer.parallel.config import HandlerConfig
from barnabas_client.consumer.parallel.dead_letters import DeadLetters, dead_letters
from barnabas_client.consumer.parallel.handlers import CannotRunError, Handlers
from barnabas_client.errors import ConsumerStoppedError, IllegalStateError, WakeupError
from barnabas_client.logs import logger
from barnabas_client.network.retries import jitter
from barnabas_client.shares.config import ShareConsumerConfig
from barnabas_client.shares.records import ShareHandler, ShareRecord
from barnabas_client.shares.session import Acknowledgement
from barnabas_client.tasks import end
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.shares")

#: The part of a lock's time after which it is renewed. The request may have to wait for a fetch to be answered.
_RENEW: Final = 1 / 3
_DRAIN_TIMEOUT_MS: Final = 30_000
#: Seconds of work that wait for a handler: less than users notice when another member could have done it.
_AHEAD: Final = 0.05
#: The part of a handler's time in the mean of all.
_WEIGHT: Final = 1 / 8


class RunShareConsumer(Protocol):
    """The part of a share consumer that a run uses."""

    async def acquire(self, most: int) -> list[ShareRecord[Any, Any]]:
        """Wait for records, at most so many from each leader."""

    async def buffered(self) -> list[ShareRecord[Any, Any]]:
        """The records that have come meanwhile."""

    async def flush(self) -> None:
        """Wait until the broker has what was acknowledged."""


@dataclass(slots=True, eq=False)
class Held:
    """A record between its poll and its acknowledgement.

    Attributes:
        record: with the lock.
        lock: seconds that a lock lasts.
        until: when the lock expires.
        check_at: when it is to be renewed; when it expires, if that is not possible.
        lost: whether it has expired.
        started: when its handler began.
        release: the timer of its release, after a failure.
    """

    record: ShareRecord[Any, Any]
    lock: float
    until: float
    check_at: float
    lost: bool = False
    started: float = 0.0
    release: asyncio.TimerHandle | None = None

    def renewed(self, at: float) -> None:
        """The lock was renewed at a time, or later."""
        self.until, self.check_at = at + self.lock, at + self.lock * _RENEW


class ShareRunner:
    """One run of a share consumer.

    Args:
        consumer: acquires and acknowledges.
        client: settings of the client.
        settings: settings of the consumer.
        handler: handles a record.
        config: settings of the run.

    Raises:
        TypeError: the handler, or the combination with deserializers, is invalid.
    """

    def __init__(
        self,
        consumer: RunShareConsumer,
        client: ClientConfig,
        settings: ShareConsumerConfig,
        handler: ShareHandler[Any, Any],
        config: HandlerConfig,
    ) -> None:
        config.check_handler(handler)
        self._consumer = consumer
        self._settings = settings
        self._config = config
        deserialized = settings.key_deserializer is not None or settings.value_deserializer is not None
        self._dead_letters = dead_letters(config, settings.group_id, client, deserialized=deserialized)
        drain = _DRAIN_TIMEOUT_MS if config.drain_timeout_ms is None else config.drain_timeout_ms
        self.handlers: Handlers[Held] = Handlers(self, handler, config.executor, settings.group_id, drain / 1000)
        self._backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000, jitter)
        self._loop = asyncio.get_running_loop()
        self._held: set[Held] = set()
        self._waiting: deque[Held] = deque()  # for a handler
        self._seconds: float | None = None  # that a handler takes
        self._room = asyncio.Event()
        self._sooner = asyncio.Event()  # a lock is to be checked sooner than known
        self._check_at = 0.0

    # The run.

    async def run(self) -> None:
        """Handle records until the run is ended.

        Raises:
            KafkaError: polls fail, or a dead letter cannot be written.
        """
        if self._dead_letters is not None:
            await self._dead_letters.start()
        renewals = self._loop.create_task(self._renew_forever(), name="barnabas-share-renew")
        try:
            try:
                await self.handlers.until_end(self._poll_forever())
            except (WakeupError, ConsumerStoppedError):
                pass
            except BaseException:
                await self._drain()
                raise
            await self._drain()
            if self.handlers.failure is not None:
                raise self.handlers.failure
        finally:
            self.handlers.cancel_all()
            await end(renewals)
            self.handlers.over()
            if self._dead_letters is not None:
                await self._dead_letters.stop()

    async def _drain(self) -> None:
        """Release what no handler has, wait for the handlers, and send what was acknowledged."""
        self.handlers.end()
        for held in [*self._waiting, *(held for held in self._held if held.release is not None)]:
            self._let_go(held, Acknowledgement.RELEASE)
        self._waiting.clear()
        await self.handlers.drain_all()
        try:
            async with asyncio.timeout(self._settings.close_timeout_ms / 1000):
                await self._consumer.flush()
        except (TimeoutError, KafkaError) as error:
            _log.warning("acknowledgements may be lost", group=self._settings.group_id, reason=repr(error))

    # Records.

    async def _poll_forever(self) -> None:
        while True:
            most = self._config.concurrency + self._ahead
            room = most - len(self._held)
            # With some in stock, it is not worth a request until there is room for many.
            if room > (most // 2 if self._waiting else 0):
                self._hold(await self._consumer.acquire(room))
            else:
                self._room.clear()
                await self._room.wait()

    @property
    def _ahead(self) -> int:
        """The number of records to have in stock."""
        if self._seconds is None:
            return 0
        soon = self._config.concurrency * _AHEAD / max(self._seconds, 1e-6)
        return min(int(soon), self._settings.max_poll_records)

    def _hold(self, records: list[ShareRecord[Any, Any]]) -> None:
        for record in records:
            if record._holder is None:
                raise AssertionError("a poll has returned a record that is acknowledged")
            lock, until = record._holder.lock, record._holder.until
            held = Held(record, lock, until, until - lock * (1 - _RENEW))
            self._held.add(held)
            self._waiting.append(held)
            if held.check_at < self._check_at:
                self._sooner.set()
        self._start_handlers()

    def _start_handlers(self) -> None:
        while self._waiting and len(self.handlers) < self._config.concurrency and not self.handlers.ending:
            held = self._waiting.popleft()
            held.started = self._loop.time()
            self.handlers.handle(held, held.record)

    def _let_go(self, held: Held, kind: Acknowledgement) -> None:
        """Acknowledge a record, unless its handler has done so, or its lock is lost."""
        if held.release is not None:
            held.release.cancel()
        self._held.discard(held)
        if not (held.lost or held.record.acknowledged):
            with suppress(IllegalStateError):  # its handler has ended after the run, and the consumer was stopped
                held.record._hand_over(kind)
        self._room.set()

    # Handlers end.

    def _measure(self, held: Held) -> None:
        taken = self._loop.time() - held.started
        self._seconds = taken if self._seconds is None else self._seconds + (taken - self._seconds) * _WEIGHT

    def finished(self, held: Held) -> None:
        """See :class:`HandlerOwner`."""
        self._measure(held)
        if held.lost:
            self._log(held, "a record was handled, but its lock is lost: it is delivered again")
        self._let_go(held, Acknowledgement.ACCEPT)
        self._start_handlers()

    def abandoned(self, held: Held) -> None:
        """See :class:`HandlerOwner`."""
        self._let_go(held, Acknowledgement.RELEASE)
        self._start_handlers()

    def failed(self, held: Held, error: Exception) -> None:
        """See :class:`HandlerOwner`."""
        self._measure(held)
        record = held.record
        if held.lost or record.acknowledged or self.handlers.ending:
            self._log(held, "a handler raised", warns=False, reason=repr(error))
            self._let_go(held, Acknowledgement.RELEASE)
        elif record.delivery_count <= self._config.retries:
            pause = self._backoff.pause_after(record.delivery_count)
            fields = {"reason": repr(error), "pause_ms": round(pause * 1000)}
            self._log(held, "a handler raised: the record is released", warns=False, **fields)
            held.release = self._loop.call_later(pause, self._let_go, held, Acknowledgement.RELEASE)
        elif self._dead_letters is not None:
            self.handlers.spawn(held, self._write_dead_letter(self._dead_letters, held, error))
        else:
            self._log(held, "a handler raised: the record is rejected", reason=repr(error))
            self._let_go(held, Acknowledgement.REJECT)
        self._start_handlers()

    async def _write_dead_letter(self, letters: DeadLetters, held: Held, error: Exception) -> None:
        try:
            await letters.write(held.record.consumer_record, error, held.record.delivery_count)
        except Exception as failure:
            raise CannotRunError from failure

    def _log(self, held: Held, event: str, *, warns: bool = True, **fields: object) -> None:
        record = held.record
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        log = _log.warning if warns else _log.info
        log(event, **where, delivery_count=record.delivery_count, **fields)

    # Locks.

    async def _renew_forever(self) -> None:
        while True:
            self._check_at = min((held.check_at for held in self._held), default=math.inf)
            self._sooner.clear()
            try:
                async with asyncio.timeout_at(None if self._check_at == math.inf else self._check_at):
                    await self._sooner.wait()
            except TimeoutError:
                await self._check()

    async def _check(self) -> None:
        """Renew the locks that are due, and give up those that have expired."""
        if not self.handlers.ending:
            self._hold(await self._consumer.buffered())
        now = self._loop.time()
        due = [one for one in self._held if now >= one.check_at]
        renewals: dict[Held, asyncio.Task[None]] = {}
        for held in due:
            if held.record.acknowledged:
                held.check_at = math.inf  # by its handler, which still runs
            elif now >= held.until:
                self._lose(held)
            else:
                renewals[held] = self._loop.create_task(held.record.renew())
        if renewals:
            await asyncio.wait(renewals.values(), timeout=min(held.until for held in renewals) - now)
        for held, renewal in renewals.items():
            renewal.cancel()
            error = TimeoutError() if not renewal.done() or renewal.cancelled() else renewal.exception()
            if error is None:
                held.renewed(now)
            elif not held.record.acknowledged:
                held.check_at = held.until
                self._log(held, "the lock of a record could not be renewed", reason=repr(error))

    def _lose(self, held: Held) -> None:
        """Others may have the record from now on."""
        held.lost, held.check_at = True, math.inf
        self._log(held, "the lock of a record is lost: it may be handled twice")
        if held in self._waiting:
            self._waiting.remove(held)
            self._let_go(held, Acknowledgement.RELEASE)
        elif held.release is not None:
            self._let_go(held, Acknowledgement.RELEASE)
        else:
            self.handlers.cancel([held])
