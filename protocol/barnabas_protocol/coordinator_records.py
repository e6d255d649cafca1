"""Keys and values of the records in `__consumer_offsets`, `__transaction_state` and `__share_group_state`, in Kafka's
schemas.

A key is an int16 record type and the fields; the record type is the version here. A value is an int16 version and the
fields. A record without a value is a tombstone.

Another record of a coordinator is two more classes here: ``Data`` with the key's record type and the value's versions,
under Kafka's names. ``EMBEDDED`` in ``tests/protocol/messages/test_reference.py`` names Kafka's schemas of them.
"""

from enum import IntEnum

from barnabas_protocol.schema import BYTES, INT8, INT16, INT32, INT64, STRING, UUID, Data, Struct, array, field, struct
from barnabas_protocol.wire import Buffer


class CorruptRecord(Exception):
    """The key or the value of a record cannot be read."""


class MemberState(IntEnum):
    """How far a member is with its target. The value is that of its record."""

    STABLE = 0
    """The member owns its target of its epoch. It moves on when there is a newer target."""

    UNREVOKED_PARTITIONS = 1
    """The member has to revoke partitions first, within its rebalance timeout. It keeps its epoch until then."""

    UNRELEASED_PARTITIONS = 2
    """The member is in the newest epoch, but other members have not yet revoked some of its partitions."""


class OffsetCommitKey(Data, versions="0-1"):
    """The key of a committed offset. Record type 0 is the legacy one."""

    group: str = field(STRING, "0-1", default="")
    topic: str = field(STRING, "0-1", default="")
    partition: int = field(INT32, "0-1", default=0)


class OffsetCommitValue(Data, versions="0-4", flexible="4+"):
    """A committed offset. Kafka added the topic id to version 4 later: not every version 4 has it."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", default=bytes(16), tag=0, tagged="4+", ignorable=True)


class GroupMetadataKey(Data, versions="2"):
    """The key of a classic group."""

    group: str = field(STRING, "2", default="")


class MemberMetadata(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: Buffer = field(BYTES)
    assignment: Buffer = field(BYTES)


class GroupMetadataValue(Data, versions="0-4", flexible="4+"):
    """A classic group with its members."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(array(MemberMetadata))


class ConsumerGroupMetadataKey(Data, versions="3"):
    """The key of a group of the consumer protocol (KIP-848)."""

    group_id: str = field(STRING, "3", default="")


class ConsumerGroupMetadataValue(Data, versions="0", flexible="0+"):
    """The epoch of a group, and a hash of the topics that it subscribes to (KIP-1101)."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, default=0, tag=0, tagged="0+")


class ConsumerGroupPartitionMetadataKey(Data, versions="4"):
    """The key of the topics that a group subscribes to: only tombstones are written since Kafka 4.1 (KIP-1101)."""

    group_id: str = field(STRING, "4", default="")


class PartitionMetadata(Struct):
    partition: int = field(INT32)
    racks: list[str] = field(array(STRING))


class TopicMetadata(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: list[PartitionMetadata] = field(array(PartitionMetadata))


class ConsumerGroupPartitionMetadataValue(Data, versions="0", flexible="0+"):
    """The topics that a group subscribes to, as Kafka 3.8 to 4.0 wrote them."""

    topics: list[TopicMetadata] = field(array(TopicMetadata))


class ConsumerGroupMemberMetadataKey(Data, versions="5"):
    """The key of a member of a group of the consumer protocol."""

    group_id: str = field(STRING, "5", default="")
    member_id: str = field(STRING, "5", default="")


class ClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: Buffer = field(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(Data, versions="0", flexible="0+"):
    """A member: what it subscribes to, and, of one of the classic protocol, what that needs.

    Of another member that is null. It must be written: where it is absent, Kafka reads metadata without protocols, and
    takes the member for one of the classic protocol.
    """

    instance_id: str | None = field(STRING, nullable="0+")
    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        struct(ClassicMemberMetadata),
        nullable="0+",
        default=ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=[]),
        tag=0,
        tagged="0+",
    )


class ConsumerGroupTargetAssignmentMetadataKey(Data, versions="6"):
    """The key of the epoch of a group's target assignment."""

    group_id: str = field(STRING, "6", default="")


class ConsumerGroupTargetAssignmentMetadataValue(Data, versions="0", flexible="0+"):
    """The epoch of a group's target assignment."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, default=0, tag=0, tagged="0+")


class ConsumerGroupTargetAssignmentMemberKey(Data, versions="7"):
    """The key of the target assignment of a member."""

    group_id: str = field(STRING, "7", default="")
    member_id: str = field(STRING, "7", default="")


class TargetTopicPartition(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupTargetAssignmentMemberValue(Data, versions="0", flexible="0+"):
    """The target assignment of a member."""

    topic_partitions: list[TargetTopicPartition] = field(array(TargetTopicPartition))


class ConsumerGroupCurrentMemberAssignmentKey(Data, versions="8"):
    """The key of the current assignment of a member."""

    group_id: str = field(STRING, "8", default="")
    member_id: str = field(STRING, "8", default="")


class CurrentTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] | None = field(array(INT32), nullable="0+", default=[], tag=0, tagged="0+")


class ConsumerGroupCurrentMemberAssignmentValue(Data, versions="0", flexible="0+"):
    """The epochs and state of a member, what it owns, and what it has to revoke."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[CurrentTopicPartitions] = field(array(CurrentTopicPartitions))
    partitions_pending_revocation: list[CurrentTopicPartitions] = field(array(CurrentTopicPartitions))


