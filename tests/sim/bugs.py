"""Planted bugs: mistakes that an implementer could make. The simulation must find each of them."""

from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from math import inf
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.coordinators.partitions import CoordinatorPartitions
from barnabas_broker.coordinators.writer import Waiter, Writer
from barnabas_broker.groups.classic.appends import PendingAssignment
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.coordinator.hosting import GroupPartition, HostedGroups
from barnabas_broker.groups.coordinator.offset_service import OffsetService
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.effects import Effect, Persist
from barnabas_broker.groups.offsets.offsets import GroupOffsets, OpenTransaction
from barnabas_broker.replication.coordinator_logs import CoordinatorTopicLog
from barnabas_broker.storage.flush import Flusher
from barnabas_client.membership.classic import Leadership
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import OFFSET_KEYS, key_type
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.records import BatchHeader, Record
from tests.witnesses import named


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
            if isinstance(effect, Persist) and isinstance(self._appends.get(effect.ticket), PendingAssignment):
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


def commits_under_way_are_not_waited_for() -> AbstractContextManager[Any]:
    """OffsetFetch with `require_stable` answers from memory while the commits of a replaced member are appended."""
    return patch.object(Writer, "unsettled", lambda self, partition: False)


def silent_members_are_kept() -> AbstractContextManager[Any]:
    """Sessions do not expire."""

    def wrong(self: ClassicGroup, out: list[Effect], now: float) -> None:
        self._check_at = inf

    return patch.object(ClassicGroup, "_check_members", wrong)


def an_empty_group_is_not_recorded_again() -> AbstractContextManager[Any]:
    """The log keeps the members of a group whose last record could not be appended."""
    right = ClassicGroup.persisted

    @wraps(right)
    def wrong(self: ClassicGroup, ticket: int, error: ErrorCode, now: float) -> list[Effect]:
        effects = right(self, ticket, error, now)
        self._appends.again_at = inf
        return effects

    return patch.object(ClassicGroup, "persisted", wrong)


def returning_leaders_load_nothing() -> AbstractContextManager[Any]:
    """What another broker has appended meanwhile is not read: a new leader epoch is taken for the old one."""
    right = CoordinatorPartitions.reconcile

    @wraps(right)
    def wrong(self: CoordinatorPartitions) -> None:
        led = self._leaderships.led(self._topic)
        self._loads = {index: (led.get(index, epoch), load) for index, (epoch, load) in self._loads.items()}
        right(self)

    return patch.object(CoordinatorPartitions, "reconcile", wrong)


def former_leaders_go_on() -> AbstractContextManager[Any]:
    """A broker that does not lead a partition any more coordinates its groups."""

    def wrong(self: CoordinatorPartitions, index: int) -> None:
        _, load = self._loads.pop(index)
        load.cancel()

    return patch.object(CoordinatorPartitions, "_unload", wrong)


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

    def wrong(self: CoordinatorTopicLog, partition: int) -> int:
        segments = list(self._replicas.find(OFFSETS_TOPIC, partition).log.segments)
        return segments[min(1, len(segments) - 1)].base_offset

    return patch.object(CoordinatorTopicLog, "start_offset", wrong)


def leaders_that_return_watch_no_topics() -> AbstractContextManager[Any]:
    """A leader that skips the assignment (KIP-814) does not assign anew when a topic grows."""
    right = Leadership.changed

    @wraps(right)
    def wrong(self: Leadership, counts: Any) -> list[str]:
        return [] if self._skip else right(self, counts)

    return patch.object(Leadership, "changed", wrong)


def pending_offsets_are_lost_on_failover() -> AbstractContextManager[Any]:
    """A replay skips the batches of transactions whose end it does not find."""
    right = Replay.apply

    @wraps(right)
    def wrong(self: Replay, header: BatchHeader, record: Record) -> None:
        if header.is_control or not header.is_transactional:
            right(self, header, record)

    return patch.object(Replay, "apply", wrong)


def aborted_offsets_are_visible() -> AbstractContextManager[Any]:
    """Every marker commits."""
    right = GroupOffsets.end_transaction

    @wraps(right)
    def wrong(self: GroupOffsets, producer_id: int, commit: bool, before: float = inf) -> OpenTransaction | None:
        return right(self, producer_id, True, before)

    return patch.object(GroupOffsets, "end_transaction", wrong)


