"""ElectLeaders that fails."""

from typing import NoReturn

import pytest

from barnabas_broker.cluster import controller
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.wire import Wire


async def create(wire: Wire, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    answer = await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def elect(wire: Wire, version: int, kind: int, asked: list[TopicPartitions] | None) -> ElectLeadersResponse:
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    return await wire.ask(request, version, ElectLeadersResponse)


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
