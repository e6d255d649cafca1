"""The inside of a consumer: how its parts are put together, started and ended, what it reads, and its polls.

One event, `news`, wakes polls that wait; one flag, `attention`, sends polls that would not wait into
:meth:`ConsumerCore.attend`. Everything that concerns the program comes through the two.
"""

import asyncio
import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from barnabas_client.consumer.commits import Commits
from barnabas_client.consumer.fetcher import Fetcher
from barnabas_client.consumer.metrics import Metrics, group_metrics, metrics_of
from barnabas_client.consumer.offsets import OffsetStore
from barnabas_client.consumer.parts import ConsumerParts, Phase
from barnabas_client.consumer.positions import Positions
from barnabas_client.consumer.rebalance import ConsumerRebalanceListener, Rebalancer
from barnabas_client.consumer.subscription import PartitionState
from barnabas_client.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaTimeoutError,
    WakeupError,
    error_for,
)
from barnabas_client.logs import logger
from barnabas_client.membership.membership import Membership, member_config
from barnabas_client.membership.types import NO_GENERATION, Assign, Revoke
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError

_log: Final = logger("barnabas_client.consumer.consumer")

#: A poll that has records ready lets other tasks run when the last one to do so is as long ago, in seconds.
_YIELD_AFTER: Final = 0.01
#: Shorter times between two polls are not measured: that would cost more than they take.
_WORTH_MEASURING: Final = 0.001
#: Seconds that connections have at least to end.
_LEAST_PATIENCE: Final = 0.05


