"""A running consumer: everything that exists from the start of a consumer to its stop.

:class:`Session` is built whole while the cluster is being asked for, begins once that is known, and is ended once.
:class:`GroupSession` is its half that exists for consumers with a group.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Final

from barnabas_client.config import ClientConfig, ConsumerConfig
from barnabas_client.consumer.attention import Attention
from barnabas_client.consumer.commits import Commits, Offsets
from barnabas_client.consumer.fetcher import Fetcher
from barnabas_client.consumer.metrics import ConsumerMeters, group_metrics
from barnabas_client.consumer.offsets import OffsetStore
from barnabas_client.consumer.polls import Polls, stopped_error
from barnabas_client.consumer.positions import Positions
from barnabas_client.consumer.rebalance import Gate, Rebalancer
from barnabas_client.consumer.subscription import Subscription
from barnabas_client.errors import KafkaTimeoutError, error_for
from barnabas_client.logs import logger
from barnabas_client.membership.effects import Assign, Coordinator, Revoke
from barnabas_client.membership.member import NO_GENERATION, MemberConfig
from barnabas_client.membership.membership import Membership
from barnabas_client.meters import Metrics
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError

_log: Final = logger("barnabas_client.consumer")

#: Minimum seconds that connections have to send their last requests.
_LEAST_PATIENCE: Final = 0.05


class Changed:
    """Called when the assignment, positions or pauses have changed: polls and the fetcher look again."""

    __slots__ = ("_attention", "wake_fetcher")

    def __init__(self, attention: Attention) -> None:
        self._attention = attention
        self.wake_fetcher = asyncio.Event()

    def __call__(self) -> None:
        self._attention.call()
        self.wake_fetcher.set()


class GroupSession:
    """Membership, rebalances and commits of a running consumer that has a group.

    Args:
        group_id: the group.
        network: of the consumer.
        client: settings of the client.
        config: settings of the consumer.
        subscription: what it reads.
        attention: of its polls.
        gate: its polls.
        meters: what it measures.
        changed: called when the assignment has changed.
    """

    def __init__(
        self,
        group_id: str,
        network: Network,
        client: ClientConfig,
        config: ConsumerConfig,
        subscription: Subscription,
        attention: Attention,
        gate: Gate,
        meters: ConsumerMeters,
        changed: Callable[[], None],
    ) -> None:
        self._network = network
        self._client = client
        self._config = config
        self._subscription = subscription
        self._attention = attention
        self._gate = gate
        self._meters = meters
        self._reported_polls = 0  # polls that the membership knows about
        self._partition_counts: dict[str, int] = {}  # of the subscribed topics, as last seen
        self._leaving = False
        member = member_config(group_id, config, client)
        self.membership = Membership(network, member, config.partition_assignment_strategy, self)
        self.store = OffsetStore(network, self.membership, meters.commit_latency)
        self.commits = Commits(self.store, config, subscription, client, attention.call)
        self.rebalancer = Rebalancer(
            subscription, gate, self.membership, self.commits.quietly, changed, attention, meters
        )

    def begin(self, coordinator: Coordinator | None) -> None:
        """The network is connected. The coordinator is None if it is not known."""
        self.rebalancer.start()
        self.membership.begin(coordinator)

    def join(self, *, waits: bool = False) -> None:
        """Join the group, or rejoin with other topics, if topics are subscribed to. `waits`: the program waits for its
        first assignment."""
        self._leaving = False
        if self._subscription.joins:
            if waits:
                self.rebalancer.begins()
            self.membership.subscribe(self._subscription.topics, self._subscription.remote_pattern, waits=waits)

    async def first_assignment(self) -> None:
        """Wait for the first assignment, for at most `request_timeout_ms`.

        Raises:
            KafkaError: the group cannot be joined.
        """
        self._gate.enter()  # a program that waits for its start has processed everything
        try:
            async with asyncio.timeout(self._client.request_timeout):
                while not self.rebalancer.assigned.is_set():
                    self._attention.event.clear()
                    if self._attention.failure is not None:
                        raise self._attention.failure.with_traceback(None)
                    await self._attention.event.wait()
        except TimeoutError:
            _log.warning(
                "the group has not assigned partitions yet, continuing",
                group=self._config.group_id,
                reason=self.membership.view.obstacle,
            )
        finally:
            self._gate.leave()

    def metadata_changed(self, cluster: Cluster) -> None:
        """Notify the membership if the partition counts of the subscribed topics have changed."""
        counts = dict(cluster.counts(self._subscription.topics))
        if counts != self._partition_counts:
            self._partition_counts = counts
            self.membership.metadata_changed()

    def unsubscribed(self, offsets: Offsets) -> None:
        """The program unsubscribed: commit these positions, call the listener and leave, in the background."""
        self._leaving = True
        self.rebalancer.unsubscribed(offsets, self._leave_unless_subscribed)

    async def _leave_unless_subscribed(self) -> None:
        if self._leaving:
            await self.membership.leave("the consumer unsubscribed from all topics", self._client.request_timeout)

    async def leave(self) -> None:
        """Commit, revoke all partitions and leave the group."""
        await self.rebalancer.stop()
        await self.commits.settle()
        assigned = sorted(self._subscription.states)
        if self._subscription.manual:
            await self.commits.quietly(self._subscription.positions())
            return
        await self.rebalancer.revoke(assigned, lost=self.membership.generation == NO_GENERATION)
        await self.membership.leave("the consumer is being closed", self._config.close_timeout_ms / 1000)

    async def close(self, patience: float) -> None:
        """End everything, within `patience` seconds."""
        await self.rebalancer.stop()
        await self.commits.close()
        await self.membership.close(patience)

    def metrics(self) -> Metrics:
        """About the membership, commits and the event loop."""
        member = self.membership
        return group_metrics(self._meters, member.view, member.last_lag, member.longest_lag, time.monotonic())

    # See MembershipOwner.

    def message_coming(self) -> None:
        """See :class:`~barnabas_client.membership.membership.MembershipOwner`."""
        self._attention.needed = True

    def has_polled(self) -> bool:
        """See :class:`~barnabas_client.membership.membership.MembershipOwner`."""
        before, self._reported_polls = self._reported_polls, self._gate.count
        return self._gate.inside > 0 or self._gate.count != before

    def rebalance(self, effect: Revoke | Assign) -> None:
        """See :class:`~barnabas_client.membership.membership.MembershipOwner`."""
        if isinstance(effect, Revoke):
            self.commits.forget(effect.partitions)
        else:
            self._watch_assigned(effect)
        self.rebalancer.put(effect)

    def _watch_assigned(self, effect: Assign) -> None:
        """Ask for the leaders of new partitions: the coordinator may know topics before this client does."""
        network = self._network
        network.watch_also({tp.topic for tp in effect.added})
        if any(network.cluster.partition(tp) is None for tp in effect.added):
            network.want_refresh(urgent=True)

    def membership_failed(self, error: KafkaError) -> None:
        """See :class:`~barnabas_client.membership.membership.MembershipOwner`."""
        self._attention.fail(error)


class Session:
    """Everything of a running consumer.

    Args:
        network: of the consumer.
        client: settings of the client.
        config: settings of the consumer.
        subscription: what it reads.
        attention: of its polls.
        meters: what it measures.
    """

    def __init__(
        self,
        network: Network,
        client: ClientConfig,
        config: ConsumerConfig,
        subscription: Subscription,
        attention: Attention,
        meters: ConsumerMeters,
    ) -> None:
        self.network = network
        self.gate = Gate()
        #: To be called when the assignment, positions or pauses have changed.
        self.changed = Changed(attention)
        #: None for a consumer without a group.
        self.group: GroupSession | None = None
        self._client = client
        self._config = config
        self._subscription = subscription
        self._attention = attention
        self._loop = asyncio.get_running_loop()
        self._ending = self._closed = False
        self._missing: set[str] = set()  # topics that were said not to exist
        if config.group_id is not None:
            self.group = GroupSession(
                config.group_id,
                network,
                client,
                config,
                subscription,
                attention,
                self.gate,
                meters,
                self.changed,
            )
        positions = Positions(network, subscription, config, None if self.group is None else self.group.store)
        self.fetcher = Fetcher(
            network, subscription, positions, config, meters, attention.event.set, self.changed.wake_fetcher
        )
        self.polls = Polls(
            subscription,
            attention,
            self.gate,
            self.fetcher,
            meters,
            _allow if self.group is None else self.group.rebalancer.refuse_inside_listener,
            _nothing if self.group is None else self.group.commits.automatic,
        )

    def begin(self, coordinator: Coordinator | None) -> None:
        """The network is connected: read what is subscribed to.

        Args:
            coordinator: of the group; None without a group, or if it is not known.
        """
        self.fetcher.start()
        self.network.listeners.append(self._metadata_changed)
        if self.network.topics != self._subscription.watched:
            self._watch()  # the program has subscribed while this was connecting
        if self.group is not None:
            self.group.begin(coordinator)
        self._subscribed(waits=True)

    # What is read.

    def resubscribed(self) -> None:
        """The program has subscribed to other topics."""
        self._watch()
        self._subscribed(waits=False)

    def _subscribed(self, *, waits: bool) -> None:
        self._metadata_changed(self.network.cluster)
        if self.group is not None:
            self.group.join(waits=waits)

    def assigned(self) -> None:
        """The program has assigned partitions."""
        self._watch()
        self.changed()

    def unsubscribed(self, offsets: Offsets, *, from_group: bool) -> None:
        """The program has unsubscribed, or assigned nothing.

        Args:
            offsets: the positions until then.
            from_group: whether it was subscribed to topics.
        """
        self.changed()
        if from_group and self.group is not None:
            self.group.unsubscribed(offsets)

    def _watch(self) -> None:
        self.network.watch(self._subscription.watched)
        self.network.want_refresh(urgent=True)

    def _metadata_changed(self, cluster: Cluster) -> None:
        if self._ending:
            return
        subscription = self._subscription
        self._refuse_topics(cluster)
        self._say_missing(cluster)
        if subscription.pattern is not None:
            matched = cluster.matching(subscription.pattern, internal=not self._config.exclude_internal_topics)
            if matched != subscription.topics:
                subscription.topics = matched
                if self.group is not None:
                    self.group.join()
        if self.group is not None:
            self.group.metadata_changed(cluster)
        elif subscription.topics:
            # Without a group a consumer reads all partitions of its topics, as aiokafka's does.
            partitions = [
                TopicPartition(topic, number)
                for topic in subscription.topics
                for number in cluster.partitions(topic) or ()
            ]
            subscription.keep(set(partitions))
            subscription.add(partitions, active=True)
        self.fetcher.wake()

    def _refuse_topics(self, cluster: Cluster) -> None:
        """Have polls raise if a topic cannot be read: it is forbidden, or its name is invalid."""
        self._attention.refusal = None
        for name in self._subscription.topics | {tp.topic for tp in self._subscription.states}:
            topic = cluster.topics.get(name)
            if topic is not None and topic.error != ErrorCode.NONE and not topic.error.retriable:
                self._attention.refuse(error_for(topic.error, f"read topic {name!r}"))

    def _say_missing(self, cluster: Cluster) -> None:
        """Say once of each subscribed topic that it does not exist: nothing else would explain why no records come."""
        missing = {name for name in self._subscription.topics if cluster.missing(name)}
        for name in sorted(missing - self._missing):
            _log.info("a subscribed topic does not exist yet: it is read as soon as it does", topic=name)
        self._missing |= missing

    # Calls of the program.

    def wakeup(self) -> None:
        """Wake polls that wait; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._attention.event.set)
        except RuntimeError:
            pass  # the loop is closed, so no poll waits

    def refuse_inside_listener(self, what: str) -> None:
        """Refuse a call that would wait for the rebalance listener that makes it.

        Raises:
            IllegalStateError: a rebalance listener calls this.
        """
        if self.group is not None:
            self.group.rebalancer.refuse_inside_listener(what)

    async def wait_for_positions(self, partitions: Collection[TopicPartition], what: str) -> None:
        """Wait until these partitions have positions.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            KafkaTimeoutError: not within `request_timeout_ms`.
            KafkaError: a position cannot be found.
        """
        self.fetcher.wake()
        try:
            async with asyncio.timeout(self._client.request_timeout):
                while True:
                    self._attention.event.clear()
                    if self._closed:
                        raise stopped_error()
                    states = [self._subscription.state(tp) for tp in partitions]
                    for state in states:
                        if state.position is None and state.error is not None:
                            raise state.error.with_traceback(None)
                    if all(state.position is not None for state in states):
                        return
                    await self._attention.event.wait()
        except TimeoutError as error:
            raise KafkaTimeoutError(
                f"{what}: no position within {self._client.request_timeout:g} s. To do: check that the partitions "
                "exist and have leaders"
            ) from error

    # The end.

    def abandon(self) -> None:
        """The program has dropped the consumer without stopping it: leave the group, so that it does not wait."""
        if self.group is not None:
            self.group.membership.abandon()

    async def leave(self) -> None:
        """Refuse polls, stop fetching, commit, revoke all partitions and leave the group."""
        self._ending = True
        self.polls.close()
        await self.fetcher.close()
        if self.group is not None:
            await self.group.leave()

    async def close(self, deadline: float) -> None:
        """End everything, by `deadline` on the monotonic clock if possible."""
        self._ending = self._closed = True
        self._attention.call()
        patience = min(1.0, max(deadline - time.monotonic(), _LEAST_PATIENCE))
        if self.group is not None:
            await self.group.close(patience)
        await self.fetcher.close()
        await self.network.close(patience)


def _allow(what: str) -> None:
    """Without a group no rebalance listener is called."""


def _nothing() -> None:
    """Without a group there is nothing to commit."""


def member_config(group_id: str, config: ConsumerConfig, client: ClientConfig) -> MemberConfig:
    """A consumer's settings as its member takes them."""
    return MemberConfig(
        group_id=group_id,
        instance_id=config.group_instance_id,
        session_timeout=config.session_timeout_ms / 1000,
        heartbeat_interval=config.heartbeat_interval_ms / 1000,
        max_poll_interval=config.max_poll_interval_ms / 1000,
        rebalance_timeout=(config.rebalance_timeout_ms or config.max_poll_interval_ms) / 1000,
        request_timeout=client.request_timeout,
        retry_backoff=client.retry_backoff_ms / 1000,
        retry_backoff_max=client.retry_backoff_max_ms / 1000,
        rack=config.client_rack or None,
        protocol=config.group_protocol,
        remote_assignor=config.group_remote_assignor,
    )
