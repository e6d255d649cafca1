"""Aborted transactions that a fetch overlaps, put in the order of their first offsets."""

import random

import pytest

from barnabas_broker.storage.transaction_index import AbortedTransaction, InOffsetOrder, TransactionIndex


@pytest.mark.parametrize("count", [0, 1, 4_095, 4_096, 4_097, 20_000])
@pytest.mark.parametrize("spread", [0, 10, 6_000, 1_000_000])
def test_transactions_come_in_offset_order(count: int, spread: int) -> None:
    """`spread` is how far a transaction may begin from its place in the order of markers."""
    chance = random.Random(count + spread)
    given = [
        AbortedTransaction(chance.randrange(2**62), number + chance.randint(0, spread), 2_000_000 + number, number)
        for number in range(count)
    ]
    found = InOffsetOrder()
    for each in given:
        found.append(each)
    expected = sorted(given, key=lambda each: (each.first_offset, each.producer_id))
    assert len(found) == count
    assert list(found) == expected
    assert (len(found), list(found)) == (count, expected), "again"


def test_transactions_one_after_another_are_one_run() -> None:
    found = InOffsetOrder()
    for number in range(10_000):
        found.append(AbortedTransaction(1, 2 * number, 2 * number + 1, 2 * number + 2))
    assert len(list(found)) == 10_000
    assert len(found._runs) == 1


def test_transactions_with_markers_between_two_offsets_are_counted() -> None:
    index = TransactionIndex(0)
    markers = [5, 9, 10, 30]
    for number, marker in enumerate(markers):
        index.append(AbortedTransaction(number, marker - 2, marker, marker - 2))
    for start in range(32):
        for end in range(start, 33):
            between = [number for number, marker in enumerate(markers) if start <= marker < end]
            assert index.ended(start, end) == (len(between), between[-1] if between else -1)
