"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, on a single broker."""

from typing import NoReturn

import pytest

from barnabas_broker.cluster import controller
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from barnabas_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.wire import Wire


async def create(wire: Wire, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    answer = await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def elect(wire: Wire, version: int, kind: int, asked: list[TopicPartitions] | None) -> ElectLeadersResponse:
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    return await wire.ask(request, version, ElectLeadersResponse)


async def test_no_election_is_needed(wire: Wire) -> None:
    await create(wire, "topic")
    for version in (0, 1, 2):
        answer = await elect(wire, version, 0, [TopicPartitions(topic="topic", partitions=[0, 9])])
        results = answer.replica_election_results[0].partition_result
        assert [(p.partition_id, p.error_code) for p in results] == [
            (0, ErrorCode.ELECTION_NOT_NEEDED),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
    everything = await elect(wire, 2, 1, None)
    assert (everything.error_code, everything.replica_election_results) == (ErrorCode.NONE, [])


async def test_unknown_election_types_are_rejected(wire: Wire) -> None:
    assert (await elect(wire, 2, 7, None)).error_code == ErrorCode.INVALID_REQUEST


async def test_a_change_that_fails_is_answered_in_every_version(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 0 has errors of partitions only, as in Kafka."""

    def fails(*_: object) -> NoReturn:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(controller, "elect_leaders", fails)
    asked = [TopicPartitions(topic="topic", partitions=[0, 9])]
    for version in (1, 2):
        assert (await elect(wire, version, 0, asked)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (topic,) = (await elect(wire, 0, 0, asked)).replica_election_results
    assert [(p.partition_id, p.error_code) for p in topic.partition_result] == [
        (0, ErrorCode.KAFKA_STORAGE_ERROR),
        (9, ErrorCode.KAFKA_STORAGE_ERROR),
    ]
    assert (await elect(wire, 0, 0, None)).replica_election_results == []


async def test_a_failed_handler_ends_the_connection_if_the_version_has_no_error(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> NoReturn:
        raise RuntimeError("a bug")

    monkeypatch.setattr(controller, "elect_leaders", fails)
    assert (await elect(wire, 1, 0, None)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    wire.send(ElectLeadersRequest(topic_partitions=None), 0)
    assert await wire.closed()


async def reassign(
    wire: Wire, *targets: list[int] | None, version: int = 0, as_many: bool = False
) -> list[tuple[int, str | None]]:
    partitions = [ReassignablePartition(partition_index=n, replicas=target) for n, target in enumerate(targets)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="topic", partitions=partitions)])
    if as_many:
        request.allow_replication_factor_change = False
    answer = await wire.ask(request, version, AlterPartitionReassignmentsResponse)
    assert answer.error_code == ErrorCode.NONE
    assert answer.allow_replication_factor_change is not as_many
    return [(p.error_code, p.error_message) for p in answer.responses[0].partitions]


async def test_a_reassignment_to_other_brokers_is_rejected(wire: Wire) -> None:
    await create(wire, "topic")
    there, nowhere, unknown = await reassign(wire, [1], [2], [1])
    assert there == (ErrorCode.NONE, None)
    assert nowhere[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "no such broker" in str(nowhere[1])
    assert unknown[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await reassign(wire, None))[0][0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_version_1_may_keep_the_replication_factor(wire: Wire) -> None:
    await create(wire, "topic")
    assert await reassign(wire, [1], [1], version=1, as_many=True) == [(ErrorCode.NONE, None)] * 2
    assert await reassign(wire, [1], version=1) == [(ErrorCode.NONE, None)]


async def test_no_reassignments_are_listed(wire: Wire) -> None:
    await create(wire, "topic")
    asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 7]) for name in ("topic", "nothing")]
    for topics in (None, asked):
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = await wire.ask(request, 0, ListPartitionReassignmentsResponse)
        assert (answer.error_code, answer.topics) == (ErrorCode.NONE, [])
