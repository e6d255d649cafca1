"""Requests to the leaders of partitions on other brokers, and appends there. A shell."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

from barnabas_broker.coordinators.ports import Peers
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas_protocol.schema import Request

_PRODUCE_VERSION: Final = 9

#: A partition's name.
N = TypeVar("N")


class LeaderRequests(Generic[N]):
    """Sends requests to leaders, and gives one up when another broker leads one of its partitions.

    The former leader may be cut off, and would not answer before the timeout.

    Args:
        leader: of a partition.
        peers: the other brokers.
        timeout: seconds that a request may take.
    """

    def __init__(self, leader: Callable[[N], int | None], peers: Peers, timeout: float) -> None:
        self._leader = leader
        self._peers = peers
        self._timeout = timeout
        #: The requests that are under way, with their leaders and partitions.
        self._asking: dict[asyncio.Future[bytes | bytearray], tuple[int, Collection[N]]] = {}

    async def ask(
        self, leader: int, request: Request, version: int, partitions: Collection[N]
    ) -> bytes | bytearray | None:
        """Send a request: the response, a frame, or None if the broker leads some of the partitions no more.

        Raises:
            OSError: see :class:`.Peers`.
        """
        asking = asyncio.ensure_future(self._peers.ask(leader, request, version, self._timeout))
        self._asking[asking] = leader, partitions
        try:
            await asyncio.wait([asking])
        finally:
            del self._asking[asking]
            asking.cancel()
        return None if asking.cancelled() else asking.result()

    def leaders_changed(self) -> None:
        """Give up the requests that were sent to former leaders."""
        for asking, (leader, partitions) in self._asking.items():
            if any(self._leader(each) != leader for each in partitions):
                asking.cancel()


async def append_at(
    peers: Peers, node_id: int, topic: str, partition: int, batch: bytearray, *, acks: int, timeout: float
) -> None:
    """Append a batch to a partition that another broker leads.

    Args:
        peers: the other brokers.
        node_id: the leader.
        topic: its name.
        partition: of the topic.
        batch: one record batch.
        acks: -1 to wait for the replicas in sync, or 1.
        timeout: seconds.

    Raises:
        KafkaError: the leader has refused it.
        DecodeError: its response cannot be read.
        OSError: it cannot be reached, or does not answer in time.
    """
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(acks=acks, timeout_ms=int(timeout * 1000), topic_data=[data])
    frame = await peers.ask(node_id, request, _PRODUCE_VERSION, timeout)
    answer = decode_response(ProduceResponse, _PRODUCE_VERSION, frame)
    code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
