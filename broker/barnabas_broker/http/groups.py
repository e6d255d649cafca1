"""Groups as JSON: the columns of kafka-consumer-groups, and the time since each member's last heartbeat."""

from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import Any

from barnabas_broker.cluster.image import Image
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.members import ClassicGroupMember
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.http.client_metrics import pushing_members
from barnabas_broker.http.health import health
from barnabas_broker.http.shares import summaries
from barnabas_broker.http.text import listing
from barnabas_broker.http.view import Position, View, by_name, judged
from barnabas_explain.storm_score import FLAPPING
from barnabas_protocol.subscriptions import CONSUMER, read_assignment


def all_groups(view: View) -> Iterator[str]:
    """``/groups``: a summary of every group of this broker."""
    image = view.cluster.image
    rows = (None if hosted is None else _summary(view, image, hosted) for hosted in view.known_groups())
    return listing({"unloaded_partitions": view.unloaded()}, "groups", chain(rows, summaries(view)))


def one_group(view: View, hosted: HostedGroup) -> Iterator[str]:
    """``/groups/{id}``: a group with its members and offsets."""
    group = hosted.group
    if isinstance(group, ConsumerGroup):
        yield from _consumer_group(view, hosted, group)
        return
    members = group.members
    pushing = yield from pushing_members(view, group.group_id, members)
    now = view.now()
    assignments = {each.member_id: _assignment(each, members.protocol_type) for each in members}
    owners = {
        (topic, partition): member_id
        for member_id, assignment in assignments.items()
        for topic, partitions in (assignment or {}).items()
        for partition in partitions
    }
    head = {
        **_head(hosted),
        **_judged(view, view.cluster.image, hosted),
        "storm": view.history.storm_score(group.group_id).as_data(),
        "leader": members.leader,
        "seconds_in_state": None if group.state_since is None else round(now - group.state_since, 3),
        "coordinator": {"node_id": view.node_id, "offsets_partition": hosted.home.index},
        "members": [
            {
                **each.identity()._asdict(),
                "session_timeout_ms": round(each.session_timeout * 1000),
                "rebalance_timeout_ms": round(each.rebalance_timeout * 1000),
                "heard_ago_ms": round((now - each.last_seen) * 1000),
                "waits_for_broker": each.awaits_response,
                "assignment": assignments[each.member_id],
                "client_metrics": pushing.get(each.member_id),
            }
            for each in members
        ],
    }
    positions = view.positions(view.cluster.image, hosted)
    yield from listing(head, "offsets", (_offset(each, owners) for each in positions))


def _consumer_group(view: View, hosted: HostedGroup, group: ConsumerGroup) -> Iterator[str]:
    """A group of the consumer protocol: what each member owns, has to revoke and waits for, and its target."""
    pushing = yield from pushing_members(view, group.group_id, group.members.values())
    now = view.now()
    image = view.cluster.image
    owners = {
        (topic, partition): member.member_id
        for member in group.members.values()
        for topic, partitions in by_name(view, member.owned()).items()
        for partition in partitions
    }
    head = {
        **_head(hosted),
        **_judged(view, image, hosted),
        "storm": view.history.storm_score(group.group_id).as_data(),
        "assignment_epoch": group.assignment_epoch,
        "assignor": group.assignor,
        "seconds_in_epoch": round(now - group.bumped_at, 3),
        "coordinator": {"node_id": view.node_id, "offsets_partition": hosted.home.index},
        "members": [
            {
                **member.identity()._asdict(),
                "protocol": "consumer" if member.classic is None else "classic",
                "member_epoch": member.epoch,
                "state": member.state.name,
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
                "heard_ago_ms": round((now - member.last_seen) * 1000),
                "topics": sorted(member.topics),
                "assignment": by_name(view, member.assigned),
                "revoking": by_name(view, member.revoking),
                "revoking_ms": 0 if member.revoking_since == inf else round((now - member.revoking_since) * 1000),
                "target": by_name(view, group.targets.get(member.member_id, {})),
                "waits_for": {owner: by_name(view, waited) for owner, waited in group.waits_for(member).items()},
                "client_metrics": pushing.get(member.member_id),
            }
            for member in group.members.values()
        ],
    }
    positions = view.positions(image, hosted)
    yield from listing(head, "offsets", (_offset(each, owners) for each in positions))


def _head(hosted: HostedGroup) -> dict[str, Any]:
    group = hosted.group
    return {
        "group": group.group_id,
        "state": group.state.value,
        "generation": group.generation,
        "type": "consumer" if isinstance(group, ConsumerGroup) else "classic",
        "protocol_type": group.protocol_type,
        "protocol": group.assignor if isinstance(group, ConsumerGroup) else group.members.protocol,
    }


def _summary(view: View, image: Image, hosted: HostedGroup) -> dict[str, Any]:
    return {**_head(hosted), "members": len(hosted.group.members), **_judged(view, image, hosted)}


def _judged(view: View, image: Image, hosted: HostedGroup) -> dict[str, Any]:
    """The lag and the rates of a group, and its health."""
    lag: int | None = None
    unstable: int | None = None
    newest = 0
    for position in view.positions(image, hosted):
        if position.committed is not None:
            newest = max(newest, position.committed.commit_ms)
        if position.lag is not None:
            lag = (lag or 0) + position.lag
            unstable = (unstable or 0) + (position.unstable_lag or 0)
    group_id = hosted.group.group_id
    age = view.samples.age(group_id) if lag else None
    storm = view.history.storm_score(group_id)
    status, reason = health(
        members=len(hosted.group.members),
        lag=lag,
        unstable_lag=unstable,
        rebalancing=_rebalancing(hosted.group, view.now()),
        since_commit=(view.wall_ms() - newest) / 1000 if newest else None,
        flapping=storm.value >= FLAPPING or view.history.is_flapping(group_id),
        storm=storm.text,
        oldest=None if age is None else age.ms / 1000,
    )
    return judged(view, group_id, lag, unstable, status, reason, storm.value)


def _rebalancing(group: ClassicGroup | ConsumerGroup, now: float) -> float | None:
    """Seconds since the rebalance of a group began; None if there is none."""
    if group.state.value in ("Stable", "Empty", "Dead"):
        return None
    since = group.bumped_at if isinstance(group, ConsumerGroup) else group.state_since
    return None if since is None else now - since


def _assignment(member: ClassicGroupMember, protocol_type: str | None) -> dict[str, list[int]] | None:
    """The partitions of a member; None if its protocol type is not known here."""
    return read_assignment(member.assignment) if protocol_type == CONSUMER else None


def _offset(position: Position, owners: dict[tuple[str, int], str]) -> dict[str, Any]:
    committed = position.committed
    return {
        "topic": position.topic,
        "partition": position.partition,
        "current_offset": None if committed is None else committed.offset,
        "log_end_offset": position.end,
        "last_stable_offset": position.stable,
        "lag": position.lag,
        "unstable_lag": position.unstable_lag,
        "member_id": owners.get((position.topic, position.partition)),
        "committed_ms": None if committed is None else committed.commit_ms,
        "metadata": None if committed is None else committed.metadata,
    }
