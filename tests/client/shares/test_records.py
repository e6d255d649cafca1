"""From batches and acquired ranges to records and gaps."""

import pytest

from barnabas_client.errors import CorruptRecordError
from barnabas_client.shares.records import acquired_rows, are_valid
from barnabas_client.shares.session import Acknowledgement, Run
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.messages.share_fetch import AcquiredRecords
from barnabas_protocol.records import build_batch

TP = TopicPartition("orders", 0)
GAP, RELEASE = Acknowledgement.GAP, Acknowledgement.RELEASE
MARKER = b"\x00\x00\x00\x01"


def batch(first: int, last: int) -> bytes:
    return bytes(build_batch([(None, b"%d" % at, (), 0) for at in range(first, last + 1)], base_offset=first))


def marker(at: int) -> bytes:
    """The end of a transaction, which is no record for programs."""
    given = [(MARKER, b"\x00" * 6, (), 0)]
    return bytes(build_batch(given, base_offset=at, producer_id=1, producer_epoch=0, control=True, transactional=True))


def ranges(*given: tuple[int, int, int]) -> list[AcquiredRecords]:
    return [AcquiredRecords(first_offset=one, last_offset=last, delivery_count=count) for one, last, count in given]


def decoded(
    records: bytes, *acquired: tuple[int, int, int]
) -> tuple[list[tuple[int, int]], list[Run], KafkaError | None]:
    """Offsets with delivery counts, what is acknowledged at once, and the error."""
    parts = list(acquired_rows(TP, records, ranges(*acquired), check_crcs=True))
    assert all(part.error is None for part in parts[:-1])
    rows = [(row.record.offset, row.delivery_count) for part in parts for row in part.rows]
    return rows, [run for part in parts for run in part.runs], parts[-1].error


def test_records_that_are_not_acquired_are_left_out() -> None:
    rows, runs, error = decoded(batch(0, 9), (2, 3, 1), (4, 4, 3), (8, 8, 2))
    assert (rows, runs, error) == ([(2, 1), (3, 1), (4, 3), (8, 2)], [], None)


def test_offsets_without_records_are_gaps() -> None:
    records = batch(2, 3) + marker(4) + batch(7, 7) + marker(8)
    rows, runs, error = decoded(records, (0, 9, 1), (20, 29, 1))
    assert (rows, error) == ([(2, 1), (3, 1), (7, 1)], None)
    assert runs == [Run(0, 1, GAP), Run(4, 6, GAP), Run(8, 9, GAP), Run(20, 29, GAP)]


def test_a_range_without_records_takes_no_time() -> None:
    rows, runs, error = decoded(b"", (0, 2**62, 1))
    assert (rows, runs, error) == ([], [Run(0, 2**62, GAP)], None)


def test_what_cannot_be_decoded_is_released() -> None:
    damaged = bytearray(batch(2, 3))
    damaged[-1] ^= 1
    rows, runs, error = decoded(batch(0, 1) + bytes(damaged) + batch(4, 4), (0, 4, 1), (6, 7, 1))
    assert rows == [(0, 1), (1, 1)]
    assert runs == [Run(2, 4, RELEASE), Run(6, 7, RELEASE)]
    assert isinstance(error, CorruptRecordError)


@pytest.mark.parametrize(
    ("acquired", "valid"),
    [
        ([], True),
        ([(0, 0, 1), (1, 5, 2)], True),
        ([(0, 3, 1), (3, 5, 1)], False),
        ([(4, 5, 1), (0, 1, 1)], False),
        ([(3, 2, 1)], False),
        ([(-1, 2, 1)], False),
        ([(0, 2**63 - 1, 1)], False),
        ([(0, 2, 0)], False),
    ],
)
def test_ranges_of_a_broker_are_checked(acquired: list[tuple[int, int, int]], valid: bool) -> None:
    assert are_valid(ranges(*acquired)) is valid
