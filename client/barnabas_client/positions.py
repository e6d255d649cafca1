"""Finds the positions of partitions that have none: what was committed, else the start or the end, as
`auto_offset_reset` says.

All partitions that need one are asked about together: one OffsetFetch, then one ListOffsets for each leader. What fails
for a while is tried again after a back-off; what fails for good is raised by the program's next poll. Source:
``SubscriptionState.java`` (FetchStates), ``OffsetFetcher.java``.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from barnabas_client.config import ConsumerConfig
from barnabas_client.errors import NoOffsetForPartitionError, UnknownTopicOrPartitionError
from barnabas_client.logs import logger
from barnabas_client.network import Network
from barnabas_client.offsets import OffsetStore, list_offsets_once
from barnabas_client.structs import TopicPartition
from barnabas_client.subscription import Needed, PartitionState, Subscription
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.consumer")


class Positions:
    """Resolves positions.

    Args:
        network: the cluster.
        subscription: the partitions.
        config: reset policy and isolation level.
        store: what the group committed; None without a group.
    """

    def __init__(
        self, network: Network, subscription: Subscription, config: ConsumerConfig, store: OffsetStore | None
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._config = config
        self._store = store

    def due(self, now: float) -> list[PartitionState]:
        """The partitions whose position should be looked for now."""
        return [
            state
            for state in self._subscription.states.values()
            if state.needed is not None
            and not (state.resolving or state.revoking or state.error)
            and state.retry_at <= now
        ]

    async def resolve(self, states: Sequence[PartitionState]) -> None:
        """Look for the positions of these partitions. Does not raise: what fails is kept in the state."""
        epochs = {state.tp: state.epoch for state in states}
        for state in states:
            state.resolving = True
        try:
            await self._from_commits(states, epochs)
            await self._from_partitions(states, epochs)
        finally:
            for state in states:
                if state.epoch == epochs[state.tp]:
                    state.resolving = False

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
        policy = Needed.of_policy(self._config.auto_offset_reset)
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
                    f"no offset is committed for {state.tp} and auto_offset_reset is 'none'. To do: seek() to where "
                    "it shall start, or set "
                    f"auto_offset_reset to 'earliest' or 'latest'"
                )

    async def _from_partitions(self, states: Collection[PartitionState], epochs: dict[TopicPartition, int]) -> None:
        wanted = {
            state.tp: state.needed.value
            for state in states
            if state.needed is not None and state.needed.value is not None and state.epoch == epochs[state.tp]
        }
        if not wanted:
            return
        listed = await list_offsets_once(self._network, wanted, read_committed=self._config.read_committed)
        for state in states:
            answer = listed.get(state.tp)
            if answer is None or state.epoch != epochs[state.tp]:
                continue
            if isinstance(answer, KafkaError):
                self._failed(state, answer)
            else:
                _log.debug("starting at a reset offset", partition=str(state.tp), offset=answer.offset)
                self._seek(state, epochs, answer.offset, -1)

    def _seek(self, state: PartitionState, epochs: dict[TopicPartition, int], offset: int, leader_epoch: int) -> None:
        state.seek(offset, leader_epoch)
        epochs[state.tp] = state.epoch

    def _failed(self, state: PartitionState, error: KafkaError) -> None:
        if error.retriable:
            pause = self._network.config.retry_backoff_ms / 1000
            state.retry_at = asyncio.get_running_loop().time() + pause
            if not isinstance(error, UnknownTopicOrPartitionError):
                _log.info("no position yet", partition=str(state.tp), reason=str(error))
        else:
            state.error = error
