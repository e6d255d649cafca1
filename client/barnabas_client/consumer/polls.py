"""Polls: what `getmany`, `getone` and ``async for`` have in common.

As in Kafka's consumer, a poll means that the program has processed everything it received before: positions are
committed, and partitions revoked, only then (:mod:`barnabas_client.consumer.rebalance`).
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from barnabas_client.consumer.attention import Attention
from barnabas_client.consumer.fetched import Tables
from barnabas_client.consumer.fetcher import Fetcher
from barnabas_client.consumer.metrics import ConsumerMeters
from barnabas_client.consumer.rebalance import Gate
from barnabas_client.consumer.subscription import PartitionState, Subscription
from barnabas_client.errors import ConsumerStoppedError, IllegalStateError
from barnabas_client.structs import AnyRecord, TopicPartition
from barnabas_protocol.errors import KafkaError

#: A poll that has records ready lets other tasks run if none did for so many seconds.
_YIELD_AFTER: Final = 0.01
#: Seconds between two polls that are too few to be measured: measuring would take longer.
_WORTH_MEASURING: Final = 0.001

#: Seconds after which a poll decodes no more record batches. Decoding holds the event loop.
_DECODE_FOR: Final = 0.01


def stopped_error() -> ConsumerStoppedError:
    """The error of calls that need a running consumer, after its stop."""
    return ConsumerStoppedError("this consumer was stopped. To do: make a new one")


class Loan(NamedTuple):
    """Records that a thread hands to the program, one by one.

    Attributes:
        tp: their partition.
        records: those that the program has not received yet.
        end: the position after them.
    """

    tp: TopicPartition
    records: deque[AnyRecord]
    end: int | None


class Polls:
    """The polls of a running consumer.

    Args:
        subscription: the partitions.
        attention: what else a poll has to do.
        gate: lets rebalances wait for a poll.
        fetcher: has the records.
        meters: measure the time between polls.
        refuse_inside_listener: raises if a rebalance listener polls.
        commit_if_due: commits automatically, if that is due.
    """

    def __init__(
        self,
        subscription: Subscription,
        attention: Attention,
        gate: Gate,
        fetcher: Fetcher,
        meters: ConsumerMeters,
        refuse_inside_listener: Callable[[str], None],
        commit_if_due: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._attention = attention
        self._gate = gate
        self._fetcher = fetcher
        self._meters = meters
        self._refuse_inside_listener = refuse_inside_listener
        self._commit_if_due = commit_if_due
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._yielded_at = 0.0
        self._returned_at = math.inf

    def close(self) -> None:
        """Have polls raise `ConsumerStoppedError` from now on, also those that wait."""
        self._closed = True
        self._attention.call()

    async def next_ready(
        self, only: Collection[TopicPartition] | None, timeout: float | None, tables: Tables | None = None
    ) -> PartitionState | None:
        """Wait for a partition that has records ready; None after the timeout.

        Args:
            only: of these partitions; of any if None.
            timeout: seconds; None waits as long as it takes.
            tables: decodes to Arrow record batches; None for records.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            WakeupError: `wakeup` was called.
            KafkaError: the membership, a topic or a partition failed.
        """
        loop, fetcher, attention = self._loop, self._fetcher, self._attention
        self._refuse_inside_listener("poll")
        now = time.monotonic()
        deadline = None if timeout is None else loop.time() + timeout
        self._gate.enter()
        self._meters.polled_at = now
        if now - self._returned_at > _WORTH_MEASURING:
            self._meters.between_polls.add(now - self._returned_at, now)
        try:
            if attention.needed or now - self._yielded_at > _YIELD_AFTER:
                # Messages that have arrived are processed before records are returned.
                await asyncio.sleep(0)
                self._yielded_at = now = time.monotonic()
            while True:
                attention.event.clear()
                if attention.needed:
                    self._attend()
                state = fetcher.next_ready(only, tables)
                if state is not None:
                    if state.raw and not await fetcher.convert(state):
                        continue
                    return state
                if fetcher.unfinished:
                    await asyncio.sleep(0)
                    continue
                if deadline is not None and loop.time() >= deadline:
                    return None
                try:
                    async with asyncio.timeout_at(deadline):
                        await attention.event.wait()
                except TimeoutError:
                    pass
                self._yielded_at = now = time.monotonic()
        finally:
            self._returned_at = now
            self._gate.leave()

    async def take(
        self, only: Collection[TopicPartition] | None, timeout: float, limit: int
    ) -> dict[TopicPartition, list[AnyRecord]]:
        """Take up to `limit` records that are ready, waiting up to `timeout` seconds if there are none.

        Raises:
            KafkaError: see :meth:`next_ready`.
        """
        state = await self.next_ready(only, timeout)
        taken: dict[TopicPartition, list[AnyRecord]] = {}
        fetcher = self._fetcher
        while state is not None:
            records = fetcher.take(state, limit)
            limit -= len(records)
            if state.tp in taken:
                taken[state.tp] += records
            else:
                taken[state.tp] = records
            if limit == 0:
                break
            try:
                state = fetcher.next_ready(only)
                if state is not None and state.raw:
                    break  # its deserializers are awaited: the next poll does that
            except Exception:
                # The program must receive what was taken; the next poll meets the error again.
                break
        fetcher.rotate()
        return taken

    async def take_tables(
        self, only: Collection[TopicPartition] | None, timeout: float, limit: int, tables: Tables
    ) -> list[Any]:
        """As :meth:`take`, but Arrow record batches, and no more than are decoded in a short time.

        Raises:
            KafkaError: see :meth:`next_ready`.
        """
        state = await self.next_ready(only, timeout, tables)
        taken: list[Any] = []
        fetcher, ends = self._fetcher, time.monotonic() + _DECODE_FOR
        while state is not None:
            taken.append(fetcher.take_table(state, limit))
            limit -= taken[-1].num_rows
            if limit == 0 or time.monotonic() > ends:
                break
            try:
                state = fetcher.next_ready(only, tables)
            except Exception:
                # As in `take`: what was taken comes first.
                break
        fetcher.rotate()
        return taken

    async def lend(self, limit: int) -> Loan:
        """Wait for records, and lend up to `limit` of a partition to a thread, which hands them to the program.

        Raises:
            KafkaError: see :meth:`next_ready`.
        """
        state = None
        while state is None:
            state = await self.next_ready(None, None)
        records = self._fetcher.take(state, limit)
        self._fetcher.rotate()
        return Loan(state.tp, deque(records), state.position)

    def give_back(self, loan: Loan) -> None:
        """The program has not received the records that are left of a loan: the next poll returns them.

        If something else has changed the position meanwhile, they are dropped, as any that were fetched before.
        """
        left: list[AnyRecord] = []
        with suppress(IndexError):
            while True:  # another thread may take the same ones
                left.append(loan.records.popleft())
        state = self._subscription.states.get(loan.tp)
        if state is not None and left and state.position == loan.end:
            self._fetcher.put_back(state, left)

    def untake(self, taken: Mapping[TopicPartition, Sequence[AnyRecord]]) -> None:
        """The program has not received what the last poll returned."""
        for tp, records in taken.items():
            state = self._subscription.states.get(tp)
            self.give_back(Loan(tp, deque(records), None if state is None else state.position))

    def untake_tables(self, batches: Sequence[Any]) -> None:
        """The program has not received the record batches of the last poll: they are fetched again."""
        for batch in reversed(batches):
            tp = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
            state = self._subscription.states.get(tp)
            if state is not None:
                state.seek(batch.column("offset")[0].as_py())
                self._fetcher.wake()

    def _attend(self) -> None:
        """Do what a poll has to do beside returning records."""
        # First of all, because another thread may set it again meanwhile: the next poll then attends to that.
        self._attention.needed = False
        try:
            self._raise_errors()
        except KafkaError:
            self._attention.needed = True
            raise
        self._commit_if_due()

    def _raise_errors(self) -> None:
        attention = self._attention
        if self._closed:
            raise stopped_error()
        attention.take_wakeup()
        failure = attention.failure or self._fetcher.failure or attention.refusal
        if failure is not None:
            raise failure.with_traceback(None)  # every poll raises it: its traceback must not grow
        error, attention.error = attention.error, None
        if error is not None:
            raise error
        if self._subscription.empty:
            raise IllegalStateError(
                "there is nothing to poll. To do: subscribe() to topics or assign() partitions first"
            )
