"""Keys and values of the records in `__consumer_offsets`, in Kafka's schemas.

A key is an int16 record type and the fields; the record type is the version here. A value is an int16 version and the
fields. A record without a value is a tombstone.

Another record of a coordinator is two more classes here: ``Data`` with the key's record type and the value's versions,
under Kafka's names. ``EMBEDDED`` in ``tests/protocol/messages/test_reference.py`` names Kafka's schemas of them.
"""

from barnabas_protocol.schema import BYTES, INT32, INT64, STRING, UUID, Data, Struct, array, field
from barnabas_protocol.wire import Buffer


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
