"""No request holds the event loop: each API at a large size, watched by the processor time of the loop's thread."""

import asyncio
from collections.abc import Callable

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.handlers.table import join
from barnabas_protocol.codec import encode_request
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterEntryData
from barnabas_protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from barnabas_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas_protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
    DeleteStatePartitionData,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, EntityData
from barnabas_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopicRequest
from barnabas_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from barnabas_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    InitializeStatePartitionData,
)
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas_protocol.messages.list_groups import ListGroupsRequest
from barnabas_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas_protocol.messages.list_transactions import ListTransactionsRequest
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadStateData,
    ReadStatePartitionData,
)
from barnabas_protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
    ReadStateSummaryPartitionData,
)
from barnabas_protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas_protocol.messages.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from barnabas_protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas_protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteStateData,
    WriteStatePartitionData,
)
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.sampling import slow_but_each
from tests.turns import watched
from tests.wire import Wire

pytestmark = [pytest.mark.broad, pytest.mark.usefixtures("collector")]

#: Elements of a request. At most 100,000 are accepted, MAX_REQUEST_ELEMENTS.
MANY = 20_000
#: Seconds of processor time that the loop's thread may work without a turn for others.
HELD = 0.05
#: A request that holds the loop does so each time; a core that is shared with other programs may be slow once.
ATTEMPTS = 5
#: Seconds between two requests of another client, meanwhile.
PAUSE = 0.01


#: A topic that does not exist.
_ID = bytes(range(16))


def _numbers() -> range:
    return range(MANY)


def _names() -> list[str]:
    return [f"name-{number}" for number in _numbers()]


def _commit(partition: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata=None)


