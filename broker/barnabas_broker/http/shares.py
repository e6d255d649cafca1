"""Share groups as JSON: members, and the window of each share partition with what members have acquired."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.groups.share.assignor import NAME, Partitions
from barnabas_broker.groups.share.group import ShareGroup
from barnabas_broker.groups.share.partition import SharePartition, State
from barnabas_broker.http.text import listing
from barnabas_broker.http.view import View
from barnabas_broker.share_partitions.hosted import HostedPartition
from barnabas_broker.share_partitions.incidents import Place
from barnabas_broker.shares.records import ShareKey

#: Maximum ranges of acquired records that are shown of a share partition.
_MOST_LOCKS: Final = 100
_TERMINAL: Final = (State.ACKNOWLEDGED, State.ARCHIVED)


class Window(NamedTuple):
    """A share partition as far as this broker knows it.

    Attributes:
        topic: of the partition.
        partition: its number.
        start: the start offset; None if the group has not begun, or another broker knows it.
        end: the high watermark; None if another broker leads the partition.
        complete: records from the start on whose delivery is complete.
        machine: with what members have acquired; None if no member fetches from it here.
    """

    topic: str
    partition: int
    start: int | None
    end: int | None
    complete: int
    machine: SharePartition | None

    @property
    def lag(self) -> int | None:
        """Records whose delivery is not complete; None if one of the two offsets is not known."""
        return None if self.start is None or self.end is None else max(self.end - self.start - self.complete, 0)


def summaries(view: View) -> Iterator[dict[str, Any] | None]:
    """A summary of every share group of this broker; None for a turn of the event loop."""
    machines = {hosted.place: hosted for hosted in view.queues.hosted}
    for group in view.share_groups.all():
        lag: int | None = None
        for window in _windows(view, group, machines):
            if window.lag is not None:
                lag = (lag or 0) + window.lag
            yield None
        yield {**_head(group), "members": len(group.members), **_judged(group, lag)}


def one_share_group(view: View, group: ShareGroup) -> Iterator[str]:
    """``/groups/{id}``: a share group with its members and share partitions."""
    windows = []
    for window in _windows(view, group, {hosted.place: hosted for hosted in view.queues.hosted}):
        windows.append(window)
        yield ""
    lags = [window.lag for window in windows if window.lag is not None]
    names = view.cluster.image.names

    def by_name(partitions: Partitions) -> dict[str, list[int]]:
        return {names.get(topic_id, topic_id.hex()): sorted(numbers) for topic_id, numbers in partitions.items()}

    head = {
        **_head(group),
        **_judged(group, sum(lags) if lags else None),
        "assignment_epoch": group.assignment_epoch,
        "coordinator": {"node_id": view.node_id},
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": None,
                "client_id": member.client_id,
                "host": member.client_host,
                "member_epoch": member.epoch,
                "heard_ago_ms": None,
                "topics": sorted(member.topics),
                "assignment": by_name(member.assigned),
            }
            for member in group.members.values()
        ],
    }
    now = view.now()
    yield from listing(head, "offsets", (_row(window, now) for window in windows))


def _windows(view: View, group: ShareGroup, hosted: dict[Place, HostedPartition]) -> Iterator[Window]:
    for topic_id, (name, numbers) in sorted(group.initialized.items(), key=lambda each: each[1][0]):
        for number in sorted(numbers):
            log = view.log(name, number)
            end = None if log is None else log.high_watermark
            open_one = hosted.get(Place(group.group_id, name, topic_id, number))
            if open_one is not None:
                machine = open_one.machine
                complete = sum(machine.in_state(state) for state in _TERMINAL)
                yield Window(name, number, machine.start_offset, end, complete, machine)
                continue
            state = view.shares.summary(ShareKey(group.group_id, UUID(bytes=topic_id), number)).state
            start = None if state is None or state.start_offset < 0 else state.start_offset
            complete = 0 if state is None else max(state.delivery_complete_count, 0)
            yield Window(name, number, start, end, complete, None)


def _head(group: ShareGroup) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "generation": group.epoch,
        "type": "share",
        "protocol_type": "share",
        "protocol": NAME,
    }


def _judged(group: ShareGroup, lag: int | None) -> dict[str, Any]:
    """The fields of :func:`.groups._judged`; share groups have no committed offsets, so no rates and ages."""
    return {
        "lag": lag,
        "unstable_lag": None,
        "lag_ms": None,
        "lag_ms_exact": True,
        "commit_rate": None,
        "produce_rate": None,
        "health": "ok" if group.members else "no members",
        "health_reason": "",
        "storm_score": 0,
        "findings": [],
    }


def _row(window: Window, now: float) -> dict[str, Any]:
    machine = window.machine
    blocked = None if machine is None else machine.blocked_by
    return {
        "topic": window.topic,
        "partition": window.partition,
        "start_offset": window.start,
        "log_end_offset": window.end,
        "lag": window.lag,
        "available": None if machine is None else machine.in_state(State.AVAILABLE),
        "acquired": None if machine is None else machine.in_state(State.ACQUIRED),
        "blocked_by": None if blocked is None else {"offset": blocked.first, "member_id": blocked.member or None},
        "locks": [
            {
                "first_offset": lock.first,
                "last_offset": lock.last,
                "delivery_count": lock.delivery_count,
                "member_id": lock.member,
                "expires_in_ms": None if lock.deadline is None else max(round((lock.deadline - now) * 1000), 0),
            }
            for lock in (() if machine is None else machine.locks(_MOST_LOCKS))
        ],
    }