def a_marker_ends_the_transactions_of_all_producers() -> AbstractContextManager[Any]:
    """The producer id of a marker is not looked at."""
    right = GroupOffsets.end_transaction

    @wraps(right)
    def wrong(self: GroupOffsets, producer_id: int, commit: bool, before: float = inf) -> OpenTransaction | None:
        for other in list(self._transactions):
            if other != producer_id:
                right(self, other, commit, before)
        return right(self, producer_id, commit, before)

    def ended(self: OffsetService, index: int, producer_id: int, committed: bool, position: float = inf) -> None:
        for hosted in self._hosted_groups.by_id.values():
            hosted.offsets.end_transaction(producer_id, committed, position)

    both = ExitStack()
    both.enter_context(patch.object(GroupOffsets, "end_transaction", wrong))
    both.enter_context(patch.object(OffsetService, "transaction_ended", ended))
    return both


def a_marker_during_a_replay_is_ignored() -> AbstractContextManager[Any]:
    """A marker counts only on the broker that has loaded its partition."""
    right = OffsetService.transaction_ended

    @wraps(right)
    def wrong(self: OffsetService, index: int, producer_id: int, committed: bool, position: float = inf) -> None:
        partition = self._hosted_groups.runtime.partitions.get(index)
        if partition is not None and not partition.loading:
            right(self, index, producer_id, committed, position)

    return patch.object(OffsetService, "transaction_ended", wrong)


def a_marker_from_before_a_load_ends_the_next_transaction() -> AbstractContextManager[Any]:
    """A marker that the replay has found counts again when its append is reported."""
    right = GroupPartition.__init__

    @wraps(right)
    def wrong(self: GroupPartition, index: int, leader_epoch: int, owner: HostedGroups) -> None:
        right(self, index, leader_epoch, owner)
        self.load_began = 0

    return patch.object(GroupPartition, "__init__", wrong)


def stable_offsets_are_not_waited_for() -> AbstractContextManager[Any]:
    """OffsetFetch ignores `require_stable` (KIP-447)."""
    return patch.object(GroupOffsets, "pending", lambda self, topic, partition: None)


def members_are_not_checked_in_transactions() -> AbstractContextManager[Any]:
    """Former members may commit in a transaction (KIP-447)."""
    return patch.object(ClassicGroup, "check_transactional_commit", lambda self, *member: ErrorCode.NONE)


def transactions_are_not_verified() -> AbstractContextManager[Any]:
    """Commits are appended to transactions that have ended (KIP-890)."""

    def wrong(self: CoordinatorTopicLog, *producer: int, bumps_epoch: bool) -> None:
        return None

    return patch.object(CoordinatorTopicLog, "verify", wrong)


#: Bugs that show only in groups whose members commit in transactions.
OF_TRANSACTIONS: Final = named(
    pending_offsets_are_lost_on_failover,
    aborted_offsets_are_visible,
    a_marker_ends_the_transactions_of_all_producers,
    a_marker_during_a_replay_is_ignored,
    a_marker_from_before_a_load_ends_the_next_transaction,
    stable_offsets_are_not_waited_for,
    members_are_not_checked_in_transactions,
    transactions_are_not_verified,
)
BUGS: Final = OF_TRANSACTIONS | named(
    generation_is_not_bumped,
    sync_is_answered_before_it_is_persisted,
    commits_of_any_generation_are_accepted,
    commits_are_answered_before_they_are_durable,
    commits_under_way_are_not_waited_for,
    silent_members_are_kept,
    an_empty_group_is_not_recorded_again,
    commits_after_a_replay_are_older_than_it,
    deferred_requests_are_forgotten_when_the_coordinator_moves,
    replaced_static_members_are_not_fenced,
    appends_are_reported_before_they_are_synced,
    a_failed_fsync_is_taken_for_a_good_one,
    a_replay_begins_in_the_middle,
    returning_leaders_load_nothing,
    former_leaders_go_on,
    leaders_that_return_watch_no_topics,
)