class ConsumerCore(ConsumerParts):
    """Lifecycle, what is read, and polls. Public to the package, not to programs."""

    # Lifecycle.

    async def start(self) -> None:
        """Connect, join, and wait for the first partitions, for at most `request_timeout_ms`."""
        if self.phase is not Phase.NEW or self._starting is not None:
            state = "starting" if self.phase is Phase.NEW else self.phase.value
            raise IllegalStateError(f"start(): this consumer is {state} already. To do: make a new one")
        self._loop = asyncio.get_running_loop()
        # In a task of its own, so that a stop can end it wherever it waits.
        self._starting = self._loop.create_task(self._start(), name="barnabas-consumer-start")
        try:
            await self._starting
        except BaseException as error:
            await self.stop()
            caller = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and caller is not None and not caller.cancelling():
                raise ConsumerStoppedError("this consumer was stopped while it started") from None
            raise

    async def _start(self) -> None:
        network = self._network = Network(self.client, auto_create=True)
        self._watch()
        await network.start()
        self.phase = Phase.RUNNING
        self._build(network)
        await self._first_assignment()

    def _build(self, network: Network) -> None:
        if self.config.group_id is not None:
            assignors = self.config.partition_assignment_strategy
            self._membership = Membership(network, member_config(self.config, self.client), assignors, self)
            self._store = OffsetStore(network, self._membership, self.meters.commit_latency)
            timeout = self.client.request_timeout
            self._commits = Commits(self._store, self.config, self.subscription, timeout, self.attend)
        positions = Positions(network, self.subscription, self.config, self._store)
        self._fetcher = Fetcher(network, self.subscription, positions, self.config, self.meters, self.news.set)
        self._rebalancer = Rebalancer(
            self.subscription, self.gate, self, self.commit_quietly, self.changed, self.attend, self.meters
        )
        self._rebalancer.listener = self.listener
        network.listeners.append(self._metadata_changed)
        self._rebalancer.start()
        self._fetcher.start()
        self._metadata_changed(network.cluster)
        self._join()

    async def _first_assignment(self) -> None:
        if self._membership is None or not self.subscription.topics or self._rebalancer is None:
            return
        self.gate.enter()  # a program that waits for its start has let go of everything
        try:
            async with asyncio.timeout(self.client.request_timeout):
                while not self._rebalancer.assigned.is_set():
                    self.news.clear()
                    if self._failure is not None:
                        raise self._failure.with_traceback(None)
                    await self.news.wait()
        except TimeoutError:
            _log.warning("the group has not assigned anything yet, going on", group=self.config.group_id)
        finally:
            self.gate.leave()

    async def stop(self) -> None:
        """Commit, tell the listener, leave, disconnect; all within `close_timeout_ms`, whatever the brokers do."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        if self._rebalancer is not None:
            self._rebalancer.refuse_inside_listener("stop")
        self.phase = Phase.CLOSING
        self.attend()
        deadline = time.monotonic() + self.config.close_timeout_ms / 1000
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait((self._starting,))
        try:
            async with asyncio.timeout(self.config.close_timeout_ms / 1000):
                await self._say_goodbye()
        except TimeoutError:
            _log.warning("stopped without an answer from the brokers", group=self.config.group_id)
        finally:
            self.phase = Phase.CLOSED
            if self._rebalancer is not None:
                await self._rebalancer.stop()
            if self._commits is not None:
                await self._commits.close()
            # What is left of the time, but enough for a farewell that needs no answer.
            patience = min(1.0, max(deadline - time.monotonic(), _LEAST_PATIENCE))
            if self._membership is not None:
                await self._membership.close(patience)
            if self._network is not None:
                await self._network.close(patience)

    def abandon(self) -> None:
        """The program has forgotten this consumer without stopping it: the group must not wait for it."""
        if self._membership is not None:
            self._membership.abandon()

    async def _say_goodbye(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()
        if self._rebalancer is None:
            return
        await self._rebalancer.stop()
        if self._commits is not None:
            await self._commits.settle()
        held = sorted(self.subscription.states)
        if self.subscription.by_hand or self._membership is None:
            await self.commit_quietly(self.subscription.positions())
            return
        await self._rebalancer.give_up(held, lost=self.generation() == NO_GENERATION)
        await self._membership.leave("the consumer is being closed", self.config.close_timeout_ms / 1000)

    # What is read.

    def subscribe(
        self, topics: Iterable[str], pattern: re.Pattern[str] | None, listener: ConsumerRebalanceListener | None
    ) -> None:
        """Read topics: these, or those that match."""
        self.subscription.subscribe(topics)
        self.pattern, self.listener = pattern, listener
        self._failure = self._refusal = None
        self._leaving = False
        if self._rebalancer is not None:
            self._rebalancer.listener = listener
        if self._network is not None:
            self._watch()
            self._network.want_refresh(urgent=True)
            self._metadata_changed(self._network.cluster)
            self._join()

    def listen(self, listener: ConsumerRebalanceListener | None) -> None:
        """Tell this one of rebalances from now on."""
        self.listener = listener
        if self._rebalancer is not None:
            self._rebalancer.listener = listener

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read partitions."""
        if self.pattern is not None:
            raise IllegalStateError(
                "assign() after subscribe(): a consumer does one or the other. To do: call unsubscribe() first"
            )
        self.subscription.assign(partitions)
        self._refusal = None
        if self._network is not None:
            self._watch()
            self._network.want_refresh(urgent=True)
            self.changed()

    def unsubscribe(self) -> None:
        """Read nothing. The group is left in the background, after a commit."""
        grouped = self._membership is not None and not self.subscription.by_hand and self.subscription.topics
        offsets = self.subscription.positions()
        self.subscription.unsubscribe()
        self.pattern = self._refusal = None
        self.changed()
        if grouped and self._rebalancer is not None:
            self._leaving = True
            self._rebalancer.leave(offsets, self._leave)

    async def _leave(self) -> None:
        if self._leaving and self._membership is not None:
            await self._membership.leave("the consumer unsubscribed from all topics", self.client.request_timeout)

    def _join(self) -> None:
        if self._membership is not None and self.subscription.topics:
            self._membership.subscribe(self.subscription.topics)

    def _watch(self) -> None:
        assert self._network is not None
        topics = set(self.subscription.topics) | {tp.topic for tp in self.subscription.states}
        self._network.watch(None if self.pattern is not None else topics)

    def _metadata_changed(self, cluster: Cluster) -> None:
        if self.phase is not Phase.RUNNING:
            return
        self._look_for_refusals(cluster)
        if self.pattern is not None:
            matched = cluster.matching(self.pattern, internal=not self.config.exclude_internal_topics)
            if matched != self.subscription.topics:
                self.subscription.subscribe(matched)
                self._join()
        if self._membership is not None:
            counts = dict(cluster.counts(self.subscription.topics))
            if counts != self._counts:
                self._counts = counts
                self._membership.topics_changed()
        elif self.subscription.topics:
            # Without a group a consumer reads all partitions of its topics, as aiokafka's does.
            partitions = [
                TopicPartition(topic, number)
                for topic in self.subscription.topics
                for number in cluster.partitions(topic) or ()
            ]
            self.subscription.keep(set(partitions))
            self.subscription.add(partitions, active=True)
        if self._fetcher is not None:
            self._fetcher.wake()

    def _look_for_refusals(self, cluster: Cluster) -> None:
        """A topic may be one that this client may not read, or that no cluster can have: polls say so."""
        self._refusal = None
        for name in self.subscription.topics | {tp.topic for tp in self.subscription.states}:
            told = cluster.topics.get(name)
            if told is not None and told.error != ErrorCode.NONE and not told.error.retriable:
                self._refusal = error_for(told.error, f"read topic {name!r}")
                self.attend()

    # Polls.

    async def next_ready(self, only: Collection[TopicPartition] | None, timeout: float | None) -> PartitionState | None:
        """A poll: wait for a partition that has records ready.

        Args:
            only: of these partitions; of any if None.
            timeout: seconds; None waits as long as it takes.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            WakeupError: `wakeup` was called.
            KafkaError: what the program must know.
        """
        self.check_running()
        loop, fetcher, rebalancer = self._loop, self._fetcher, self._rebalancer
        assert loop is not None
        assert fetcher is not None
        assert rebalancer is not None
        rebalancer.refuse_inside_listener("poll")
        now = time.monotonic()
        if now - self._yielded > _YIELD_AFTER and asyncio.get_running_loop() is not loop:
            raise IllegalStateError(
                "this consumer belongs to the event loop that started it. To do: make one for each loop, or call it "
                "there, by asyncio.run_coroutine_threadsafe()"
            )
        deadline = None if timeout is None else loop.time() + timeout
        self.gate.enter()
        self.meters.polled_at = now
        if now - self._left_at > _WORTH_MEASURING:
            self.meters.between_polls.add(now - self._left_at, now)
        try:
            if self.attention or now - self._yielded > _YIELD_AFTER:
                # What others have sent is looked at before anything is handed out.
                await asyncio.sleep(0)
                self._yielded = now = time.monotonic()
            while True:
                self.news.clear()
                self._attend()
                state = fetcher.next_ready(only)
                if state is not None:
                    return state
                if deadline is not None and loop.time() >= deadline:
                    return None
                try:
                    async with asyncio.timeout_at(deadline):
                        await self.news.wait()
                except TimeoutError:
                    pass
                self._yielded = now = time.monotonic()
        finally:
            self._left_at = now
            self.gate.leave()

    def _attend(self) -> None:
        """What a poll has to do beside handing out records."""
        if not self.attention:
            return
        # Before anything is looked at: who sets it from another thread meanwhile is heard by the next poll.
        self.attention = False
        try:
            self._look()
        except KafkaError:
            self.attention = True
            raise
        if self._commits is not None:
            self._commits.automatic()

    def _look(self) -> None:
        if self.phase is not Phase.RUNNING:
            raise ConsumerStoppedError("this consumer was stopped. To do: make a new one")
        assert self._fetcher is not None
        assert self._rebalancer is not None
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")
        failure = self._failure or self._fetcher.failure or self._refusal
        if failure is not None:
            raise failure.with_traceback(None)  # the same one in every poll must not grow
        error, self._rebalancer.error = self._rebalancer.error, None
        if error is not None:
            raise error
        if not (self.subscription.topics or self.subscription.states or self.pattern):
            raise IllegalStateError(
                "there is nothing to poll. To do: subscribe() to topics or assign() partitions first"
            )

    def attend(self) -> None:
        """Send the next poll, or the one that waits, to :meth:`_attend`."""
        self.attention = True
        self.news.set()

    def changed(self) -> None:
        """Assignment, positions or pauses have changed."""
        self.attend()
        if self._fetcher is not None:
            self._fetcher.wake()

    def wakeup(self) -> None:
        """End a poll; from any thread."""
        self._woken = True
        self.attention = True
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self.news.set)
            except RuntimeError:
                pass  # the loop is closed: nobody waits

    async def until_positions(self, partitions: Collection[TopicPartition], what: str) -> None:
        """Wait until these partitions have positions.

        Raises:
            KafkaTimeoutError: not within `request_timeout_ms`.
            KafkaError: what stands in the way.
        """
        self.fetcher.wake()
        try:
            async with asyncio.timeout(self.client.request_timeout):
                while True:
                    self.news.clear()
                    self.check_running()
                    states = [self.subscription.state(tp) for tp in partitions]
                    for state in states:
                        if state.position is None and state.error is not None:
                            raise state.error.with_traceback(None)
                    if all(state.position is not None for state in states):
                        return
                    await self.news.wait()
        except TimeoutError as error:
            raise KafkaTimeoutError(
                f"{what}: no position within {self.client.request_timeout:g} s. To do: check that the partitions "
                "exist and have leaders"
            ) from error

    async def commit_quietly(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See :meth:`Commits.quietly`; without a group there is nothing to do."""
        if self._commits is not None:
            await self._commits.quietly(offsets)

    # What the membership and the rebalancer want of each other.

    def expect(self) -> None:
        """See :class:`~barnabas_client.membership.membership.Host`."""
        self.attention = True

    def polls(self) -> bool:
        """See :class:`~barnabas_client.membership.membership.Host`."""
        before, self._reported = self._reported, self.gate.count
        return self.gate.inside > 0 or self.gate.count != before

    def rebalance(self, effect: Revoke | Assign) -> None:
        """See :class:`~barnabas_client.membership.membership.Host`."""
        if isinstance(effect, Revoke) and self._commits is not None:
            for tp in effect.partitions:
                self._commits.forget(tp)
        if self._rebalancer is not None:
            self._rebalancer.put(effect)

    def failed(self, error: KafkaError) -> None:
        """See :class:`~barnabas_client.membership.membership.Host`."""
        self._failure = error
        self.attend()

    def generation(self) -> int:
        """See :class:`~barnabas_client.consumer.rebalance.Group`."""
        return NO_GENERATION if self._membership is None else self._membership.view.generation

    def released(self, ticket: int) -> None:
        """See :class:`~barnabas_client.consumer.rebalance.Group`."""
        if self._membership is not None:
            self._membership.released(ticket)

    def metrics(self) -> Metrics:
        """See :meth:`Consumer.metrics`."""
        states, read_committed = self.subscription.states.values(), self.config.read_committed
        found = metrics_of(self.meters, states, time.monotonic(), read_committed=read_committed)
        member = self._membership
        if member is not None:
            found |= group_metrics(self.meters, member.view, member.last_lag, member.longest_lag, time.monotonic())
        return found

    def rejoin(self, reason: str) -> None:
        """See :meth:`Consumer.enforce_rebalance`."""
        self._check_group()
        if self._membership is not None:
            self._membership.rejoin(reason)
