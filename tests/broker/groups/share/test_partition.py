"""What a share partition answers, in examples."""

import pytest

from barnabas_broker.groups.share.partition import (
    Acknowledged,
    Acquired,
    DeliveryLimits,
    OffsetRange,
    Part,
    Reason,
    SharePartition,
    State,
    Totals,
    Undeliverable,
)
from barnabas_broker.shares.ports import ShareState, StateBatch
from barnabas_protocol.errors import ErrorCode, KafkaError

NOTHING = ShareState(7, 0, 0, ())
#: Two record batches of ten records, and one of five.
LOG = [OffsetRange(0, 9), OffsetRange(10, 19), OffsetRange(20, 24)]


def partition(state: ShareState = NOTHING, **limits: int) -> SharePartition:
    return SharePartition(state, 0, DeliveryLimits(**limits), Totals())


def acquire(
    part: SharePartition, member: str = "ann", most: int = 500, size: int = 500, *, strict: bool = False
) -> list[Acquired]:
    offset = part.next_fetch_offset
    fetched = [each for each in LOG if each.last >= offset]
    return part.acquire(member, offset, fetched, 0.0, max_records=most, batch_size=size, strict=strict)


def part_of(first: int, last: int, member: str, deadline: float | None = 30.0) -> Part:
    """A part of a window that a member has for the first time."""
    return Part(first, last, State.ACQUIRED, 1, member, deadline)


def write(part: SharePartition) -> tuple[int, list[StateBatch]]:
    found = part.begin_write()
    assert found is not None
    part.end_write(written=True)
    return found.start_offset, found.batches


def test_the_last_batch_is_acquired_whole() -> None:
    assert acquire(partition(), most=12) == [Acquired(0, 19, 1)]


def test_a_record_limit_is_exact() -> None:
    assert acquire(partition(), most=12, strict=True) == [Acquired(0, 11, 1)]


def test_parts_end_with_record_batches() -> None:
    assert acquire(partition(), size=8) == [Acquired(0, 9, 1), Acquired(10, 19, 1), Acquired(20, 24, 1)]


def test_nobody_else_gets_what_is_acquired() -> None:
    part = partition()
    acquire(part, most=10)
    assert acquire(part, "bob") == [Acquired(10, 24, 1)]
    assert acquire(part, "cid") == []


def test_locks_are_listed_until_what_members_have_said_is_written() -> None:
    part = partition(lock_seconds=30)
    acquire(part, most=10)
    acquire(part, "bob", most=10)
    assert part.parts(9) == [part_of(0, 9, "ann"), part_of(10, 19, "bob")]
    part.acknowledge("ann", [Acknowledged(0, 9, [1])], 1.0)
    assert part.parts(1) == [part_of(0, 9, "ann", None)]
    write(part)
    assert part.parts(9) == [part_of(10, 19, "bob")]


def test_everything_that_is_accepted_in_order_is_one_offset() -> None:
    part = partition()
    acquire(part)
    part.acknowledge("ann", [Acknowledged(0, 24, [1])], 0.0)
    assert write(part) == (25, [])
    assert (part.start_offset, part.end_offset, len(part)) == (25, 24, 0)


def test_a_record_blocks_the_window_and_the_ones_behind_it_are_written() -> None:
    part = partition()
    acquire(part)
    part.acknowledge("ann", [Acknowledged(1, 19, [1]), Acknowledged(20, 24, [3])], 0.0)
    assert write(part) == (0, [StateBatch(1, 19, 2, 1), StateBatch(20, 24, 4, 1)])
    assert part.blocked_by == Part(0, 0, State.ACQUIRED, 1, "ann", 30.0)
    restored = partition(ShareState(7, 0, 24, (StateBatch(1, 19, 2, 1), StateBatch(20, 24, 4, 1))))
    assert acquire(restored, "bob") == [Acquired(0, 0, 1)]


def test_types_of_each_record() -> None:
    part = partition()
    acquire(part, most=10)
    change = part.acknowledge("ann", [Acknowledged(0, 9, [1, 1, 1, 2, 2, 3, 0, 4, 1, 1])], 0.0)
    assert change is not None
    assert change.undeliverable == [Undeliverable(5, 5, 1, Reason.REJECTED, "ann")]
    assert write(part) == (
        3,
        [StateBatch(3, 4, 0, 1), StateBatch(5, 6, 4, 1), StateBatch(8, 9, 2, 1)],
    )
    assert part.in_state(State.ACQUIRED) == 1


