"""Compares what a coordinator knows of its groups with what a replay of its log says.

The state in memory equals the replay of the log, and its replay after compaction. What is not in the log is left out:
sessions, deferred requests, pending members, members that join or wait for their leader, and the order in which a
client's records came.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from barnabas_broker.config import Config
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_protocol.records import read_header
from tests.broker.groups.compacted import compacted
from tests.broker.groups.memory import MemoryLog, MemoryStates


@dataclass(eq=False)
class Moment:
    """A time in seconds. Records have milliseconds, so that two moments are equal if they are close."""

    at: float | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Moment):
            return NotImplemented
        if self.at is None or other.at is None:
            return self.at is other.at
        return abs(self.at - other.at) < 0.01


def of_offsets(offsets: GroupOffsets) -> dict[str, Any]:
    """Committed offsets, and those that are pending in a transaction."""
    return {
        "committed": {
            (topic, partition): committed._replace(sequence=0)
            for topic, partitions in offsets.topics.items()
            for partition, committed in partitions.items()
        },
        "pending": {
            producer_id: {key: committed._replace(sequence=0) for key, committed in transaction.offsets.items()}
            for producer_id, transaction in offsets._transactions.items()
        },
        "producers": {key: set(producers) for key, producers in offsets._pending.items()},
    }


def of_classic_group(group: ClassicGroup) -> dict[str, Any] | None:
    """A classic group; None while it rebalances."""
    members = group.members
    if group.state not in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY):
        return None
    return {
        "state": group.state,
        "generation": group.generation,
        "protocol type": members.protocol_type,
        "protocol": members.protocol,
        "leader": members.leader,
        "static": members.static,
        "empty since": Moment(group.empty_since),
        "subscribed topics": group.subscribed_topics,
        "members": [
            (
                member_id,
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout,
                member.rebalance_timeout,
                member.metadata(members.protocol),
                member.assignment,
            )
            for member_id, member in members.by_id.items()
        ],
    }


def of_consumer_group(group: ConsumerGroup) -> dict[str, Any]:
    """A group of the consumer protocol, and what follows from its records."""
    return {
        "epoch": group.epoch,
        "metadata hash": group.metadata_hash,
        "assignment epoch": group.assignment_epoch,
        "state": group.state,
        "targets": group.targets,
        "regexes": group.subscriptions.resolved,
        "static": group.static,
        "subscribed": {name for name in ("t", "u", "topic", "orders") if group.is_subscribed_to(name)},
        "members": {
            member_id: {
                "id": member.member_id,
                "instance": member.instance_id,
                "rack": member.rack_id,
                "client": (member.client_id, member.client_host),
                "topics": member.topics,
                "regex": member.regex,
                "rebalance timeout": member.rebalance_timeout_ms,
                "assignor": member.assignor,
                "classic": member.classic,
                "epoch": member.epoch,
                "previous epoch": member.previous_epoch,
                "state": member.state,
                "assigned": member.assigned,
                "revoking": member.revoking,
                "waits for": group.waits_for(member),
            }
            for member_id, member in group.members.items()
        },
    }


def of_group(hosted: HostedGroup) -> dict[str, Any]:
    """Everything about a group that is in the log. Its own part is None while that is not in the log."""
    group = hosted.group
    own = of_classic_group(group) if isinstance(group, ClassicGroup) else of_consumer_group(group)
    return {"type": type(group).__name__, "own": own, **of_offsets(hosted.offsets)}


class NoLoop:
    """An event loop that makes no call: a coordinator that is only compared does nothing."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> "NoLoop":
        return self

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> "NoLoop":
        return self

    def cancel(self) -> None:
        """Nothing to cancel."""

    def create_future(self) -> Any:
        return asyncio.Future()


