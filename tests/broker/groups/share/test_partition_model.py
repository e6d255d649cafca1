"""The share partition beside one that keeps every record by itself; bugs that are planted in it are found."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.groups.share.partition import (
    Acquired,
    OffsetRange,
    Returned,
    SharePartition,
    State,
    StateChange,
    _Range,
)
from tests.broker.groups.share.naive import Driver


@given(st.binary(min_size=60, max_size=450))
def test_as_a_partition_that_keeps_every_record_by_itself(script: bytes) -> None:
    Driver(SharePartition).run(script)


class LosesLockTimers(SharePartition):
    """A write that fails leaves records acquired without a timer."""

    def end_write(self, *, written: bool) -> None:
        before = self.deadline
        super().end_write(written=written)
        self.deadline = before


class CountsFailedWrites(SharePartition):
    """A write that fails makes the delivery count grow."""

    def end_write(self, *, written: bool) -> None:
        back = [each for each in self._ranges if each.writing and each.change is not None and not written]
        for each in back:
            each.count += 1
        super().end_write(written=written)


class KeepsFailedWrites(SharePartition):
    """What was acknowledged counts although it is not written."""

    def end_write(self, *, written: bool) -> None:
        super().end_write(written=True)


class IsStuckBehindGaps(SharePartition):
    """A record that compaction has removed stays available for ever."""

    def _archive_gap(self, first: int, last: int) -> None:
        """Do nothing."""


class DeliversEndlessly(SharePartition):
    """The delivery limit has no effect on what is released."""

    def _give_back(self, each: _Range, change: StateChange) -> None:
        each.decide(State.AVAILABLE, change)


class TakesAnybodysWord(SharePartition):
    """A member may acknowledge what another one has."""

    def _check_acquired(self, member: str, first: int, last: int) -> None:
        n = self._index(first)
        super()._check_acquired(self._ranges[n].member if self._ranges else member, first, last)


class NeverFull(SharePartition):
    """The window has no bound."""

    @property
    def _room(self) -> int:
        return 1_000


class ExpiresWhatIsWritten(SharePartition):
    """A lock expires while its record is being acknowledged."""

    def expire(self, now: float) -> tuple[list[Returned], StateChange | None]:
        for each in self._ranges:
            if each.deadline <= now:
                each.change = None
        return super().expire(now)


class DeliversAborted(SharePartition):
    """Records of aborted transactions are delivered."""

    def acquire(
        self,
        member: str,
        offset: int,
        fetched: Sequence[OffsetRange],
        now: float,
        *,
        max_records: int,
        batch_size: int,
        strict: bool = False,
        aborted: Sequence[OffsetRange] = (),
    ) -> list[Acquired]:
        return super().acquire(
            member, offset, fetched, now, max_records=max_records, batch_size=batch_size, strict=strict
        )


class ReleasesOnce(SharePartition):
    """The end of a session releases one range."""

    def release(self, member: str) -> StateChange | None:
        ranges, self._ranges = self._ranges, self._ranges[:1]
        try:
            return super().release(member)
        finally:
            self._ranges = ranges


class ForgetsEndedSessions(SharePartition):
    """Members whose sessions have ended have records again if what they have said cannot be written."""

    def end_write(self, *, written: bool) -> None:
        for each in self._ranges:
            each.ended = False
        super().end_write(written=written)


class NeverMovesOn(SharePartition):
    """The start of the window stays."""

    def _trim(self) -> None:
        """Do nothing."""


BUGS = (
    *(LosesLockTimers, CountsFailedWrites, KeepsFailedWrites, IsStuckBehindGaps, DeliversEndlessly, TakesAnybodysWord),
    *(NeverFull, ExpiresWhatIsWritten, DeliversAborted, ReleasesOnce, ForgetsEndedSessions),
    NeverMovesOn,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: type[SharePartition]) -> None:
    with pytest.raises((AssertionError, IndexError)):
        run_scripts(bug, random.Random(bug.__name__))


def run_scripts(partition: type[SharePartition], chance: random.Random) -> None:
    """Run random scripts."""
    for _ in range(500):
        Driver(partition).run(chance.randbytes(300))
