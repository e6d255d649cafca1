"""Members that leave because their group rebalances, so that each one that joins stops the others. Pure.

A program that ends itself when its partitions are revoked does so. Members that are stopped together look similar: the
leave of the first one begins a rebalance, during which the others leave. But the first one of them leaves by itself, so
that none of these leaves counts. In a rolling restart a member may leave just after the one before has joined again,
but the others stay, so that the group is not empty at any time.

Replicas run the same code: if many of them stay when the group rebalances, that does not stop the one that leaves.
"""

from collections.abc import Container, Iterable, Iterator
from math import inf
from typing import Final

from barnabas_explain.catalog import (
    Departure,
    GroupEmpty,
    GroupEvent,
    MemberJoined,
    MemberLeft,
    RebalanceOver,
    RebalanceStarted,
)

#: A program that stops because of a rebalance does so within so many milliseconds after it.
JUST_AFTER_MS: Final = 250


def leaves_at_rebalances(events: Iterable[GroupEvent]) -> set[int]:
    """The leaves of members during a rebalance that another member had begun, or just after it.

    A leave does not count if another one began that rebalance which does not count itself.

    Args:
        events: of one group, oldest first.

    Returns:
        The identities of these events.
    """
    found: set[int] = set()
    left: set[str | None] = set()
    #: Of the newest rebalance: when it began and was over, the member ids that caused it, and whether leaves count.
    began, over = inf, -inf
    by: set[str | None] = set()
    counts = False
    for event in events:
        if isinstance(event, RebalanceStarted):
            began, over, by = event.time, inf, event.by_ids()
            counts = event.cause != MemberLeft.type or (bool(by) and by <= left)
        elif isinstance(event, RebalanceOver | GroupEmpty):
            over = min(over, event.time)
        elif isinstance(event, MemberLeft) and event.removed_by is None and event.joined_ago_ms is not None and counts:
            joined, member_id = event.time - event.joined_ago_ms, event.member.member_id
            if joined < began and member_id not in by and event.time <= over + JUST_AFTER_MS:
                found.add(id(event))
                left.add(member_id)
    return found


def falls(events: Iterable[GroupEvent], at_rebalances: Container[int]) -> Iterator[list[MemberLeft]]:
    """The leaves by which a group became empty, each time that all of them were leaves at rebalances.

    Members that are stopped together leave before the others have rejoined: that is none.

    Args:
        events: of one group, oldest first.
        at_rebalances: the result of :func:`leaves_at_rebalances`.
    """
    ends: list[Departure] = []
    rejoined = False
    for event in events:
        if isinstance(event, Departure):
            ends.append(event)
        elif isinstance(event, RebalanceOver):
            rejoined |= bool(ends)
        elif isinstance(event, GroupEmpty):
            left = [each for each in ends if isinstance(each, MemberLeft) and id(each) in at_rebalances]
            if rejoined and len(left) == len(ends) > 1:
                yield left
            ends, rejoined = [], False


def stays_at_rebalances(events: Iterable[GroupEvent]) -> dict[str | None, list[float]]:
    """When members of each client id had stayed: they were there before a rebalance that another member had begun, and
    until it had been over for long enough. The times are those of the next rebalance, ascending, one for each member;
    only of members whose joins are known.

    Args:
        events: of one group, oldest first.
    """
    found: dict[str | None, list[float]] = {}
    members: dict[str | None, str | None] = {}
    #: The members that the newest rebalance may stop, or has not stopped.
    staying: dict[str | None, str | None] = {}
    over = inf
    for event in events:
        if isinstance(event, MemberJoined):
            members[event.member.member_id] = event.member.client_id
        elif isinstance(event, Departure):
            members.pop(event.member.member_id, None)
            if event.time <= over + JUST_AFTER_MS:
                staying.pop(event.member.member_id, None)
        elif isinstance(event, RebalanceOver | GroupEmpty):
            over = min(over, event.time)
        elif isinstance(event, RebalanceStarted):
            if event.time > over + JUST_AFTER_MS:
                for client_id in staying.values():
                    found.setdefault(client_id, []).append(event.time)
            by = event.by_ids()
            staying, over = {key: client_id for key, client_id in members.items() if key not in by}, inf
    return found
