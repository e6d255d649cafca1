"""Older forms of requests and responses."""

import pytest

from barnabas_client.errors import UnsupportedVersionError
from barnabas_client.network.versions import ApiRange, downgrade, prepare, upgrade
from barnabas_protocol.codec import encode
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas_protocol.messages.list_config_resources import CLIENT_METRICS, ListConfigResourcesRequest
from barnabas_protocol.messages.list_offsets import ListOffsetsRequest
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from barnabas_protocol.structures import codec_for

REQUESTS: list[Request] = [
    FindCoordinatorRequest(coordinator_keys=["g"]),
    OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])])
        ],
        require_stable=True,
    ),
    LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m", reason="why")]),
    DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1),
    MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
    ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[]),
    ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_every_version_can_be_encoded(request_: Request) -> None:
    for version in request_.VERSIONS:
        assert encode(downgrade(request_, version), version)


def test_constructs_are_made_in_the_versions_that_are_used() -> None:
    codec_for.cache_clear()
    broker: dict[int, ApiRange] = {ApiKey.HEARTBEAT: ApiRange(0, 3), ApiKey.METADATA: ApiRange(0, 0)}
    prepare((HeartbeatRequest, HeartbeatResponse, MetadataRequest, ListOffsetsRequest), broker)
    made = codec_for.cache_info().currsize
    codec_for(HeartbeatRequest, 3)
    codec_for(HeartbeatResponse, 3)
    assert made == codec_for.cache_info().currsize == 2  # the broker is too old for the others


def test_the_newest_form_is_not_changed() -> None:
    for request in [*REQUESTS, HeartbeatRequest(group_id="g", generation_id=1, member_id="m")]:
        assert downgrade(request, request.VERSIONS.high) is request


def test_an_old_response_with_a_coordinator() -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    assert downgrade(request, 3) == FindCoordinatorRequest(key="g")
    old = FindCoordinatorResponse(node_id=3, host="h", port=1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (found,) = upgrade(request, old, 3).coordinators
    assert (found.key, found.node_id, found.host, found.port) == ("g", 3, "h", 1)
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert upgrade(request, FindCoordinatorResponse(coordinators=[found]), 4).coordinators == [found]


def test_an_old_response_with_offsets() -> None:
    request = REQUESTS[1]
    assert isinstance(request, OffsetFetchRequest)
    shaped = downgrade(request, 7)
    assert isinstance(shaped, OffsetFetchRequest)
    assert shaped.group_id == "g"
    assert shaped.require_stable
    old = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name="t",
                partitions=[OffsetFetchResponsePartition(partition_index=1, committed_offset=5, metadata="x")],
            )
        ],
        error_code=ErrorCode.NONE,
    )
    (group,) = upgrade(request, old, 7).groups
    (partition,) = group.topics[0].partitions
    assert (group.group_id, group.topics[0].name) == ("g", "t")
    assert (partition.partition_index, partition.committed_offset, partition.metadata) == (1, 5, "x")


def test_all_offsets_of_a_group() -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    shaped = downgrade(request, 5)
    assert isinstance(shaped, OffsetFetchRequest)
    assert shaped.topics is None


def test_an_old_response_to_leave_group() -> None:
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    response = upgrade(request, LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), 2)
    assert [(one.member_id, one.error_code) for one in response.members] == [("m", ErrorCode.UNKNOWN_MEMBER_ID)]


def test_requests_that_an_old_version_cannot_encode() -> None:
    with pytest.raises(UnsupportedVersionError, match="name them"):
        downgrade(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=b"x" * 16)], timeout_ms=1), 5)
    with pytest.raises(UnsupportedVersionError, match="client metrics only"):
        downgrade(ListConfigResourcesRequest(resource_types=[]), 0)