REQUESTS: dict[str, Callable[[], Request]] = {
    "ListOffsets": lambda: ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="t", partitions=[ListOffsetsPartition(partition_index=n, timestamp=-1) for n in _numbers()]
            )
        ],
    ),
    "ListOffsets of one partition": lambda: ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)] * MANY)],
    ),
    "OffsetForLeaderEpoch": lambda: OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic="t", partitions=[OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in _numbers()]
            )
        ]
    ),
    "DeleteRecords": lambda: DeleteRecordsRequest(
        timeout_ms=1000,
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=n, offset=0) for n in _numbers()]
            )
        ],
    ),
    "Produce": lambda: ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=n, records=None) for n in _numbers()])
        ],
    ),
    "Fetch": lambda: FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=100) for n in _numbers()],
            )
        ],
    ),
    "Fetch with a session": lambda: FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=0,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=100) for n in _numbers()],
            )
        ],
    ),
    "Metadata": lambda: MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in _names()], allow_auto_topic_creation=False
    ),
    "Metadata that creates": lambda: MetadataRequest(
        topics=[MetadataRequestTopic(name="not a name") for _ in _numbers()], allow_auto_topic_creation=True
    ),
    "FindCoordinator": lambda: FindCoordinatorRequest(coordinator_keys=_names()),
    "OffsetCommit": lambda: OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=n, committed_offset=1, committed_metadata=None)
                    for n in _numbers()
                ],
            )
        ],
    ),
    "OffsetFetch": lambda: OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=list(_numbers()))]
            )
        ]
    ),
    "OffsetFetch of many groups": lambda: OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in _names()]
    ),
    "TxnOffsetCommit": lambda: TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=1, committed_metadata=None)
                    for each in _numbers()
                ],
            )
        ],
    ),
    "OffsetDelete": lambda: OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name="t", partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in _numbers()]
            )
        ],
    ),
    "DescribeGroups": lambda: DescribeGroupsRequest(groups=_names()),
    "DeleteGroups": lambda: DeleteGroupsRequest(groups_names=_names()),
    "CreateTopics twice": lambda: CreateTopicsRequest(
        timeout_ms=1000,
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in _names()[: MANY // 2] * 2
        ],
    ),
    "CreateTopics that fail": lambda: CreateTopicsRequest(
        timeout_ms=1000,
        topics=[
            CreatableTopic(name=f"not a name {n}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for n in _numbers()
        ],
    ),
    "DeleteTopics": lambda: DeleteTopicsRequest(
        timeout_ms=1000, topics=[DeleteTopicState(name=name) for name in _names()]
    ),
    "CreatePartitions": lambda: CreatePartitionsRequest(
        validate_only=False,
        timeout_ms=1000,
        topics=[CreatePartitionsTopic(name=name, count=3, assignments=None) for name in _names()],
    ),
    "DescribeConfigs": lambda: DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None) for name in _names()
        ]
    ),
    "AlterConfigs": lambda: AlterConfigsRequest(
        validate_only=False,
        resources=[
            AlterConfigsResource(
                resource_type=2, resource_name=name, configs=[AlterableConfig(name="retention.ms", value="1000")]
            )
            for name in _names()
        ],
    ),
    "IncrementalAlterConfigs": lambda: IncrementalAlterConfigsRequest(
        validate_only=False,
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=2,
                resource_name=name,
                configs=[IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1000")],
            )
            for name in _names()
        ],
    ),
    "IncrementalAlterConfigs of one topic": lambda: IncrementalAlterConfigsRequest(
        validate_only=False,
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=2,
                resource_name="t",
                configs=[IncrementalAlterableConfig(name=name, config_operation=0, value="1") for name in _names()],
            )
        ],
    ),
    "AlterPartitionReassignments": lambda: AlterPartitionReassignmentsRequest(
        timeout_ms=1000,
        topics=[
            ReassignableTopic(
                name="t", partitions=[ReassignablePartition(partition_index=n, replicas=[7]) for n in _numbers()]
            )
        ],
    ),
    "JoinGroup": lambda: JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=b"") for name in _names()],
    ),
    "SyncGroup": lambda: SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=name, assignment=b"") for name in _names()],
    ),
    "LeaveGroup": lambda: LeaveGroupRequest(
        group_id="g", members=[MemberIdentity(member_id=name) for name in _names()]
    ),
    "ElectLeaders": lambda: ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="t", partitions=list(_numbers()))]
    ),
    "ListPartitionReassignments": lambda: ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics(name="t", partition_indexes=list(_numbers()))]
    ),
    "DescribeTopicPartitions": lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=n) for n in _names()]),
    "DescribeLogDirs": lambda: DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic="t", partitions=list(_numbers()))]
    ),
    "DescribeProducers": lambda: DescribeProducersRequest(
        topics=[DescribeProducersTopicRequest(name="t", partition_indexes=list(_numbers()))]
    ),
    "AddPartitionsToTxn": lambda: AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id="t", topics=[AddPartitionsToTxnTopic(name="t", partitions=list(_numbers()))]
            )
        ]
    ),
    "WriteTxnMarkers": lambda: WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=1,
                producer_epoch=0,
                transaction_result=True,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(_numbers()))],
                coordinator_epoch=0,
            )
        ]
    ),
    "DescribeTransactions": lambda: DescribeTransactionsRequest(transactional_ids=_names()),
    "ConsumerGroupHeartbeat": lambda: ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=_names(),
        topic_partitions=[],
    ),
    "ConsumerGroupDescribe": lambda: ConsumerGroupDescribeRequest(
        group_ids=_names(), include_authorized_operations=False
    ),
    "ListTransactions": lambda: ListTransactionsRequest(state_filters=_names(), producer_id_filters=[]),
    "ListGroups": lambda: ListGroupsRequest(states_filter=_names(), types_filter=[]),
    "ListConfigResources": lambda: ListConfigResourcesRequest(resource_types=[2] * MANY),
    "CreateAcls": lambda: CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=2, resource_name=name, principal="User:u", host="*", operation=3, permission_type=3
            )
            for name in _names()
        ]
    ),
    "DeleteAcls": lambda: DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=2,
                resource_name_filter=name,
                principal_filter=None,
                host_filter=None,
                operation=3,
                permission_type=3,
            )
            for name in _names()
        ]
    ),
    "AlterUserScramCredentials": lambda: AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in _names()], upsertions=[]
    ),
    "DescribeUserScramCredentials": lambda: DescribeUserScramCredentialsRequest(
        users=[UserName(name=name) for name in _names()]
    ),
    "AlterClientQuotas": lambda: AlterClientQuotasRequest(
        entries=[
            AlterEntryData(entity=[EntityData(entity_type="user", entity_name=name)], ops=[]) for name in _names()
        ],
        validate_only=False,
    ),
    "DescribeClientQuotas": lambda: DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=name, match_type=0, match="") for name in _names()], strict=False
    ),
    "UpdateFeatures": lambda: UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="group.version", max_version_level=1) for _ in _names()]
    ),
    "DescribeQuorum": lambda: DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopic(
                topic_name="t", partitions=[DescribeQuorumRequestPartition(partition_index=n) for n in _numbers()]
            )
        ]
    ),
    "AlterReplicaLogDirs": lambda: AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path="/", topics=[AlterReplicaLogDirTopic(name="t", partitions=list(_numbers()))])]
    ),
    "ShareGroupHeartbeat": lambda: ShareGroupHeartbeatRequest(
        group_id="s", member_id="m" * 22, member_epoch=0, subscribed_topic_names=_names()
    ),
    "ShareGroupDescribe": lambda: ShareGroupDescribeRequest(group_ids=_names(), include_authorized_operations=False),
    "ShareFetch": lambda: ShareFetchRequest(
        group_id="s",
        member_id="m" * 22,
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_records=10,
        batch_size=10,
        topics=[
            ShareFetchTopic(
                topic_id=_ID,
                partitions=[ShareFetchPartition(partition_index=n, acknowledgement_batches=[]) for n in _numbers()],
            )
        ],
        forgotten_topics_data=[],
    ),
    "ShareAcknowledge": lambda: ShareAcknowledgeRequest(
        group_id="s",
        member_id="m" * 22,
        share_session_epoch=0,
        topics=[
            AcknowledgeTopic(
                topic_id=_ID,
                partitions=[
                    AcknowledgePartition(
                        partition_index=n,
                        acknowledgement_batches=[
                            AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
                        ],
                    )
                    for n in range(MANY // 2)
                ],
            )
        ],
    ),
    "InitializeShareGroupState": lambda: InitializeShareGroupStateRequest(
        group_id="s",
        topics=[
            InitializeStateData(
                topic_id=_ID,
                partitions=[
                    InitializeStatePartitionData(partition=n, state_epoch=0, start_offset=0) for n in _numbers()
                ],
            )
        ],
    ),
    "ReadShareGroupState": lambda: ReadShareGroupStateRequest(
        group_id="s",
        topics=[
            ReadStateData(
                topic_id=_ID, partitions=[ReadStatePartitionData(partition=n, leader_epoch=0) for n in _numbers()]
            )
        ],
    ),
    "WriteShareGroupState": lambda: WriteShareGroupStateRequest(
        group_id="s",
        topics=[
            WriteStateData(
                topic_id=_ID,
                partitions=[
                    WriteStatePartitionData(
                        partition=n, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[]
                    )
                    for n in _numbers()
                ],
            )
        ],
    ),
    "DeleteShareGroupState": lambda: DeleteShareGroupStateRequest(
        group_id="s",
        topics=[DeleteStateData(topic_id=_ID, partitions=[DeleteStatePartitionData(partition=n) for n in _numbers()])],
    ),
    "ReadShareGroupStateSummary": lambda: ReadShareGroupStateSummaryRequest(
        group_id="s",
        topics=[
            ReadStateSummaryData(
                topic_id=_ID,
                partitions=[ReadStateSummaryPartitionData(partition=n, leader_epoch=0) for n in _numbers()],
            )
        ],
    ),
    "DescribeShareGroupOffsets": lambda: DescribeShareGroupOffsetsRequest(
        groups=[
            DescribeShareGroupOffsetsRequestGroup(
                group_id="s",
                topics=[DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=list(_numbers()))],
            )
        ]
    ),
    "AlterShareGroupOffsets": lambda: AlterShareGroupOffsetsRequest(
        group_id="s",
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name="t",
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=n, start_offset=0) for n in _numbers()
                ],
            )
        ],
    ),
    "DeleteShareGroupOffsets": lambda: DeleteShareGroupOffsetsRequest(
        group_id="s", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in _names()]
    ),
}


