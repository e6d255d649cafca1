"""Partitions of ``__consumer_offsets`` come and go: their replay into groups, and their letting go. A shell."""

import asyncio

from barnabas_broker.groups.classic.group import Group
from barnabas_broker.groups.coordinator.hosting import Host, Hosted, Partition, note_of
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.effects import Effect, Kind
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.groups.ports import OffsetsLog
from barnabas_broker.logs import logger
from barnabas_protocol.errors import ErrorCode

log = logger("coordinator")


class Loader:
    """Loads and unloads partitions.

    Args:
        host: the groups.
        port: the log.
    """

    def __init__(self, host: Host, port: OffsetsLog) -> None:
        self._host = host
        self._port = port

    async def load(self, partition: int, leader_epoch: int) -> None:
        """Become the coordinator of a partition's groups: replay it, a little at a time.

        Requests about its groups are told COORDINATOR_LOAD_IN_PROGRESS meanwhile. A leadership that is not newer than
        the one it was loaded for changes nothing.
        """
        host = self._host
        before = host.partitions.get(partition)
        if before is not None:
            if before.leader_epoch >= leader_epoch:
                return
            self.unload(partition)
        place = host.partitions[partition] = Partition(partition, leader_epoch)
        started = self._host.now()
        log.debug("loading groups and offsets", partition=partition, leader_epoch=leader_epoch)
        try:
            replay = Replay(_Report(partition), self._port.start_offset(partition))
            end = self._port.end_offset(partition)
            while replay.next_offset < end:
                data = await self._port.read(partition, replay.next_offset)
                if not data:
                    break
                for _ in replay.feed(data):
                    await asyncio.sleep(0)
                    if host.partitions.get(partition) is not place:
                        return
                await asyncio.sleep(0)
                if host.partitions.get(partition) is not place:
                    return
        except Exception:
            # Without its log the partition's groups cannot be coordinated: clients are sent to look elsewhere.
            log.exception("groups and offsets cannot be loaded", partition=partition)
            if host.partitions.get(partition) is place:
                del host.partitions[partition]
            return
        groups = self._open(place, replay)
        # Fifty partitions that hold nothing are no news.
        tell = log.info if replay.records else log.debug
        tell(
            "loaded groups and offsets",
            partition=partition,
            leader_epoch=leader_epoch,
            groups=groups,
            records=replay.records,
            seconds=round(self._host.now() - started, 3),
        )

    def _open(self, place: Partition, replay: Replay) -> int:
        """Host what was replayed."""
        host = self._host
        now, wall_ms = self._host.now(), host.wall_ms()
        host.skip_sequences(replay.next_offset)
        place.loading = False
        for group_id in replay.groups.keys() | replay.offsets.keys():
            value = replay.groups.get(group_id)
            offsets = replay.offsets.get(group_id) or GroupOffsets()
            if value is None and not offsets:
                continue
            if value is None:
                group = Group(group_id, host.settings, now)
                group.fresh = False
            else:
                stamp = value.current_state_timestamp
                since = None if stamp < 0 else now - (wall_ms - stamp) / 1000
                group = Group.restore(group_id, host.settings, value, since, now)
            hosted = Hosted(host, place.index, group, offsets)
            host.keep(hosted)
            members = len(group.members)
            if members:
                host.note(group_id, note_of(Kind.GROUP_LOADED, group, members=members, epoch=place.leader_epoch))
            effects: list[Effect] = []
            if members > host.settings.max_size:
                effects = group.rebalance(
                    f"Freshly-loaded group {group_id} (size {members}) is over capacity {host.settings.max_size}."
                    " Rebalancing in order to give a chance for consumers to commit offsets",
                    Kind.GROUP_LOADED,
                    now,
                )
            host.act(hosted, effects)
        return len(place.groups)

    def unload(self, partition: int) -> None:
        """Be the coordinator of a partition's groups no longer: what is parked is told NOT_COORDINATOR."""
        host = self._host
        place = host.partitions.pop(partition, None)
        if place is None:
            return
        now = self._host.now()
        for group_id in place.groups:
            hosted = host.groups.pop(group_id, None)
            if hosted is not None:
                if len(hosted.group.members):
                    host.note(group_id, note_of(Kind.GROUP_UNLOADED, hosted.group))
                host.act(hosted, hosted.group.unload(now))
        host.writer.drop(partition, ErrorCode.NOT_COORDINATOR)
        tell = log.info if place.groups else log.debug
        tell("unloaded groups and offsets", partition=partition, groups=len(place.groups))


class _Report:
    """Reports what a replay cannot read."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def __call__(self, offset: int, reason: str) -> None:
        log.error(
            "corrupt record in __consumer_offsets skipped", partition=self._partition, offset=offset, reason=reason
        )
