"""Parses and formats Kafka's text files: offset and epoch checkpoints, ``meta.properties``, ``partition.metadata``.

Pure. Kafka's classes: ``CheckpointFile``, ``OffsetCheckpointFile``, ``LeaderEpochCheckpointFile``,
``PartitionMetadataFile``, ``CleanShutdownFileHandler``.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_broker.storage.corruption import Damage
from barnabas_broker.storage.names import TopicPartition
from barnabas_protocol.records.checksums import crc32c
from barnabas_protocol.uuids import read_uuid_text, uuid_text

_VERSION: Final = "0"

#: Digits of an offset, and one more.
_OFFSET_DIGITS: Final = 20


class BadCheckpoint(ValueError):
    """The file does not have the expected format."""


def _lines(text: str, fields: int) -> list[list[str]]:
    """The entries of a checkpoint, split into `fields` words; none if the file is empty."""
    if not text.strip():
        return []
    version, *rest = text.splitlines()
    if version.strip() != _VERSION:
        raise BadCheckpoint(f"version {version!r} instead of {_VERSION}")
    if not rest or not rest[0].strip().isdigit():
        raise BadCheckpoint("the number of entries is missing")
    entries = [line.split() for line in rest[1:]]
    if len(entries) != int(rest[0]):
        raise BadCheckpoint(f"{len(entries)} entries instead of {rest[0]}")
    for entry in entries:
        if len(entry) != fields:
            raise BadCheckpoint(f"entry {' '.join(entry)!r}")
    return entries


def _text(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in (_VERSION, len(lines), *lines)).encode()


def _int(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise BadCheckpoint(f"{word!r} is not a number") from None


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Parse ``topic partition offset`` on each line.

    Raises:
        BadCheckpoint: the text is something else.
    """
    return {TopicPartition(topic, _int(index)): _int(offset) for topic, index, offset in _lines(text, 3)}


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Format the file that :func:`parse_offsets` reads."""
    return _text(f"{topic} {index} {offset}" for (topic, index), offset in sorted(offsets.items()))


def parse_epochs(text: str) -> list[tuple[int, int]]:
    """Parse ``epoch startOffset`` on each line.

    Raises:
        BadCheckpoint: the text is something else.
    """
    return [(_int(epoch), _int(offset)) for epoch, offset in _lines(text, 2)]


def format_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Format the file that :func:`parse_epochs` reads."""
    return _text(f"{epoch} {offset}" for epoch, offset in epochs)


def parse_segments(text: str) -> dict[TopicPartition, dict[int, int]]:
    """Parse ``topic partition baseOffset size`` on each line: the segments of each log, with the bytes of their files.

    Raises:
        BadCheckpoint: the text is something else.
    """
    found: dict[TopicPartition, dict[int, int]] = {}
    for topic, index, base, size in _lines(text, 4):
        found.setdefault(TopicPartition(topic, _int(index)), {})[_int(base)] = _int(size)
    return found


def format_segments(segments: Iterable[tuple[TopicPartition, int, int]]) -> bytes:
    """Format the file that :func:`parse_segments` reads."""
    return _text(f"{topic} {index} {base} {size}" for (topic, index), base, size in segments)


class LostRecords(NamedTuple):
    """The mark of a log that has lost records.

    Attributes:
        damage: the first of them.
        dropped: everything from there on was removed, to be fetched again.
    """

    damage: Damage
    dropped: bool = False


