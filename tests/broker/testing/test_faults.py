"""Every fault, on the wire."""

import asyncio
import time
from typing import Any

import pytest

from barnabas_broker.testing import Broker, Faults
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records import build_batch
from tests.wire import PATIENCE, Wire

pytestmark = [pytest.mark.broad, pytest.mark.together]


@pytest.fixture
def topic(running: Broker, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    running.create_topic(name, 2)
    return str(name)


def produce(topic: str, acks: int = -1) -> ProduceRequest:
    batch = build_batch([(None, b"value", (), 0)])
    partition = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )


async def end(line: Wire, topic: str) -> int:
    """How many records the topic's first partition holds."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    answer = await line.ask(asked, 5, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


async def find_coordinator(line: Wire, group: str) -> None:
    """Until there is one: its log is made and read first."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await line.ask(FindCoordinatorRequest(key=group), 0, FindCoordinatorResponse)
            beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
            answer = await line.ask(beat, 0, HeartbeatResponse)
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                return


async def test_a_delay_keeps_an_answer_back_and_those_after_it(faults: Faults, line: Wire) -> None:
    fault = faults.delay("ApiVersions", 0.2, nth=2)
    await line.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    started = time.perf_counter()
    line.send(ApiVersionsRequest(), 0)
    last = line.send(ListGroupsRequest(), 0)
    await line.frame()
    assert time.perf_counter() - started >= 0.2
    assert int.from_bytes((await line.frame())[:4]) == last
    assert fault.fired == 1


async def test_what_is_kept_back_leaves_when_the_fault_ends(
    running: Broker, faults: Faults, line: Wire, topic: str
) -> None:
    with faults.delay("Produce", 1000) as fault:
        line.send(produce(topic), 9)
        await asyncio.to_thread(fault.wait)
        async with await Wire.connect(running.port) as other:
            assert await end(other, topic) == 1  # it was carried out
    await line.frame()
    assert fault.fired == 1
    fault = faults.delay("ApiVersions", 1000)
    line.send(ApiVersionsRequest(), 0)
    await asyncio.to_thread(fault.wait)
    faults.clear()
    await line.frame()


async def test_a_drop_closes_the_connection(running: Broker, faults: Faults, line: Wire, topic: str) -> None:
    fault = faults.drop("Produce")
    line.send(produce(topic), 9)
    assert await line.closed()
    assert fault.fired == 1
    async with await Wire.connect(running.port) as again:
        assert await end(again, topic) == 0
        await again.ask(produce(topic), 9, ProduceResponse)
        assert await end(again, topic) == 1


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_a_drop_may_lose_the_answer_only(
    running: Broker, faults: Faults, line: Wire, topic: str, acks: int
) -> None:
    faults.drop("Produce", executed=True)
    line.send(produce(topic, acks), 9)
    assert await line.closed()
    async with await Wire.connect(running.port) as again:
        assert await end(again, topic) == 1
    seen = next(each for each in reversed(running.requests) if each.api == "Produce")
    assert (seen.error, seen.fault) == ("connection closed: dropped by a test", "drop after it was carried out")


async def test_an_error_instead_of_doing_it(faults: Faults, line: Wire, topic: str) -> None:
    fault = faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE):
        answer = await line.ask(produce(topic), 9, ProduceResponse)
        partition = answer.responses[0].partition_responses[0]
        assert (answer.responses[0].name, partition.index, partition.error_code) == (topic, 0, code)
    assert await end(line, topic) == 1
    assert fault.fired == 2


