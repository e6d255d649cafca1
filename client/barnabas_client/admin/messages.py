"""Translates between the requests and responses of admin APIs and what :class:`~.admin.Admin` takes and returns. Pure.

For each API, one function creates the request and one reads the response. Functions that read a response take `what`,
which names the operation in errors, such as "set the offsets of group 'g'".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas_client.admin.refusals import COORDINATOR_MOVED, not_mentioned, refusal, refused
from barnabas_client.admin.types import (
    AlterConfigOp,
    BrokerCondition,
    BrokerConditions,
    BrokerLogDirs,
    ConfigEntry,
    ConfigResource,
    ConfigResult,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    DeletedRecords,
    EligibleLeaders,
    GroupDescription,
    GroupOffset,
    GroupResult,
    ListedOffset,
    LogDir,
    MemberDescription,
    MemberResult,
    NewTopic,
    PartitionReassignment,
    PartitionResult,
    ResourceType,
    TopicResult,
)
from barnabas_client.errors import UnsupportedVersionError, error_for
from barnabas_client.membership.member_data import PROTOCOL_TYPE, decode_assignment, decode_subscription
from barnabas_client.network.metadata import Cluster, Node
from barnabas_client.structs import OffsetAndMetadata, TopicPartition, by_topic
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    Member,
)
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.delete_groups import DeleteGroupsResponse
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas_protocol.messages.describe_cluster import DescribeClusterResponse
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from barnabas_protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from barnabas_protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.leave_group import LeaveGroupResponse
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas_protocol.messages.share_group_describe import (
    DescribedShareAssignment,
    ShareGroupDescribeResponse,
    ShareMember,
)

Offsets = dict[TopicPartition, GroupOffset]
PartitionResults = dict[TopicPartition, PartitionResult]

#: Part of the error message with which Kafka 4 answers DescribeGroups for a group of the consumer protocol (KIP-848).
_NOT_CLASSIC: Final = "not a classic group"
#: The protocol type of share groups, as ListGroups names it.
_SHARE: Final = "share"

# Topics.


def create_topics_request(topics: Iterable[NewTopic], timeout_ms: int, *, validate_only: bool) -> CreateTopicsRequest:
    """Create the request of CreateTopics."""
    creatable = [_creatable(topic) for topic in topics]
    return CreateTopicsRequest(topics=creatable, timeout_ms=timeout_ms, validate_only=validate_only)


def _creatable(topic: NewTopic) -> CreatableTopic:
    if not isinstance(topic, NewTopic):
        raise TypeError(f"create_topics: {topic!r}: give NewTopic(name, num_partitions, replication_factor)")
    return CreatableTopic(
        name=topic.name,
        # The broker requires -1 if the replicas are given.
        num_partitions=-1 if topic.replica_assignments else topic.num_partitions,
        replication_factor=-1 if topic.replica_assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in topic.replica_assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.topic_configs.items()],
    )


def created_topics(response: CreateTopicsResponse) -> list[TopicResult]:
    """Read the response of CreateTopics."""
    return [
        TopicResult(
            one.name,
            refused(one.error_code, f"create topic {one.name!r}", one.error_message),
            one.topic_id,
            one.num_partitions,
            one.replication_factor,
            {entry.name: entry.value for entry in one.configs or ()},
        )
        for one in response.topics
    ]


def delete_topics_request(names: Sequence[str], timeout_ms: int) -> DeleteTopicsRequest:
    """Create the request of DeleteTopics."""
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=timeout_ms)


def deleted_topics(response: DeleteTopicsResponse, names: Sequence[str]) -> list[TopicResult]:
    """Read the response of DeleteTopics; the results have the order of `names`."""
    results = [
        TopicResult(
            one.name or "",
            refused(one.error_code, f"delete topic {one.name!r}", one.error_message),
            one.topic_id,
        )
        for one in response.responses
    ]
    order = {name: place for place, name in enumerate(names)}
    return sorted(results, key=lambda one: order.get(one.name, len(order)))


def create_partitions_request(
    counts: Mapping[str, int], timeout_ms: int, *, validate_only: bool
) -> CreatePartitionsRequest:
    """Create the request of CreatePartitions."""
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts.items()]
    return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)


def created_partitions(response: CreatePartitionsResponse, counts: Mapping[str, int]) -> list[TopicResult]:
    """Read the response of CreatePartitions."""
    results = []
    for one in response.results:
        error = refused(one.error_code, f"give topic {one.name!r} more partitions", one.error_message)
        count = counts.get(one.name, -1)
        results.append(TopicResult(one.name, error, num_partitions=count if error is None else -1))
    return results


def delete_records_request(
    partitions: Iterable[TopicPartition], offsets: Mapping[TopicPartition, int], timeout_ms: int
) -> DeleteRecordsRequest:
    """Create the request of DeleteRecords for some of the partitions in `offsets`."""

    def partition(topic: str, number: int) -> DeleteRecordsPartition:
        return DeleteRecordsPartition(partition_index=number, offset=offsets[TopicPartition(topic, number)])

    topics = [
        DeleteRecordsTopic(name=topic, partitions=[partition(topic, number) for number in numbers])
        for topic, numbers in by_topic(partitions)
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def deleted_records(response: DeleteRecordsResponse) -> dict[TopicPartition, DeletedRecords | KafkaError]:
    """Read the response of DeleteRecords."""
    return {
        TopicPartition(topic.name, one.partition_index): refused(
            one.error_code, f"delete records of {topic.name}-{one.partition_index}"
        )
        or DeletedRecords(one.low_watermark)
        for topic in response.topics
        for one in topic.partitions
    }


def list_offsets_request(
    cluster: Cluster, times: Mapping[TopicPartition, int], timeout_ms: int, *, read_committed: bool
) -> ListOffsetsRequest:
    """Create the request of ListOffsets for the leader of the partitions in `times`."""

    def partition(tp: TopicPartition) -> ListOffsetsPartition:
        info = cluster.partition(tp)
        epoch = -1 if info is None else info.leader_epoch
        return ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=epoch, timestamp=times[tp])

    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[
            ListOffsetsTopic(name=topic, partitions=[partition(TopicPartition(topic, number)) for number in numbers])
            for topic, numbers in by_topic(times)
        ],
        timeout_ms=timeout_ms,
    )


def listed_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """Read the response of ListOffsets."""
    found: dict[TopicPartition, ListedOffset | KafkaError] = {}
    for topic in response.topics:
        for one in topic.partitions:
            tp = TopicPartition(topic.name, one.partition_index)
            if one.error_code != ErrorCode.NONE:
                found[tp] = error_for(one.error_code, f"list offsets of {tp}")
            else:
                found[tp] = ListedOffset(one.offset, one.timestamp, one.leader_epoch)
    return found


# Configurations.


def describe_configs_request(
    resources: Iterable[ConfigResource], keys: list[str] | None, *, synonyms: bool, documentation: bool
) -> DescribeConfigsRequest:
    """Create the request of DescribeConfigs."""
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=one.type, resource_name=one.name, configuration_keys=keys)
            for one in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )


def described_configs(response: DescribeConfigsResponse, what: str) -> dict[ConfigResource, ConfigResult | KafkaError]:
    """Read the response of DescribeConfigs."""
    found: dict[ConfigResource, ConfigResult | KafkaError] = {}
    for one in response.results:
        resource = ConfigResource(ResourceType(one.resource_type), one.resource_name)
        error = refused(one.error_code, f"{what} {resource}", one.error_message)
        found[resource] = error or ConfigResult(resource, None, {row.name: _entry(row) for row in one.configs})
    return found


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    source = ConfigSource(row.config_source if row.config_source > 0 else 0)
    if source is ConfigSource.UNKNOWN and row.is_default:  # all that version 0 has
        source = ConfigSource.DEFAULT
    return ConfigEntry(
        name=row.name,
        value=row.value,
        source=source,
        read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        type=ConfigType(row.config_type),
        synonyms=tuple(ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in row.synonyms),
        documentation=row.documentation or "",
    )


def alter_configs_request(
    resources: Iterable[ConfigResource],
    changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
    *,
    validate_only: bool,
) -> IncrementalAlterConfigsRequest:
    """Create the request of IncrementalAlterConfigs for some of the resources in `changes`."""
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=one.type,
                resource_name=one.name,
                configs=[
                    IncrementalAlterableConfig(name=op.name, config_operation=op.op, value=op.value)
                    for op in changes[one]
                ],
            )
            for one in resources
        ],
        validate_only=validate_only,
    )


def altered_configs(
    response: IncrementalAlterConfigsResponse, what: str
) -> dict[ConfigResource, ConfigResult | KafkaError]:
    """Read the response of IncrementalAlterConfigs."""
    found: dict[ConfigResource, ConfigResult | KafkaError] = {}
    for one in response.responses:
        resource = ConfigResource(ResourceType(one.resource_type), one.resource_name)
        error = refused(one.error_code, f"{what} {resource}", one.error_message)
        found[resource] = error or ConfigResult(resource)
    return found


def config_owner(resource: ConfigResource) -> int | None:
    """The node id of the broker that alone can answer for a resource; None if any broker can."""
    named = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal()
    return int(resource.name) if named else None


# Replicas and leaders.


def reassignments_request(
    reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
) -> AlterPartitionReassignmentsRequest:
    """Create the request of AlterPartitionReassignments."""

    def partition(topic: str, number: int) -> ReassignablePartition:
        replicas = reassignments[TopicPartition(topic, number)]
        return ReassignablePartition(
            partition_index=number, replicas=None if replicas is None else [int(node) for node in replicas]
        )

    topics = [
        ReassignableTopic(name=topic, partitions=[partition(topic, number) for number in numbers])
        for topic, numbers in by_topic(reassignments)
    ]
    return AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)


def altered_reassignments(response: AlterPartitionReassignmentsResponse) -> PartitionResults | KafkaError:
    """Read the response of AlterPartitionReassignments."""
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, "reassign partitions", response.error_message)
    return {
        TopicPartition(topic.name, one.partition_index): PartitionResult(
            refused(one.error_code, f"reassign {topic.name}-{one.partition_index}", one.error_message)
        )
        for topic in response.responses
        for one in topic.partitions
    }


def eligible_leaders_request(topics: Iterable[str]) -> DescribeTopicPartitionsRequest:
    """Create the request of DescribeTopicPartitions."""
    return DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in topics])


def eligible_leaders(response: DescribeTopicPartitionsResponse) -> dict[TopicPartition, EligibleLeaders]:
    """Read the response of DescribeTopicPartitions."""
    return {
        TopicPartition(topic.name or "", one.partition_index): EligibleLeaders(
            tuple(one.eligible_leader_replicas or ()), tuple(one.last_known_elr or ())
        )
        for topic in response.topics
        for one in topic.partitions
    }


def list_reassignments_request(
    partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> ListPartitionReassignmentsRequest:
    """Create the request of ListPartitionReassignments; None stands for all partitions."""
    topics = None
    if partitions is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions)
        ]
    return ListPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)


def listed_reassignments(
    response: ListPartitionReassignmentsResponse,
) -> dict[TopicPartition, PartitionReassignment] | KafkaError:
    """Read the response of ListPartitionReassignments."""
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, "list reassignments", response.error_message)
    return {
        TopicPartition(topic.name, one.partition_index): PartitionReassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in sorted(response.topics, key=lambda topic: topic.name)
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    }


def elect_leaders_request(
    election_type: int, partitions: Iterable[TopicPartition] | None, timeout_ms: int
) -> ElectLeadersRequest:
    """Create the request of ElectLeaders; None stands for all partitions."""
    topics = None
    if partitions is not None:
        topics = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions)]
    return ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=timeout_ms)


def elected_leaders(response: ElectLeadersResponse) -> PartitionResults | KafkaError:
    """Read the response of ElectLeaders. A partition that has the right leader is left out if all were asked for."""
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, "elect leaders")
    return {
        TopicPartition(topic.topic, one.partition_id): PartitionResult(
            refused(one.error_code, f"elect the leader of {topic.topic}-{one.partition_id}", one.error_message)
        )
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


def described_conditions(node_id: int, response: DescribeClusterResponse) -> BrokerConditions | KafkaError:
    """Read what a broker cannot do now: in the error message of a response that has no error."""
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, f"ask broker {node_id} for its conditions")
    lines = [line.partition(": ") for line in (response.error_message or "").splitlines()]
    return BrokerConditions(node_id, None, tuple(BrokerCondition(name, text) for name, _, text in lines if text))


def described_log_dirs(node_id: int, response: DescribeLogDirsResponse) -> BrokerLogDirs | KafkaError:
    """Read the response of DescribeLogDirs; replicas that are moving between directories count where they are."""
    what = f"describe the log directories of broker {node_id}"
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, what)
    return BrokerLogDirs(
        node_id,
        None,
        tuple(
            LogDir(
                one.log_dir,
                refused(one.error_code, f"use {one.log_dir} of broker {node_id}"),
                {
                    TopicPartition(topic.name, each.partition_index): each.partition_size
                    for topic in one.topics
                    for each in topic.partitions
                    if not each.is_future_key
                },
                one.total_bytes,
                one.usable_bytes,
            )
            for one in response.results
        ),
    )


# Groups.


def described_groups(
    response: DescribeGroupsResponse, coordinator: Node | None
) -> dict[str, GroupDescription | KafkaError]:
    """Read the response of DescribeGroups by the broker `coordinator`."""
    found: dict[str, GroupDescription | KafkaError] = {}
    for one in response.groups:
        # Before KIP-1043, brokers describe a group that does not exist as dead.
        dead = one.error_code == ErrorCode.NONE and one.group_state == "Dead"
        code = ErrorCode.GROUP_ID_NOT_FOUND if dead else one.error_code
        error = refused(code, f"describe group {one.group_id!r}", one.error_message)
        if _NOT_CLASSIC in (one.error_message or ""):
            error = UnsupportedVersionError(
                f"describe group {one.group_id!r}: it uses the consumer protocol of KIP-848, and this broker cannot "
                "describe such groups. To do: read its offsets instead, or upgrade the broker"
            )
        found[one.group_id] = error or GroupDescription(
            one.group_id, None, one.group_state, one.protocol_type, one.protocol_data, _members(one), coordinator
        )
    return found


def of_consumer_protocol(response: DescribeGroupsResponse) -> list[str]:
    """The groups that DescribeGroups does not describe because they use the consumer protocol."""
    return [one.group_id for one in response.groups if _NOT_CLASSIC in (one.error_message or "")]


def described_by_epochs(
    response: ConsumerGroupDescribeResponse | ShareGroupDescribeResponse, coordinator: Node | None
) -> dict[str, GroupDescription | KafkaError]:
    """Read the response of ConsumerGroupDescribe, or of ShareGroupDescribe, by the broker `coordinator`."""
    shared = isinstance(response, ShareGroupDescribeResponse)
    what, protocol_type = ("share group", _SHARE) if shared else ("group", PROTOCOL_TYPE)
    found: dict[str, GroupDescription | KafkaError] = {}
    for one in response.groups:
        members: Sequence[Member | ShareMember] = one.members
        error = refused(one.error_code, f"describe {what} {one.group_id!r}", one.error_message)
        found[one.group_id] = error or GroupDescription(
            one.group_id,
            None,
            one.group_state,
            protocol_type,
            one.assignor_name,
            tuple(map(_member_with_epoch, sorted(members, key=lambda each: (each.client_id, each.member_id)))),
            coordinator,
            one.group_epoch,
            one.assignment_epoch,
        )
    return found


def _member_with_epoch(member: Member | ShareMember) -> MemberDescription:
    consumer = member if isinstance(member, Member) else None
    return MemberDescription(
        member.member_id,
        None if consumer is None else consumer.instance_id,
        member.client_id,
        member.client_host,
        _assigned(member.assignment),
        tuple(sorted(member.subscribed_topic_names)),
        epoch=member.member_epoch,
        target=None if consumer is None else _assigned(consumer.target_assignment),
        regex="" if consumer is None else consumer.subscribed_topic_regex or "",
    )


def _assigned(assignment: DescribedAssignment | DescribedShareAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
    )


def _members(group: DescribedGroup) -> tuple[MemberDescription, ...]:
    consumers = group.protocol_type == PROTOCOL_TYPE
    members = (_member(member, consumers) for member in group.members)
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))


def _member(member: DescribedGroupMember, consumer: bool) -> MemberDescription:
    metadata, assignment = bytes(member.member_metadata), bytes(member.member_assignment)
    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    if consumer:
        # These bytes come from the members. If they cannot be decoded, the group is described without them.
        try:
            partitions = tuple(sorted(decode_assignment(assignment)))
        except DecodeError:
            pass
        try:
            topics = tuple(sorted(decode_subscription(metadata).topics)) if metadata else ()
        except DecodeError:
            pass
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        partitions,
        topics,
        metadata,
        assignment,
    )


def deleted_groups(response: DeleteGroupsResponse) -> dict[str, GroupResult | KafkaError]:
    """Read the response of DeleteGroups."""
    return {
        one.group_id: refused(one.error_code, f"delete group {one.group_id!r}") or GroupResult(one.group_id)
        for one in response.results
    }


def removed_members(
    response: LeaveGroupResponse, group_id: str, names: Sequence[str]
) -> list[MemberResult] | KafkaError:
    """Read the response of LeaveGroup about members of these names."""
    label = f"remove from group {group_id!r} the member"
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, f"{label}s {', '.join(names)}")
    codes = {one.group_instance_id or one.member_id: one.error_code for one in response.members}
    return [
        MemberResult(name, refused(codes[name], f"{label} {name!r}"))
        if name in codes
        else MemberResult(name, not_mentioned(f"{label} {name!r}"))
        for name in names
    ]


# Committed offsets.


def offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> OffsetFetchRequest:
    """Create the request of OffsetFetch for one group; all partitions if `partitions` is None."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions)
        ]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def fetched_offsets(response: OffsetFetchResponse, what: str) -> dict[str, Offsets | KafkaError]:
    """Read the response of OffsetFetch, by group."""
    return {
        one.group_id: refused(one.error_code, what)
        or {
            TopicPartition(topic.name, row.partition_index): GroupOffset(
                None if row.committed_offset < 0 else row.committed_offset,
                row.metadata or "",
                row.committed_leader_epoch,
                refused(row.error_code, f"{what} for {topic.name}-{row.partition_index}"),
            )
            for topic in one.topics
            for row in topic.partitions
        }
        for one in response.groups
    }


