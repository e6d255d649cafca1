"""Features, the quorum and the newest versions: what a broker answers that Kafka 4.4 clients ask."""

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.wire import Wire


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (FeatureUpdateKey(feature="made.up", max_version_level=1), "feature made.up. Broker 1 does not support this"),
        (FeatureUpdateKey(feature="a\nb", max_version_level=1), r"feature a\nb. "),
        (FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2), "Its level is 1, which"),
        (FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=9), "the given upgrade type"),
    ],
)
async def test_the_error_says_why_a_feature_is_not_changed(wire: Wire, update: FeatureUpdateKey, why: str) -> None:
    response = await wire.ask(UpdateFeaturesRequest(feature_updates=[update]), 2, UpdateFeaturesResponse)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert why in (response.error_message or "")


async def test_the_error_says_why_a_group_is_not_deleted(wire: Wire) -> None:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    while (await wire.ask(find, 4, FindCoordinatorResponse)).coordinators[0].error_code != ErrorCode.NONE:
        pass
    response = await wire.ask(DeleteGroupsRequest(groups_names=["g"]), 3, DeleteGroupsResponse)
    result = response.results[0]
    assert (result.error_code, result.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "The group does not exist.")


async def test_the_error_says_why_there_is_no_quorum(wire: Wire) -> None:
    partition = DescribeQuorumRequestPartition(partition_index=0)
    topic = DescribeQuorumRequestTopic(topic_name="__cluster_metadata", partitions=[partition])
    response = await wire.ask(DescribeQuorumRequest(topics=[topic]), 2, DescribeQuorumResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "etcd" in (response.error_message or "")
