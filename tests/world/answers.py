"""Answers that a test may have a broker give."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas_protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas_protocol.messages.heartbeat import HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_protocol.schema import Request, Response


class Drop:
    """Close the connection without an answer; the request was not carried out."""


class Lose:
    """Carry the request out, and close the connection instead of answering."""


class Silence:
    """Never answer, and keep the connection: later requests on it are not answered either."""


@dataclass(frozen=True)
class Held:
    """Carry the request out, and answer, once `go` is set."""

    go: asyncio.Event


class NoAnswer:
    """There is none to be sent: acks=0."""


@dataclass(frozen=True)
class Raw:
    """Send these bytes."""

    data: bytes


Answer = Response | Drop | Lose | Silence | Held | NoAnswer | Raw | None
#: Answers one request; None leaves it to the default handler.
Action = Callable[[Request], Answer]


def refuse_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[])


def join_refused(code: ErrorCode) -> Action:
    """Refuse a JoinGroup."""
    return lambda request: refuse_join(code)


def drop(request: Request) -> Answer:
    return Drop()


def lose(request: Request) -> Answer:
    return Lose()


def silence(request: Request) -> Answer:
    return Silence()


def held(go: asyncio.Event) -> Action:
    return lambda request: Held(go)


def default(request: Request) -> Answer:
    return None


def produce_refused(code: ErrorCode) -> Action:
    """Refuse every partition of a Produce."""

    def action(request: Request) -> Answer:
        assert isinstance(request, ProduceRequest)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                        for one in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return action


def fetch_refused(code: ErrorCode) -> Action:
    """Refuse every partition of a Fetch."""

    def action(request: Request) -> Answer:
        assert isinstance(request, FetchRequest)
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(partition_index=one.partition, error_code=code, high_watermark=-1, records=b"")
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return action


def heartbeat_refused(code: ErrorCode) -> Action:
    return lambda request: HeartbeatResponse(error_code=code)


def group_heartbeat_refused(code: ErrorCode) -> Action:
    """Refuse a ConsumerGroupHeartbeat."""
    return lambda request: ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, member_epoch=0, heartbeat_interval_ms=0
    )


def commit_refused(code: ErrorCode) -> Action:
    def action(request: Request) -> Answer:
        assert isinstance(request, OffsetCommitRequest)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return action
