"""Kafka's text files."""

import pytest

from barnabas_broker.config import parse_properties
from barnabas_broker.storage.checkpoints import (
    BadCheckpoint,
    check_meta_properties,
    format_epochs,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from barnabas_broker.storage.names import (
    TopicPartition,
    deleted_directory,
    is_deleted_directory,
    parse_offset_name,
    parse_partition_directory,
    partition_directory,
)
from barnabas_protocol.uuids import read_uuid_text, uuid_text


def test_offsets_as_kafka_writes_them() -> None:
    offsets = {TopicPartition("b-1", 10): 7, TopicPartition("a", 0): 1 << 40}
    text = format_offsets(offsets).decode()
    assert text == "0\n2\na 0 1099511627776\nb-1 10 7\n"
    assert parse_offsets(text) == offsets
    assert parse_offsets("") == {}


def test_epochs_as_kafka_writes_them() -> None:
    assert format_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert parse_epochs("0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]


@pytest.mark.parametrize(
    "text", ["1\n0\n", "0\n", "0\nx\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "\0" * 20]
)
def test_a_corrupt_checkpoint_is_rejected(text: str) -> None:
    with pytest.raises(BadCheckpoint):
        parse_offsets(text)


def test_partition_metadata_holds_the_topic_id_as_kafka_prints_it() -> None:
    topic_id = bytes(range(16))
    content = format_partition_metadata(topic_id)
    assert content.startswith(b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\nchecksum: ")
    assert parse_partition_metadata(content.decode()) == topic_id
    for broken in ("", "version: 0\ntopic_id: AAE", "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "topic_id: *"):
        with pytest.raises(BadCheckpoint):
            parse_partition_metadata(broken)


def test_a_flipped_bit_in_meta_properties_gives_no_other_identity() -> None:
    """With another id of the directory a replica that has all records would count as one on an empty disk."""
    content = format_meta_properties("cluster-1", 3, uuid_text(bytes(range(16))))
    known = parse_properties(content.decode())
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        properties = parse_properties(flipped.decode(errors="replace"))
        try:
            check_meta_properties(properties)
        except BadCheckpoint:
            continue
        for key in ("cluster.id", "directory.id", "node.id"):
            assert properties[key] == known[key]


def test_meta_properties() -> None:
    content = format_meta_properties("abc", 3, "xyz")
    assert content.startswith(b"#\ncluster.id=abc\ndirectory.id=xyz\nnode.id=3\nversion=1\nchecksum=")
    check_meta_properties(parse_properties(content.decode()))
    check_meta_properties({"cluster.id": "abc", "node.id": "3"})  # of Apache Kafka
    assert uuid_text(bytes(16)) == "A" * 22
    assert read_uuid_text(uuid_text(bytes(range(16)))) == bytes(range(16))


def test_names_of_directories() -> None:
    assert partition_directory(TopicPartition("a-b.c_d", 7)) == "a-b.c_d-7"
    assert parse_partition_directory("a-b.c_d-7") == TopicPartition("a-b.c_d", 7)
    for no_partition in ("a", "a-", "a-01", "-1", "a b-1", "a-1.deadbeef-delete"):
        assert parse_partition_directory(no_partition) is None
    for bad in ("..", ".", "a/b", "", "a" * 250, "ü"):
        with pytest.raises(ValueError, match="is not valid as a directory name"):
            partition_directory(TopicPartition(bad, 0))
    deleted = deleted_directory(TopicPartition("t" * 249, 123), "0" * 32)
    assert len(deleted) == 255
    assert is_deleted_directory(deleted)
    assert parse_partition_directory(deleted) is None


def test_names_of_files() -> None:
    assert parse_offset_name("00000000000000000042.log") == (42, ".log")
    assert parse_offset_name("00000000000000000042.index.swap") == (42, ".index.swap")
    for other in ("leader-epoch-checkpoint", "partition.metadata", "42", ".log", "x42.log"):
        assert parse_offset_name(other) is None


def test_every_flip_in_partition_metadata_is_found() -> None:
    content = format_partition_metadata(bytes(range(16)))
    assert parse_partition_metadata(content.decode()) == bytes(range(16))
    for at in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[at] ^= 1 << bit
            try:
                found = parse_partition_metadata(flipped.decode(errors="replace"))
            except BadCheckpoint:
                continue
            assert found == bytes(range(16))


def test_partition_metadata_of_apache_kafka_has_no_checksum() -> None:
    assert parse_partition_metadata("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw") == bytes(range(16))
