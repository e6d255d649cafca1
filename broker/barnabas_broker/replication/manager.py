"""The partitions that this broker leads: append, read, wait for data, look offsets up.

A single broker is the whole ISR, so the high watermark follows the log's end at once. A fetch that finds too little
waits as a :class:`DelayedFetch` on its partitions; an append counts its bytes into those that wait there and wakes
the ones that have enough, so that nobody polls.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from barnabas_broker.cluster.image import (
    BrokerConfigured,
    Event,
    Image,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicInfo,
)
from barnabas_broker.config import Config, ConfigError, TopicConfig
from barnabas_broker.config_keys import TOPIC_KEYS
from barnabas_broker.storage import AppendInfo, Log, LogDirectory, TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.wire import Buffer

log = structlog.get_logger("broker.replication")


class DelayedFetch:
    """A fetch that waits for data.

    Args:
        min_bytes: how much it waits for.
    """

    __slots__ = ("_missing", "woken")

    def __init__(self, min_bytes: int) -> None:
        self._missing = min_bytes
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def appended(self, size: int) -> None:
        """Count `size` bytes in; wake up when that is enough."""
        self._missing -= size
        if self._missing <= 0:
            self.wake()

    def wake(self) -> None:
        """Stop waiting."""
        if not self.woken.done():
            self.woken.set_result(None)


class Hosted:
    """A partition that this broker leads."""

    __slots__ = ("leader_epoch", "log", "waiting")

    def __init__(self, partition_log: Log, leader_epoch: int) -> None:
        self.log = partition_log
        self.leader_epoch = leader_epoch
        self.waiting: set[DelayedFetch] = set()

    def check_epoch(self, epoch: int) -> None:
        """Compare the leader epoch that a client knows with ours; -1 is not compared (KIP-320).

        Raises:
            KafkaError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if epoch == -1 or epoch == self.leader_epoch:
            return
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH)

    @property
    def high_watermark(self) -> int:
        """The offset up to which clients may read, exclusive."""
        return self.log.high_watermark

    def append(self, records: Buffer, now_ms: int, *, internal: bool = False) -> AppendInfo:
        """Append batches that a client or the coordinator made.

        Raises:
            KafkaError: why nothing was appended.
        """
        info = self.log.append_as_leader(records, leader_epoch=self.leader_epoch, now_ms=now_ms, internal=internal)
        self.log.set_high_watermark(self.log.log_end_offset)
        if self.waiting:
            size = len(records)
            for delayed in self.waiting:
                delayed.appended(size)
        return info


class ReplicaManager:
    """The partitions of this broker.

    Args:
        directory: the log on disk.
        config: the broker's configuration.
        node_id: this broker's id.
        wall_ms: the time of day, in ms.
    """

    def __init__(self, directory: LogDirectory, config: Config, node_id: int, wall_ms: Callable[[], int]) -> None:
        self.directory = directory
        self._config = config
        self._node_id = node_id
        self._wall_ms = wall_ms
        self._hosted: dict[str, dict[int, Hosted]] = {}

    # What the cluster tells

    def start(self, image: Image) -> None:
        """Host what the image says this broker leads; what is on disk and in no topic was being deleted."""
        for orphan in [where for where in self.directory.logs if not _exists(image, where)]:
            log.warning("partition without a topic is deleted", partition=str(orphan))
            self.directory.delete(orphan, self._wall_ms())
        for topic in image.topics.values():
            self._host(topic)

    def image_changed(self, image: Image, events: Sequence[Event]) -> None:
        """Follow the cluster: new partitions, deleted topics, changed configuration."""
        for event in events:
            match event:
                case TopicCreated() | PartitionsAdded() if event.name in image.topics:
                    self._host(image.topics[event.name])
                case TopicDeleted():
                    self._drop(event.name)
                case TopicConfigured() if event.name in image.topics:
                    self._configure(image.topics[event.name])
                case BrokerConfigured():
                    for topic in image.topics.values():
                        self._configure(topic)

    def _topic_config(self, topic: TopicInfo) -> TopicConfig:
        try:
            return TopicConfig(self._config, topic.configs, TOPIC_KEYS)
        except ConfigError as error:
            # Checked before it was kept, so this is a key that an older or newer version of the broker knew.
            log.error("topic configuration ignored", topic=topic.name, reason=str(error))
            return TopicConfig(self._config, {}, TOPIC_KEYS)

    def _configure(self, topic: TopicInfo) -> None:
        config = self._topic_config(topic)
        for hosted in self._hosted.get(topic.name, {}).values():
            hosted.log.configure(config)

    def _host(self, topic: TopicInfo) -> None:
        config = self._topic_config(topic)
        mine = self._hosted.setdefault(topic.name, {})
        for index, partition in enumerate(topic.partitions):
            if partition.leader == self._node_id and index not in mine:
                where = TopicPartition(topic.name, index)
                partition_log = self.directory.create(where, topic.topic_id, config, self._wall_ms())
                partition_log.configure(config)
                partition_log.set_high_watermark(partition_log.log_end_offset)
                mine[index] = Hosted(partition_log, partition.leader_epoch)

    def _drop(self, name: str) -> None:
        for index, hosted in self._hosted.pop(name, {}).items():
            for delayed in hosted.waiting:
                delayed.wake()
            self.directory.delete(TopicPartition(name, index), self._wall_ms())

    def wake_fetches(self) -> None:
        """Answer every fetch that waits, because nothing more will come."""
        for _, hosted in self.hosted():
            for delayed in list(hosted.waiting):
                delayed.wake()

    # What handlers ask

    def find(self, topic: str, partition: int) -> Hosted:
        """A partition that this broker leads.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        try:
            return self._hosted[topic][partition]
        except KeyError:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            ) from None

    def hosted(self) -> Iterable[tuple[TopicPartition, Hosted]]:
        """Every partition that this broker leads."""
        for topic, partitions in self._hosted.items():
            for index, hosted in partitions.items():
                yield TopicPartition(topic, index), hosted


def _exists(image: Image, where: TopicPartition) -> bool:
    topic = image.topics.get(where.topic)
    return topic is not None and where.partition < len(topic.partitions)
