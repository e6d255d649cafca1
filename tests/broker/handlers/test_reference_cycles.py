"""Requests that fail leave no reference cycles: their objects stay until the collector runs, and make it slow."""

import gc
from collections.abc import Callable

import pytest

from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_protocol.codec import encode_request
from barnabas_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    OpData,
)
from barnabas_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_protocol.messages.describe_client_quotas import EntityData
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas_protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas_protocol.messages.share_fetch import ShareFetchPartition, ShareFetchRequest, ShareFetchTopic
from barnabas_protocol.schema import Request
from tests.broker.conftest import StartBroker
from tests.wire import Wire

#: How often a request is sent.
TIMES = 20

REQUESTS: dict[str, tuple[Callable[[], Request], int]] = {
    "DeleteTopics": (
        lambda: DeleteTopicsRequest(topics=[DeleteTopicState(name="missing"), DeleteTopicState()], timeout_ms=1_000),
        6,
    ),
    "CreateTopics": (
        lambda: CreateTopicsRequest(
            topics=[CreatableTopic(name="/", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
        ),
        7,
    ),
    "CreateAcls": (
        lambda: CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=2, resource_name="", principal="", host="", operation=100, permission_type=100
                )
            ]
        ),
        3,
    ),
    "DeleteAcls": (
        lambda: DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=100,
                    resource_name_filter=None,
                    pattern_type_filter=100,
                    principal_filter=None,
                    host_filter=None,
                    operation=100,
                    permission_type=100,
                )
            ]
        ),
        3,
    ),
    "AlterUserScramCredentials": (
        lambda: AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name="missing", mechanism=100)],
            upsertions=[ScramCredentialUpsertion(name="u", mechanism=1, iterations=1, salt=b"", salted_password=b"")],
        ),
        0,
    ),
    "AlterClientQuotas": (
        lambda: AlterClientQuotasRequest(
            entries=[
                AlterEntryData(
                    entity=[EntityData(entity_type="none", entity_name="u")],
                    ops=[OpData(key="none", value=1.0, remove=False)],
                )
            ],
            validate_only=False,
        ),
        1,
    ),
    "InitProducerId": (lambda: InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1_000), 4),
    "AddPartitionsToTxn": (
        lambda: AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="missing",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
    ),
    "ShareFetch": (
        lambda: ShareFetchRequest(
            group_id="g",
            member_id="m" * 22,
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            max_records=10,
            batch_size=10,
            topics=[
                ShareFetchTopic(
                    topic_id=bytes(range(16)),
                    partitions=[ShareFetchPartition(partition_index=0, acknowledgement_batches=[])],
                )
            ],
            forgotten_topics_data=[],
        ),
        1,
    ),
    "ShareAcknowledge": (
        lambda: ShareAcknowledgeRequest(
            group_id="g",
            member_id="m" * 22,
            share_session_epoch=-1,
            topics=[
                AcknowledgeTopic(
                    topic_id=bytes(range(16)),
                    partitions=[AcknowledgePartition(partition_index=0, acknowledgement_batches=[])],
                )
            ],
        ),
        1,
    ),
}


@pytest.mark.parametrize("may", ["everything", "nothing"])
@pytest.mark.parametrize("name", REQUESTS)
async def test_a_request_that_fails_leaves_no_reference_cycles(start_broker: StartBroker, name: str, may: str) -> None:
    settings = {"super_users": "User:ANONYMOUS"} if may == "everything" else {}
    broker = await start_broker(authorizer_class_name=STANDARD_AUTHORIZER, **settings)
    make, version = REQUESTS[name]
    frame = encode_request(make(), version, 1, "test")
    async with await Wire.connect(broker.port) as wire:
        wire.send(FindCoordinatorRequest(key="t", key_type=1), 2)
        await wire.frame()

        async def send() -> None:
            for _ in range(TIMES):
                wire.writer.write(frame)
                await wire.frame()

        await send()  # the first one imports modules and compiles schemas
        gc.collect()
        gc.disable()
        try:
            await send()
            assert gc.collect() < TIMES
        finally:
            gc.enable()
