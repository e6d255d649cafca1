"""Share groups as JSON: members, and the window of each share partition with what members have acquired."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.groups.share.assignor import NAME
from barnabas_broker.groups.share.group import ShareGroup
from barnabas_broker.groups.share.partition import Part, SharePartition, State
from barnabas_broker.http.client_metrics import pushing_members
from barnabas_broker.http.text import listing
from barnabas_broker.http.view import View, by_name, judged
from barnabas_broker.share_partitions.hosted import LedSharePartition
from barnabas_broker.share_partitions.incidents import Place
from barnabas_broker.shares.records import ShareKey

#: Maximum parts of a window that are shown, and of all windows of a group.
_MOST_PARTS: Final = 100
_MOST_OF_GROUP: Final = 5_000
_TERMINAL: Final = (State.ACKNOWLEDGED, State.ARCHIVED)


class ShareWindow(NamedTuple):
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
    machines = by_place(view)
    for group in view.groups.share_groups.all():
        lag: int | None = None
        for window in windows(view, group, machines):
            if window.lag is not None:
                lag = (lag or 0) + window.lag
            yield None
        yield {**_head(group), "members": len(group.members), **_judged(view, group, lag)}


def one_share_group(view: View, group: ShareGroup) -> Iterator[str]:
    """``/groups/{id}``: a share group with its members and share partitions."""
    found = []
    for window in windows(view, group, by_place(view)):
        found.append(window)
        yield ""
    pushing = yield from pushing_members(view, group.group_id, group.members.values())
    lags = [window.lag for window in found if window.lag is not None]
    head = {
        **_head(group),
        **_judged(view, group, sum(lags) if lags else None),
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
                "assignment": by_name(view, member.assigned),
                "client_metrics": pushing.get(member.member_id),
            }
            for member in group.members.values()
        ],
    }
    yield from listing(head, "offsets", _rows(found, view.now()))


def by_place(view: View) -> dict[Place, LedSharePartition]:
    """The share partitions that are open on this broker."""
    return {hosted.place: hosted for hosted in view.queues.hosted}


def windows(view: View, group: ShareGroup, hosted: dict[Place, LedSharePartition]) -> Iterator[ShareWindow]:
    """The window of each share partition of a group; `hosted` are those that are open."""
    for topic_id, (name, numbers) in sorted(group.initialized.items(), key=lambda each: each[1][0]):
        for number in sorted(numbers):
            log = view.log(name, number)
            end = None if log is None else log.high_watermark
            open_one = hosted.get(Place(group.group_id, name, topic_id, number))
            if open_one is not None:
                yield open_window(open_one)
                continue
            state = view.shares.summary(ShareKey(group.group_id, UUID(bytes=topic_id), number)).state
            start = None if state is None or state.start_offset < 0 else state.start_offset
            complete = 0 if state is None else max(state.delivery_complete_count, 0)
            yield ShareWindow(name, number, start, end, complete, None)


def open_window(hosted: LedSharePartition) -> ShareWindow:
    """The window of a share partition that is open on this broker."""
    place, machine = hosted.place, hosted.machine
    complete = sum(machine.in_state(state) for state in _TERMINAL)
    end = hosted.replica.log.high_watermark
    return ShareWindow(place.topic, place.partition, machine.start_offset, end, complete, machine)


def _head(group: ShareGroup) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "generation": group.epoch,
        "type": "share",
        "protocol_type": "share",
        "protocol": NAME,
    }


def _judged(view: View, group: ShareGroup, lag: int | None) -> dict[str, Any]:
    """The lag and the health of a share group. The age of its lag is that of the record that a window starts with."""
    return judged(view, group.group_id, lag, None, "ok" if group.members else "no members", "", 0)


def _rows(found: list[ShareWindow], now: float) -> Iterator[dict[str, Any]]:
    left = _MOST_OF_GROUP
    for window in found:
        machine = window.machine
        parts = [] if machine is None else machine.parts(min(_MOST_PARTS, left))
        left -= len(parts)
        blocked = None if machine is None else machine.blocked_by
        yield {
            "topic": window.topic,
            "partition": window.partition,
            "start_offset": window.start,
            "end_offset": None if machine is None else machine.end_offset + 1,
            "log_end_offset": window.end,
            "lag": window.lag,
            "available": None if machine is None else machine.in_state(State.AVAILABLE),
            "acquired": None if machine is None else machine.in_state(State.ACQUIRED),
            "full": machine is not None and machine.is_full,
            "blocked_by": None if blocked is None else {"offset": blocked.first, "member_id": blocked.member or None},
            "window": [_part(part, now) for part in parts],
            "more_parts": 0 if machine is None else len(machine) - len(parts),
        }


def _part(part: Part, now: float) -> dict[str, Any]:
    return {
        "first_offset": part.first,
        "last_offset": part.last,
        "state": part.state.name.lower(),
        "delivery_count": part.delivery_count,
        "member_id": part.member or None,
        "expires_in_ms": None if part.deadline is None else max(round((part.deadline - now) * 1000), 0),
    }
