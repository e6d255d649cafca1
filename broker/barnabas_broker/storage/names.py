"""What files and directories of a log are called, as Apache Kafka calls them (``LogFileUtils``, ``LocalLog``)."""

import re
from pathlib import Path
from typing import Final, NamedTuple

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
#: Everything a segment consists of.
SEGMENT_FILES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

#: Renamed so, a file is gone for the log and is unlinked later.
DELETED: Final = ".deleted"
#: The cleaner is still writing it.
CLEANED: Final = ".cleaned"
#: The cleaner has finished it, and it is to take its place.
SWAP: Final = ".swap"

EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

#: Kafka's own metadata log: in its directories, but no topic of ours.
METADATA_TOPIC: Final = "__cluster_metadata"

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_DOOMED_DIRECTORY: Final = re.compile(r".+-\d+\.[0-9a-f]{32}-(delete|stray|future)")
_LONGEST: Final = 255


class TopicPartition(NamedTuple):
    """A partition by topic name and index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def offset_name(offset: int, suffix: str) -> str:
    """``00000000000000000042.log`` of 42 and ``.log``."""
    return f"{offset:020d}{suffix}"


def offset_path(directory: Path, offset: int, suffix: str) -> Path:
    """The path of a segment's file."""
    return directory / f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> tuple[int, str] | None:
    """``(42, ".log")`` of ``00000000000000000042.log``; None of a name that begins with no offset."""
    digits, dot, suffix = name.partition(".")
    if not dot or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits), dot + suffix


def partition_directory(topic_partition: TopicPartition) -> str:
    """The name of a partition's directory.

    Raises:
        ValueError: a topic or a partition that must not become a path.
    """
    topic, partition = topic_partition
    if not _TOPIC.fullmatch(topic) or topic in (".", "..") or not 0 <= partition < 2**31:
        raise ValueError(f"{topic!r} partition {partition} is no name for a directory")
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition whose directory is called `name`, or None."""
    found = _PARTITION_DIRECTORY.fullmatch(name)
    return TopicPartition(found["topic"], int(found["partition"])) if found else None


def doomed_name(topic_partition: TopicPartition, unique: str) -> str:
    """What a partition's directory is renamed to when it is deleted.

    Args:
        topic_partition: whose.
        unique: 32 hexadecimal digits.
    """
    suffix = f"-{topic_partition.partition}.{unique}-delete"
    return topic_partition.topic[: _LONGEST - len(suffix)] + suffix


def is_doomed(name: str) -> bool:
    """Whether a directory is what deleting, moving or straying left: no partition, to be removed or left alone."""
    return _DOOMED_DIRECTORY.fullmatch(name) is not None