async def test_an_error_after_it_was_done(faults: Faults, line: Wire, topic: str) -> None:
    faults.error("Produce", "REQUEST_TIMED_OUT", executed=True)
    answer = await line.ask(produce(topic), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert await end(line, topic) == 1


async def test_an_error_without_a_field_closes_the_connection(faults: Faults, line: Wire, topic: str) -> None:
    faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
    line.send(produce(topic, acks=0), 9)
    assert await line.closed()


async def test_acks_0_is_not_answered_late_either(faults: Faults, line: Wire, topic: str) -> None:
    fault = faults.delay("Produce", 1000)
    line.send(produce(topic, acks=0), 9)
    assert await end(line, topic) == 1
    assert fault.fired == 1


async def test_a_delayed_error(running: Broker, faults: Faults, line: Wire) -> None:
    faults.delay("ListGroups", 0.1)
    faults.error("ListGroups", "COORDINATOR_NOT_AVAILABLE")
    started = time.perf_counter()
    answer = await line.ask(ListGroupsRequest(), 0, ListGroupsResponse)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert time.perf_counter() - started >= 0.1
    assert running.requests[-1].fault == "delay 0.1 s, error COORDINATOR_NOT_AVAILABLE"


@pytest.mark.parametrize("all_topics", [True, False])
async def test_metadata_still_names_the_brokers(
    running: Broker, faults: Faults, line: Wire, topic: str, all_topics: bool
) -> None:
    faults.error("Metadata", "LEADER_NOT_AVAILABLE")
    asked = [MetadataRequestTopic(name=name) for name in (topic, "not-created")]
    answer = await line.ask(MetadataRequest(topics=None if all_topics else asked), 9, MetadataResponse)
    assert {each.error_code for each in answer.topics} == {ErrorCode.LEADER_NOT_AVAILABLE}
    assert topic in {each.name for each in answer.topics}
    assert [(b.host, b.port) for b in answer.brokers] == [("127.0.0.1", running.port)]
    answer = await line.ask(MetadataRequest(topics=None), 9, MetadataResponse)
    assert "not-created" not in {each.name for each in answer.topics}


async def test_an_error_waits_for_a_request_that_has_a_place_for_it(faults: Faults, line: Wire, topic: str) -> None:
    fault = faults.error("Metadata", "LEADER_NOT_AVAILABLE")
    assert (await line.ask(MetadataRequest(topics=[]), 9, MetadataResponse)).brokers
    assert fault.fired == 0
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer = await line.ask(asked, 9, MetadataResponse)
    assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert fault.fired == 1


async def test_a_fetch_session_starts_again_and_meets_the_error(faults: Faults, line: Wire, topic: str) -> None:
    def fetch(session: int, epoch: int, partitions: list[int]) -> FetchRequest:
        wanted = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1000) for p in partitions]
        named = [FetchTopic(topic=topic, partitions=wanted)] if wanted else []
        return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch, topics=named)

    first = await line.ask(fetch(0, 0, [0, 1]), 12, FetchResponse)
    assert first.session_id
    fault = faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER")
    second = await line.ask(fetch(first.session_id, 1, []), 12, FetchResponse)
    assert (second.error_code, fault.fired) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    third = await line.ask(fetch(0, 0, [0, 1]), 12, FetchResponse)
    assert [p.error_code for p in third.responses[0].partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert (third.error_code, fault.fired) == (ErrorCode.NONE, 1)


async def test_other_clients_are_left_alone(running: Broker, faults: Faults, line: Wire) -> None:
    faults.error("Heartbeat", "UNKNOWN_MEMBER_ID", client_id="victim", times=None)
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    own = await line.ask(beat, 0, HeartbeatResponse, client_id="other")
    assert own.error_code != ErrorCode.NONE  # of its own making
    assert running.requests[-1].fault == ""
    await line.ask(beat, 0, HeartbeatResponse, client_id="victim")
    assert running.requests[-1].fault == "error UNKNOWN_MEMBER_ID"


async def test_every_api_at_once(faults: Faults, line: Wire) -> None:
    faults.error("*", "REQUEST_TIMED_OUT", times=2)
    assert (await line.ask(ListGroupsRequest(), 0, ListGroupsResponse)).error_code == ErrorCode.REQUEST_TIMED_OUT
    wanted = CreatableTopic(name="not-made", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    answer = await line.ask(CreateTopicsRequest(topics=[wanted]), 5, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_member_is_cut_off(running: Broker, faults: Faults) -> None:
    async with await Wire.connect(running.port) as member, await Wire.connect(running.port) as other:
        await other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse, client_id="other")
        await find_coordinator(other, "cut")
        before = running.requests[-1]
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        join: dict[str, Any] = {"group_id": "cut", "session_timeout_ms": 30_000, "protocol_type": "consumer"}
        asked = JoinGroupRequest(**join, rebalance_timeout_ms=30_000, member_id="", protocols=protocols)
        leader = await other.ask(asked, 2, JoinGroupResponse, client_id="other")
        assert leader.error_code == ErrorCode.NONE
        member.send(asked, 2, client_id="victim")  # waits for the leader to join again
        await asyncio.to_thread(running.wait_for_request, "JoinGroup", client_id="victim", after=before)
        assert faults.disconnect("nobody") == 0
        assert faults.disconnect("victim") == 1
        assert await member.closed()
        await other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse, client_id="other")
        assert faults.disconnect() == 1
        assert await other.closed()


async def test_stop_and_clear(running: Broker, faults: Faults) -> None:
    fault = faults.error("ListGroups", "REQUEST_TIMED_OUT", times=None)
    faults.restart()
    async with await Wire.connect(running.port) as line:
        answer = await line.ask(ListGroupsRequest(), 0, ListGroupsResponse)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT  # a restart leaves it alive
    assert fault.fired == 1
    faults.stop()
    with pytest.raises(ConnectionRefusedError):
        await Wire.connect(running.port)
    faults.clear()
    async with await Wire.connect(running.port) as line:
        assert (await line.ask(ListGroupsRequest(), 0, ListGroupsResponse)).error_code == ErrorCode.NONE
    with pytest.raises(ValueError, match="ended when its broker was stopped"):
        _ = fault.fired


def test_what_makes_no_sense(faults: Faults) -> None:
    with pytest.raises(ValueError, match="no such error code"):
        faults.error("Fetch", "NO_SUCH_ERROR")
    with pytest.raises(TimeoutError, match=r"within 0.01 s 0 requests met delay 3 s, not 1"):
        faults.delay("Fetch", 3).wait(timeout=0.01)