class ConsumerGroupRegularExpressionKey(Data, versions="16"):
    """The key of a regular expression that members of a group subscribe with."""

    group_id: str = field(STRING, "16", default="")
    regular_expression: str = field(STRING, "16", default="")


class ConsumerGroupRegularExpressionValue(Data, versions="0", flexible="0+"):
    """The topics that a regular expression matched, and the version of the metadata at that time."""

    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)


class ShareGroupMemberMetadataKey(Data, versions="10"):
    """The key of a member of a share group (KIP-932)."""

    group_id: str = field(STRING, "10", default="")
    member_id: str = field(STRING, "10", default="")


class ShareGroupMemberMetadataValue(Data, versions="0", flexible="0+"):
    """A member of a share group, and the topics that it subscribes to."""

    rack_id: str | None = field(STRING, nullable="0+", default="")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))


class ShareGroupMetadataKey(Data, versions="11"):
    """The key of a share group."""

    group_id: str = field(STRING, "11", default="")


class ShareGroupMetadataValue(Data, versions="0", flexible="0+"):
    """The epoch of a share group, and a hash of the topics that it subscribes to."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64)


class ShareGroupTargetAssignmentMetadataKey(Data, versions="12"):
    """The key of the epoch of a share group's target assignment."""

    group_id: str = field(STRING, "12", default="")


class ShareGroupTargetAssignmentMetadataValue(Data, versions="0", flexible="0+"):
    """The epoch of a share group's target assignment."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, default=0, tag=0, tagged="0+")


class ShareGroupTargetAssignmentMemberKey(Data, versions="13"):
    """The key of the target assignment of a share group's member."""

    group_id: str = field(STRING, "13", default="")
    member_id: str = field(STRING, "13", default="")


class ShareGroupTargetAssignmentMemberValue(Data, versions="0", flexible="0+"):
    """The target assignment of a share group's member."""

    topic_partitions: list[TargetTopicPartition] = field(array(TargetTopicPartition))


class ShareGroupCurrentMemberAssignmentKey(Data, versions="14"):
    """The key of the current assignment of a share group's member."""

    group_id: str = field(STRING, "14", default="")
    member_id: str = field(STRING, "14", default="")


class CurrentShareTopicPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ShareGroupCurrentMemberAssignmentValue(Data, versions="0", flexible="0+"):
    """The epochs of a share group's member, and its partitions. The state is always that of a stable member."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[CurrentShareTopicPartitions] = field(array(CurrentShareTopicPartitions))


class ShareGroupStatePartitionMetadataKey(Data, versions="15"):
    """The key of the share partitions of a group that have a state, or get or lose one."""

    group_id: str = field(STRING, "15", default="")


class TopicPartitionsInfo(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class StateTopicInfo(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)


class ShareGroupStatePartitionMetadataValue(Data, versions="0", flexible="0+"):
    """The share partitions of a group that have a state, or get or lose one."""

    initializing_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    initialized_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo))
    deleting_topics: list[StateTopicInfo] = field(array(StateTopicInfo))


class TransactionLogKey(Data, versions="0"):
    """The key of a transactional id, in ``__transaction_state``."""

    transactional_id: str = field(STRING)


class PartitionsSchema(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


class TransactionLogValue(Data, versions="0-1", flexible="1+"):
    """The state of a transactional id. Version 1 has what transactions of version 2 need (KIP-890)."""

    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, "1+", default=-1, tag=0, tagged="1+")
    next_producer_id: int = field(INT64, "1+", default=-1, tag=1, tagged="1+")
    producer_epoch: int = field(INT16)
    next_producer_epoch: int = field(INT16, "1+", default=-1, tag=3, tagged="1+")
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[PartitionsSchema] | None = field(array(PartitionsSchema), nullable="0+")
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, "1+", default=0, tag=2, tagged="1+")


class ShareSnapshotKey(Data, versions="0"):
    """The key of the whole state of a share partition, in ``__share_group_state`` (KIP-932)."""

    group_id: str = field(STRING)
    topic_id: bytes = field(UUID)
    partition: int = field(INT32)


class StateBatch(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


class ShareSnapshotValue(Data, versions="0", flexible="0+"):
    """The whole state of a share partition."""

    snapshot_epoch: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, default=-1, tag=0, tagged="0+")
    create_timestamp: int = field(INT64)
    write_timestamp: int = field(INT64)
    state_batches: list[StateBatch] = field(array(StateBatch))


class ShareUpdateKey(Data, versions="1"):
    """The key of a change of a share partition since its snapshot."""

    group_id: str = field(STRING, "1", default="")
    topic_id: bytes = field(UUID, "1", default=bytes(16))
    partition: int = field(INT32, "1", default=0)


class ShareUpdateValue(Data, versions="0", flexible="0+"):
    """A change of a share partition since its snapshot: start offset and leader epoch are -1 if they are unchanged."""

    snapshot_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, default=-1, tag=0, tagged="0+")
    state_batches: list[StateBatch] = field(array(StateBatch))


#: Key and value of a record; None for a tombstone.
CoordinatorRecord = tuple[Data, Data | None]
