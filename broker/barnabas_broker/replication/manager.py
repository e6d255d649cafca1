"""The partitions that this broker keeps: taken up, led, followed and given up as the cluster's image says.

Whoever asks for a partition gets it only while this broker leads it and its registration is sure to hold
(`may_serve`): a broker that the cluster may have replaced answers NOT_LEADER_OR_FOLLOWER before it touches a log.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerFenced,
    Event,
    Image,
    PartitionChanged,
    PartitionInfo,
    PartitionsAdded,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicInfo,
)
from barnabas_broker.config import TOPIC_KEYS, Config, ConfigError, TopicConfig
from barnabas_broker.logs import logger
from barnabas_broker.replication.leadership import UNKNOWN
from barnabas_broker.replication.partition import Hosted
from barnabas_broker.storage import LogDirectory, TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("replication")

#: Partitions that are made before others have a turn.
MADE_AT_ONCE: Final = 100
#: Hears of each partition that follows another broker (its id), or follows nobody any more (-1).
Follows = Callable[[Hosted, int], None]
#: Hears of a partition one of whose followers may join the ISR.
CaughtUp = Callable[[Hosted], None]


class ReplicaManager:
    """The partitions of this broker.

    Args:
        directory: the log on disk.
        config: the broker's configuration.
        node_id: this broker's id.
        wall_ms: the time of day, in ms.
        now: a clock that only goes forward, in seconds.
        may_serve: whether no other broker can have taken this one's place.

    Attributes:
        isr_shrinks: how often the ISR of a partition that this broker led became smaller.
        isr_expands: how often it grew.
    """

    def __init__(
        self,
        directory: LogDirectory,
        config: Config,
        node_id: int,
        wall_ms: Callable[[], int],
        *,
        now: Callable[[], float],
        may_serve: Callable[[], bool] = lambda: True,
    ) -> None:
        self.directory = directory
        self.node_id = node_id
        self.isr_shrinks = self.isr_expands = 0
        self._config = config
        self._wall_ms = wall_ms
        self._now = now
        self._may_serve = may_serve
        self._hosted: dict[str, dict[int, Hosted]] = {}
        self._image: Image | None = None
        #: Partitions that are in the image and not yet here: topic and index.
        self._to_make: list[tuple[str, int]] = []
        self._making = False
        self._follows: Follows | None = None
        self._caught_up: CaughtUp | None = None

    # What the cluster tells

    def start(self, image: Image, follows: Follows | None = None, caught_up: CaughtUp | None = None) -> None:
        """Take up what the image says this broker keeps; what is on disk and in no topic was being deleted.

        Args:
            image: the cluster as it is.
            follows: hears which partitions follow whom.
            caught_up: hears whose ISR may grow.
        """
        self._image, self._follows, self._caught_up = image, follows, caught_up
        for orphan in [where for where in self.directory.logs if not self._keeps(image, where)]:
            log.warning("partition that is not this broker's is deleted", partition=str(orphan))
            self.directory.delete(orphan, self._wall_ms())
        for topic in image.topics.values():
            self._make(topic, self._take_up(topic, range(len(topic.partitions))))

    def _keeps(self, image: Image, where: TopicPartition) -> bool:
        topic = image.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            return False
        return self.node_id in topic.partitions[where.partition].replicas

    def image_changed(self, image: Image, events: Sequence[Event]) -> None:
        """Follow the cluster: new partitions, other leaders, deleted topics, changed configuration."""
        self._image = image
        changed: dict[str, set[int]] = {}
        for event in events:
            match event:
                case TopicCreated() | PartitionsAdded() if event.name in image.topics:
                    changed.setdefault(event.name, set()).update(range(len(image.topics[event.name].partitions)))
                case PartitionChanged() if event.name in image.topics:
                    changed.setdefault(event.name, set()).add(event.index)
                case TopicDeleted():
                    self._drop(event.name)
                case TopicConfigured() if event.name in image.topics:
                    self._configure(image.topics[event.name])
                case BrokerFenced():
                    for _, hosted in self.hosted():
                        hosted.settle_deletions(image.brokers)
                case BrokerConfigured():
                    for topic in image.topics.values():
                        self._configure(topic)
        for name, indexes in changed.items():
            self._to_make += [(name, index) for index in self._take_up(image.topics[name], sorted(indexes))]
        if not self._making:
            self._make_some()

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

    def _take_up(self, topic: TopicInfo, indexes: Iterable[int]) -> list[int]:
        """Follow what is hosted; which partitions are yet to be made."""
        hosted, missing = self._hosted.setdefault(topic.name, {}), []
        for index in indexes:
            info, known = topic.partitions[index], hosted.get(index)
            if self.node_id not in info.replicas:
                if known is not None:
                    self._give_up(hosted.pop(index))
            elif known is not None:
                self._assume(known, info)
            else:
                missing.append(index)
        return missing

    def _make(self, topic: TopicInfo, indexes: Iterable[int]) -> None:
        config = self._topic_config(topic)
        for index in indexes:
            where = TopicPartition(topic.name, index)
            partition_log = self.directory.create(where, topic.topic_id, config, self._wall_ms())
            info = topic.partitions[index]
            hosted = self._hosted[topic.name][index] = Hosted(partition_log, info)
            self._assume(hosted, info)

    def _make_some(self) -> None:
        """Make partitions that are missing, and let others have a turn: each costs files, and a lease must be renewed
        meanwhile."""
        self._making = False
        image, some = self._image, self._to_make[:MADE_AT_ONCE]
        del self._to_make[:MADE_AT_ONCE]
        for name, index in some:
            topic = image.topics.get(name) if image is not None else None
            # What the image says by now counts.
            if topic is not None and index < len(topic.partitions):
                self._make(topic, self._take_up(topic, [index]))
        if self._to_make and not self._making:
            self._making = True
            asyncio.get_running_loop().call_soon(self._make_some)

    def _assume(self, hosted: Hosted, info: PartitionInfo) -> None:
        if info.leader == self.node_id:
            if hosted.leading is not None:
                self.isr_shrinks += len(info.isr) < len(hosted.info.isr)
                self.isr_expands += len(info.isr) > len(hosted.info.isr)
            hosted.lead(self.node_id, info, self._now())
        else:
            hosted.follow(info)
        if self._follows is not None:
            self._follows(hosted, -1 if info.leader == self.node_id else info.leader)

    def _give_up(self, hosted: Hosted) -> None:
        hosted.step_down()
        if self._follows is not None:
            self._follows(hosted, -1)
        self.directory.delete(hosted.log.topic_partition, self._wall_ms())

    def _drop(self, name: str) -> None:
        for hosted in self._hosted.pop(name, {}).values():
            self._give_up(hosted)

    def wake_fetches(self) -> None:
        """Answer every fetch that waits, because nothing more will come. Nothing more is made either."""
        self._to_make.clear()
        for _, hosted in self.hosted():
            hosted.wake()

    # What handlers ask

    def find(self, topic: str, partition: int) -> Hosted:
        """A partition that this broker leads.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        try:
            hosted = self._hosted[topic][partition]
        except KeyError:
            known = self._image.topics.get(topic) if self._image is not None else None
            if known is not None and 0 <= partition < len(known.partitions):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            ) from None
        if hosted.leading is None or not self._may_serve():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return hosted

    def making(self, topic: str) -> bool:
        """Whether partitions of a topic are yet to be made."""
        return any(name == topic for name, _ in self._to_make)

    def led(self, topic: str) -> dict[int, int]:
        """The partitions of a topic that this broker leads, with their leader epochs."""
        hosted = self._hosted.get(topic, {})
        return {index: each.leader_epoch for index, each in hosted.items() if each.leading is not None}

    def follower_fetched(
        self, hosted: Hosted, node_id: int, broker_epoch: int, offset: int, log_start: int = UNKNOWN
    ) -> None:
        """A follower asks a partition that this broker leads for `offset` on, so it has all before.

        Args:
            hosted: the partition.
            node_id: the follower.
            broker_epoch: in which life of it it asks; -1 if it does not say so.
            offset: where its log ends.
            log_start: where its log begins.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, it is no replica, or has begun another life since: what it had in this
                one may be lost (KIP-903).
        """
        broker = self._image.brokers.get(node_id) if self._image is not None else None
        if broker is not None and broker_epoch != -1 and broker_epoch < broker.epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if hosted.fetched_by(node_id, broker_epoch, offset, self._now(), log_start) and self._caught_up is not None:
            self._caught_up(hosted)
        hosted.settle_deletions(self._live())

    def delete_records(self, hosted: Hosted, before: int) -> "tuple[int, asyncio.Future[int] | None]":
        """Delete what a partition that this broker leads has before an offset, here and on its followers.

        Returns:
            The low watermark: before which offset no replica that lives has anything. And when it will have reached
            `before`; None if it has. See :meth:`Hosted.deleted_everywhere`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, it is beyond the high watermark; KAFKA_STORAGE_ERROR.
        """
        hosted.log.delete_records(before)
        mark = hosted.low_watermark(self._live())
        return mark, None if mark >= before else hosted.deleted_everywhere(before)

    def _live(self) -> Iterable[int]:
        return () if self._image is None else self._image.brokers

    def hosted(self) -> Iterable[tuple[TopicPartition, Hosted]]:
        """Every partition that this broker keeps."""
        for topic, partitions in self._hosted.items():
            for index, hosted in partitions.items():
                yield TopicPartition(topic, index), hosted
