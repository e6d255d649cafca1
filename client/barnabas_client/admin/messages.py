"""Parts of requests and responses of :class:`~.admin.Admin`, where they are more than a few lines. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, Protocol, TypeVar

from barnabas_client.admin.asked import Asked
from barnabas_client.admin.refusals import COORDINATOR_MOVED, HasCode, failure, label, not_mentioned, refused
from barnabas_client.admin.types import (
    BrokerCondition,
    BrokerConditions,
    BrokerLogDirs,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    GroupDescription,
    GroupOffset,
    LogDir,
    MemberDescription,
    MemberResult,
    NewTopic,
    Offsets,
    PartitionResult,
    PartitionResults,
    ResourceType,
)
from barnabas_client.errors import UnsupportedVersionError
from barnabas_client.membership.member_data import PROTOCOL_TYPE, decode_assignment, decode_subscription
from barnabas_client.network.metadata import Cluster
from barnabas_client.structs import OffsetAndMetadata, TopicPartition, by_topic
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    Member,
)
from barnabas_protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from barnabas_protocol.messages.describe_cluster import DescribeClusterResponse
from barnabas_protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult
from barnabas_protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from barnabas_protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResourceResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse
from barnabas_protocol.messages.list_config_resources import ConfigResource as ListedResource
from barnabas_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas_protocol.messages.share_group_describe import (
    DescribedShareAssignment,
    DescribedShareGroup,
    ShareGroupDescribeResponse,
    ShareMember,
)

#: Part of the error message with which Kafka 4 answers DescribeGroups for a group of the consumer protocol (KIP-848).
_NOT_CLASSIC: Final = "not a classic group"
#: The protocol type of share groups, as ListGroups names it.
_SHARE: Final = "share"

OfPartition = TypeVar("OfPartition", bound="HasPartition", covariant=True)


class HasPartition(Protocol):
    """A row of a response about a partition."""

    @property
    def partition_index(self) -> int: ...


class OfTopic(Protocol[OfPartition]):
    """The rows of a response about the partitions of a topic."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[OfPartition]: ...


def partitions_in(topics: Iterable[OfTopic[OfPartition]]) -> Iterator[tuple[TopicPartition, OfPartition]]:
    """The rows of a response that groups partitions by topic."""
    for topic in topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row


def partition_results(
    what: str, asked: Iterable[TopicPartition] | None, rows: Iterable[tuple[TopicPartition, HasCode]]
) -> PartitionResults | KafkaError:
    """The result of each partition, ascending; one error if the coordinator has moved, which it answers for each.

    Args:
        what: what is done, for error messages; the partition follows.
        asked: the partitions to have a result; those of the response if None.
        rows: the rows of the response by partition.
    """
    errors = {tp: failure(row, f"{what} {tp}") for tp, row in rows}
    for error in errors.values():
        if error is not None and error.code in COORDINATOR_MOVED:
            return error
    return {
        tp: PartitionResult(errors[tp] if tp in errors else not_mentioned(f"{what} {tp}"))
        for tp in sorted(errors if asked is None else asked)
    }


# Topics.


def creatable(topic: NewTopic) -> CreatableTopic:
    """The part of CreateTopics for a topic."""
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


# Configurations.


def resource(row: DescribeConfigsResult | IncrementalAlterConfigsResourceResponse | ListedResource) -> ConfigResource:
    """The resource of a row of a response."""
    return ConfigResource(ResourceType(row.resource_type), row.resource_name)


def config_entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    """The value of a key."""
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


# Brokers.


def described_conditions(response: DescribeClusterResponse, node_id: int) -> BrokerConditions:
    """Read what a broker cannot do now: in the error message of a response that has no error."""
    lines = [line.partition(": ") for line in (response.error_message or "").splitlines()]
    return BrokerConditions(node_id, None, tuple(BrokerCondition(name, text) for name, _, text in lines if text))


def described_log_dirs(response: DescribeLogDirsResponse, node_id: int) -> BrokerLogDirs:
    """Read the response of DescribeLogDirs; replicas that are moving between directories count where they are."""
    return BrokerLogDirs(
        node_id,
        None,
        tuple(
            LogDir(
                one.log_dir,
                failure(one, f"use {one.log_dir} of broker {node_id}"),
                {tp: row.partition_size for tp, row in partitions_in(one.topics) if not row.is_future_key},
                one.total_bytes,
                one.usable_bytes,
            )
            for one in response.results
        ),
    )


# Groups.


def described_groups(response: DescribeGroupsResponse, asked: Asked[str]) -> dict[str, GroupDescription | KafkaError]:
    """Read the response of DescribeGroups; UnsupportedVersionError for a group of the consumer protocol."""
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
            one.group_id, None, one.group_state, one.protocol_type, one.protocol_data, _members(one), asked.broker
        )
    return found


def described_by_epochs(
    response: ConsumerGroupDescribeResponse | ShareGroupDescribeResponse, asked: Asked[str]
) -> dict[str, GroupDescription | KafkaError]:
    """Read the response of ConsumerGroupDescribe, or of ShareGroupDescribe."""
    protocol_type = _SHARE if isinstance(response, ShareGroupDescribeResponse) else PROTOCOL_TYPE

    def described(one: DescribedConsumerGroup | DescribedShareGroup) -> GroupDescription:
        members: Sequence[Member | ShareMember] = one.members
        return GroupDescription(
            one.group_id,
            None,
            one.group_state,
            protocol_type,
            one.assignor_name,
            tuple(map(_member_with_epoch, sorted(members, key=lambda each: (each.client_id, each.member_id)))),
            asked.broker,
            one.group_epoch,
            one.assignment_epoch,
        )

    return asked.outcomes(((one.group_id, one) for one in response.groups), described)


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


def removed_members(response: LeaveGroupResponse, group_id: str, names: Sequence[str]) -> list[MemberResult]:
    """Read the response of LeaveGroup about members of these names."""
    what = f"remove from group {group_id!r} the member"
    rows = {one.group_instance_id or one.member_id: one for one in response.members}
    return [
        MemberResult(name, failure(rows[name], label(what, name)) if name in rows else not_mentioned(label(what, name)))
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


def fetched_offsets(response: OffsetFetchResponse, group_id: str, what: str) -> Offsets | KafkaError:
    """Read the response of OffsetFetch about a group, by partition ascending; `what` is for error messages."""
    for one in response.groups:
        if one.group_id == group_id:
            return failure(one, what) or {
                tp: GroupOffset(
                    None if row.committed_offset < 0 else row.committed_offset,
                    row.metadata or "",
                    row.committed_leader_epoch,
                    failure(row, f"{what} for {tp}"),
                )
                for tp, row in sorted(partitions_in(one.topics), key=itemgetter(0))
            }
    return not_mentioned(what)


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
