"""Planted bugs: mistakes that an implementer could make. The simulation must find each of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from math import inf
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.groups.classic.group import ClassicGroup, PendingAssignment
from barnabas_broker.groups.coordinator.hosting import HostedGroups
from barnabas_broker.groups.coordinator.writer import Waiter, Writer
from barnabas_broker.groups.effects import Effect, Persist
from barnabas_broker.groups.records import OFFSET_KEYS, key_type
from barnabas_broker.replication.group_logs import OffsetsTopicLog
from barnabas_broker.storage.flush import Flusher
from barnabas_client.membership.classic import Leadership
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import OFFSETS_TOPIC

Plant = Callable[[], AbstractContextManager[Any]]


def generation_is_not_bumped() -> AbstractContextManager[Any]:
    """The next generation has the number of the last one."""
    right = ClassicGroup._complete_join_phase

    @wraps(right)
    def wrong(self: ClassicGroup, out: list[Effect], now: float) -> None:
        self.generation -= self.generation > 1
        right(self, out, now)

    return patch.object(ClassicGroup, "_complete_join_phase", wrong)


def sync_is_answered_before_it_is_persisted() -> AbstractContextManager[Any]:
    """Members get their assignments while these are still being appended."""
    right = ClassicGroup.sync

    @wraps(right)
    def wrong(self: ClassicGroup, request: Any, token: Any, now: float) -> list[Effect]:
        effects = right(self, request, token, now)
        for effect in list(effects):
            if isinstance(effect, Persist) and isinstance(self._tickets.get(effect.ticket), PendingAssignment):
                effects += self.persisted(effect.ticket, ErrorCode.NONE, now)
        return effects

    return patch.object(ClassicGroup, "sync", wrong)


def commits_of_any_generation_are_accepted() -> AbstractContextManager[Any]:
    """Former members may commit."""
    right = ClassicGroup.check_commit

    @wraps(right)
    def wrong(self: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        code = right(self, member_id, instance_id, generation, now)
        return ErrorCode.NONE if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID) else code

    return patch.object(ClassicGroup, "check_commit", wrong)


def commits_are_answered_before_they_are_durable() -> AbstractContextManager[Any]:
    """Acknowledged commits are lost with the broker."""
    right = Writer.add

    @wraps(right)
    def wrong(self: Writer, partition: int, records: list[tuple[bytes, bytes | None]], waiter: Waiter) -> None:
        right(self, partition, records, waiter)
        if all(value and key_type(key) in OFFSET_KEYS for key, value in records):
            waiter(ErrorCode.NONE)

    return patch.object(Writer, "add", wrong)


def silent_members_are_kept() -> AbstractContextManager[Any]:
    """Sessions do not expire."""

    def wrong(self: ClassicGroup, out: list[Effect], now: float) -> None:
        self._check_at = inf

    return patch.object(ClassicGroup, "_check_members", wrong)


def commits_after_a_replay_are_older_than_it() -> AbstractContextManager[Any]:
    """The order of appends starts over with each coordinator, so that replayed offsets always win."""
    return patch.object(HostedGroups, "skip_sequences", lambda self, offset: None)


def deferred_requests_are_forgotten_when_the_coordinator_moves() -> AbstractContextManager[Any]:
    """A former coordinator does not respond to deferred requests."""

    def wrong(self: ClassicGroup, now: float) -> list[Effect]:
        self.mark_dead(now)
        return []

    return patch.object(ClassicGroup, "unload", wrong)


def replaced_static_members_are_not_fenced() -> AbstractContextManager[Any]:
    """Two processes with one instance id stay in the group: only the instance id of a commit is checked."""
    right = ClassicGroup.check_commit

    @wraps(right)
    def wrong(self: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        if instance_id in self.members.static:
            member_id = self.members.static[instance_id]
        return right(self, member_id, instance_id, generation, now)

    return patch.object(ClassicGroup, "check_commit", wrong)


def appends_are_reported_before_they_are_synced() -> AbstractContextManager[Any]:
    """``flush.messages`` is ignored."""
    return patch.object(Flusher, "durable", lambda self, offset: None)


def a_failed_fsync_is_taken_for_a_good_one() -> AbstractContextManager[Any]:
    """Records that could not be synced count as synced."""
    right = Flusher._finished

    @wraps(right)
    def wrong(self: Flusher, result: Exception | None, target: int, generation: int, full: bool) -> None:
        right(self, None, target, generation, full)

    return patch.object(Flusher, "_finished", wrong)


def a_replay_begins_in_the_middle() -> AbstractContextManager[Any]:
    """The first segment of the log is not replayed."""

    def wrong(self: OffsetsTopicLog, partition: int) -> int:
        segments = list(self._replicas.find(OFFSETS_TOPIC, partition).log.segments)
        return segments[min(1, len(segments) - 1)].base_offset

    return patch.object(OffsetsTopicLog, "start_offset", wrong)


def leaders_that_return_watch_no_topics() -> AbstractContextManager[Any]:
    """A leader that skips the assignment (KIP-814) does not assign anew when a topic grows."""
    right = Leadership.changed

    @wraps(right)
    def wrong(self: Leadership, counts: Any) -> list[str]:
        return [] if self._skip else right(self, counts)

    return patch.object(Leadership, "changed", wrong)


BUGS: Final[dict[str, Plant]] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        generation_is_not_bumped,
        sync_is_answered_before_it_is_persisted,
        commits_of_any_generation_are_accepted,
        commits_are_answered_before_they_are_durable,
        silent_members_are_kept,
        commits_after_a_replay_are_older_than_it,
        deferred_requests_are_forgotten_when_the_coordinator_moves,
        replaced_static_members_are_not_fenced,
        appends_are_reported_before_they_are_synced,
        a_failed_fsync_is_taken_for_a_good_one,
        a_replay_begins_in_the_middle,
        leaders_that_return_watch_no_topics,
    )
}
