"""The inside of a consumer: its parts, how they are put together, started and ended.

One event, `news`, wakes polls that wait; one flag, `attention`, sends polls that would not wait into
:meth:`ConsumerCore.attend`. Everything that concerns the program comes through the two.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

from barnabas_client.config import ClientConfig, ConsumerConfig
from barnabas_client.errors import (
    ConsumerStoppedError,
    IllegalOperationError,
    IllegalStateError,
    KafkaTimeoutError,
    WakeupError,
)
from barnabas_client.fetcher import Fetcher
from barnabas_client.group_types import NO_GENERATION, Assign, MemberConfig, Revoke
from barnabas_client.logs import logger
from barnabas_client.membership import Membership
from barnabas_client.metadata import Cluster
from barnabas_client.network import Network
from barnabas_client.offsets import OffsetStore
from barnabas_client.positions import Positions
from barnabas_client.rebalance import ConsumerRebalanceListener, Gate, Rebalancer
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_client.subscription import PartitionState, Subscription
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.consumer")

#: A poll that has records ready lets other tasks run when the last one to do so is as long ago, in seconds.
_YIELD_AFTER: Final = 0.01


class Phase(Enum):
    """The life of a consumer."""

    NEW = "not started"
    RUNNING = "started"
    CLOSING = "stopping; polls are refused, but the listener may still commit"
    CLOSED = "stopped"


class ConsumerCore:
    """Parts and lifecycle. Public to the package, not to programs."""

    def __init__(self, client: ClientConfig, config: ConsumerConfig) -> None:
        self.client = client
        self.config = config
        self.phase = Phase.NEW
        self.subscription = Subscription()
        self.gate = Gate()
        #: A poll has more to do than to take what is ready.
        self.attention = True
        #: The partition that the last step took from, as long as nothing has changed.
        self.current: PartitionState | None = None
        self.news = asyncio.Event()
        self.listener: ConsumerRebalanceListener | None = None
        self.pattern: re.Pattern[str] | None = None
        self._woken = False
        self._failure: KafkaError | None = None
        self._commit_due = False
        self._commit_timer: asyncio.TimerHandle | None = None
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._leaving = False
        self._yielded = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._network: Network | None = None
        self._membership: Membership | None = None
        self._store: OffsetStore | None = None
        self._fetcher: Fetcher | None = None
        self._rebalancer: Rebalancer | None = None

    # Parts that exist once started.

    @property
    def network(self) -> Network:
        """The cluster."""
        self.check_running()
        assert self._network is not None
        return self._network

    @property
    def fetcher(self) -> Fetcher:
        """The buffers."""
        self.check_running()
        assert self._fetcher is not None
        return self._fetcher

    @property
    def store(self) -> OffsetStore:
        """The group's offsets.

        Raises:
            IllegalOperationError: there is no group.
        """
        if self.config.group_id is None:
            raise IllegalOperationError(
                "this consumer has no group_id, so there is nothing to commit to or to read commits from. To do: give "
                "it a group_id"
            )
        self.check_running()
        assert self._store is not None
        return self._store

    def check_running(self) -> None:
        """Refuse calls before the start and after the stop.

        Raises:
            ConsumerStoppedError: it was stopped.
            IllegalStateError: it was not started.
        """
        if self.phase is Phase.CLOSED:
            raise ConsumerStoppedError("this consumer was stopped. To do: make a new one")
        if self.phase is Phase.NEW:
            raise IllegalStateError(
                "this consumer is not started. To do: await start() first, or use it in `async with`"
            )

    # Lifecycle.

    async def start(self) -> None:
        """Connect, join, and wait for the first partitions, for at most `request_timeout_ms`."""
        if self.phase is not Phase.NEW:
            raise IllegalStateError(f"start(): this consumer is {self.phase.value} already. To do: make a new one")
        self._loop = asyncio.get_running_loop()
        network = self._network = Network(self.client, auto_create=True)
        self._watch()
        try:
            await network.start()
            self.phase = Phase.RUNNING
            self._build(network)
            await self._first_assignment()
        except BaseException:
            await self.stop()
            raise

    def _build(self, network: Network) -> None:
        if self.config.group_id is not None:
            assignors = self.config.partition_assignment_strategy
            self._membership = Membership(network, self._member_config(self.config.group_id), assignors, self)
            self._store = OffsetStore(network, self._membership)
        positions = Positions(network, self.subscription, self.config, self._store)
        self._fetcher = Fetcher(network, self.subscription, positions, self.config, self.news.set)
        self._rebalancer = Rebalancer(
            self.subscription, self.gate, self, self.commit_quietly, self.changed, self.attend
        )
        self._rebalancer.listener = self.listener
        network.listeners.append(self._metadata_changed)
        self._rebalancer.start()
        self._fetcher.start()
        self._metadata_changed(network.cluster)
        self._join()
        if self.config.enable_auto_commit and self._store is not None:
            self._schedule_commit()

    async def _first_assignment(self) -> None:
        if self._membership is None or self._membership.machine.topics is None or self._rebalancer is None:
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
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        try:
            async with asyncio.timeout(self.config.close_timeout_ms / 1000):
                await self._say_goodbye()
        except TimeoutError:
            _log.warning("stopped without an answer from the brokers", group=self.config.group_id)
        finally:
            self.phase = Phase.CLOSED
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._membership is not None:
                await self._membership.close()
            if self._network is not None:
                await self._network.close()

    async def _say_goodbye(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()
        if self._rebalancer is None:
            return
        await self._rebalancer.stop()
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
        self._leaving = False
        if self._rebalancer is not None:
            self._rebalancer.listener = listener
        if self._network is not None:
            self._watch()
            self._network.want_refresh(urgent=True)
            self._metadata_changed(self._network.cluster)
            self._join()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read partitions."""
        if self.pattern is not None:
            raise IllegalStateError(
                "assign() after subscribe(): a consumer does one or the other. To do: call unsubscribe() first"
            )
        self.subscription.assign(partitions)
        if self._network is not None:
            self._watch()
            self._network.want_refresh(urgent=True)
            self.changed()

    def unsubscribe(self) -> None:
        """Read nothing. The group is left in the background, after a commit."""
        grouped = self._membership is not None and not self.subscription.by_hand and self.subscription.topics
        offsets = self.subscription.positions()
        self.subscription.unsubscribe()
        self.pattern = None
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
        if self._membership is not None:
            topics |= self._membership.group_topics
        self._network.watch(None if self.pattern is not None else topics)

    def _metadata_changed(self, cluster: Cluster) -> None:
        if self.phase is not Phase.RUNNING:
            return
        if self.pattern is not None:
            matched = self._matching(cluster)
            if matched != self.subscription.topics:
                self.subscription.subscribe(matched)
                self._join()
        if self._membership is None and self.subscription.topics:
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

    def _matching(self, cluster: Cluster) -> frozenset[str]:
        pattern, hides = self.pattern, self.config.exclude_internal_topics
        assert pattern is not None
        return frozenset(
            name
            for name, topic in cluster.topics.items()
            if pattern.match(name) and topic.partitions and not (hides and topic.internal)
        )

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
        deadline = None if timeout is None else loop.time() + timeout
        self.gate.enter()
        try:
            if loop.time() - self._yielded > _YIELD_AFTER:
                await asyncio.sleep(0)
                self._yielded = loop.time()
            while True:
                self.news.clear()
                self._attend()
                state = fetcher.next_ready(only)
                if state is not None:
                    self.current = state
                    return state
                if deadline is not None and loop.time() >= deadline:
                    return None
                try:
                    async with asyncio.timeout_at(deadline):
                        await self.news.wait()
                except TimeoutError:
                    pass
                self._yielded = loop.time()
        finally:
            self.gate.leave()

    def _attend(self) -> None:
        """What a poll has to do beside handing out records."""
        if not self.attention:
            return
        if self.phase is not Phase.RUNNING:
            raise ConsumerStoppedError("this consumer was stopped. To do: make a new one")
        assert self._fetcher is not None
        assert self._rebalancer is not None
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")
        failure = self._failure or self._fetcher.failure
        if failure is not None:
            raise failure.with_traceback(None)  # the same one in every poll must not grow
        error, self._rebalancer.error = self._rebalancer.error, None
        if error is not None:
            raise error
        if not (self.subscription.topics or self.subscription.states or self.pattern):
            raise IllegalStateError(
                "there is nothing to poll. To do: subscribe() to topics or assign() partitions first"
            )
        self.attention = False
        if self._commit_due:
            self._commit_due = False
            self._spawn_commit()

    def attend(self) -> None:
        """Send the next poll, or the one that waits, to :meth:`_attend`."""
        self.attention = True
        self.news.set()

    def changed(self) -> None:
        """Assignment, positions or pauses have changed."""
        self.current = None
        self.attend()
        if self._fetcher is not None:
            self._fetcher.wake()

    def wakeup(self) -> None:
        """End a poll; from any thread."""
        self._woken = True
        self.attention = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.news.set)

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
                f"{what}: no position within {self.client.request_timeout:g} s. To do: check that the partitions have "
                "leaders"
            ) from error

    # Commits.

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit and wait; see :meth:`OffsetStore.commit`."""
        store = self.store
        await store.commit(offsets, as_member=not self.subscription.by_hand, timeout=self.client.request_timeout)
        self._committed.update(offsets)

    async def commit_quietly(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit what is not committed yet, if that is to happen by itself; a failure is logged."""
        new = {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}
        if not new or self._store is None or not self.config.enable_auto_commit:
            return
        by_hand = self.subscription.by_hand
        try:
            await self._store.commit(new, as_member=not by_hand, timeout=self.client.request_timeout)
            self._committed.update(new)
        except KafkaError as error:
            _log.warning("offsets were not committed", group=self.config.group_id, reason=str(error))

    def _schedule_commit(self) -> None:
        assert self._loop is not None
        self._commit_timer = self._loop.call_later(self.config.auto_commit_interval_ms / 1000, self._commit_is_due)

    def _commit_is_due(self) -> None:
        self._commit_due = True
        self.attend()

    def _spawn_commit(self) -> None:
        positions = self.subscription.positions()
        new = {tp: offset for tp, offset in positions.items() if self._committed.get(tp) != offset}
        self._committed = {tp: offset for tp, offset in self._committed.items() if tp in positions}
        task = asyncio.get_running_loop().create_task(self._commit_once(new))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """An automatic commit is tried once; the next one covers it."""
        assert self._store is not None
        by_hand = self.subscription.by_hand
        try:
            await self._store.commit_once(offsets, as_member=not by_hand, timeout=self.client.request_timeout)
            self._committed.update(offsets)
        except KafkaError as error:
            log = _log.info if error.retriable else _log.warning
            log("an automatic commit failed", group=self.config.group_id, reason=str(error))
        finally:
            if self.phase is Phase.RUNNING:
                self._schedule_commit()

    # What the membership and the rebalancer want of each other.

    def polls(self) -> int:
        """See :class:`~barnabas_client.membership.Host`. Steps that take a ready record move a position."""
        if self.gate.inside:
            return -1
        current = self.current
        return self.gate.count + (0 if current is None else current.position or 0)

    def rebalance(self, effect: Revoke | Assign) -> None:
        """See :class:`~barnabas_client.membership.Host`."""
        if isinstance(effect, Revoke):
            for tp in effect.partitions:
                self._committed.pop(tp, None)  # others may commit them from now on
        if self._rebalancer is not None:
            self._rebalancer.put(effect)

    def failed(self, error: KafkaError) -> None:
        """See :class:`~barnabas_client.membership.Host`."""
        self._failure = error
        self.attend()

    def generation(self) -> int:
        """See :class:`~barnabas_client.rebalance.Group`."""
        return NO_GENERATION if self._membership is None else self._membership.machine.generation

    def released(self, ticket: int) -> None:
        """See :class:`~barnabas_client.rebalance.Group`."""
        if self._membership is not None:
            self._membership.released(ticket)

    def _member_config(self, group_id: str) -> MemberConfig:
        config, client = self.config, self.client
        rebalance_ms = config.rebalance_timeout_ms or config.max_poll_interval_ms
        return MemberConfig(
            group_id=group_id,
            instance_id=config.group_instance_id,
            session_timeout=config.session_timeout_ms / 1000,
            heartbeat_interval=config.heartbeat_interval_ms / 1000,
            max_poll_interval=config.max_poll_interval_ms / 1000,
            rebalance_timeout=rebalance_ms / 1000,
            request_timeout=client.request_timeout,
            retry_backoff=client.retry_backoff_ms / 1000,
            retry_backoff_max=client.retry_backoff_max_ms / 1000,
            rack=config.client_rack or None,
        )
