"""DescribeTopicPartitions, DescribeLogDirs and AlterReplicaLogDirs."""

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from barnabas_protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tests.wire import Wire


async def create(wire: Wire, **topics: int) -> None:
    rows = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in topics.items()
    ]
    await wire.ask(CreateTopicsRequest(topics=rows), 7, CreateTopicsResponse)


async def page(wire: Wire, names: list[str], limit: int, cursor: Cursor | None) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    return await wire.ask(request, 0, DescribeTopicPartitionsResponse)


async def test_partitions_are_described_page_by_page(wire: Wire) -> None:
    await create(wire, b=3, a=2, c=1)
    found: list[tuple[str | None, int]] = []
    cursor: Cursor | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        answer = await page(wire, [], 2, cursor)
        found += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        pages += 1
        last = answer.next_cursor
        cursor = None if last is None else Cursor(topic_name=last.topic_name, partition_index=last.partition_index)
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
    assert pages == 3


async def test_the_directory_and_its_partitions_are_described(broker: BrokerServer, wire: Wire) -> None:
    await create(wire, a=2, b=1)
    for version in range(5):
        everything = await wire.ask(DescribeLogDirsRequest(topics=None), version, DescribeLogDirsResponse)
        (directory,) = everything.results
        assert directory.error_code == ErrorCode.NONE
        assert {(t.name, len(t.partitions)) for t in directory.topics} == {("a", 2), ("b", 1)}
        if version >= 4:
            assert 0 < directory.usable_bytes <= directory.total_bytes
    some = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="a", partitions=[1])])
    (directory,) = (await wire.ask(some, 4, DescribeLogDirsResponse)).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in directory.topics] == [("a", [1])]


@pytest.mark.parametrize("version", range(3))
async def test_replicas_stay_where_they_are(wire: Wire, version: int) -> None:
    await create(wire, a=2, b=1)
    everything = await wire.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    here = everything.results[0].log_dir

    async def move(path: str, topic: str, *partitions: int) -> list[tuple[str, int, int]]:
        asked = AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
        answer = await wire.ask(request, version, AlterReplicaLogDirsResponse)
        return [(t.topic_name, p.partition_index, p.error_code) for t in answer.results for p in t.partitions]

    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await move(here, "a", 0, 1, 2) == [("a", 0, ErrorCode.NONE), ("a", 1, ErrorCode.NONE), ("a", 2, gone)]
    assert await move(f"{here}-elsewhere", "b", 0) == [("b", 0, ErrorCode.LOG_DIR_NOT_FOUND)]
    assert await move(here, "none", 0) == [("none", 0, gone)]
