"""Loads partitions of ``__consumer_offsets``, by replaying their records into groups, and unloads them. A shell."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from barnabas_broker.coordinators.loading import replay_partition, report_failure
from barnabas_broker.coordinators.ports import CoordinatorLog
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.coordinator.hosting import Group, HostedGroup, HostedGroups, HostedPartition
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.effects import Effect
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.logs import logger
from barnabas_explain.catalog import GroupDowngraded, GroupLoaded, GroupUnloaded
from barnabas_protocol.durations import seconds
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("coordinator")


class PartitionLoader:
    """Loads and unloads partitions.

    Args:
        hosted_groups: where their groups go.
        offsets_log: the log.
        transaction_ended: applies a marker that was appended during a replay: partition, producer id, and whether it
            commits.
    """

    def __init__(
        self,
        hosted_groups: HostedGroups,
        offsets_log: CoordinatorLog,
        transaction_ended: Callable[[int, int, bool], None],
    ) -> None:
        self._hosted_groups = hosted_groups
        self._log = offsets_log
        self._transaction_ended = transaction_ended

    async def load(self, index: int, leader_epoch: int) -> None:
        """Replay a partition, a little at a time, and start to coordinate its groups.

        Meanwhile requests about its groups get COORDINATOR_LOAD_IN_PROGRESS. Does nothing if the partition was loaded
        for the same leader epoch or a newer one. A failure is logged; the partition is then not loaded.
        """
        partitions = self._hosted_groups.partitions
        before = partitions.get(index)
        if before is not None:
            if before.leader_epoch >= leader_epoch:
                return
            self.unload(index)
        partition = partitions[index] = HostedPartition(index, leader_epoch)

        def wanted() -> bool:
            return partitions.get(index) is partition

        started = self._hosted_groups.now()
        log.debug("loading groups and offsets", partition=index, leader_epoch=leader_epoch)
        try:
            replay = Replay(partial(_report_corruption, index), self._log.start_offset(index))
            if not await replay_partition(self._log, index, replay, wanted):
                return
            consumers = await self._restored(replay, wanted)
            if consumers is None:
                return
        except Exception as error:
            # Without its log the partition's groups cannot be coordinated: clients get NOT_COORDINATOR.
            report_failure(log, "groups and offsets", index, error)
            if partitions.get(index) is partition:
                del partitions[index]
            return
        groups = self._host(partition, replay, consumers)
        # Fifty empty partitions are not worth fifty lines.
        report = log.info if replay.records else log.debug
        report(
            "loaded groups and offsets",
            partition=index,
            leader_epoch=leader_epoch,
            groups=groups,
            records=replay.records,
            took=seconds(self._hosted_groups.now() - started),
        )

    async def _restored(self, replay: Replay, wanted: Callable[[], bool]) -> dict[str, ConsumerGroup] | None:
        """The replayed groups of the consumer protocol; None if they are not wanted any more, as other tasks have run.

        They may have thousands of members.
        """
        hosted_groups = self._hosted_groups
        restored: dict[str, ConsumerGroup] = {}
        for group_id, records in replay.consumer_groups.items():
            if records.epoch is None and not records.members:
                continue
            now, wall_ms = hosted_groups.now(), hosted_groups.wall_ms()
            steps = ConsumerGroup.restoring(group_id, hosted_groups.consumer_settings, records, now, wall_ms)
            while True:
                try:
                    next(steps)
                except StopIteration as stop:
                    restored[group_id] = stop.value
                    break
                await asyncio.sleep(0)
                if not wanted():
                    return None
        return restored

    def _host(self, partition: HostedPartition, replay: Replay, consumers: Mapping[str, ConsumerGroup]) -> int:
        """Start to coordinate the replayed groups; returns how many there are."""
        hosted_groups = self._hosted_groups
        settings = hosted_groups.settings
        now, wall_ms = hosted_groups.now(), hosted_groups.wall_ms()
        hosted_groups.skip_sequences(replay.next_offset)
        partition.loaded_at = hosted_groups.next_sequence()
        partition.loading = False
        partition.transactions = replay.transactions
        for group_id in replay.groups.keys() | replay.consumer_groups.keys() | replay.offsets.keys():
            value = replay.groups.get(group_id)
            offsets = replay.offsets.get(group_id) or GroupOffsets()
            group: Group
            consumer = consumers.get(group_id)
            if consumer is not None and (value is None or not value.members):
                group = consumer
            elif value is not None:
                # With records of both kinds it is a classic group whose upgrade could not be appended as a whole.
                stamp = value.current_state_timestamp
                # The time of day may have been set back since then.
                state_since = None if stamp < 0 else now - max(wall_ms - stamp, 0) / 1000
                leftover = () if consumer is None else consumer.tombstones()
                group = ClassicGroup.restore(group_id, settings, value, state_since, now, leftover)
            elif offsets or group_id in replay.emptied:
                group = ClassicGroup(group_id, settings, now)
                group.recorded = True
            else:
                continue
            hosted = HostedGroup(hosted_groups, partition.index, group, offsets)
            hosted_groups.keep(hosted)
            members = len(group.members)
            if members:
                event = GroupLoaded(generation=group.generation, members=members, epoch=partition.leader_epoch)
                hosted_groups.publish(group_id, event)
            effects: list[Effect] = []
            if members > settings.max_size and isinstance(group, ClassicGroup):
                effects = group.rebalance(
                    f"Freshly-loaded group {group_id} (size {members}) is over capacity {settings.max_size}."
                    " Rebalancing in order to give a chance for consumers to commit offsets",
                    GroupLoaded,
                    now,
                )
            elif members and isinstance(group, ClassicGroup) and group_id in replay.downgraded:
                effects = group.rebalance(
                    f"Freshly-loaded group {group_id} was downgraded from consumer to classic, and has not rebalanced.",
                    GroupDowngraded,
                    now,
                )
            hosted_groups.act(hosted, effects)
        ended, partition.ended = partition.ended, []
        for producer_id, committed in ended:
            # The replay may have stopped before the marker. If it did not, this changes nothing: no commit was accepted
            # meanwhile.
            self._transaction_ended(partition.index, producer_id, committed)
        return len(partition.groups)

    def unload(self, index: int) -> None:
        """Stop to coordinate a partition's groups: deferred requests fail with NOT_COORDINATOR."""
        hosted_groups = self._hosted_groups
        partition = hosted_groups.partitions.pop(index, None)
        if partition is None:
            return
        now = hosted_groups.now()
        for group_id in partition.groups:
            hosted = hosted_groups.by_id.pop(group_id, None)
            if hosted is not None:
                hosted_groups.end_change(hosted, KafkaError(ErrorCode.NOT_COORDINATOR))
                if len(hosted.group.members):
                    hosted_groups.publish(group_id, GroupUnloaded(generation=hosted.group.generation))
                hosted_groups.act(hosted, hosted.group.unload(now))
        hosted_groups.writer.drop(index, ErrorCode.NOT_COORDINATOR)
        report = log.info if partition.groups else log.debug
        report("unloaded groups and offsets", partition=index, groups=len(partition.groups))


def _report_corruption(partition: int, offset: int, reason: str) -> None:
    log.error("corrupt record in __consumer_offsets skipped", partition=partition, offset=offset, reason=reason)
