"""Planted bugs of share groups, which the simulation must find. Those of Kafka have the number of its issue."""

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import wraps
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.coordinators.result import Result
from barnabas_broker.coordinators.runtime import Runtime
from barnabas_broker.groups.coordinator.replay import Replay
from barnabas_broker.groups.share.partition import Acknowledgement, Returned, SharePartition, State, StateChange, _Range
from barnabas_broker.share_partitions.hosted import LedSharePartition
from barnabas_broker.share_partitions.service import SharePartitions
from barnabas_broker.share_partitions.sessions import ShareSession
from barnabas_broker.shares.persister import SharePersister
from barnabas_broker.shares.ports import ShareState
from barnabas_broker.shares.state import UNKNOWN, SharePartitionState, Snapshot
from barnabas_protocol.records import BatchHeader, Record
from tests.witnesses import named


def lock_timers_are_lost() -> AbstractContextManager[Any]:
    """No timer is set after the first locks have expired (KAFKA-17965)."""
    right = LedSharePartition._expire

    @wraps(right)
    def wrong(self: LedSharePartition) -> None:
        right(self)
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = 0.0

    return patch.object(LedSharePartition, "_expire", wrong)


def counts_grow_with_failed_writes() -> AbstractContextManager[Any]:
    """A release that could not be written counts as a delivery."""
    right = SharePartition.end_write

    @wraps(right)
    def wrong(self: SharePartition, *, written: bool) -> None:
        for each in self._ranges:
            each.count += each.writing and each.change is not None and not written
        right(self, written=written)

    return patch.object(SharePartition, "end_write", wrong)


def gaps_stay_available() -> AbstractContextManager[Any]:
    """A fetch begins with a record that is not there, again and again."""
    return patch.object(SharePartition, "_archive_gap", lambda self, first, last: None)


def records_are_released_without_end() -> AbstractContextManager[Any]:
    """The delivery limit does not hold for records that members release."""

    def wrong(self: SharePartition, each: _Range, change: StateChange) -> None:
        each.decide(State.AVAILABLE, change)

    return patch.object(SharePartition, "_give_back", wrong)


def acquired_records_are_delivered() -> AbstractContextManager[Any]:
    """Two members get the same record."""
    return patch.object(
        _Range, "acquirable", property(lambda self: self.state in (State.AVAILABLE, State.ACQUIRED) and not self.change)
    )


def locks_expire_while_they_are_released() -> AbstractContextManager[Any]:
    """A lock expires although what its member has said is being written."""
    right = SharePartition.expire

    @wraps(right)
    def wrong(self: SharePartition, now: float) -> tuple[list[Returned], StateChange | None]:
        for each in self._ranges:
            if each.deadline <= now:
                each.change = None
        return right(self, now)

    return patch.object(SharePartition, "expire", wrong)


def acknowledgements_are_confirmed_before_they_are_written() -> AbstractContextManager[Any]:
    """What a member has accepted is lost with the leader."""

    async def wrong(self: LedSharePartition, change: StateChange) -> None:
        self.write()

    return patch.object(LedSharePartition, "settled", wrong)


def the_window_passes_what_is_being_released() -> AbstractContextManager[Any]:
    """The start offset moves past records that come back."""
    right = SharePartition._trim

    @wraps(right)
    def wrong(self: SharePartition) -> None:
        for each in self._ranges:
            if each.change is None or each.after is not State.AVAILABLE:
                break
            each.settle(State.ACKNOWLEDGED)
        right(self)

    return patch.object(SharePartition, "_trim", wrong)


def members_that_are_gone_keep_their_records() -> AbstractContextManager[Any]:
    """The end of a session gives back nothing."""

    async def wrong(self: SharePartitions, session: ShareSession) -> None:
        """Do nothing."""

    return patch.object(SharePartitions, "_release", wrong)


def members_that_are_gone_get_back_what_could_not_be_written() -> AbstractContextManager[Any]:
    """A session ends while what the member has said is being written; if that fails, the member has the records."""
    right = SharePartition.end_write

    @wraps(right)
    def wrong(self: SharePartition, *, written: bool) -> None:
        for each in self._ranges:
            each.ended = False
        right(self, written=written)

    return patch.object(SharePartition, "end_write", wrong)


def former_leaders_may_write() -> AbstractContextManager[Any]:
    """The leader epoch of a writer is not compared."""
    right = SharePartitionState.write

    @wraps(right)
    def wrong(self: SharePartitionState, state_epoch: int, leader_epoch: int, *rest: Any) -> Any:
        return right(self, state_epoch, UNKNOWN, *rest)

    return patch.object(SharePartitionState, "write", wrong)


def new_leaders_read_no_delivery_counts() -> AbstractContextManager[Any]:
    """The next leader begins to count again."""
    right = SharePersister.read

    @wraps(right)
    async def wrong(self: SharePersister, *arguments: Any) -> ShareState:
        state = await right(self, *arguments)
        batches = tuple(each._replace(delivery_count=min(each.delivery_count, 1)) for each in state.batches)
        return replace(state, batches=batches)

    return patch.object(SharePersister, "read", wrong)


def snapshots_have_no_batches() -> AbstractContextManager[Any]:
    """A replay that begins with a snapshot lacks what was acknowledged in the window."""
    right = SharePartitionState._written

    @wraps(right)
    def wrong(self: SharePartitionState, *arguments: Any) -> Any:
        record = right(self, *arguments)
        return replace(record, batches=()) if isinstance(record, Snapshot) else record

    return patch.object(SharePartitionState, "_written", wrong)


def failed_appends_have_changed_the_state() -> AbstractContextManager[Any]:
    """The coordinator has in memory what is not in its log."""
    right = Runtime._carry_out

    @wraps(right)
    def wrong(self: Runtime[Any, Any, Any], hosted: Any, result: Result[Any, Any, Any], *others: Any) -> None:
        for record in result.records:
            hosted.machine.apply(record)
        right(self, hosted, result, *others)

    return patch.object(Runtime, "_carry_out", wrong)


def a_replay_forgets_a_group_before_its_epoch() -> AbstractContextManager[Any]:
    """After compaction the records of a group before that of its epoch are lost: all records come again."""
    right = Replay.apply

    @wraps(right)
    def wrong(self: Replay, header: BatchHeader, record: Record) -> None:
        right(self, header, record)
        for group_id, group in list(self.share_groups.items()):
            if group.gone:
                del self.share_groups[group_id]

    return patch.object(Replay, "apply", wrong)


def rejected_records_are_no_dead_letters() -> AbstractContextManager[Any]:
    """What a member rejects is gone."""
    right = SharePartition._decide

    @wraps(right)
    def wrong(self: SharePartition, each: _Range, kind: Acknowledgement, change: StateChange, now: float) -> None:
        right(self, each, Acknowledgement.GAP if kind is Acknowledgement.REJECT else kind, change, now)

    return patch.object(SharePartition, "_decide", wrong)


BUGS: Final = named(
    lock_timers_are_lost,
    counts_grow_with_failed_writes,
    gaps_stay_available,
    records_are_released_without_end,
    acquired_records_are_delivered,
    locks_expire_while_they_are_released,
    acknowledgements_are_confirmed_before_they_are_written,
    the_window_passes_what_is_being_released,
    members_that_are_gone_keep_their_records,
    members_that_are_gone_get_back_what_could_not_be_written,
    former_leaders_may_write,
    new_leaders_read_no_delivery_counts,
    snapshots_have_no_batches,
    failed_appends_have_changed_the_state,
    a_replay_forgets_a_group_before_its_epoch,
    rejected_records_are_no_dead_letters,
)
