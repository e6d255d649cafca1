"""Planted bugs of groups with members of both protocols. The simulation of :mod:`tests.sim.mixed` must find each."""

from contextlib import AbstractContextManager
from functools import wraps
from math import inf
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.groups.classic import group as classic_group
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.consumer import reconciliation, records
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.members import ConsumerGroupMember
from barnabas_protocol.errors import ErrorCode
from tests.witnesses import named


def partitions_are_given_away_before_they_are_revoked() -> AbstractContextManager[Any]:
    """What a member reports as owned is ignored."""
    return patch.object(reconciliation, "owns", lambda reported, revoking: False)


def an_upgrade_forgets_what_members_own() -> AbstractContextManager[Any]:
    """Members of the classic group own nothing in the coordinator's view."""
    right = ConsumerGroup.upgrading.__func__  # type: ignore[attr-defined]

    @wraps(right)
    def wrong(cls: Any, group_id: str, settings: Any, generation: int, members: Any, *more: Any) -> Any:
        for member in members:
            member.assigned = {}
        return right(cls, group_id, settings, generation, members, *more)

    return patch.object(ConsumerGroup, "upgrading", classmethod(wrong))


def an_upgrade_leaves_what_a_downgrade_could_not_delete() -> AbstractContextManager[Any]:
    """Members of before a downgrade that could not be appended come back with the next load."""
    return patch.object(records, "named_in", lambda leftover: iter(()))


def what_a_restarted_member_had_to_revoke_has_no_owner() -> AbstractContextManager[Any]:
    """A static member that restarts before it has joined again takes its place without a rebalance, as in Kafka."""
    return patch.object(classic_group, "_has_to_revoke", lambda member, protocol: False)


def an_upgrade_answers_no_deferred_requests() -> AbstractContextManager[Any]:
    """JoinGroups and SyncGroups of the classic group wait for ever."""

    def wrong(self: ClassicGroup, now: float) -> Any:
        self.mark_dead(now)
        return [], []

    return patch.object(ClassicGroup, "upgraded", wrong)


def heartbeats_do_not_ask_to_rejoin() -> AbstractContextManager[Any]:
    """Members of the classic protocol do not learn that their target has changed."""
    right = ConsumerGroup.classic_heartbeat

    @wraps(right)
    def wrong(self: ConsumerGroup, *arguments: Any) -> ErrorCode:
        code = right(self, *arguments)
        return ErrorCode.NONE if code == ErrorCode.REBALANCE_IN_PROGRESS else code

    return patch.object(ConsumerGroup, "classic_heartbeat", wrong)


def sessions_of_classic_members_do_not_expire() -> AbstractContextManager[Any]:
    """A dead member of the classic protocol keeps its partitions."""
    right = ConsumerGroup._session_of

    @wraps(right)
    def wrong(self: ConsumerGroup, member: ConsumerGroupMember) -> float:
        return inf if member.classic is not None else right(self, member)

    return patch.object(ConsumerGroup, "_session_of", wrong)


def a_downgrade_does_not_rebalance() -> AbstractContextManager[Any]:
    """The partitions of the member that is gone have no owner."""
    right = ClassicGroup.rebalance

    @wraps(right)
    def wrong(self: ClassicGroup, reason: str, *arguments: Any, **more: Any) -> Any:
        return [] if reason.startswith("Downgrade") else right(self, reason, *arguments, **more)

    return patch.object(ClassicGroup, "rebalance", wrong)


def removed_members_keep_their_partitions() -> AbstractContextManager[Any]:
    """What a member has owned stays its own after it is gone."""
    right = ConsumerGroup.apply

    @wraps(right)
    def wrong(self: ConsumerGroup, record_type: int, name: str, content: Any) -> None:
        if record_type != records.CURRENT or content is not None:
            right(self, record_type, name, content)

    return patch.object(ConsumerGroup, "apply", wrong)


def a_member_that_leaves_bumps_no_epoch() -> AbstractContextManager[Any]:
    """Nothing assigns the partitions of a member that is gone."""
    right = ConsumerGroup._bump

    @wraps(right)
    def wrong(self: ConsumerGroup, cause: Any, by: Any, *more: Any) -> None:
        if cause.type not in ("member_left", "member_expired"):
            right(self, cause, by, *more)

    return patch.object(ConsumerGroup, "_bump", wrong)


def assignments_that_never_arrived_are_not_sent_again() -> AbstractContextManager[Any]:
    """What a heartbeat was answered that came late, on a connection that its client had given up, counts as known."""
    return patch.object(ConsumerGroupMember, "was_told_elsewhere", lambda self, connection: False)


BUGS: Final = named(
    assignments_that_never_arrived_are_not_sent_again,
    partitions_are_given_away_before_they_are_revoked,
    an_upgrade_forgets_what_members_own,
    an_upgrade_answers_no_deferred_requests,
    an_upgrade_leaves_what_a_downgrade_could_not_delete,
    heartbeats_do_not_ask_to_rejoin,
    sessions_of_classic_members_do_not_expire,
    a_downgrade_does_not_rebalance,
    removed_members_keep_their_partitions,
    a_member_that_leaves_bumps_no_epoch,
    what_a_restarted_member_had_to_revoke_has_no_owner,
)
