"""Finds the positions of partitions that have none, and checks those that are known.

A position comes from the group's committed offset, else from the start or the end of the partition, as
`auto_offset_reset` says. All partitions that need one are asked about together: one OffsetFetch, then one ListOffsets
for each leader. In the first generation of a group, which has hardly ever committed anything, both are sent together.
Temporary failures are tried again after a back-off; others are raised by the program's next poll.

A known position is **checked** before anything is fetched there whenever its partition has another leader than at the
last check (:mod:`barnabas_client.consumer.truncation`). A topic that was deleted and created again has another id
(KIP-516): the positions in the old one mean nothing in the new one and are reset as `auto_offset_reset` says.

Source: ``SubscriptionState.java`` (FetchStates), ``OffsetFetcher.java``.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from barnabas_client.config import ConsumerConfig
from barnabas_client.consumer.offsets import Listed, OffsetStore, list_offsets_once
from barnabas_client.consumer.subscription import Needed, PartitionState, Subscription, as_decided
from barnabas_client.consumer.truncation import ask_epoch_ends, judge
from barnabas_client.errors import NoOffsetForPartitionError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from barnabas_client.logs import logger
from barnabas_client.network.metadata import NO_ID, Cluster
from barnabas_client.network.network import Network
from barnabas_client.structs import TopicPartition
from barnabas_client.tasks import end
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.consumer")


class Positions:
    """Finds and checks the positions of all assigned partitions.

    Args:
        network: the cluster.
        subscription: the partitions.
        config: reset policy and isolation level.
        store: the committed offsets; None without a group.
    """

    def __init__(
        self, network: Network, subscription: Subscription, config: ConsumerConfig, store: OffsetStore | None
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._config = config
        self._store = store
        self._policy = Needed.of_policy(config.auto_offset_reset)

    # Finding.

    def due(self, now: float) -> dict[PartitionState, int]:
        """The partitions whose position should be found now, with their epochs."""
        return {
            state: state.epoch
            for state in self._subscription.states.values()
            if state.needed is not None
            and not (state.resolving or state.revoking or state.error)
            and state.retry_at <= now
        }

    async def resolve(self, decided: Mapping[PartitionState, int]) -> None:
        """Find the positions of these partitions. Does not raise: errors are kept in their states."""
        states = as_decided(decided)
        epochs = {state.tp: state.epoch for state in states}
        ahead = self._ahead(states)
        try:
            await self._from_commits(states, epochs)
            await self._from_partitions(states, epochs, ahead)
        finally:
            await end(ahead)
            for state in states:
                if state.epoch == epochs[state.tp]:
                    state.resolving = False

    def _ahead(self, states: Collection[PartitionState]) -> "asyncio.Task[Listed] | None":
        """Ask for the positions of partitions that probably have no committed offset."""
        new = self._store is not None and self._store.is_new
        if self._policy is None or not new or any(state.needed is not Needed.COMMITTED for state in states):
            return None
        return asyncio.create_task(self._list({state.tp: self._policy.value for state in states}))

    async def _from_commits(self, states: Collection[PartitionState], epochs: dict[TopicPartition, int]) -> None:
        wanted = [state for state in states if state.needed is Needed.COMMITTED]
        if not wanted:
            return
        found = {}
        if self._store is not None:
            try:
                timeout = self._network.config.request_timeout
                found = await self._store.committed([state.tp for state in wanted], timeout=timeout)
            except KafkaError as error:
                for state in wanted:
                    if state.epoch == epochs[state.tp]:
                        self._failed(state, error)
                return
        policy = self._policy
        for state in wanted:
            if state.epoch != epochs[state.tp]:
                continue
            committed = found.get(state.tp)
            if committed is not None:
                _log.debug("starting at the committed offset", partition=str(state.tp), offset=committed.offset)
                self._seek(state, epochs, committed.offset, committed.leader_epoch)
            elif policy is not None:
                state.needed = policy
            else:
                state.error = NoOffsetForPartitionError(
                    f"no offset is committed for {state.tp} and auto_offset_reset is 'none'. To do: seek() to the "
                    "offset to start at, or set auto_offset_reset to 'earliest' or 'latest'"
                )

    async def _from_partitions(
        self,
        states: Collection[PartitionState],
        epochs: dict[TopicPartition, int],
        ahead: "asyncio.Task[Listed] | None",
    ) -> None:
        wanted = {
            state.tp: state.needed.value
            for state in states
            if state.needed is not None and state.needed.value is not None and state.epoch == epochs[state.tp]
        }
        if not wanted:
            return
        listed = await (self._list(wanted) if ahead is None else ahead)
        for state in states:
            answer = listed.get(state.tp) if state.tp in wanted else None
            if answer is None or state.epoch != epochs[state.tp]:
                continue
            if isinstance(answer, KafkaError):
                self._failed(state, answer)
            else:
                _log.debug("starting at a reset offset", partition=str(state.tp), offset=answer.offset)
                self._seek(state, epochs, answer.offset, -1)

    async def _list(self, times: Mapping[TopicPartition, int]) -> Listed:
        return await list_offsets_once(self._network, times, read_committed=self._config.read_committed)

    def _seek(self, state: PartitionState, epochs: dict[TopicPartition, int], offset: int, leader_epoch: int) -> None:
        state.seek(offset, leader_epoch)
        epochs[state.tp] = state.epoch

    # Checking.

    def check_topics(self, cluster: Cluster) -> None:
        """Find topics that were deleted, or deleted and created again."""
        for state in self._subscription.states.values():
            topic = cluster.topics.get(state.tp.topic)
            if topic is None:
                continue
            if cluster.missing(state.tp.topic):
                if not state.missing:
                    _log.warning("a topic does not exist, waiting for it", partition=str(state.tp))
                state.missing = True
                continue
            state.missing = False
            if topic.id == NO_ID or state.position is None:
                continue
            if state.topic_id == NO_ID:
                state.topic_id = topic.id
            elif state.topic_id != topic.id:
                self._recreated(state)

    def _recreated(self, state: PartitionState) -> None:
        if state.error is not None:
            return
        if self._policy is None:
            state.error = OffsetOutOfRangeError(
                f"topic {state.tp.topic!r} was deleted and created again, so position {state.position} of {state.tp} "
                "is no longer valid, and auto_offset_reset is 'none'. To do: seek() to the offset to start at, or set "
                "auto_offset_reset to 'earliest' or 'latest'"
            )
            return
        _log.warning(
            "a topic was deleted and created again, resetting",
            partition=str(state.tp),
            position=state.position,
            to=self._policy.name.lower(),
        )
        state.need(self._policy)

    def unchecked(self, now: float, cluster: Cluster) -> dict[int, dict[PartitionState, int]]:
        """By leader, the partitions whose position must be checked before anything is fetched, with their epochs."""
        found: defaultdict[int, dict[PartitionState, int]] = defaultdict(dict)
        for state in self._subscription.states.values():
            info = cluster.partition(state.tp)
            if state.position is None or info is None or info.leader_epoch < 0:
                continue
            if state.fetch_epoch < 0:
                state.checked = info.leader_epoch
            leader = cluster.leader(state.tp)
            if leader is None or (state.checked == info.leader_epoch and not state.doubted):
                continue
            if state.fetchable and state.error is None and state.retry_at <= now:
                found[leader][state] = state.epoch
        return found

    async def check(self, leader: int, decided: Mapping[PartitionState, int]) -> None:
        """Check the positions of these partitions. Does not raise: errors are kept in their states."""
        states = as_decided(decided)
        if not states:
            return
        epochs = {state.tp: state.epoch for state in states}
        cluster = self._network.cluster
        try:
            ends = await ask_epoch_ends(self._network, leader, states)
            for state in states:
                if state.epoch != epochs[state.tp]:
                    continue
                end = None if ends is None else ends[state.tp]
                if isinstance(end, KafkaError):
                    self._network.want_refresh()
                    self._failed(state, end)
                elif end is not None and not judge(state, end.leader_epoch, end.end_offset, self._policy):
                    state.back_off(asyncio.get_running_loop().time(), at_once=True)
                else:
                    info = cluster.partition(state.tp)
                    state.checked = -1 if info is None else info.leader_epoch
                    if state.doubted:
                        state.doubted, state.fetch_epoch = False, -1  # the next Fetch does not ask again
        finally:
            for state in states:
                if state.epoch == epochs[state.tp]:
                    state.checking = False

    def _failed(self, state: PartitionState, error: KafkaError) -> None:
        if error.retriable:
            state.back_off(asyncio.get_running_loop().time())
            if not isinstance(error, UnknownTopicOrPartitionError):
                _log.info("no position yet", partition=str(state.tp), reason=str(error))
        else:
            state.error = error
