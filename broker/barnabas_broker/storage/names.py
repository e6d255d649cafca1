"""Names of a log's files and directories, as in Apache Kafka (``LogFileUtils``, ``LocalLog``)."""

import re
from pathlib import Path
from typing import Final, NamedTuple

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
#: The checksums of a segment's indexes, which Kafka does not have.
CHECKSUMS: Final = ".checksums"
#: The files of a segment.
SEGMENT_FILES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX, CHECKSUMS)

INDEXES: Final = (INDEX, TIME_INDEX, TXN_INDEX, CHECKSUMS)

#: What recovery has set aside.
DAMAGED: Final = ".damaged"
#: A file that is removed from the log, and unlinked later.
DELETED: Final = ".deleted"
#: A file that the cleaner is writing.
CLEANED: Final = ".cleaned"
#: A file that the cleaner has finished, and that replaces the original.
SWAP: Final = ".swap"

#: In a partition's directory: the offset up to which compaction may have removed records.
COMPACTED: Final = "compacted-up-to"
EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
#: The mark of a log that has lost records, until it has fetched them again.
LOST_RECORDS: Final = "lost-records"
PARTITION_METADATA: Final = "partition.metadata"

#: The copy of a file that has no checksum.
COPY: Final = ".copy"

META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
#: What is written to find out whether the disk can be written.
TRIAL: Final = "trial-write"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
#: The segments of all logs at a clean shutdown, which Kafka does not have.
SEGMENTS: Final = "segments-checkpoint"

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_DELETED_DIRECTORY: Final = re.compile(r".+-\d+\.[0-9a-f]{32}-(delete|stray|future)")
_LONGEST: Final = 255


class TopicPartition(NamedTuple):
    """A partition by topic name and index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def offset_name(offset: int, suffix: str) -> str:
    """``00000000000000000042.log`` for 42 and ``.log``."""
    return f"{offset:020d}{suffix}"


def offset_path(directory: Path, offset: int, suffix: str) -> Path:
    """The path of a file that is named by an offset."""
    return directory / f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """``(42, ".log")`` for ``00000000000000000042.log``; None if the name does not begin with an offset."""
    digits, dot, suffix = name.partition(".")
    if not dot or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits), dot + suffix


def partition_directory(topic_partition: TopicPartition) -> str:
    """The name of a partition's directory.

    Raises:
        ValueError: the topic or the partition is not valid in a path.
    """
    topic, partition = topic_partition
    if not _TOPIC.fullmatch(topic) or topic in (".", "..") or not 0 <= partition < 2**31:
        raise ValueError(f"{topic!r} partition {partition} is not valid as a directory name")
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition whose directory has this name, or None."""
    found = _PARTITION_DIRECTORY.fullmatch(name)
    return TopicPartition(found["topic"], int(found["partition"])) if found else None


def deleted_directory(topic_partition: TopicPartition, unique: str) -> str:
    """The name that a partition's directory gets when the partition is deleted.

    Args:
        topic_partition: the partition.
        unique: 32 hexadecimal digits.
    """
    suffix = f"-{topic_partition.partition}.{unique}-delete"
    return topic_partition.topic[: _LONGEST - len(suffix)] + suffix


def stray_directory(topic_partition: TopicPartition, unique: str) -> str:
    """The name that a partition's directory gets when the metadata do not know the partition.

    Args:
        topic_partition: the partition.
        unique: 32 hexadecimal digits.
    """
    return deleted_directory(topic_partition, unique).removesuffix("-delete") + "-stray"


def parse_stray_directory(name: str) -> TopicPartition | None:
    """The partition that was set aside in a directory of this name; None if the name is another one."""
    before, dot, after = name.rpartition(".")
    if not dot or not is_deleted_directory(name) or not after.endswith("-stray"):
        return None
    return parse_partition_directory(before)


def is_deleted_directory(name: str) -> bool:
    """Whether a directory is of a deleted, future or stray replica (``-delete``, ``-future``, ``-stray``)."""
    return _DELETED_DIRECTORY.fullmatch(name) is not None
