"""Strings that not every version of an API can carry are refused when they come in: what one client sends in a version
with compact strings is answered to others in versions whose strings have at most 32,767 bytes.
"""

from typing import Any

import pytest

from barnabas_protocol.codec import encode_request
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_protocol.schema import Request
from tests.broker.http.support import coordinated
from tests.wire import Wire

LONGEST = "x" * 32767
LONG = "x" * 32768


def join(**values: Any) -> JoinGroupRequest:
    given: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 60_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"x")],
        **values,
    }
    return JoinGroupRequest(**given)


def commit(metadata: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=metadata)
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])


def produce(**values: Any) -> ProduceRequest:
    data = [TopicProduceData(name=LONG, partition_data=[PartitionProduceData(index=0, records=b"")])]
    given: dict[str, Any] = {"acks": 1, "timeout_ms": 1000, "topic_data": data, **values}
    return ProduceRequest(**given)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        pytest.param(join(group_id=LONG), 9, id="group id"),
        pytest.param(join(protocol_type=LONG), 9, id="protocol type"),
        pytest.param(join(protocols=[JoinGroupRequestProtocol(name=LONG, metadata=b"")]), 9, id="protocol"),
        pytest.param(join(member_id=LONG), 9, id="member id"),
        pytest.param(join(group_instance_id=LONG), 9, id="instance id"),
        pytest.param(join(reason=LONG), 9, id="reason"),
        pytest.param(commit(LONG), 8, id="metadata"),
        pytest.param(produce(), 9, id="topic"),
        pytest.param(produce(transactional_id=LONG, topic_data=[]), 9, id="transactional id"),
    ],
)
async def test_a_longer_string_closes_the_connection(wire: Wire, request_: Request, version: int) -> None:
    """As in Apache Kafka, which cannot read such a request."""
    wire.writer.write(encode_request(request_, version, 1, "test"))
    assert await wire.closed()


async def test_the_longest_strings_are_told_in_every_version(wire: Wire) -> None:
    await coordinated(wire, "g")
    given = await wire.ask(join(protocol_type=LONGEST), 9, JoinGroupResponse)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = await wire.ask(join(protocol_type=LONGEST, member_id=given.member_id), 9, JoinGroupResponse)
    assert joined.error_code == ErrorCode.NONE
    for version in range(6):
        listed = await wire.ask(ListGroupsRequest(), version, ListGroupsResponse)
        assert [(group.group_id, group.protocol_type) for group in listed.groups] == [("g", LONGEST)]


@pytest.mark.parametrize("version", [0, 5, 9])
async def test_a_name_that_leaves_no_room_for_a_member_id_is_refused(wire: Wire, version: int) -> None:
    await coordinated(wire, "g")
    joined = await wire.ask(join(), version, JoinGroupResponse, client_id=LONGEST)
    assert joined.error_code == ErrorCode.INVALID_REQUEST
    if version >= 5:
        joined = await wire.ask(join(group_instance_id=LONGEST), version, JoinGroupResponse)
        assert joined.error_code == ErrorCode.INVALID_REQUEST
    for each in range(6):
        answer = await wire.ask(DescribeGroupsRequest(groups=["g"]), each, DescribeGroupsResponse)
        assert answer.groups[0].members == []
