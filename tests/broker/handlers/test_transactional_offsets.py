"""TxnOffsetCommit on a whole broker is audited."""

import logging

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas_protocol.schema import Request
from tests.wire import Wire

NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
LOADING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


async def ready(wire: Wire) -> tuple[int, int]:
    """Create the topic and both coordinators' topics; producer id and epoch of the transactional id."""
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)
    for kind, key in ((0, "g"), (1, "x")):
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        for _ in range(10_000):
            found = await wire.ask(request, 4, FindCoordinatorResponse)
            if found.coordinators[0].error_code == NONE:
                break
    request_id = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    for _ in range(10_000):
        made = await wire.ask(request_id, 4, InitProducerIdResponse)
        if made.error_code not in LOADING:
            break
    assert made.error_code == NONE
    return made.producer_id, made.producer_epoch


async def topic_id(wire: Wire) -> bytes:
    topics = [MetadataRequestTopic(name="t")]
    return (await wire.ask(MetadataRequest(topics=topics), 12, MetadataResponse)).topics[0].topic_id


async def committed(
    wire: Wire, producer_id: int, epoch: int, offset: int, version: int, by_id: bytes = bytes(16)
) -> int:
    """The result of a TxnOffsetCommit."""
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", topic_id=by_id, partitions=[partition])],
    )
    for _ in range(10_000):
        answer = await wire.ask(request, version, TxnOffsetCommitResponse)
        if answer.topics[0].partitions[0].error_code not in LOADING:
            break
    return answer.topics[0].partitions[0].error_code


async def stable(wire: Wire) -> tuple[int, int]:
    """Error code and offset of an OffsetFetch of stable offsets."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    answer = await wire.ask(OffsetFetchRequest(groups=[group], require_stable=True), 8, OffsetFetchResponse)
    found = answer.groups[0].topics[0].partitions[0]
    return found.error_code, found.committed_offset


async def test_offsets_that_are_set_without_membership_are_audited(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas_broker.audit")
    producer_id, epoch = await ready(wire)
    add: Request = AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id="g"
    )
    assert (await wire.ask(add, 3, AddOffsetsToTxnResponse)).error_code == NONE
    assert await committed(wire, producer_id, epoch, 5, 3) == NONE
    assert await committed(wire, producer_id, epoch, 6, 3) == NONE
    lines = [record.getMessage() for record in caplog.records if record.name == "barnabas_broker.audit"]
    assert len([line for line in lines if "offsets set" in line]) == 1