class Replayed:
    """A coordinator that has replayed a log, to be compared with the one that has written it.

    Args:
        config: of the coordinator.
        batches: the logs of the partitions.
        topics: the topics of the cluster.
        now: the time.
        wall_ms: the time of day.
    """

    def __init__(
        self,
        config: Config,
        batches: Mapping[int, Sequence[bytes]],
        topics: Sequence[Topic],
        now: float,
        wall_ms: int,
    ) -> None:
        log = MemoryLog()
        for partition, there in batches.items():
            log.batches[partition] = list(there)
            log.ends[partition] = _end_of(there)
        self.groups = GroupCoordinator(
            config, log, MemoryStates(), now=lambda: now, wall_ms=lambda: wall_ms, loop=NoLoop()
        )
        if topics:
            self.groups.topics_changed({topic.name: topic.partitions for topic in topics}, topics)
        for partition in batches:
            _complete(self.groups.load(partition, 1))


def differences(
    coordinator: GroupCoordinator,
    config: Config,
    batches: Mapping[int, Sequence[bytes]],
    topics: Sequence[Topic],
    now: float,
    wall_ms: int,
) -> Iterator[str]:
    """How the groups in memory differ from a replay of the log, and from its replay after compaction.

    Args:
        coordinator: has the groups in memory.
        config: of the coordinator.
        batches: the logs of the partitions that it has loaded.
        topics: the topics of the cluster.
        now: the time.
        wall_ms: the time of day.
    """
    loaded = coordinator.loaded & batches.keys()
    partitions = {index: batches[index] for index in loaded if _settled(coordinator, index)}
    logs: dict[str, Mapping[int, Sequence[bytes]]] = {
        "the log": partitions,
        "the compacted log": {index: compacted(each, tombstones=True) for index, each in partitions.items()},
        "the compacted log without tombstones": {
            index: compacted(each, tombstones=False) for index, each in partitions.items()
        },
    }
    memory = {group_id: each for group_id, each in coordinator.groups.items() if each.home.index in partitions}
    for what, there in logs.items():
        replayed = Replayed(config, there, topics, now, wall_ms).groups.groups
        for group_id in sorted(memory.keys() | replayed.keys()):
            found = _difference(memory.get(group_id), replayed.get(group_id), whole=there is partitions)
            if found is not None:
                yield f"group {group_id} in memory is not what {what} says: {found}"


def _difference(memory: HostedGroup | None, replayed: HostedGroup | None, *, whole: bool) -> str | None:
    """How a group in memory differs from the replayed one; `whole`: the log was not compacted."""
    if memory is None:
        return None if replayed is None else f"only the log has it: {of_group(replayed)}"
    if memory.change is not None or memory.backlog is not None or is_behind(memory):
        return None
    here = of_group(memory)
    if replayed is None:
        nothing = isinstance(memory.group, ClassicGroup) and memory.group.generation == 0
        joins = nothing and (here["own"] is None or not memory.group.recorded)
        # Its last offset is gone, and compaction has removed all traces of it.
        emptied = nothing and not whole
        return None if not memory.offsets and (joins or emptied) else f"the log does not have it: {here}"
    there = of_group(replayed)
    if here["own"] is None or there["own"] is None:
        here["own"] = there["own"] = here["type"] = there["type"] = None
    if here == there:
        return None
    return "; ".join(f"{name}: {here[name]} {there[name]}" for name in here if here[name] != there[name])


def is_behind(hosted: HostedGroup | None) -> bool:
    """Whether a group is about to append records: an append has failed, or a topic has changed.

    A replay takes a change of a topic into account at once.
    """
    match None if hosted is None else hosted.group:
        case ConsumerGroup() as group:
            return bool(group._appends.unwritten) or group._topics_version != group._settings.topics.version
        case ClassicGroup() as group:
            return group._appends.again_at < inf
    return False


def _settled(coordinator: GroupCoordinator, partition: int) -> bool:
    return not coordinator._runtime.writer.unsettled(partition)


def _end_of(batches: Sequence[bytes]) -> int:
    return read_header(batches[-1]).next_offset if batches else 0


def _complete(load: Coroutine[Any, Any, None]) -> None:
    """Run a load that waits for nothing but other tasks."""
    try:
        while True:
            load.send(None)
    except StopIteration:
        return
