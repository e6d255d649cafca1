"""Planted bugs of groups of the consumer protocol. :mod:`tests.sim.consumer_groups` must find each of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from math import inf
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.groups.consumer import records
from barnabas_broker.groups.consumer.group import INITIAL_EPOCH, ConsumerGroup
from barnabas_broker.groups.consumer.members import ConsumerGroupMember
from barnabas_protocol.errors import ErrorCode
from tests.sim.mixed_bugs import (
    a_member_that_leaves_bumps_no_epoch,
    partitions_are_given_away_before_they_are_revoked,
    removed_members_keep_their_partitions,
)
from tests.witnesses import named


def _restored(change: Callable[[ConsumerGroup], None]) -> AbstractContextManager[Any]:
    """Groups that are replayed are changed."""
    right = ConsumerGroup.restoring.__func__  # type: ignore[attr-defined]

    @wraps(right)
    def wrong(cls: Any, *arguments: Any) -> Any:
        group = yield from right(cls, *arguments)
        change(group)
        return group

    return patch.object(ConsumerGroup, "restoring", classmethod(wrong))


def epochs_begin_anew_after_a_failover() -> AbstractContextManager[Any]:
    """The next coordinator does not replay the epochs."""

    def change(group: ConsumerGroup) -> None:
        group.epoch = group.assignment_epoch = INITIAL_EPOCH
        for member in group.members.values():
            member.epoch = member.previous_epoch = INITIAL_EPOCH

    return _restored(change)


def what_is_being_revoked_is_free_after_a_failover() -> AbstractContextManager[Any]:
    """The next coordinator forgets that members own what they have to revoke."""

    def change(group: ConsumerGroup) -> None:
        for member in group.members.values():
            before, member.revoking = member.revoking, {}
            group._owners.change(member, member.assigned, before)

    return _restored(change)


def replayed_members_do_not_expire() -> AbstractContextManager[Any]:
    """The sessions of members begin with their next heartbeat, which those that have died do not send."""

    def change(group: ConsumerGroup) -> None:
        for member in group.members.values():
            member.last_seen = inf

    return _restored(change)


def heartbeats_are_answered_before_they_are_in_the_log() -> AbstractContextManager[Any]:
    """Members get what the next coordinator does not know of."""
    right = ConsumerGroup._append

    @wraps(right)
    def wrong(self: ConsumerGroup, replies: list[Any], out: list[Any]) -> None:
        right(self, [], out)
        out += replies

    return patch.object(ConsumerGroup, "_append", wrong)


def a_record_lacks_the_rebalance_timeout() -> AbstractContextManager[Any]:
    """The next coordinator gives members no time to revoke."""
    right = records._member_value

    @wraps(right)
    def wrong(member: ConsumerGroupMember) -> Any:
        value = right(member)
        value.rebalance_timeout_ms = -1
        return value

    return patch.object(records, "_member_value", wrong)


def full_heartbeats_get_no_assignment() -> AbstractContextManager[Any]:
    """A member whose response was lost does not learn what it owns (KAFKA-19222)."""
    right = ConsumerGroup._heartbeat_response

    @wraps(right)
    def wrong(self: ConsumerGroup, member: ConsumerGroupMember, heartbeat: Any, now: float) -> Any:
        return right(self, member, heartbeat._replace(full=False), now)

    return patch.object(ConsumerGroup, "_heartbeat_response", wrong)


def sessions_do_not_expire() -> AbstractContextManager[Any]:
    """A dead member keeps its partitions."""
    return patch.object(ConsumerGroup, "_session_of", lambda self, member: inf)


def what_a_regex_matches_bumps_no_epoch() -> AbstractContextManager[Any]:
    """Members whose expression is resolved do not get its partitions."""
    right = ConsumerGroup._bump

    @wraps(right)
    def wrong(self: ConsumerGroup, cause: Any, by: Any, *more: Any) -> None:
        if cause.type != "regex_resolved":
            right(self, cause, by, *more)

    return patch.object(ConsumerGroup, "_bump", wrong)


def a_topic_that_grows_bumps_no_epoch() -> AbstractContextManager[Any]:
    """The new partitions have no owner."""
    right = ConsumerGroup._bump

    @wraps(right)
    def wrong(self: ConsumerGroup, cause: Any, by: Any, *more: Any) -> None:
        if cause.type != "topic_changed":
            right(self, cause, by, *more)

    return patch.object(ConsumerGroup, "_bump", wrong)


def failed_appends_are_not_repeated() -> AbstractContextManager[Any]:
    """What could not be appended is not in the log later either."""
    right = ConsumerGroup.persisted

    @wraps(right)
    def wrong(self: ConsumerGroup, ticket: int, error: ErrorCode, now: float) -> Any:
        effects = right(self, ticket, error, now)
        self._appends.unwritten.clear()
        return effects

    return patch.object(ConsumerGroup, "persisted", wrong)


BUGS: Final = named(
    epochs_begin_anew_after_a_failover,
    what_is_being_revoked_is_free_after_a_failover,
    replayed_members_do_not_expire,
    heartbeats_are_answered_before_they_are_in_the_log,
    a_record_lacks_the_rebalance_timeout,
    full_heartbeats_get_no_assignment,
    sessions_do_not_expire,
    what_a_regex_matches_bumps_no_epoch,
    a_topic_that_grows_bumps_no_epoch,
    failed_appends_are_not_repeated,
    partitions_are_given_away_before_they_are_revoked,
    removed_members_keep_their_partitions,
    a_member_that_leaves_bumps_no_epoch,
)
