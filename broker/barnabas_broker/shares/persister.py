"""Reads and writes the state of share partitions at their coordinator, on this broker or another one. A shell.

A request goes to the broker that leads the share partition's partition of ``__share_group_state``. While none leads it,
or that one is still loading, it is sent again, with back-off. Source: Kafka's ``PersisterStateManager``.
"""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from barnabas_broker.backoff import jittered
from barnabas_broker.coordinators.leader_requests import LeaderRequests
from barnabas_broker.coordinators.ports import Peers
from barnabas_broker.logs import logger
from barnabas_broker.shares.ports import ShareState, StateBatch
from barnabas_broker.shares.records import ShareKey
from barnabas_broker.shares.service import ShareCoordinator
from barnabas_broker.shares.state import UNKNOWN, Answer
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateData,
    DeleteStatePartitionData,
)
from barnabas_protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateData,
    InitializeStatePartitionData,
)
from barnabas_protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
    ReadStatePartitionData,
    ReadStatePartitionResult,
)
from barnabas_protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryData,
    ReadStateSummaryPartitionData,
    ReadStateSummaryPartitionResult,
)
from barnabas_protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateBatch,
    WriteStateData,
    WriteStatePartitionData,
)
from barnabas_protocol.schema import Request, Response

log = logger("shares")

#: The pauses between two attempts in seconds, and how often a request is sent: some ten seconds, in which a coordinator
#: moves to another broker and loads.
_RETRY_SECONDS: Final = (0.02, 2.0)
_ATTEMPTS: Final = 12
#: Errors after which a request is sent again.
_PASSING: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    )
)

R = TypeVar("R", bound=Response)


class CoordinatorTopic(Protocol):
    """The partitions of ``__share_group_state``, by the cluster image."""

    def leader(self, partition: int) -> int | None:
        """The node id of a partition's leader; -1 while there is none, None if the partition does not exist."""

    async def create(self) -> None:
        """Create the topic, unless it exists."""


