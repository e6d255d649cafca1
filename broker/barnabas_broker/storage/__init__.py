"""Where partitions are kept: segment logs in Apache Kafka's own format."""

from barnabas_broker.storage.directory import LogDirectory, LogDirectoryError
from barnabas_broker.storage.disk import Background, Inline, Threads
from barnabas_broker.storage.files import Files, RealFiles
from barnabas_broker.storage.log import AppendInfo, Log
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.segments import TimestampAt

__all__ = [
    "AppendInfo",
    "Background",
    "Files",
    "Inline",
    "Log",
    "LogDirectory",
    "LogDirectoryError",
    "RealFiles",
    "Threads",
    "TimestampAt",
    "TopicPartition",
]
