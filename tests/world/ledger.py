"""Checks the invariants during a run.

The *ledger* holds everything that was ever below the high watermark of a broker. When a high watermark moves, its log
is compared with the ledger byte for byte, so all committed prefixes agree. The *truth* is the metadata in etcd, which
brokers receive later.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster import etcd_store, member
from barnabas_broker.cluster.controller import topics
from barnabas_broker.cluster.event_json import event_from_json
from barnabas_broker.cluster.image import BrokerInfo, Event, Image, PartitionChanged, PartitionInfo
from barnabas_broker.cluster.kv import KeyChanges
from barnabas_broker.handlers import dispatch
from barnabas_broker.storage import AppendInfo, Log, TopicPartition
from barnabas_broker.storage.corruption import DamagedLog
from barnabas_broker.storage.slices import joined
from barnabas_client.producer.accumulator import ProducerBatch
from barnabas_client.producer.sender import Sender
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.records.batches import iter_batches
from tests.world.etcd import Etcd
from tests.world.loop import LIFE, Life
from tests.world.nodes import Node, Running
from tests.world.world import World

#: Of all keys in etcd.
PREFIX: Final = "/world/"
_CHUNK: Final = 1 << 20


class _Loud:
    """A logger whose `exception` is a violation: an unexpected error in a loop or a handler."""

    def __init__(self, world: World, log: Any) -> None:
        self._world = world
        self._log = log

    def exception(self, text: str, **what: Any) -> None:
        self._world.fail(f"{text}: {what}: {sys.exc_info()[1]!r}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Ledger:
    """The committed batches of one partition, by base offset."""

    def __init__(self) -> None:
        self.batches: dict[int, tuple[int, bytes]] = {}
        self.end = 0


class Checker:
    """Watches metadata and logs for violations.

    Args:
        world: where violations are reported.
        etcd: holds the truth.
    """

    def __init__(self, world: World, etcd: Etcd) -> None:
        self.world = world
        self.nodes: dict[int, Node] = {}
        #: Machines that were replaced, whose brokers may still run.
        self.replaced: list[Node] = []
        self.truth = Image("")
        self.sequence = 0
        self.ledgers: dict[TopicPartition, Ledger] = {}
        #: Processes to which a firewall has refused connections, so that others take them for ended.
        self.refused: set[Life] = set()
        #: How many registrations others have ended because the process was gone.
        self.ended_early = 0
        self._etcd = etcd
        self._images: dict[int, Image] = {0: self.truth}
        #: The broker that appended in a leader epoch: node id and number of its run.
        self._epochs: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        #: How far the log of a run was compared, and its high watermark.
        self._verified: dict[tuple[int, int, TopicPartition], int] = {}
        self._marks: dict[tuple[int, int, TopicPartition], int] = {}
        etcd.model.watch(f"{PREFIX}log/", f"{PREFIX}log0", 0, self._kept)
        etcd.on_revoke = self._revoking

    def ledger(self, where: TopicPartition) -> Ledger:
        """The ledger of a partition."""
        return self.ledgers.setdefault(where, Ledger())

    # The metadata

    def backup(self) -> Callable[[], bool]:
        """Save what is in etcd.

        Returns:
            A function that restores it, unless the topics have changed since: then a restore may lose records.
        """
        truth, sequence, restore = self.truth, self.sequence, self._etcd.model.backup()

        def restored() -> bool:
            if truth.topics != self.truth.topics:
                return False
            self.truth, self.sequence = truth, sequence
            restore()
            self._etcd.model.new_leader(self.world.now)
            return True

        return restored

    def _kept(self, changes: KeyChanges) -> None:
        """A batch of events was stored in etcd."""
        for change in changes.changes:
            if change.value is None:
                continue  # a snapshot has replaced it
            number = int(change.key.rpartition("/")[2])
            if number != self.sequence + 1:
                self.world.fail(f"batch {number} of the metadata was written after batch {self.sequence}")
                return
            first, *lines = etcd_store._lines(change.key, change.value)
            self._check_writer(json.loads(first)["writer"])
            events = [event_from_json(line) for line in lines]
            self.sequence = number
            self.world.note("metadata %d: %s", number, _Text(events))
            for event in events:
                before, self.truth = self.truth, self.truth.apply(event)
                if isinstance(event, PartitionChanged):
                    old, new = (image.topics[event.name].partitions[event.index] for image in (before, self.truth))
                    self._changed(TopicPartition(event.name, event.index), old, new)
            self._images[number] = self.truth
            for name, topic in self.truth.topics.items():
                for index in range(len(topic.partitions)):
                    self._check_isr(TopicPartition(name, index))

    def _check_writer(self, writer: str) -> None:
        """Check that the writer of a change is registered."""
        entries = self._etcd.model.entries
        live = [json.loads(entry.value) for key, entry in entries.items() if key.startswith(f"{PREFIX}live/broker/")]
        if writer not in [each["incarnation"] for each in live]:
            self.world.fail("a broker without a registration has changed the metadata")

    def _revoking(self, life: Life, lease_id: int) -> None:
        """Check that a process revokes the lease of another one only if that has ended, or has closed its listener."""
        for entry in list(self._etcd.model.entries.values()):
            if entry.lease != lease_id or not entry.key.startswith(f"{PREFIX}live/broker/"):
                continue
            incarnation = json.loads(entry.value)["incarnation"]
            for node in (*self.nodes.values(), *self.replaced):
                run = node.last
                if run is None or run.lifecycle is None or run.lifecycle.me.incarnation != incarnation:
                    continue
                if run.life is life:
                    return
                if run.life.alive and not run.stopping and run.life not in self.refused:
                    self.world.fail(f"{life.name} has revoked the lease of {node.name}, which runs")
            self.ended_early += 1
            self.world.note("%s revokes the lease of a process that has ended: %s", life.name, entry.key)

    def _changed(self, where: TopicPartition, before: PartitionInfo, info: PartitionInfo) -> None:
        fail = self.world.fail
        if info.partition_epoch != before.partition_epoch + 1:
            fail(f"{where}: partition epoch {info.partition_epoch} after {before.partition_epoch}")
        if info.leader_epoch < before.leader_epoch or (info.leader_epoch > before.leader_epoch + 1):
            fail(f"{where}: leader epoch {info.leader_epoch} after {before.leader_epoch}")
        if info.leader != before.leader:
            if info.leader_epoch == before.leader_epoch:
                fail(f"{where}: leader {info.leader} after {before.leader} in one leader epoch")
            doubtful = [each.node_id for each in before.last_known]
            if info.leader >= 0 and info.leader not in (*before.isr, *before.elr, *doubtful):
                fail(f"{where}: {info.leader} was elected, and was not in the ISR {before.isr} nor eligible {before}")
            self._check_directory(where, info, before)
        if info.leader >= 0 and info.leader not in info.isr:
            fail(f"{where}: leader {info.leader} is not in the ISR {info.isr}")

    def _check_directory(self, where: TopicPartition, info: PartitionInfo, before: PartitionInfo) -> None:
        """Check that a last known replica is elected only with the directory that had its records."""
        if info.leader in (*before.isr, *before.elr):
            return
        for each in before.last_known:
            broker = self.truth.brokers.get(each.node_id)
            if each.node_id == info.leader and broker is not None and broker.directory != each.directory:
                self.world.fail(f"{where}: {info.leader} was elected with another directory than it had in {before}")

    def _check_isr(self, where: TopicPartition) -> None:
        """Check that every ISR member has all committed records."""
        topic = self.truth.topics.get(where.topic)
        if topic is None:
            return
        info, end = topic.partitions[where.partition], self.ledger(where).end
        for node_id in (*info.isr, *info.elr):
            known = self.truth.brokers.get(node_id)
            if known is None or known.epoch == self.nodes[node_id].lost_epoch:
                continue  # it has lost power or its disk, and leaves the ISR before it returns
            node = self._machine(known)
            if node.damaged and node.running is None:
                continue  # it says what it has lost when it registers: a backup of etcd does not know
            if (has := node.log_end(where)) < end:
                self.world.fail(
                    f"{where}: {node_id} is in the ISR {info.isr} or eligible {info.elr} and has {has} of {end} "
                    "committed records"
                )

    def _machine(self, broker: BrokerInfo) -> Node:
        """The machine that is registered as this broker."""
        return next(
            (each for each in self.replaced if each.directory_id == broker.directory), self.nodes[broker.node_id]
        )

    def _built(self, broker: BrokerServer) -> None:
        """The parts of a broker are there, and it is going to register."""
        running, cluster = self._running(), broker.services.cluster
        running.broker = running.node.broker = broker
        running.node.directory_id = broker.directory.directory_id

        def changed(image: Image, events: Sequence[Event]) -> None:
            truth = self._images.get(cluster.sequence)
            if truth is None or image != truth._replace(cluster_id=image.cluster_id):
                name = running.node.name
                self.world.fail(f"{name} has a different image after batch {cluster.sequence} than etcd")

        cluster.subscribe(changed)

    # The logs

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Intercept starts of brokers, appends, high watermarks and truncations of all logs."""
        append, mark, end = Log.append_as_leader, Log.set_high_watermark, Log._set_end
        serve = BrokerServer._serve

        async def seen_serve(broker: BrokerServer, users: Any) -> None:
            self._built(broker)
            await serve(broker, users)

        def seen_append(log: Log, *args: Any, **kwargs: Any) -> AppendInfo:
            info = append(log, *args, **kwargs)
            if not info.duplicate:
                self._appended(log, kwargs["leader_epoch"], info)
            return info

        def seen_mark(log: Log, offset: int) -> None:
            mark(log, offset)
            self._marked(log)

        def seen_end(log: Log, offset: int) -> None:
            self._truncated(log, offset)
            end(log, offset)

        def starts_over(sender: Sender, batch: ProducerBatch, error: KafkaError) -> None:
            self.world.fail(f"an idempotent producer starts over, so records were lost: {batch.tp}: {error}")

        with ExitStack() as stack:
            stack.enter_context(patch.object(BrokerServer, "_serve", seen_serve))
            stack.enter_context(patch.object(Sender, "_start_over", starts_over))
            for name, seen in (
                ("append_as_leader", seen_append),
                ("set_high_watermark", seen_mark),
                ("_set_end", seen_end),
            ):
                stack.enter_context(patch.object(Log, name, seen))
            for module in (member, dispatch):
                stack.enter_context(patch.object(module, "log", _Loud(self.world, module.log)))
            stack.enter_context(patch.object(etcd_store, "SNAPSHOT_BATCHES", 6))
            stack.enter_context(patch.object(topics, "PRODUCER_ID_BLOCK", 1))
            yield

    def _running(self) -> Running:
        life = LIFE.get()
        nodes = (*self.nodes.values(), *self.replaced)
        return next(node.last for node in nodes if node.last is not None and node.last.life is life)

    def _appended(self, log: Log, epoch: int, info: AppendInfo) -> None:
        running, where = self._running(), log.topic_partition
        me = running.node.node_id, running.number
        first = self._epochs.setdefault((where, epoch), me)
        self.world.note("broker %d appends %s offset %d, leader epoch %d", me[0], where, info.first_offset, epoch)
        if first != me:
            self.world.fail(f"{where}: {me} and {first} (broker, run) both append in leader epoch {epoch}")
        entry = self._etcd.model.entries.get(f"{PREFIX}live/broker/{me[0]}")
        # Where others take it for ended, a leader may append until it learns that; only acks=1 acknowledges that.
        if (entry is None or entry.created != running.epoch) and running.life not in self.refused:
            self.world.fail(f"{where}: broker {me[0]} appends without a registration")

    def _truncated(self, log: Log, offset: int) -> None:
        """Check that no replica lowers its log below the high watermark while others may take it for whole."""
        running, where = self._running(), log.topic_partition
        node = running.node
        key = node.node_id, running.number, where
        before = max(self._marks.get(key, 0), log.high_watermark)
        if offset >= before:
            return
        info = self.truth.topics[where.topic].partitions[where.partition]
        if log.loss is None or node.node_id in (*info.isr, *info.elr):
            self.world.fail(f"{where} of {node.name} is truncated to {offset}, below {before}: {info}")
        self._marks[key] = min(self._marks.get(key, 0), offset)
        self._verified[key] = min(self._verified.get(key, 0), offset)

    def _marked(self, log: Log) -> None:
        running, where = self._running(), log.topic_partition
        key = running.node.node_id, running.number, where
        mark = log.high_watermark
        if mark < self._marks.get(key, 0):
            self.world.fail(f"{where}: the high watermark of {key[:2]} goes back to {mark} from {self._marks[key]}")
        self._marks[key] = mark
        ledger, at = self.ledger(where), self._verified.get(key, 0)
        if running.node.damaged or log.loss is not None:
            at = max(at, ledger.end)  # what is before may be damaged, and reading it would find that
        grown = False
        while at < mark:
            try:
                data = joined(log.read(at, _CHUNK, mark, min_one=True))
            except DamagedLog as error:
                self.world.fail(f"{where}: {key[:2]} has lost committed records: {error}")
                return
            if not data:
                self.world.fail(f"{where}: {key[:2]} cannot read its log at {at}, below its high watermark {mark}")
                return
            for header, batch in iter_batches(data):
                if header.base_offset != at:
                    self.world.fail(f"{where}: {key[:2]} has {header.base_offset} where {at} is expected")
                    return
                at = header.next_offset
                if header.base_offset >= ledger.end:
                    grown = True
                    ledger.batches[header.base_offset] = at, bytes(batch)
                    ledger.end = at
                else:
                    self._compare(where, header.base_offset, batch, f"the log of {key[:2]} (broker, run)")
        self._verified[key] = at
        if grown:
            self.world.note("committed: %s up to %d, by broker %d", where, ledger.end, key[0])
            self._check_isr(where)

    def _compare(self, where: TopicPartition, offset: int, batch: Any, whose: str) -> None:
        """Check that a batch is the committed one."""
        known = self.ledger(where).batches.get(offset)
        if known is None or known[1] != bytes(batch):
            self.world.fail(f"{where}: {whose} has a different batch at {offset} than was committed")


class _Text:
    """Events, as text for the trace."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def __str__(self) -> str:
        texts = []
        for event in self._events:
            text = str(event)
            texts.append(text if len(text) < 300 else text[:300] + "...")
        return "; ".join(texts)
