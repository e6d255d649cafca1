"""The fake broker's group coordinator, for groups of one member."""

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request


class FakeCoordinator:
    """One group."""

    def __init__(self, host: str, node_id: int) -> None:
        self.host = host
        self.node_id = node_id
        self.port = 0
        self.requests: list[tuple[ApiKey, int, Request]] = []
        self.topic_ids: dict[str, bytes] = {}
        self.committed: dict[tuple[str, str, int], tuple[int, str | None]] = {}
        self.epochs: dict[tuple[str, str, int], int] = {}
        self.generation = 0
        self.member = ""
        self.of_consumer_protocol = False
        self.joined: JoinGroupRequest | None = None
        self._asked_in = 0

    def _topic(self, name: str, topic_id: bytes) -> str | None:
        """The topic that a request has by its name or by its id; None if no topic has the id."""
        if name:
            return name
        return next((known for known, its_id in self.topic_ids.items() if its_id == topic_id), None)

    def _find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if not request.coordinator_keys:
            return FindCoordinatorResponse(node_id=self.node_id, host=self.host, port=self.port)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=self.node_id, host=self.host, port=self.port)
                for key in request.coordinator_keys
            ]
        )

    def _join_group(self, request: JoinGroupRequest) -> JoinGroupResponse:
        """There is only ever one member, which leads."""
        if not request.member_id and request.group_instance_id is None and self._asked_in >= 4:
            self.member = f"member-{len(self.requests)}"
            return JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED,
                protocol_name=None,
                leader="",
                member_id=self.member,
                members=[],
            )
        self.generation += 1
        self.member = request.member_id or f"member-{len(self.requests)}"
        self.joined = request
        protocol = request.protocols[0]
        return JoinGroupResponse(
            error_code=0,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=protocol.name,
            leader=self.member,
            member_id=self.member,
            members=[JoinGroupResponseMember(member_id=self.member, metadata=protocol.metadata)],
        )

    def _sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        mine = [one.assignment for one in request.assignments if one.member_id == request.member_id]
        return SyncGroupResponse(error_code=0, assignment=mine[0] if mine else b"")

    def _heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=self._checked(request.member_id, request.generation_id))

    def _leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        self.member, self.joined = "", None
        return LeaveGroupResponse(error_code=0)

    def _offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        checked = self._checked(request.member_id, request.generation_id_or_member_epoch)
        topics = []
        for topic in request.topics:
            name = self._topic(topic.name, topic.topic_id)
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else checked
            for partition in topic.partitions:
                if name is not None and code == ErrorCode.NONE:
                    place = (request.group_id, name, partition.partition_index)
                    self.committed[place] = (partition.committed_offset, partition.committed_metadata)
                    self.epochs[place] = partition.committed_leader_epoch
            topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                        for one in topic.partitions
                    ],
                )
            )
        return OffsetCommitResponse(topics=topics)

    def _checked(self, member_id: str, generation: int) -> ErrorCode:
        if generation < 0 and not self.member:
            return ErrorCode.NONE
        if member_id != self.member:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation == self.generation:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if self.of_consumer_protocol else ErrorCode.ILLEGAL_GENERATION

    def _offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        def partition(group: str, topic: str | None, number: int) -> OffsetFetchResponsePartitions:
            if topic is None:
                return OffsetFetchResponsePartitions(
                    partition_index=number, committed_offset=-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                )
            offset, metadata = self.committed.get((group, topic, number), (-1, ""))
            return OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=self.epochs.get((group, topic, number), -1),
                metadata=metadata,
            )

        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        OffsetFetchResponseTopics(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                partition(group.group_id, self._topic(topic.name, topic.topic_id), number)
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics or []
                    ],
                )
                for group in request.groups
            ]
        )
