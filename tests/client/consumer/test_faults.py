"""The consumer against a scripted broker: what is refused, and what goes wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas_client import Consumer
from barnabas_client.errors import (
    IllegalOperationError,
    IllegalStateError,
    TopicAuthorizationFailedError,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchLeaderIdAndEpoch,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas_protocol.messages.list_offsets import ListOffsetsRequest
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.client.consumers import T0, T1, consumer, values
from tests.world.answers import Answer, drop, refused, silence
from tests.world.programs import Machine, Simulation, simulated

# What is refused.


@simulated
async def test_invalid_calls(broker: Machine) -> None:
    await broker.create("t")
    async with consumer(broker) as reader:
        with pytest.raises(IllegalStateError, match="nothing to poll"):
            await reader.getone()
        with pytest.raises(IllegalOperationError, match="group_id"):
            await reader.commit()
        with pytest.raises(IllegalOperationError, match="group_id"):
            await reader.committed(T0)
        reader.assign([T0])
        with pytest.raises(IllegalStateError, match=r"subscribe\(\) after assign\(\)"):
            reader.subscribe(["t"])
        calls: list[Callable[[], object]] = [
            lambda: reader.seek(T1, 0),
            lambda: reader.pause(T1),
            lambda: reader.resume(T1),
            lambda: reader.highwater(T1),
        ]
        for call in calls:
            with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
                call()
        with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
            await reader.position(T1)
        with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
            await reader.seek_to_beginning(T1)
        with pytest.raises(ValueError, match="at least 0"):
            reader.seek(T0, -5)
        with pytest.raises(ValueError, match="timeout_ms is -1"):
            await reader.getmany(timeout_ms=-1)
        with pytest.raises(ValueError, match="timeout_ms is -1"):
            await reader.poll(-1)
        with pytest.raises(ValueError, match="max_records is 0"):
            await reader.getmany(max_records=0)
        reader.unsubscribe()
        reader.subscribe(["t"])
        with pytest.raises(IllegalStateError, match=r"assign\(\) after subscribe\(\)"):
            reader.assign([T0])


def test_invalid_subscriptions() -> None:
    reader = Consumer()
    wrong: Any = "topic"
    with pytest.raises(TypeError, match=r"\['topic'\]"):
        reader.subscribe(wrong)
    with pytest.raises(TypeError, match="either topics or a pattern"):
        reader.subscribe()
    with pytest.raises(TypeError, match="either topics or a pattern"):
        reader.subscribe(["t"], pattern="t")
    with pytest.raises(TypeError, match="'' is not a topic: give its name"):
        reader.subscribe([""])
    with pytest.raises(ValueError, match="not a regular expression"):
        reader.subscribe(pattern="(")
    wrong = object()
    with pytest.raises(TypeError, match="ConsumerRebalanceListener"):
        reader.subscribe(["t"], listener=wrong)
    wrong = ["t"]
    with pytest.raises(TypeError, match="give TopicPartition"):
        reader.assign(wrong)
    reader.subscribe(pattern="t")
    with pytest.raises(IllegalStateError, match=r"assign\(\) after subscribe\(\)"):
        reader.assign([T0])


# Faults.


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
@simulated
async def test_a_fetch_is_retried_after_retriable_errors(broker: Machine, code: ErrorCode) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.once(ApiKey.FETCH, refused(code), refused(code))
    async with consumer(broker, "t") as reader:
        assert await values(reader, 1) == [b"a"]


@simulated
async def test_an_authorization_error_of_a_fetch_is_raised(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.once(ApiKey.FETCH, refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    async with consumer(broker, "t") as reader:
        with pytest.raises(TopicAuthorizationFailedError, match="grant this client access"):
            await reader.getone()
        assert await values(reader, 1) == [b"a"]  # it may have been granted


@simulated
async def test_connections_break(simulation: Simulation) -> None:
    broker = await simulation.machine()
    await broker.create("t")
    async with consumer(broker, "t") as reader:
        for round_ in range(5):
            await broker.write("t", [b"%d" % round_])
            broker.script.once(ApiKey.FETCH, drop)
            assert await values(reader, 1) == [b"%d" % round_]
            simulation.network.refuse(broker.life, 0.01)


@simulated
async def test_the_broker_restarts(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with consumer(broker, "t") as reader:
        assert await values(reader, 1) == [b"a"]
        await broker.stop()
        assert await reader.getmany(timeout_ms=20) == {}
        await broker.start()
        await broker.write("t", [b"b"])
        assert await values(reader, 1) == [b"b"]


@simulated
async def test_the_leader_moves(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 1, [0, 1])
    await one.write("t", [b"a"])
    async with consumer(one, "t") as reader:
        assert await values(reader, 1) == [b"a"]
        await simulation.lead("t", 1)
        await other.write("t", [b"b"])
        assert await values(reader, 1) == [b"b"]


@simulated
async def test_an_error_with_the_new_leader_saves_a_metadata_request(simulation: Simulation) -> None:
    """As Apache Kafka answers (KIP-951)."""
    one, other = await simulation.cluster(2)
    await one.create("t", 1, [0, 1])

    def moved(request: Request) -> Answer:
        assert isinstance(request, FetchRequest)
        data = PartitionData(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            high_watermark=-1,
            records=b"",
            current_leader=FetchLeaderIdAndEpoch(leader_id=1, leader_epoch=1),
        )
        topics = [FetchableTopicResponse(topic_id=topic.topic_id, partitions=[data]) for topic in request.topics]
        return FetchResponse(responses=topics)

    async with consumer(one, "t") as reader:
        assert await reader.position(T0) == 0
        await simulation.lead("t", 1)
        one.script.always(ApiKey.FETCH, moved)
        for broker in (one, other):
            broker.script.always(ApiKey.METADATA, silence)
        await other.write("t", [b"a"])
        assert await values(reader, 1) == [b"a"]


@simulated
async def test_two_leaders_are_fetched_from_at_once(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 2, [0], [1])
    await one.write("t", [b"0"], 0)
    await other.write("t", [b"1"], 1)
    async with consumer(one, "t") as reader:
        assert sorted(await values(reader, 2)) == [b"0", b"1"]
    asked = other.script.asked(FetchRequest)
    assert {one.partition for request in asked for topic in request.topics for one in topic.partitions} == {1}


@simulated
async def test_finding_a_position_is_retried(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.once(ApiKey.LIST_OFFSETS, drop, drop)
    async with consumer(broker, "t") as reader:
        assert await values(reader, 1) == [b"a"]
    assert len(broker.script.asked(ListOffsetsRequest)) == 3


@simulated
async def test_the_connection_to_a_broker_that_stops_answering_is_closed(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.once(ApiKey.LIST_OFFSETS, silence)
    async with consumer(broker, "t", request_timeout_ms=500) as reader:
        assert await values(reader, 1) == [b"a"]


@simulated
async def test_read_committed_is_sent_to_the_broker(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with consumer(broker, "t", isolation_level="read_committed") as reader:
        assert await values(reader, 1) == [b"a"]
    assert broker.script.asked(FetchRequest)[0].isolation_level == 1
    assert broker.script.asked(ListOffsetsRequest)[0].isolation_level == 1
