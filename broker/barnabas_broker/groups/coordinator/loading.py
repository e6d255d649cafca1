"""Hosts the groups that a replay of ``__consumer_offsets`` has found, and gives them up. A shell."""

from collections.abc import Callable
from itertools import chain
from typing import Final

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.records import EPOCH, MEMBER
from barnabas_broker.groups.coordinator.hosting import (
    Group,
    GroupPartition,
    HostedGroup,
    HostedGroups,
    HostedShareGroup,
)
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.effects import Effect
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.steps import Steps, finish
from barnabas_explain.catalog import GroupDowngraded, GroupLoaded, GroupUnloaded
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Groups that are restored or ended in one turn of the event loop; members of large groups count, too.
_STEP: Final = 200


def restore(hosted_groups: HostedGroups, home: GroupPartition, replay: Replay) -> Steps[None]:
    """Host the replayed groups, some per step. Until :func:`resume` they are not found, and have no timers."""
    hosted_groups.skip_sequences(replay.next_offset)
    home.loaded_at = hosted_groups.next_sequence()
    home.transactions = replay.transactions
    share_groups = {group_id: machine for group_id, machine in replay.share_groups.items() if not machine.gone}
    work = 0
    # A dict, not a set: its order does not depend on the process.
    for group_id in dict.fromkeys(chain(replay.groups, replay.consumer_groups, replay.offsets)):
        if group_id in share_groups:
            continue
        group = yield from _group(hosted_groups, group_id, replay)
        if group is not None:
            home.hosted[group_id] = hosted = HostedGroup(home, group, replay.offsets.get(group_id) or GroupOffsets())
            _loaded(hosted_groups, hosted, downgraded=group_id in replay.downgraded)
            work += 1 + len(group.members)
        if work >= _STEP:
            work = 0
            yield
    for group_id, machine in share_groups.items():
        machine.restored(hosted_groups.now())
        home.hosted[group_id] = HostedShareGroup(home, machine)
        work += 1 + len(machine.members)
        if work >= _STEP:
            work = 0
            yield


def _group(hosted_groups: HostedGroups, group_id: str, replay: Replay) -> Steps[Group | None]:
    """The group with an id; None if there is nothing about it. One of the consumer protocol may have many members."""
    now, wall_ms = hosted_groups.now(), hosted_groups.wall_ms()
    settings = hosted_groups.settings
    value, records = replay.groups.get(group_id), replay.consumer_groups.get(group_id)
    consumer: ConsumerGroup | None = None
    if records is not None and (EPOCH in records or records.get(MEMBER)):
        consumer = yield from ConsumerGroup.restoring(group_id, hosted_groups.consumer_settings, records, now, wall_ms)
    if consumer is not None and (value is None or not value.members):
        return consumer
    if value is not None:
        # With records of both kinds it is a classic group whose upgrade could not be appended as a whole.
        stamp = value.current_state_timestamp
        # The time of day may have been set back since then.
        state_since = None if stamp < 0 else now - max(wall_ms - stamp, 0) / 1000
        leftover = () if consumer is None else consumer.tombstones()
        return ClassicGroup.restore(group_id, settings, value, state_since, now, leftover)
    if replay.offsets.get(group_id) or group_id in replay.emptied:
        group = ClassicGroup(group_id, settings, now)
        group.recorded = True
        return group
    return None


def _loaded(hosted_groups: HostedGroups, hosted: HostedGroup, *, downgraded: bool) -> None:
    """Publish that a group was loaded; it rebalances if it has too many members, or has to after its downgrade."""
    group, settings, now = hosted.group, hosted_groups.settings, hosted_groups.now()
    members = len(group.members)
    if members:
        event = GroupLoaded(generation=group.generation, members=members, epoch=hosted.home.leader_epoch)
        hosted_groups.publish(hosted.name, event)
    effects: list[Effect] = []
    if members > settings.max_size and isinstance(group, ClassicGroup):
        effects = group.rebalance(
            f"Freshly-loaded group {hosted.name} (size {members}) is over capacity {settings.max_size}."
            " Rebalancing in order to give a chance for consumers to commit offsets",
            GroupLoaded,
            now,
        )
    elif members and isinstance(group, ClassicGroup) and downgraded:
        effects = group.rebalance(
            f"Freshly-loaded group {hosted.name} was downgraded from consumer to classic, and has not rebalanced.",
            GroupDowngraded,
            now,
        )
    hosted_groups.act(hosted, effects)


def resume(
    hosted_groups: HostedGroups, home: GroupPartition, transaction_ended: Callable[[int, int, bool, float], None]
) -> Steps[None]:
    """All groups of a partition are hosted: they are found, and their timers begin to run, some per step.

    Args:
        hosted_groups: the groups of this broker.
        home: the partition.
        transaction_ended: applies a marker that was appended during the load: partition, producer id, whether it
            commits, and its place in the order of appends.
    """
    hosted_groups.by_id.update(
        (group_id, hosted) for group_id, hosted in home.hosted.items() if isinstance(hosted, HostedGroup)
    )
    ended, home.ended = home.ended, []
    for marker in ended:
        # The replay may have stopped before the marker. If it did not, this changes nothing: no commit was accepted
        # meanwhile.
        transaction_ended(home.index, *marker)
    for number, hosted in enumerate(list(home.hosted.values()), 1):
        hosted_groups.runtime.timers.arm(hosted)
        if not number % _STEP:
            yield


def unloaded(hosted_groups: HostedGroups, home: GroupPartition) -> None:
    """Give up the groups of a partition: they are not found any more, and end, some per iteration of the loop."""
    home.unloaded = True
    for group_id, hosted in home.hosted.items():
        if isinstance(hosted, HostedGroup):
            hosted_groups.by_id.pop(group_id, None)
            hosted_groups.leaving.append(hosted)
        elif hosted.creating is not None:
            hosted.creating.cancel()
    if hosted_groups.runtime.closed:
        finish(_end(hosted_groups))
    elif not hosted_groups.ending:
        hosted_groups.runtime.gradually(_end(hosted_groups))


def _end(hosted_groups: HostedGroups) -> Steps[None]:
    """End the groups of the partitions that were given up: deferred requests fail with NOT_COORDINATOR."""
    leaving, work = hosted_groups.leaving, 0
    hosted_groups.ending = True
    try:
        while leaving:
            hosted = leaving.popleft()
            hosted_groups.end_change(hosted, KafkaError(ErrorCode.NOT_COORDINATOR))
            group = hosted.group
            members = len(group.members)
            if members:
                hosted_groups.publish(hosted.name, GroupUnloaded(generation=group.generation))
            hosted_groups.act(hosted, group.unload(hosted_groups.now()))
            hosted_groups.event_lines.forget(hosted.name)
            work += 1 + members
            if work >= _STEP or not leaving:  # all partitions that are unloaded in one iteration share it
                work = 0
                yield
    finally:
        hosted_groups.ending = False