@pytest.mark.parametrize(
    ("member", "first", "last", "code"),
    [
        ("bob", 0, 9, ErrorCode.INVALID_RECORD_STATE),
        ("ann", 5, 10, ErrorCode.INVALID_REQUEST),
        ("ann", 3, 4, ErrorCode.INVALID_RECORD_STATE),
        ("ann", 100, 100, ErrorCode.INVALID_REQUEST),
        ("ann", 2, 2, ErrorCode.INVALID_RECORD_STATE),
    ],
)
def test_what_a_member_has_not_acquired(member: str, first: int, last: int, code: ErrorCode) -> None:
    part = partition()
    acquire(part, most=10)
    part.acknowledge("ann", [Acknowledged(3, 4, [2])], 0.0)
    with pytest.raises(KafkaError) as refused:
        part.acknowledge(member, [Acknowledged(0, 2, [1]), Acknowledged(first, last, [1])], 0.0)
    assert refused.value.code is code
    assert write(part) == (0, [StateBatch(3, 4, 0, 1)])  # nothing of it was taken


def test_an_unknown_type() -> None:
    part = partition()
    acquire(part)
    with pytest.raises(KafkaError) as refused:
        part.acknowledge("ann", [Acknowledged(0, 0, [9])], 0.0)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert part.in_state(State.ACQUIRED) == 25


def test_a_renewed_lock_lasts_longer() -> None:
    part = partition()
    acquire(part)
    assert part.acknowledge("ann", [Acknowledged(0, 9, [4])], 20.0) is None
    assert part.deadline == 30.0
    expired, change = part.expire(30.0)
    assert [(each.member, each.first, each.last) for each in expired] == [("ann", 10, 24)]
    assert change is None
    assert part.deadline == 50.0


def test_the_last_delivery_is_alone_and_then_the_record_is_archived() -> None:
    part = partition(delivery_count=3)
    for _ in range(2):
        assert len(acquire(part, most=10)) == 1
        part.expire(30.0)
    assert acquire(part, most=10) == [Acquired(0, 0, 3)]
    _, change = part.expire(30.0)
    assert change is not None
    assert change.undeliverable == [Undeliverable(0, 0, 3, Reason.DELIVERY_LIMIT, "ann")]
    assert part.in_state(State.ACQUIRED) == 1  # until it is written
    assert write(part) == (1, [StateBatch(1, 9, 0, 2)])
    assert part.next_fetch_offset == 1


def test_an_archive_that_cannot_be_written_is_tried_again() -> None:
    part = partition(delivery_count=1)
    acquire(part, most=10)
    part.expire(30.0)
    assert part.begin_write() is not None
    part.end_write(written=False)
    assert part.deadline == 30.0
    expired, change = part.expire(30.0)
    assert expired and change is not None


def test_the_end_of_a_session_gives_back_what_cannot_be_written() -> None:
    """So do acknowledgements that are being written: the member is gone, and cannot repeat them."""
    part = partition(delivery_count=2)
    acquire(part, most=10)
    part.expire(30.0)
    assert acquire(part, most=10) == [Acquired(0, 9, 2)]
    assert acquire(part, most=10) == [Acquired(10, 19, 1)]
    part.acknowledge("ann", [Acknowledged(0, 9, [1]), Acknowledged(10, 14, [1])], 30.0)
    assert part.begin_write() is not None
    assert part.release("ann") is not None  # 15 to 19
    part.end_write(written=False)
    assert part.next_fetch_offset == 10, "delivered once, so it is available at once"
    assert write(part) == (10, [StateBatch(10, 19, 0, 1)])
    assert acquire(part, "bob") == [Acquired(10, 19, 2), Acquired(20, 24, 1)]


def test_a_change_settles_although_its_records_are_deleted_meanwhile() -> None:
    part = partition()
    acquire(part)
    change = part.acknowledge("ann", [Acknowledged(0, 9, [1])], 0.0)
    part.log_starts_at(50)
    assert change is not None
    assert write(part) == (50, [])
    assert change.settled


def test_the_window_is_bounded_also_in_ranges_of_one_record() -> None:
    part = partition(record_locks=1000)
    log = [OffsetRange(at, at) for at in range(100_000)]
    for _ in range(3):
        part.acquire("ann", part.next_fetch_offset, log[part.next_fetch_offset :], 0.0, max_records=10**6, batch_size=1)
    assert part.end_offset == 999
    for at in range(1, 1000, 2):
        part.acknowledge("ann", [Acknowledged(at, at, [1])], 0.0)
    write(part)
    assert len(part) == 1000
    assert not part.may_acquire


def test_a_batch_of_a_million_records_is_one_range() -> None:
    part = partition()
    part.acquire("ann", 0, [OffsetRange(0, 999_999)], 0.0, max_records=500, batch_size=500)
    part.acknowledge("ann", [Acknowledged(0, 499_999, [1])], 0.0)
    assert len(part) == 2


@pytest.mark.parametrize(
    "batches",
    [
        (StateBatch(5, 9, 2, 1), StateBatch(0, 7, 0, 3)),
        (StateBatch(-9, 3, 2, 1), StateBatch(4, 2, 2, 1)),
        (StateBatch(0, 9, 1, 1), StateBatch(0, 9, 77, 1)),
    ],
)
def test_a_written_state_that_makes_no_sense(batches: tuple[StateBatch, ...]) -> None:
    part = partition(ShareState(0, 0, 0, batches))
    assert part.start_offset <= part.next_fetch_offset <= part.end_offset + 1
