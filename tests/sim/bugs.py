"""Planted bugs: each is something that an implementer could get wrong, and the simulation must find it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from math import inf
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.groups.classic.core import Assigning
from barnabas_broker.groups.classic.group import Group
from barnabas_broker.groups.classic.phases import Phases
from barnabas_broker.groups.coordinator.hosting import Host
from barnabas_broker.groups.coordinator.offset_service import _CommitWaiter
from barnabas_broker.groups.coordinator.writer import Writer
from barnabas_broker.groups.effects import Effect, Persist
from barnabas_broker.replication.group_logs import OffsetsTopicLog
from barnabas_broker.storage.flush import Flusher
from barnabas_client.membership.classic import Leadership
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import OFFSETS_TOPIC

Plant = Callable[[], AbstractContextManager[Any]]


def generation_is_not_bumped() -> AbstractContextManager[Any]:
    """The next generation has the number of the last."""
    right = Phases._complete

    @wraps(right)
    def wrong(self: Phases, out: list[Effect], now: float) -> None:
        self.generation -= self.generation > 1
        right(self, out, now)

    return patch.object(Phases, "_complete", wrong)


def sync_is_answered_before_it_is_persisted() -> AbstractContextManager[Any]:
    """Members get their shares while the assignment is on its way into the log."""
    right = Group.sync

    @wraps(right)
    def wrong(self: Group, request: Any, token: Any, now: float) -> list[Effect]:
        effects = right(self, request, token, now)
        for effect in list(effects):
            if isinstance(effect, Persist) and isinstance(self._tickets.get(effect.ticket), Assigning):
                effects += self.persisted(effect.ticket, ErrorCode.NONE, now)
        return effects

    return patch.object(Group, "sync", wrong)


def commits_of_any_generation_are_accepted() -> AbstractContextManager[Any]:
    """Who was a member once may commit for ever."""
    right = Group.check_commit

    @wraps(right)
    def wrong(self: Group, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        code = right(self, member_id, instance_id, generation, now)
        return ErrorCode.NONE if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID) else code

    return patch.object(Group, "check_commit", wrong)


def commits_are_answered_before_they_are_durable() -> AbstractContextManager[Any]:
    """What is acknowledged is lost with the broker."""
    right = Writer.add

    @wraps(right)
    def wrong(self: Writer, partition: int, records: Any, waiter: Any) -> None:
        right(self, partition, records, waiter)
        if isinstance(waiter, _CommitWaiter):
            waiter.done(ErrorCode.NONE)

    return patch.object(Writer, "add", wrong)


def silent_members_are_kept() -> AbstractContextManager[Any]:
    """Nobody looks at who has not been heard of."""

    def wrong(self: Phases, out: list[Effect], now: float) -> None:
        self._check_at = inf

    return patch.object(Phases, "_look_after", wrong)


def commits_after_a_replay_are_older_than_it() -> AbstractContextManager[Any]:
    """The order of appends starts over with each coordinator, so that what was replayed wins for ever."""
    return patch.object(Host, "skip_sequences", lambda self, offset: None)


def what_is_parked_is_forgotten_when_the_coordinator_moves() -> AbstractContextManager[Any]:
    """A coordinator that is one no longer leaves its members waiting."""

    def wrong(self: Group, now: float) -> list[Effect]:
        self.die(now)
        return []

    return patch.object(Group, "unload", wrong)


def static_doubles_are_not_fenced() -> AbstractContextManager[Any]:
    """Two processes with one instance id go on side by side: heartbeats and commits look at the instance only."""
    right = Group.check_commit

    @wraps(right)
    def wrong(self: Group, member_id: str, instance_id: str | None, generation: int, now: float) -> ErrorCode:
        if instance_id in self.members.static:
            member_id = self.members.static[instance_id]
        return right(self, member_id, instance_id, generation, now)

    return patch.object(Group, "check_commit", wrong)


def appends_are_reported_before_they_are_synced() -> AbstractContextManager[Any]:
    """Nobody waits for ``flush.messages``."""
    return patch.object(Flusher, "durable", lambda self, offset: None)


def a_failed_fsync_is_taken_for_a_good_one() -> AbstractContextManager[Any]:
    """What the disk could not sync counts as synced."""
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
    """Who was told to skip the assignment (KIP-814) leaves it at that, though the topic grows."""
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
        what_is_parked_is_forgotten_when_the_coordinator_moves,
        static_doubles_are_not_fenced,
        appends_are_reported_before_they_are_synced,
        a_failed_fsync_is_taken_for_a_good_one,
        a_replay_begins_in_the_middle,
        leaders_that_return_watch_no_topics,
    )
}