def format_lost_records(damage: Damage, *, dropped: bool) -> bytes:
    """Format the mark of a log that has lost records."""
    fields = {
        "version": 0,
        "offset": damage.offset,
        "nextOffset": damage.next_offset,
        "file": damage.file.name,
        "reason": damage.reason,
        "dropped": dropped,
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    return b"%08x\n" % crc32c(text) + text


def parse_lost_records(data: bytes, directory: Path) -> LostRecords:
    """Parse what :func:`format_lost_records` wrote.

    Args:
        data: the content of the mark.
        directory: of the partition.

    Returns:
        What was lost; everything from offset 0 on if the mark is damaged itself.
    """
    checksum, _, text = data.partition(b"\n")
    try:
        if checksum != b"%08x" % crc32c(text):
            raise ValueError("wrong checksum")
        fields = json.loads(text)
        offset, next_offset = fields["offset"], fields["nextOffset"]
        if not isinstance(offset, int) or not isinstance(next_offset, int) or offset < 0:
            raise TypeError("not an offset")
        damage = Damage(0, 0, offset, next_offset, directory / str(fields["file"]), str(fields["reason"]))
        return LostRecords(damage, fields["dropped"] is True)
    except (ValueError, KeyError, TypeError, RecursionError):
        return LostRecords(Damage(0, 0, 0, 0, directory, "records were lost, and the mark that says which is damaged"))


def format_partition_metadata(topic_id: bytes) -> bytes:
    """Format ``partition.metadata``: the topic id (KIP-516), as Kafka prints a Uuid.

    The CRC-32C of these two lines follows in a third one, which Apache Kafka does not read.
    """
    text = f"version: 0\ntopic_id: {uuid_text(topic_id)}\n"
    return f"{text}checksum: {crc32c(text.encode()):08x}\n".encode()


def parse_partition_metadata(text: str) -> bytes:
    """Parse ``partition.metadata``; the topic id, 16 bytes. A file of Apache Kafka has no checksum.

    Raises:
        BadCheckpoint: the text is something else, or the checksum is wrong.
    """
    lines = text.splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    topic_id = read_uuid_text(fields.get("topic_id", "").strip())
    if fields.get("version") != "0" or not topic_id:
        raise BadCheckpoint(f"version {fields.get('version')}, topic id {fields.get('topic_id')}")
    if len(lines) > 2 and lines[2] != format_partition_metadata(topic_id).decode().splitlines()[2]:
        raise BadCheckpoint("wrong checksum")
    return topic_id


def format_meta_properties(cluster_id: str, node_id: int, directory_id: str) -> bytes:
    """Format ``meta.properties``: the cluster and the node that a directory belongs to, and its own id (KIP-858).

    The checksum is ours; Apache Kafka does not read it.
    """
    properties = {"cluster.id": cluster_id, "directory.id": directory_id, "node.id": str(node_id), "version": "1"}
    lines = "".join(f"{key}={value}\n" for key, value in properties.items())
    return f"#\n{lines}checksum={_meta_checksum(properties)}\n".encode()


def check_meta_properties(properties: Mapping[str, str]) -> None:
    """Compare the properties with their checksum, if they have one.

    Raises:
        BadCheckpoint: they are not as they were written.
    """
    if properties.get("checksum") not in (None, _meta_checksum(properties)):
        raise BadCheckpoint("wrong checksum")


def _meta_checksum(properties: Mapping[str, str]) -> str:
    values = [properties.get(key, "") for key in ("cluster.id", "directory.id", "node.id")]
    return f"{crc32c(' '.join(values).encode()):08x}"


class CleanShutdown(NamedTuple):
    """The marker of a clean shutdown.

    Attributes:
        intact: the broker epochs since which the directory has lost nothing; (-1, -1) if the marker does not say that.
        checked: the marker has a checksum, as this version writes it; Apache Kafka's and earlier ones have none.
    """

    intact: tuple[int, int] = (-1, -1)
    checked: bool = False


def format_clean_shutdown(intact: tuple[int, int]) -> bytes:
    """Format the marker of a clean shutdown: the broker epochs since which the directory has lost nothing."""
    first, last = intact
    fields = {"version": 0, "brokerEpoch": last, "firstBrokerEpoch": first, "checksum": _checksum(first, last)}
    return json.dumps(fields, separators=(",", ":")).encode()


def _checksum(first: int, last: int) -> str:
    return f"{crc32c(b'%d %d' % (first, last)):08x}"


def parse_clean_shutdown(data: bytes) -> CleanShutdown:
    """Parse what :func:`format_clean_shutdown` wrote, or Apache Kafka.

    Raises:
        BadCheckpoint: the marker is damaged.
    """
    if not data:
        return CleanShutdown()
    try:
        fields = json.loads(data)
        first, last, checksum = (fields.get(key) for key in ("firstBrokerEpoch", "brokerEpoch", "checksum"))
    except (ValueError, AttributeError, RecursionError):
        raise BadCheckpoint("not a marker of a clean shutdown") from None
    if not isinstance(first, int) or not isinstance(last, int):
        if checksum is not None:
            raise BadCheckpoint("the broker epochs are missing")
        return CleanShutdown()
    if checksum not in (None, _checksum(first, last)):
        raise BadCheckpoint("wrong checksum")
    return CleanShutdown((first, last), checksum is not None)


def format_compacted(offset: int) -> bytes:
    """Format the note up to which offset compaction may have removed records."""
    return f"{offset}\n".encode()


def parse_compacted(content: bytes | None) -> int:
    """Parse that note; 0 if there is none, or it is damaged: what is missing is reported then."""
    digits = (content or b"").removesuffix(b"\n")
    return int(digits) if digits.isdigit() and len(digits) < _OFFSET_DIGITS else 0