#: APIs whose requests have no arrays, or only short ones.
SMALL = {
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.END_TXN,
    ApiKey.ENVELOPE,  # of other brokers only, with a few hundred elements: test_fetch_reports.py
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.HEARTBEAT,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PUSH_TELEMETRY,  # its metrics are bytes: test_telemetry.py
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.SASL_HANDSHAKE,
}


def test_every_api_is_measured() -> None:
    assert {ApiKey(make().API_KEY) for make in REQUESTS.values()} | SMALL == set(join())


@pytest.mark.parametrize("name", slow_but_each(3, REQUESTS))
async def test_a_large_request_does_not_hold_the_loop(broker: BrokerServer, name: str) -> None:
    request = REQUESTS[name]()
    key = ApiKey(request.API_KEY)
    version = 12 if key in (ApiKey.FETCH, ApiKey.METADATA) else broker.dispatch.routes[key].served.high
    if key in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        version = 9
    frame = encode_request(request, version, 1, "test")
    times: list[float] = []
    async with await Wire.connect(broker.port, limit=2**30) as wire:
        while len(times) < ATTEMPTS and min(times, default=HELD) >= HELD:
            times.append(await held_by(broker, wire, frame))
    assert min(times) < HELD, f"{name}: {[round(one * 1000) for one in times]} ms"


async def test_acknowledgements_of_many_partitions_do_not_hold_the_loop(broker: BrokerServer) -> None:
    opening, request = REQUESTS["ShareFetch"](), REQUESTS["ShareAcknowledge"]()
    assert isinstance(opening, ShareFetchRequest)
    assert isinstance(request, ShareAcknowledgeRequest)
    opening.topics = []
    request.topics[0].partitions = [
        AcknowledgePartition(partition_index=number, acknowledgement_batches=[]) for number in range(3 * MANY)
    ]
    times: list[float] = []
    async with await Wire.connect(broker.port, limit=2**30) as wire:
        assert (await wire.ask(opening, 1, ShareFetchResponse)).error_code == 0
        while len(times) < ATTEMPTS and min(times, default=HELD) >= HELD:
            request.share_session_epoch = 1 + len(times)
            times.append(await held_by(broker, wire, encode_request(request, 1, 1, "test")))
    assert min(times) < HELD, f"{[round(one * 1000) for one in times]} ms"


async def held_by(broker: BrokerServer, wire: Wire, frame: bytes) -> float:
    """How long the loop was held by this request, while another connection was answered."""
    small = encode_request(MetadataRequest(topics=[]), 12, 1, "test")
    answered = 0
    async with await Wire.connect(broker.port) as other:
        with watched() as held:
            wire.writer.write(frame)
            pending = asyncio.ensure_future(wire.reader.readexactly(4))
            while not pending.done() or not answered:
                other.writer.write(small)
                await other.frame()
                answered += 1
                await asyncio.wait([pending], timeout=PAUSE)
        size = int.from_bytes(pending.result(), "big")
        await asyncio.wait_for(wire.reader.readexactly(size), 60)
        return held()