class SharePersister:
    """Implements :class:`.Persister`, and what the group coordinator needs.

    Args:
        node_id: this broker.
        coordinator: on this broker.
        topic: see there.
        peers: the other brokers.
        timeout: seconds that a request to another broker may take.
        sleep: waits, in seconds.
    """

    def __init__(
        self,
        node_id: int,
        coordinator: ShareCoordinator,
        topic: CoordinatorTopic,
        peers: Peers,
        timeout: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._topic = topic
        self._requests = LeaderRequests(topic.leader, peers, timeout)
        self._sleep = sleep
        self._backoff = jittered(*_RETRY_SECONDS, seed=f"persister {node_id}")

    def leaders_changed(self) -> None:
        """Send the requests again that were sent to former leaders."""
        self._requests.leaders_changed()

    async def read(self, group: str, topic_id: UUID, partition: int, leader_epoch: int) -> ShareState:
        """See :class:`.Persister`."""
        key = ShareKey(group, topic_id, partition)
        asked = ReadStatePartitionData(partition=partition, leader_epoch=leader_epoch)
        request = ReadShareGroupStateRequest(
            group_id=group, topics=[ReadStateData(topic_id=topic_id.bytes, partitions=[asked])]
        )
        answer = await self._until_answered(
            key,
            lambda: self._coordinator.read(key, leader_epoch),
            lambda leader, home: self._send(leader, home, request, ReadShareGroupStateResponse, 0, _read),
        )
        assert answer.state is not None
        return answer.state

    async def write(
        self,
        group: str,
        topic_id: UUID,
        partition: int,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """See :class:`.Persister`."""
        key = ShareKey(group, topic_id, partition)
        asked = WriteStatePartitionData(
            partition=partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=[
                WriteStateBatch(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    delivery_state=each.state,
                    delivery_count=each.delivery_count,
                )
                for each in batches
            ],
        )
        request = WriteShareGroupStateRequest(
            group_id=group, topics=[WriteStateData(topic_id=topic_id.bytes, partitions=[asked])]
        )
        await self._until_answered(
            key,
            lambda: self._coordinator.write(
                key, state_epoch, leader_epoch, start_offset, delivery_complete_count, batches
            ),
            lambda leader, home: self._send(leader, home, request, WriteShareGroupStateResponse, 1, _done),
        )

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Create the state of a share partition, or start it again at another offset.

        Args:
            key: the share partition.
            state_epoch: at least that of the state, if there is one.
            start_offset: -1 if ``share.auto.offset.reset`` decides.

        Raises:
            KafkaError: as :meth:`.Persister.write`.
        """
        asked = InitializeStatePartitionData(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        request = InitializeShareGroupStateRequest(
            group_id=key.group, topics=[InitializeStateData(topic_id=key.topic_id.bytes, partitions=[asked])]
        )
        await self._until_answered(
            key,
            lambda: self._coordinator.initialize(key, state_epoch, start_offset),
            lambda leader, home: self._send(leader, home, request, InitializeShareGroupStateResponse, 0, _done),
        )

    async def delete(self, key: ShareKey) -> None:
        """Delete the state of a share partition, if there is one.

        Raises:
            KafkaError: as :meth:`.Persister.write`.
        """
        asked = DeleteStatePartitionData(partition=key.partition)
        request = DeleteShareGroupStateRequest(
            group_id=key.group, topics=[DeleteStateData(topic_id=key.topic_id.bytes, partitions=[asked])]
        )
        await self._until_answered(
            key,
            lambda: self._coordinator.delete(key),
            lambda leader, home: self._send(leader, home, request, DeleteShareGroupStateResponse, 0, _done),
        )

    async def summary(self, key: ShareKey) -> Answer:
        """The state of a share partition without its batches, and the newest leader epoch. Without a state, the start
        offset is -1.

        Raises:
            KafkaError: as :meth:`.Persister.read`.
        """
        asked = ReadStateSummaryPartitionData(partition=key.partition, leader_epoch=UNKNOWN)
        request = ReadShareGroupStateSummaryRequest(
            group_id=key.group, topics=[ReadStateSummaryData(topic_id=key.topic_id.bytes, partitions=[asked])]
        )

        def here() -> Future[Answer]:
            reply: Future[Answer] = asyncio.get_running_loop().create_future()
            reply.set_result(self._coordinator.summary(key))
            return reply

        return await self._until_answered(
            key,
            here,
            lambda leader, home: self._send(leader, home, request, ReadShareGroupStateSummaryResponse, 1, _summary),
        )

    async def _until_answered(
        self,
        key: ShareKey,
        here: Callable[[], Future[Answer]],
        there: Callable[[int, int], Awaitable[Answer]],
    ) -> Answer:
        """Ask the coordinator of a share partition until it answers.

        Args:
            key: the share partition.
            here: asks the coordinator on this broker.
            there: asks that on another one; gets its node id, and the partition of the topic.

        Raises:
            KafkaError: its answer.
        """
        answer = Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for attempt in range(_ATTEMPTS):
            if attempt:
                await self._sleep(self._backoff.pause_after(attempt))
            home = self._coordinator.runtime.partition_for(key.name)
            leader = self._topic.leader(home)
            if leader is None:
                answer = await self._created()
            elif leader == self._node_id:
                answer = await here()
            elif leader >= 0:
                answer = await there(leader, home)
            if answer.error not in _PASSING:
                break
        if answer.error is not ErrorCode.NONE:
            raise KafkaError(answer.error, answer.message or "")
        return answer

    async def _created(self) -> Answer:
        """Create the topic; the answer says why there is no coordinator yet."""
        try:
            await self._topic.create()
        except KafkaError as error:
            return Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        return Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _send(
        self,
        leader: int,
        home: int,
        request: Request,
        kind: type[R],
        version: int,
        read: Callable[[Any], Answer],
    ) -> Answer:
        """Send a request about one share partition to another broker, and read its answer."""
        try:
            frame = await self._requests.ask(leader, request, version, [home])
            if frame is None:
                return Answer(ErrorCode.NOT_COORDINATOR)
            response: Any = decode_response(kind, version, frame)
        except (OSError, DecodeError) as error:
            log.debug("the share coordinator does not answer", node_id=leader, reason=str(error))
            return Answer(ErrorCode.NETWORK_EXCEPTION)
        found = [each for topic in response.results for each in topic.partitions]
        if len(found) != 1:
            return Answer(ErrorCode.UNKNOWN_SERVER_ERROR, "The share coordinator answers for another share partition.")
        try:
            code = ErrorCode(found[0].error_code)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        return read(found[0]) if code is ErrorCode.NONE else Answer(code, found[0].error_message)


def _done(result: object) -> Answer:
    return Answer(ErrorCode.NONE)


def _read(result: ReadStatePartitionResult) -> Answer:
    # The response has no count of completed deliveries.
    batches = tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in result.state_batches
    )
    return Answer(ErrorCode.NONE, None, ShareState(result.state_epoch, result.start_offset, UNKNOWN, batches))


def _summary(result: ReadStateSummaryPartitionResult) -> Answer:
    state = ShareState(result.state_epoch, result.start_offset, result.delivery_complete_count, ())
    return Answer(ErrorCode.NONE, None, state, result.leader_epoch)
