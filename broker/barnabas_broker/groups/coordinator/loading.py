"""Loads partitions of ``__consumer_offsets``, by replaying their records into groups, and unloads them. A shell."""

import asyncio
from functools import partial

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.coordinator.hosting import HostedGroup, HostedGroups, HostedPartition, event_of_group
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.effects import Effect, EventType
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.groups.ports import OffsetsLog
from barnabas_broker.logs import logger
from barnabas_protocol.errors import ErrorCode

log = logger("coordinator")


class PartitionLoader:
    """Loads and unloads partitions.

    Args:
        hosted_groups: where their groups go.
        offsets_log: the log.
    """

    def __init__(self, hosted_groups: HostedGroups, offsets_log: OffsetsLog) -> None:
        self._hosted_groups = hosted_groups
        self._log = offsets_log

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
        started = self._hosted_groups.now()
        log.debug("loading groups and offsets", partition=index, leader_epoch=leader_epoch)
        try:
            replay = Replay(partial(_report_corruption, index), self._log.start_offset(index))
            end = self._log.end_offset(index)
            while replay.next_offset < end:
                data = await self._log.read(index, replay.next_offset)
                if not data:
                    break
                for _ in replay.feed(data):
                    await asyncio.sleep(0)
                    if partitions.get(index) is not partition:
                        return
                await asyncio.sleep(0)
                if partitions.get(index) is not partition:
                    return
        except Exception:
            # Without its log the partition's groups cannot be coordinated: clients get NOT_COORDINATOR.
            log.exception("groups and offsets cannot be loaded", partition=index)
            if partitions.get(index) is partition:
                del partitions[index]
            return
        groups = self._host(partition, replay)
        # Fifty empty partitions are not worth fifty lines.
        report = log.info if replay.records else log.debug
        report(
            "loaded groups and offsets",
            partition=index,
            leader_epoch=leader_epoch,
            groups=groups,
            records=replay.records,
            seconds=round(self._hosted_groups.now() - started, 3),
        )

    def _host(self, partition: HostedPartition, replay: Replay) -> int:
        """Start to coordinate the replayed groups; returns how many there are."""
        hosted_groups = self._hosted_groups
        settings = hosted_groups.settings
        now, wall_ms = hosted_groups.now(), hosted_groups.wall_ms()
        hosted_groups.skip_sequences(replay.next_offset)
        partition.loading = False
        for group_id in replay.groups.keys() | replay.offsets.keys():
            value = replay.groups.get(group_id)
            offsets = replay.offsets.get(group_id) or GroupOffsets()
            if value is None and not offsets:
                continue
            if value is None:
                group = ClassicGroup(group_id, settings, now)
                group.recorded = True
            else:
                stamp = value.current_state_timestamp
                state_since = None if stamp < 0 else now - (wall_ms - stamp) / 1000
                group = ClassicGroup.restore(group_id, settings, value, state_since, now)
            hosted = HostedGroup(hosted_groups, partition.index, group, offsets)
            hosted_groups.keep(hosted)
            members = len(group.members)
            if members:
                event = event_of_group(EventType.GROUP_LOADED, group, members=members, epoch=partition.leader_epoch)
                hosted_groups.publish(group_id, event)
            effects: list[Effect] = []
            if members > settings.max_size:
                effects = group.rebalance(
                    f"Freshly-loaded group {group_id} (size {members}) is over capacity {settings.max_size}."
                    " Rebalancing in order to give a chance for consumers to commit offsets",
                    EventType.GROUP_LOADED,
                    now,
                )
            hosted_groups.act(hosted, effects)
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
                if len(hosted.group.members):
                    hosted_groups.publish(group_id, event_of_group(EventType.GROUP_UNLOADED, hosted.group))
                hosted_groups.act(hosted, hosted.group.unload(now))
        hosted_groups.writer.drop(index, ErrorCode.NOT_COORDINATOR)
        report = log.info if partition.groups else log.debug
        report("unloaded groups and offsets", partition=index, groups=len(partition.groups))


def _report_corruption(partition: int, offset: int, reason: str) -> None:
    log.error("corrupt record in __consumer_offsets skipped", partition=partition, offset=offset, reason=reason)
