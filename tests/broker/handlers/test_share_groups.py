"""Share groups: offsets, deletion, another coordinator. The rest: `interop/behaviour`."""

from typing import Final

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.share_group_describe import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.wire import Wire, until

E: Final = ErrorCode


@pytest.fixture
async def topic_id(wire: Wire, broker: BrokerServer) -> bytes:
    """A topic with two partitions; the coordinator of groups is there."""
    new = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    answer = await wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), 7, CreateTopicsResponse)
    await wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6, FindCoordinatorResponse)
    runtime = broker.services.groups._runtime
    await until(lambda: runtime.partition_for("g") in runtime.loaded)
    return answer.topics[0].topic_id


async def beat(
    wire: Wire, member: str = "a", epoch: int = 0, names: tuple[str, ...] | None = ("t",), group: str = "g"
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=None if names is None else list(names),
    )
    while True:
        response = await wire.ask(request, 1, ShareGroupHeartbeatResponse)
        if response.error_code not in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR):
            return response


def assigned(response: ShareGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    if response.assignment is None:
        return None
    return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}


async def describe(wire: Wire, group: str = "g") -> DescribedShareGroup:
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    (found,) = (await wire.ask(request, 1, ShareGroupDescribeResponse)).groups
    return found


async def offsets(
    wire: Wire, topics: list[DescribeShareGroupOffsetsRequestTopic] | None = None
) -> list[tuple[int, int, int]]:
    asked = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    (group,) = (await wire.ask(request, 1, DescribeShareGroupOffsetsResponse)).groups
    assert group.error_code == E.NONE
    return [
        (each.partition_index, each.start_offset, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    ]


async def alter(wire: Wire, *altered: tuple[str, int, int]) -> tuple[int, list[int]]:
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)],
        )
        for name, index, offset in altered
    ]
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=topics)
    response = await wire.ask(request, 0, AlterShareGroupOffsetsResponse)
    return response.error_code, [each.error_code for topic in response.responses for each in topic.partitions]


async def delete_offsets(wire: Wire, *names: str) -> tuple[int, list[int]]:
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=topics)
    response = await wire.ask(request, 0, DeleteShareGroupOffsetsResponse)
    return response.error_code, [each.error_code for each in response.responses]


async def test_offsets(wire: Wire, topic_id: bytes) -> None:
    joined = await beat(wire)
    assert await offsets(wire) == [(0, -1, 0), (1, -1, 0)], "share.auto.offset.reset decides"
    assert await alter(wire, ("t", 0, 5)) == (E.NON_EMPTY_GROUP, [])
    assert await delete_offsets(wire, "t") == (E.NON_EMPTY_GROUP, [])
    await beat(wire, "a", -1, None)
    code, codes = await alter(wire, ("t", 0, 5), ("t", 7, 5), ("missing", 0, 5), ("t", 1, -3))
    assert code == E.NONE
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [E.NONE, unknown, unknown, E.INVALID_REQUEST]
    asked = [
        DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0, 9]),
        DescribeShareGroupOffsetsRequestTopic(topic_name="missing", partitions=[0]),
    ]
    assert await offsets(wire, asked) == [(0, 5, 0), (9, -1, 0), (0, -1, 0)]
    assert (await beat(wire)).member_epoch > joined.member_epoch + 1
    await beat(wire, "a", -1, None)
    assert await delete_offsets(wire, "t", "missing") == (E.NONE, [E.NONE, unknown])
    assert await offsets(wire) == []


async def test_offsets_of_a_new_group(wire: Wire, topic_id: bytes, broker: BrokerServer) -> None:
    """They are set before its first member joins."""
    assert await offsets(wire) == []
    assert await alter(wire) == (E.NONE, [])
    assert not [*broker.services.groups.share_groups.all()]
    assert await alter(wire, ("t", 0, 5)) == (E.NONE, [E.NONE])
    described = await describe(wire)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Empty", 1, 1)
    assert await offsets(wire) == [(0, 5, 0)]
    assert (await beat(wire)).error_code == E.NONE
    assert await offsets(wire) == [(0, 5, 0), (1, -1, 0)]


async def test_an_empty_group_is_deleted(wire: Wire, topic_id: bytes, broker: BrokerServer) -> None:
    async def delete() -> dict[str, int]:
        request = DeleteGroupsRequest(groups_names=["g", "missing"])
        results = (await wire.ask(request, 2, DeleteGroupsResponse)).results
        return {each.group_id: each.error_code for each in results}

    await beat(wire)
    assert await delete() == {"g": E.NON_EMPTY_GROUP, "missing": E.GROUP_ID_NOT_FOUND}
    assert broker.services.shares.runtime.count == 2
    await beat(wire, "a", -1, None)
    assert await delete() == {"g": E.NONE, "missing": E.GROUP_ID_NOT_FOUND}
    assert (await describe(wire)).error_code == E.GROUP_ID_NOT_FOUND
    assert broker.services.shares.runtime.count == 0


async def test_the_states_of_a_deleted_topic_are_gone(wire: Wire, topic_id: bytes, broker: BrokerServer) -> None:
    joined = await beat(wire)
    state = DeleteTopicState(name="t", topic_id=bytes(16))
    await wire.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6, DeleteTopicsResponse)
    await until(lambda: not broker.services.shares.runtime.count)
    await until(lambda: not broker.services.groups.share_groups.find("g").initialized)
    assert assigned(await beat(wire, "a", joined.member_epoch, None)) == {}


async def test_a_member_that_is_silent_is_removed(wire: Wire, topic_id: bytes, broker: BrokerServer) -> None:
    await beat(wire)
    broker.services.groups.share_groups.expire_member("g", "a")
    await until(lambda: not broker.services.groups.share_groups.find("g").members)
    assert (await describe(wire)).group_state == "Empty"


async def test_a_group_outlives_its_coordinator(wire: Wire, topic_id: bytes, broker: BrokerServer) -> None:
    joined = await beat(wire)
    runtime = broker.services.groups._runtime
    home = runtime.home("g")
    await runtime.load(home.index, home.leader_epoch + 1)
    again = await beat(wire, "a", joined.member_epoch)
    assert (again.error_code, again.member_epoch, assigned(again)) == (E.NONE, joined.member_epoch, {topic_id: [0, 1]})
