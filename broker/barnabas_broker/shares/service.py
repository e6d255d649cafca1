"""The share coordinator: requests about the state of share partitions, and old records. A shell.

The machine of each share partition decides; :mod:`~barnabas_broker.coordinators.runtime` finds it, appends what it
decides, and loads and unloads partitions. ``__share_group_state`` is not compacted: a compaction would keep only the
newest of several updates. Instead records are deleted that are older than the last snapshots of all share partitions,
and a share partition that is not used gets a new snapshot now and then, so that it does not keep old records alive.

Source: Kafka's ``ShareCoordinatorService`` and ``ShareCoordinatorShard``.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from barnabas_broker.config import Config
from barnabas_broker.config.keys import (
    SHARE_COLD_SNAPSHOT_INTERVAL_MS,
    SHARE_STATE_NUM_PARTITIONS,
    SHARE_STATE_PRUNE_INTERVAL_MS,
    SHARE_UPDATES_PER_SNAPSHOT,
    SHARE_WRITE_TIMEOUT_MS,
)
from barnabas_broker.coordinators.ports import CoordinatorLog, Scheduler
from barnabas_broker.coordinators.replay import Report
from barnabas_broker.coordinators.runtime import Hosted, HostedPartition, Runtime, answer_once
from barnabas_broker.logs import logger
from barnabas_broker.shares.ports import StateBatch
from barnabas_broker.shares.records import ShareKey, ShareReplay, record_of
from barnabas_broker.shares.state import Answer, Decision, SharePartitionState, Snapshot, StateRecord
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import SHARE_GROUPS_TOPIC
from barnabas_protocol.wire import MAX_STRING

log = logger("shares")

#: Share partitions that are restored, or looked at, in one turn of the event loop.
_STEP: Final = 500
#: Seconds that a request waits for an earlier change of its share partition.
_PATIENCE: Final = 1.0


class StatePartition(HostedPartition["HostedShare"]):
    """A partition of ``__share_group_state`` that this broker leads."""

    __slots__ = ()


class HostedShare(Hosted[SharePartitionState, StatePartition]):
    """A share partition whose state this broker keeps.

    Attributes:
        key: which one.
        floor: an offset at or before that of its last snapshot; records before it are not needed for it.
        next_floor: that of the snapshot that is being appended.
    """

    __slots__ = ("floor", "key", "next_floor")

    def __init__(self, home: StatePartition, key: ShareKey, machine: SharePartitionState, floor: int) -> None:
        super().__init__(key.name, home, machine)
        self.key = key
        self.floor = self.next_floor = floor


class ShareCoordinator:
    """Keeps the state of the share partitions whose partition of ``__share_group_state`` this broker leads.

    Its timers run from its creation, which needs a running event loop, until :meth:`close`.

    Args:
        config: of the broker.
        topic_log: appends to and reads ``__share_group_state``.
        exists: whether a partition of a topic exists, by the topic's id.
        prune: deletes the records of a partition of ``__share_group_state`` before an offset.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        scheduler: the timers of `now`; those of the event loop if None.

    Attributes:
        runtime: the partitions of ``__share_group_state`` that this broker leads, and their share partitions.
    """

    what = "share partitions"
    ids = "share_partitions"
    busy = Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def __init__(
        self,
        config: Config,
        topic_log: CoordinatorLog,
        exists: Callable[[UUID, int], bool],
        prune: Callable[[int, int], None],
        *,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        scheduler: Scheduler | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = config
        self._topic_log = topic_log
        self._exists = exists
        self._prune = prune
        self._wall_ms = wall_ms
        self.runtime: Runtime[StatePartition, HostedShare, Answer] = Runtime(
            SHARE_GROUPS_TOPIC,
            config[SHARE_STATE_NUM_PARTITIONS],
            self,
            topic_log,
            log,
            self._loop,
            self._loop if scheduler is None else scheduler,
            now,
            wall_ms,
            timeout=config[SHARE_WRITE_TIMEOUT_MS] / 1000,
            patience=_PATIENCE,
        )
        self.runtime.regularly(config[SHARE_COLD_SNAPSHOT_INTERVAL_MS] / 1000, self._renew)
        self.runtime.regularly(config[SHARE_STATE_PRUNE_INTERVAL_MS] / 1000, self._delete_old)

    def topics_changed(self, partitions: Mapping[str, int]) -> None:
        """Set the number of partitions of new and changed topics."""
        if SHARE_GROUPS_TOPIC in partitions:
            self.runtime.resized(partitions[SHARE_GROUPS_TOPIC])

    def topics_deleted(self) -> None:
        """Delete the state of the share partitions of topics that are deleted, a few in each turn of the loop."""
        self.runtime.gradually(self._delete_orphans())

    def _delete_orphans(self) -> Iterator[None]:
        for home in list(self.runtime.partitions.values()):
            if not home.loading:
                yield from self.resume(home)

    # Requests

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Future[Answer]:
        """InitializeShareGroupState of one share partition: the answer, when it is in the log."""
        return self._ask(
            key, lambda hosted: hosted.machine.initialize(state_epoch, start_offset, self._wall_ms()), create=True
        )

    def read(self, key: ShareKey, leader_epoch: int) -> Future[Answer]:
        """ReadShareGroupState of one share partition: the answer, when the leader epoch is in the log."""
        return self._ask(key, lambda hosted: hosted.machine.read(leader_epoch, self._wall_ms()))

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Future[Answer]:
        """WriteShareGroupState of one share partition: the answer, when it is in the log."""
        return self._ask(
            key,
            lambda hosted: hosted.machine.write(
                state_epoch, leader_epoch, start_offset, delivery_complete_count, batches, self._wall_ms()
            ),
        )

    def delete(self, key: ShareKey) -> Future[Answer]:
        """DeleteShareGroupState of one share partition: the answer, when it is in the log."""
        return self._ask(key, lambda hosted: hosted.machine.delete(), of_deleted=True)

    def summary(self, key: ShareKey) -> Answer:
        """ReadShareGroupStateSummary of one share partition."""
        try:
            self._check(key)
            hosted = self.runtime.home(key.name).hosted.get(key.name)
        except KafkaError as error:
            return Answer(error.code, error.message)
        return (self._new() if hosted is None else hosted.machine).summary()

    def _ask(
        self,
        key: ShareKey,
        step: Callable[[HostedShare], Decision],
        *,
        create: bool = False,
        of_deleted: bool = False,
    ) -> Future[Answer]:
        """Ask the machine of a share partition.

        Args:
            key: the share partition.
            step: asks its machine.
            create: whether a new machine stays: the step gives it a state.
            of_deleted: whether the topic may be deleted already.
        """
        reply: Future[Answer] = self._loop.create_future()
        try:
            self._check(key, of_deleted=of_deleted)
            home = self.runtime.home(key.name)
        except KafkaError as error:
            reply.set_result(Answer(error.code, error.message))
            return reply
        hosted = home.hosted.get(key.name) or HostedShare(home, key, self._new(), 0)
        if create:
            home.hosted.setdefault(key.name, hosted)
        self.runtime.ask(hosted, step, partial(answer_once, reply))
        return reply

    def _check(self, key: ShareKey, *, of_deleted: bool = False) -> None:
        """Check that a share partition may have a state.

        Raises:
            KafkaError: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION.
        """
        if key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
        # A longer id does not fit into a record's key.
        if not key.group or len(key.group.encode()) > MAX_STRING:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The group id is empty or too long.")
        if not of_deleted and not self._exists(key.topic_id, key.partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _new(self) -> SharePartitionState:
        return SharePartitionState(self._config[SHARE_UPDATES_PER_SNAPSHOT])

    # What follows from decisions

    def encode(self, hosted: HostedShare, record: StateRecord) -> tuple[bytes, bytes | None]:
        """See :class:`~barnabas_broker.coordinators.runtime.Shard`, for this and the methods below."""
        if isinstance(record, Snapshot):
            with suppress(KafkaError):  # another broker leads the partition: the append fails
                hosted.next_floor = self._topic_log.end_offset(hosted.home.index)  # or later: others come first
        return record_of(hosted.key, record)

    def refusal(self, error: ErrorCode) -> Answer:
        return Answer(error)

    def publish(self, hosted: HostedShare, event: None) -> None:
        raise AssertionError("share partitions have no events")

    def applied(self, hosted: HostedShare) -> None:
        if not hosted.machine.updates:
            hosted.floor = hosted.next_floor

    # Time

    def _renew(self) -> Iterator[None]:
        """Write a snapshot of the share partitions whose last one is old and not the only record."""
        older_than = self._config[SHARE_COLD_SNAPSHOT_INTERVAL_MS]
        for home in list(self.runtime.partitions.values()):
            # As long as all are only snapshots, new ones would free nothing.
            if not any(hosted.machine.updates for hosted in home.hosted.values()):
                continue
            for number, hosted in enumerate(list(home.hosted.values()), 1):
                self.runtime.do(hosted, lambda hosted: hosted.machine.renew(older_than, self._wall_ms()))
                if not number % _STEP:
                    yield
            yield

    def _delete_old(self) -> Iterator[None]:
        """Delete the records that are before the last snapshots of all share partitions."""
        for home in list(self.runtime.partitions.values()):
            if home.loading or self.runtime.writer.unsettled(home.index):
                continue  # the next turn is in time
            try:
                end = self._topic_log.end_offset(home.index)
                start = self._topic_log.start_offset(home.index)
                floor = min((hosted.floor for hosted in home.hosted.values()), default=end)
                if floor > start:
                    self._prune(home.index, floor)
            except KafkaError as error:
                log.debug("old records are not deleted", partition=home.index, reason=str(error))
            yield

    # Partitions

    def partition(self, index: int, leader_epoch: int) -> StatePartition:
        return StatePartition(index, leader_epoch)

    def replay(self, report: Report, start: int) -> ShareReplay:
        return ShareReplay(report, start, self._new)

    def restore(self, home: StatePartition, replay: ShareReplay) -> Iterator[None]:
        for number, (key, (machine, floor)) in enumerate(replay.found.items(), 1):
            home.hosted[key.name] = HostedShare(home, key, machine, floor)
            if not number % _STEP:
                yield

    def resume(self, home: StatePartition) -> Iterator[None]:
        # The topics may have been deleted while no broker coordinated.
        for number, hosted in enumerate(list(home.hosted.values()), 1):
            if not self._exists(hosted.key.topic_id, hosted.key.partition):
                self.runtime.insist(hosted, lambda hosted: hosted.machine.delete())
            if not number % _STEP:
                yield

    def unloaded(self, home: StatePartition) -> None:
        pass

    async def close(self) -> None:
        """Append what was collected, answer all requests, and stop."""
        await self.runtime.close()