def offset_commit_request(group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
    """Create the request of OffsetCommit for a group without members."""

    def partition(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.leader_epoch,
            committed_metadata=offset.metadata,
        )

    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[partition(number, offsets[TopicPartition(topic, number)]) for number in numbers],
            )
            for topic, numbers in by_topic(offsets)
        ],
    )


def committed_offsets(response: OffsetCommitResponse, what: str) -> PartitionResults | KafkaError:
    """Read the response of OffsetCommit."""
    return _by_partition(response, what)


def offset_delete_request(group_id: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    """Create the request of OffsetDelete."""
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in by_topic(partitions)
        ],
    )


def deleted_offsets(response: OffsetDeleteResponse, what: str) -> PartitionResults | KafkaError:
    """Read the response of OffsetDelete."""
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, what)
    return _by_partition(response, what)


def _by_partition(response: OffsetCommitResponse | OffsetDeleteResponse, what: str) -> PartitionResults | KafkaError:
    """The result of each partition; one error if the coordinator has moved, which it answers for every partition."""
    results: PartitionResults = {}
    for topic in response.topics:
        for row in topic.partitions:
            tp = TopicPartition(topic.name, row.partition_index)
            results[tp] = PartitionResult(refused(row.error_code, f"{what} for {tp}"))
    moved = [one.error for one in results.values() if one.error is not None and one.error.code in COORDINATOR_MOVED]
    return moved[0] if moved else results
