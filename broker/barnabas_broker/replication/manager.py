"""Creates, leads, follows and deletes the replicas of this broker as the cluster image says (``ReplicaManager``).

:meth:`ReplicaManager.find` returns a replica only while this broker leads it and certainly still holds its lease
(`may_serve`). A broker that the cluster may have replaced answers NOT_LEADER_OR_FOLLOWER before it touches a log.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerFenced,
    BrokerRegistered,
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
from barnabas_broker.conditions import Condition, ConditionName
from barnabas_broker.config import TOPIC_KEYS, Config, ConfigError, TopicConfig
from barnabas_broker.log_throttle import Folded
from barnabas_broker.logs import logger
from barnabas_broker.replication.leadership import UNKNOWN
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import LogDirectory, TopicPartition
from barnabas_broker.storage.corruption import Damage
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("replication")

#: Replicas that are created and deleted in one turn of the event loop, and seconds that this may take.
CHANGED_AT_ONCE: Final = 100
CHANGING_SECONDS: Final = 0.005
#: Seconds until replicas are created for which there was no space: the first pause, and the longest.
RETRY_SECONDS: Final = (1.0, 10.0)
#: Seconds until a replica that has lost records is tried again, if that has failed: the first pause, and the longest.
_HEAL_SECONDS: Final = (1.0, 30.0)
#: Replicas that have lost records, in the text of a condition.
_SHOWN_LOSSES: Final = 5
#: Called with a replica and the broker that it follows from now on; -1 if it follows none any more.
Follows = Callable[[Replica, int], None]
#: Called with a replica when one of its followers may join the ISR, and when the cluster needs to hear of it for
#: another reason: see :meth:`.Replica.outgrows_elr`, :meth:`.ReplicaManager.is_awaited` and
#: :meth:`.ReplicaManager.has_lost`.
CaughtUp = Callable[[Replica], None]


class _Loss:
    """A replica that has lost records.

    Attributes:
        fetches: whether it fetches from its leader.
        backoff: the pauses after attempts to make it whole that have failed, on a full disk for instance.
        again_at: when the next attempt may begin.
    """

    __slots__ = ("again_at", "backoff", "fetches")

    def __init__(self, backoff: Backoff) -> None:
        self.fetches = False
        self.backoff = backoff
        self.again_at = float("-inf")


class ReplicaManager:
    """The replicas on this broker. There are none before :meth:`start`.

    Args:
        directory: the log directory.
        config: the broker's configuration.
        node_id: this broker's id.
        wall_ms: the time of day, in ms.
        now: a monotonic clock, in seconds.
        may_serve: whether this broker certainly still holds its lease.

    Attributes:
        isr_shrinks: how often the ISR of a partition led here became smaller.
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
        self._replicas: dict[str, dict[int, Replica]] = {}
        self._image = Image(cluster_id="")
        #: What the image wants and is not done yet: replicas to create, by topic and index, and to delete. In order: a
        #: topic may be created again.
        self._to_change: deque[tuple[str, int] | Replica] = deque()
        #: How many of them are to be created.
        self._to_create: Counter[str] = Counter()
        self._changing = False
        self._backoff = jittered(*RETRY_SECONDS, seed=f"replicas {node_id}")
        #: Whether nothing is left, or only what waits for space.
        self._idle = True
        self._changed: list[asyncio.Future[None]] = []
        self._lost: dict[Replica, _Loss] = {}
        self._not_healed = Folded(
            log.warning, "lost records cannot be fetched again yet", "lost records could not be fetched again yet", now
        )
        #: Replicas that the start of a broker of a cluster has yet to create: a log that does not exist and that should
        #: have all committed records is lost.
        self._at_start: set[tuple[str, int]] = set()
        #: Those that lead, because no other replica is in sync.
        self._alone: set[Replica] = set()
        self._follows: Follows = _follow_none
        self._caught_up: CaughtUp = _keep_isr

    # The cluster image

    def start(self, image: Image, follows: Follows | None = None, caught_up: CaughtUp | None = None) -> None:
        """Create and load the replicas of this broker, and set logs aside that the image does not assign to it.

        Args:
            image: the cluster.
            follows: starts and stops fetching from leaders; a single broker follows none.
            caught_up: proposes larger ISRs; a single broker has no followers.
        """
        self._image = image
        self._follows, self._caught_up = follows or _follow_none, caught_up or _keep_isr
        if follows is not None:
            self.directory.on_damage(self._found_damage)
        for orphan in [where for where in self.directory.logs if not self._is_assigned(image, where)]:
            self.directory.set_stray(orphan)
        configs: dict[str, TopicConfig] = {}
        for topic in image.topics.values():
            for index in self._update(topic, range(len(topic.partitions))):
                self._to_create[topic.name] += 1
                if follows is not None:
                    self._at_start.add((topic.name, index))
                if not self._create_queued(topic.name, index, configs):
                    self._to_change.append((topic.name, index))
        if self._to_change:
            self._change_some()

    def _is_assigned(self, image: Image, where: TopicPartition) -> bool:
        topic = image.topics.get(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            return False
        return self.node_id in topic.partitions[where.partition].replicas

    def image_changed(self, image: Image, events: Sequence[Event]) -> None:
        """Apply a change of the cluster: new partitions, new leaders, deleted topics, configuration."""
        self._image = image
        changed: dict[str, set[int]] = {}
        for event in events:
            match event:
                case TopicCreated() | PartitionsAdded() if event.name in image.topics:
                    changed.setdefault(event.name, set()).update(range(len(image.topics[event.name].partitions)))
                case PartitionChanged() if event.name in image.topics:
                    changed.setdefault(event.name, set()).add(event.index)
                case TopicDeleted():
                    self._to_change.extend(self._replicas.pop(event.name, {}).values())
                case TopicConfigured() if event.name in image.topics:
                    self._configure(image.topics[event.name])
                case BrokerRegistered():
                    if event.node_id == self.node_id:
                        self.retry()
                    for _, replica in self.all():
                        if replica.leading is not None:
                            replica.leading.registered(event.node_id, event.epoch, self._now())
                case BrokerFenced():
                    for _, replica in self.all():
                        replica.complete_deletions(image.brokers)
                case BrokerConfigured():
                    for topic in image.topics.values():
                        self._configure(topic)
        for name, indexes in changed.items():
            missing = self._update(image.topics[name], sorted(indexes))
            self._to_change.extend((name, index) for index in missing)
            if missing:
                self._to_create[name] += len(missing)
        if not self._changing:
            self._change_some()

    def _topic_config(self, topic: TopicInfo) -> TopicConfig:
        try:
            return TopicConfig(self._config, topic.configs, TOPIC_KEYS)
        except ConfigError as error:
            # Keys are checked before they are stored, so another version of the broker has stored this one.
            log.error("topic configuration is not valid, using the defaults", topic=topic.name, reason=str(error))
            return TopicConfig(self._config, {}, TOPIC_KEYS)

    def _configure(self, topic: TopicInfo) -> None:
        config = self._topic_config(topic)
        for replica in self._replicas.get(topic.name, {}).values():
            replica.configure(config)
            self._check(replica)

    def _update(self, topic: TopicInfo, indexes: Iterable[int]) -> list[int]:
        """Update the replicas that exist and delete those that are not assigned here; the indexes yet to create."""
        replicas, missing = self._replicas.setdefault(topic.name, {}), []
        for index in indexes:
            info, known = topic.partitions[index], replicas.get(index)
            if self.node_id not in info.replicas:
                if known is not None:
                    self._delete(replicas.pop(index))
            elif known is not None:
                self._assume(known, info)
            else:
                missing.append(index)
        return missing

    def _create(self, topic: TopicInfo, indexes: Iterable[int], config: TopicConfig) -> None:
        for index in indexes:
            where = TopicPartition(topic.name, index)
            known = self.directory.logs.get(where)
            partition_log = self.directory.create(where, topic.topic_id, config, self._wall_ms())
            info = topic.partitions[index]
            replica = self._replicas[topic.name][index] = Replica(partition_log, info)
            if (topic.name, index) in self._at_start:
                self._at_start.discard((topic.name, index))
                missing = partition_log is not known and (replica.counts(self.node_id) or info.leader == self.node_id)
                loss = self.directory.missing(where) if missing else partition_log.loss
                if loss is not None:
                    self._note_loss(replica, loss)
            self._assume(replica, info)

    # Lost records

    def _found_damage(self, where: TopicPartition, damage: Damage) -> None:
        """A read of a log has run into damage."""
        replica = self._replicas.get(where.topic, {}).get(where.partition)
        if replica is None:
            return
        loss = replica.log.loss
        if loss is not None and not replica.log.dropped and loss.offset <= damage.offset:
            return
        replica.lost_since = replica.info.leader_epoch
        self._note_loss(replica, damage)
        self._heal_again(replica)

    def _note_loss(self, replica: Replica, loss: Damage) -> None:
        log.error(
            "replica has lost records and leaves the in-sync replicas, to fetch them again",
            partition=str(replica.log.topic_partition),
            file=str(loss.file),
            offset=loss.offset,
            next_offset=loss.next_offset,
            reason=loss.reason,
        )
        seed = f"lost records {self.node_id} {replica.log.topic_partition}"
        self._lost[replica] = _Loss(jittered(*_HEAL_SECONDS, seed=seed))
        with suppress(KafkaError):  # the mark is tried again, and nothing is removed without it
            replica.log.mark_lost(loss)

    def _heal(self, replica: Replica) -> bool:
        """Go on with what a replica that has lost records must do next. It leaves the ISR and the ELR; then it removes
        the records from the first lost one on, and fetches them again; then it is whole.

        A leader lets a replica lead that is in sync. If there is none it stays, and tries again later.

        Returns:
            Whether the replica may fetch. As long as it has not removed what cannot be read, it may not: its end would
            say that it has everything.
        """
        kept, info = replica.log, replica.info
        if kept.loss is None:
            return True
        lost = self._lost.get(replica)
        if lost is not None and self._now() < lost.again_at:
            return False
        serves = self._may_serve()
        try:
            kept.mark_lost()
            if info.leader == self.node_id:
                if serves and kept.unreadable is None:
                    self._made_whole(replica, "no other replica had them: they are lost for good")
                elif serves and replica not in self._alone and len(info.isr) == 1:
                    self._alone.add(replica)
                    log.error("no other replica in sync has the lost records", reason=self._describe_loss(replica))
            elif kept.dropped:
                if self.node_id in info.isr:
                    self._made_whole(replica, "they are fetched again")
                return True
            elif serves and replica.may_drop(self.node_id):
                kept.drop_lost()
                return True
        except KafkaError as error:
            if lost is not None:
                lost.again_at = self._now() + lost.backoff.failed()
            self._not_healed.add("", partition=str(kept.topic_partition), reason=str(error))
        if kept.loss is not None and serves:
            self._caught_up(replica)
        return False

    def _made_whole(self, replica: Replica, outcome: str) -> None:
        loss = replica.log.loss
        replica.log.made_whole()
        self._lost.pop(replica, None)
        self._alone.discard(replica)
        log.info(
            "replica has lost no more records",
            partition=str(replica.log.topic_partition),
            lost=outcome,
            offset=-1 if loss is None else loss.offset,
        )

    def _heal_again(self, replica: Replica) -> None:
        lost, info = self._lost[replica], replica.info
        fetched, fetches = lost.fetches, self._heal(replica)
        lost.fetches = fetches
        if fetches != fetched and info.leader != self.node_id:
            self._follows(replica, info.leader if fetches else -1)

    def retry(self) -> None:
        """Go on with the replicas that have lost records."""
        self._not_healed.tick()
        for replica in list(self._lost):
            self._heal_again(replica)

    def has_lost(self, replica: Replica) -> bool:
        """Whether a replica has lost records and must leave the ISR and the ELR, before it can fetch them again."""
        return replica in self._lost and replica.log.loss is not None and not replica.log.dropped

    def conditions(self) -> Iterable[Condition]:
        """The condition that replicas have lost records, if some have."""
        lost = [each for each in self._lost if each.log.loss is not None]
        if lost:
            shown = [self._describe_loss(each) for each in lost[:_SHOWN_LOSSES]]
            more = f"; and {len(lost) - len(shown)} more partitions" if len(lost) > len(shown) else ""
            yield Condition(ConditionName.RECORDS_LOST, "; ".join(shown) + more, ready=True)

    def _describe_loss(self, replica: Replica) -> str:
        loss, info = replica.log.loss, replica.info
        what = f"{replica.log.topic_partition} has lost records here: {loss}."
        if info.leader == self.node_id:
            others = [node for node in (*info.isr, *info.elr) if node != self.node_id and node in self._image.brokers]
            if others:
                return f"{what} Another replica in sync takes over"
            return (
                f"{what} No other replica is in sync, so this broker leads without them. Start a broker that has them, "
                "or restore the file and start this broker again"
            )
        if info.leader == -1:
            return f"{what} The partition has no leader, and waits for the replicas that may have them"
        if replica.log.dropped:
            return f"{what} They are fetched again from broker {info.leader}"
        return f"{what} The replica leaves the in-sync replicas, and then fetches them again"

    def lost(self) -> list[tuple[bytes, int]]:
        """The replicas that have lost records and have not fetched all of them again: topic id and partition."""
        return [(each.log.topic_id, each.log.topic_partition.partition) for each in self._lost]

    def _change_some(self) -> None:
        """Create and delete some replicas, and the others in later turns of the event loop: each costs several file
        operations, other requests should not wait, and the lease must be renewed meanwhile."""
        self._changing = short = False
        end = self._now() + CHANGING_SECONDS
        configs: dict[str, TopicConfig] = {}
        try:
            for _ in range(min(CHANGED_AT_ONCE, len(self._to_change))):
                change = self._to_change.popleft()
                if isinstance(change, Replica):
                    self._delete(change)
                elif not self._create_queued(*change, configs):
                    self._to_change.append(change)
                    short = True
                if short or self._now() >= end:
                    break
        finally:
            self._idle = short or not self._to_change
            if not short:
                self._backoff.succeeded()
            if self._to_change:
                self._changing = True
                loop = asyncio.get_running_loop()
                loop.call_later(self._backoff.failed() if short else 0, self._change_some)
            if self._idle:
                self._complete_changes()

    def _create_queued(self, name: str, index: int, configs: dict[str, TopicConfig]) -> bool:
        """Create a replica; False if there is no space or no descriptor for it. `configs` has the configurations of
        topics that were used in this turn already."""
        topic = self._image.topics.get(name)
        self._to_create[name] -= 1
        try:
            # The image may have changed since the partition was queued.
            if topic is not None and index < len(topic.partitions):
                if name not in configs:
                    configs[name] = self._topic_config(topic)
                self._create(topic, self._update(topic, [index]), configs[name])
        except KafkaError:
            if self.directory.shortage is None:
                raise
            self._to_create[name] += 1
            return False
        finally:
            if not self._to_create[name]:
                del self._to_create[name]
        return True

    def changed(self) -> "asyncio.Future[None]":
        """A future that is done when the replicas of the image are created and deleted, as far as there is space."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._idle:
            future.set_result(None)
        else:
            self._changed.append(future)
        return future

    def _complete_changes(self) -> None:
        changed, self._changed = self._changed, []
        for future in changed:
            if not future.done():
                future.set_result(None)

    def _assume(self, replica: Replica, info: PartitionInfo) -> None:
        """Lead or follow, as the partition says."""
        if info.leader == self.node_id:
            if replica.leading is not None:
                self.isr_shrinks += len(info.isr) < len(replica.info.isr)
                self.isr_expands += len(info.isr) > len(replica.info.isr)
            replica.lead(self.node_id, info, self._now())
        else:
            replica.follow(info)
        fetches = self._heal(replica)
        if replica in self._lost:
            self._lost[replica].fetches = fetches
        self._follows(replica, info.leader if fetches and info.leader != self.node_id else -1)
        self._check(replica)

    def is_awaited(self, replica: Replica) -> bool:
        """Whether an election waits for the end of this replica's log."""
        return replica.is_awaited(self.node_id, self.directory.directory_id)

    def _check(self, replica: Replica) -> None:
        if replica.outgrows_elr() or self.is_awaited(replica):
            self._caught_up(replica)

    def _delete(self, replica: Replica) -> None:
        replica.step_down()
        self._lost.pop(replica, None)
        self._alone.discard(replica)
        self._follows(replica, -1)
        self.directory.delete(replica.log.topic_partition)

    def wake_fetches(self) -> None:
        """Answer every fetch that waits, because the broker stops. No more replicas are created."""
        for change in self._to_change:
            if isinstance(change, Replica):
                self._delete(change)
        self._to_change.clear()
        self._to_create.clear()
        self._complete_changes()
        for _, replica in self.all():
            replica.wake()

    # Handlers

    def find(self, topic: str, partition: int) -> Replica:
        """A replica that this broker leads.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        try:
            replica = self._replicas[topic][partition]
        except KeyError:
            known = self._image.topics.get(topic)
            if known is not None and 0 <= partition < len(known.partitions):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            ) from None
        if replica.leading is None or not self._may_serve():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def info(self, topic: str, partition: int) -> PartitionInfo | None:
        """A partition in the cluster image; None if it does not exist."""
        known = self._image.topics.get(topic)
        return known.partitions[partition] if known is not None and 0 <= partition < len(known.partitions) else None

    def replica_in_sync(self, topic: str, partition: int) -> Replica | None:
        """A replica on this broker that has all committed records: it leads the partition, or is in its ISR; None if
        there is none."""
        replica = self._replicas.get(topic, {}).get(partition)
        if replica is None or (replica.leading is None and self.node_id not in replica.info.isr):
            return None
        return replica if self._may_serve() else None

    def lease_has_ended(self) -> None:
        """Answer the requests that wait for the partitions led here: another broker may lead them, and this one, which
        does not reach the metadata, does not hear of it. Clients would wait until their requests time out."""
        for replica in self.each():
            if replica.leading is not None:
                replica.refuse_waiting("This broker's lease has ended, so that another one may lead the partition.")

    def creating(self, topic: str) -> bool:
        """Whether replicas of a topic are yet to be created."""
        return topic in self._to_create

    def led(self, topic: str) -> dict[int, int]:
        """The partitions of a topic that this broker leads, with their leader epochs."""
        replicas = self._replicas.get(topic, {})
        return {index: each.leader_epoch for index, each in replicas.items() if each.leading is not None}

    def follower_fetched(
        self,
        replica: Replica,
        node_id: int,
        broker_epoch: int,
        offset: int,
        log_start: int = UNKNOWN,
        directory: str = "",
    ) -> None:
        """A follower fetches from `offset` on, so it has all records before that.

        Args:
            replica: led by this broker.
            node_id: the follower.
            broker_epoch: the follower's broker epoch; -1 if it sends none.
            offset: the follower's log end offset.
            log_start: the follower's log start offset.
            directory: the id of the follower's data directory; empty if it sends none.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER: it is not a replica, it is not registered, or another broker, or this
                one with another directory, has registered with its id since (KIP-903).
        """
        broker = self._image.brokers.get(node_id)
        replaced = broker is not None and broker_epoch < broker.epoch
        if broker is not None and broker_epoch >= broker.epoch and directory and broker.directory:
            # After a restore of etcd two registrations may have the same epoch. And a directory that is in the ISR is
            # not replaced by another one before the image says so.
            replaced = directory != broker.directory
        if broker_epoch < 0 or replaced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {node_id} is not registered as the replica")
        if replica.fetched_by(node_id, broker_epoch, offset, self._now(), log_start):
            self._caught_up(replica)
        replica.complete_deletions(self._image.brokers)

    def delete_records(self, replica: Replica, before: int) -> "tuple[int, asyncio.Future[int] | None]":
        """Delete the records of a partition led here that are before an offset, here and on its followers.

        Returns:
            The low watermark (see :meth:`.Replica.low_watermark`), and a future of it that is done when it has reached
            `before`; None if it has.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE, it is beyond the high watermark; KAFKA_STORAGE_ERROR.
        """
        replica.log.delete_records(before)
        mark = replica.low_watermark(self._image.brokers)
        return mark, None if mark >= before else replica.deleted_everywhere(before)

    def all(self) -> Iterable[tuple[TopicPartition, Replica]]:
        """Every replica on this broker, with its partition. Others may come and go between two of them."""
        for topic, replicas in list(self._replicas.items()):
            for index, replica in list(replicas.items()):
                yield TopicPartition(topic, index), replica

    def each(self) -> Iterable[Replica]:
        """Every replica on this broker, at a tenth of the time of :meth:`all`."""
        for replicas in list(self._replicas.values()):
            yield from list(replicas.values())

    def holds(self, topic: str, index: int) -> bool:
        """Whether this broker has a replica of a partition."""
        return index in self._replicas.get(topic, ())


def _follow_none(replica: Replica, leader: int) -> None:
    """A single broker follows no leader."""


def _keep_isr(replica: Replica) -> None:
    """A single broker has no followers."""
