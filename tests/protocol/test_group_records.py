"""Records of ``__consumer_offsets``: compared with the declared schemas, and corrupt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_protocol.codec import encode
from barnabas_protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    CoordinatorRecord,
    CorruptRecord,
    CurrentTopicPartitions,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TargetTopicPartition,
)
from barnabas_protocol.errors import EncodeError
from barnabas_protocol.group_records import (
    Committed,
    OffsetKey,
    group_key,
    group_record,
    group_value,
    offset_key,
    offset_key_head,
    offset_value,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=50)


@given(TEXT, TEXT, INT32)
def test_the_key_of_an_offset_equals_the_schema(group: str, topic: str, partition: int) -> None:
    key = offset_key(offset_key_head(group, topic), partition)
    declared = encode(OffsetCommitKey(group=group, topic=topic, partition=partition), 1)
    assert key == b"\x00\x01" + declared
    assert read_offset_key(key) == OffsetKey(group, topic, partition)
    assert read_offset_key(b"\x00\x00" + declared) == OffsetKey(group, topic, partition)


@given(INT64, INT32, TEXT, INT64, st.integers(-1, 2**63 - 1))
def test_the_value_of_an_offset_equals_the_schema(
    offset: int, epoch: int, metadata: str, commit: int, expire: int
) -> None:
    committed = Committed(offset, epoch if expire < 0 else -1, metadata, commit, expire, 7)
    version = 3 if expire < 0 else 1
    declared = OffsetCommitValue(
        offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=commit, expire_timestamp=expire
    )
    value = offset_value(committed)
    assert value == version.to_bytes(2, "big") + encode(declared, version)
    assert read_offset_value(value, 7) == committed


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_are_decoded(version: int) -> None:
    offset = OffsetCommitValue(offset=5, leader_epoch=3, metadata="m", commit_timestamp=9)
    found = read_offset_value(version.to_bytes(2, "big") + encode(offset, version), 1)
    assert (found.offset, found.metadata, found.commit_ms) == (5, "m", 9)
    assert found.leader_epoch == (3 if version >= 3 else -1)
    member = MemberMetadata(
        member_id="id", client_id="c", client_host="/h", session_timeout=10, subscription=b"s", assignment=b"a"
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="id", members=[member])
    read = read_group_value(version.to_bytes(2, "big") + encode(group, version))
    assert (read.generation, read.leader, read.members[0].assignment) == (4, "id", b"a")


def test_the_topic_id_in_a_value_of_version_4_is_ignored() -> None:
    """Newer versions of Kafka write it as tagged field 0. Offsets are stored by topic name here."""
    offset = OffsetCommitValue(offset=5, leader_epoch=3, metadata="m", commit_timestamp=9)
    plain = b"\x00\x04" + encode(offset, 4)
    with_id = plain[:-1] + b"\x01\x00\x10" + bytes(range(16))
    assert read_offset_value(with_id, 1) == read_offset_value(plain, 1)


def test_the_record_of_a_group_has_version_3() -> None:
    value = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=[])
    assert group_value(value)[:2] == b"\x00\x03"
    assert group_key("g") == b"\x00\x02\x00\x01g"
    assert read_group_key(group_key("g")) == "g"


@pytest.mark.parametrize("size", range(2, 17))
def test_a_truncated_key_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptRecord):
        read_offset_key(offset_key(offset_key_head("group", "topic"), 3)[:size])


def test_truncated_and_unknown_values_are_corrupt() -> None:
    value = offset_value(Committed(5, 1, "metadata", 9))
    for size in range(len(value)):
        with pytest.raises(CorruptRecord):
            read_offset_value(value[:size], 0)
    for broken in (value + b"x", b"\x00\x09" + value[2:], b"\x00\x03" + value[2:14] + b"\xff\xff" + value[16:]):
        with pytest.raises(CorruptRecord):
            read_offset_value(broken, 0)
    for broken in (b"", b"\x00\x03", b"\x00\x07abc"):
        with pytest.raises(CorruptRecord):
            read_group_value(broken)
    with pytest.raises(CorruptRecord):
        read_group_key(b"\x00\x02\x00\x09g")


def test_values_longer_than_a_record_allows_are_refused() -> None:
    with pytest.raises(ValueError, match="32767"):
        offset_key_head("g" * 32768, "t")
    with pytest.raises(ValueError, match=r"short|format"):
        offset_value(Committed(1, 1, "m" * 40_000, 1))


PARTITIONS = st.lists(INT32, max_size=200)
TARGETS = st.lists(st.tuples(st.binary(min_size=16, max_size=16), PARTITIONS), max_size=200)


def as_declared(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """A record of a group by its schemas."""
    key, value = record
    (record_type,) = type(key).VERSIONS
    written = record_type.to_bytes(2, "big") + encode(key, record_type)
    return written, None if value is None else b"\x00\x00" + encode(value, 0)


@given(TEXT, TEXT, TARGETS)
def test_the_target_of_a_member_equals_the_schema(
    group: str, member: str, target: list[tuple[bytes, list[int]]]
) -> None:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member)
    topics = [TargetTopicPartition(topic_id=topic_id, partitions=partitions) for topic_id, partitions in target]
    for value in (None, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics)):
        assert group_record((key, value)) == as_declared((key, value))


@given(TEXT, TEXT, INT32, INT32, st.integers(-128, 127), TARGETS, TARGETS, st.sampled_from((0, 1, 2)))
def test_the_assignment_of_a_member_equals_the_schema(
    group: str,
    member: str,
    epoch: int,
    previous: int,
    state: int,
    assigned: list[tuple[bytes, list[int]]],
    revoking: list[tuple[bytes, list[int]]],
    epochs: int,
) -> None:
    def topics(owned: list[tuple[bytes, list[int]]]) -> list[CurrentTopicPartitions]:
        """With an epoch for each partition, with none, or with null."""
        return [
            CurrentTopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=(None, [], [each // 2 for each in partitions])[epochs],
            )
            for topic_id, partitions in owned
        ]

    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=state,
        assigned_partitions=topics(assigned),
        partitions_pending_revocation=topics(revoking),
    )
    for each in (None, value):
        assert group_record((key, each)) == as_declared((key, each))


@given(TEXT, TEXT, st.lists(st.text(max_size=300), max_size=200), INT64, INT64)
def test_what_a_regular_expression_matches_equals_the_schema(
    group: str, regex: str, topics: list[str], version: int, timestamp: int
) -> None:
    key = ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=regex)
    value = ConsumerGroupRegularExpressionValue(topics=topics, version=version, timestamp=timestamp)
    for each in (None, value):
        assert group_record((key, each)) == as_declared((key, each))


def test_a_record_of_a_member_that_does_not_fit_is_refused() -> None:
    long = ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m" * 40_000)
    short = ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m")
    wide = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[TargetTopicPartition(topic_id=bytes(16), partitions=[2**31])]
    )
    strange = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[TargetTopicPartition(topic_id=bytes(15), partitions=[])]
    )
    regex = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="r")
    broken = ConsumerGroupRegularExpressionValue(topics=["\ud800"], version=0, timestamp=0)
    for record in ((long, None), (short, wide), (short, strange), (regex, broken)):
        with pytest.raises(EncodeError):
            group_record(record)
