"""Open transactions that ``read_committed`` consumers wait for: which of them are a finding, and what is said."""

from dataclasses import replace

import pytest

from barnabas_explain.waits import Waiting, idle_ms, long_waits, of_work

MINUTE = 60_000
#: Of a producer that commits each 30 s, as Flink does at its checkpoints, and has 15 minutes for that.
FLINK = Waiting(("t", 0), 100, 40, 7, "flink-0", open_ms=28_000, timeout_ms=15 * MINUTE, idle_ms=400)
#: Of a producer with the timeout of 60 s that producers have by default.
SHORT = replace(FLINK, open_ms=40_000, timeout_ms=MINUTE)


@pytest.mark.parametrize(
    ("waiting", "found"),
    [
        (FLINK, False),
        (replace(FLINK, open_ms=10 * MINUTE), False),
        (replace(FLINK, open_ms=14 * MINUTE), True),
        (replace(FLINK, open_ms=80_000, idle_ms=50_000), False),
        (replace(FLINK, open_ms=80_000, idle_ms=61_000), True),
        (SHORT, False),
        (replace(SHORT, open_ms=58_000), True),
        (replace(SHORT, idle_ms=31_000), True),
        (replace(SHORT, open_ms=9_000, timeout_ms=10_000), False),
        (replace(FLINK, idle_ms=None), False),
        (replace(FLINK, idle_ms=None, open_ms=8 * MINUTE), True),
        (replace(FLINK, idle_ms=None, timeout_ms=None), True),
        (replace(FLINK, idle_ms=61_000, open_ms=None), False),
    ],
    ids=[
        "it is at work",
        "it is at work for long",
        "it will be aborted",
        "a pause",
        "it is left open",
        "it is at work, with a short timeout",
        "it will be aborted, with a short timeout",
        "it is left open, with a short timeout",
        "it is young",
        "its records have other times",
        "the same, for long",
        "nothing is known",
        "no coordinator",
    ],
)
def test_an_open_transaction_is_a_finding_if_it_is_not_at_work(waiting: Waiting, found: bool) -> None:
    assert bool(long_waits([waiting])) is found
    assert not (waiting.is_at_work and found)


def test_a_transaction_is_told_once_for_all_its_partitions() -> None:
    idle = replace(FLINK, open_ms=90_000, idle_ms=70_000)
    other = replace(idle, partition=("t", 1), records=2, idle_ms=75_000)
    (told,) = long_waits([idle, FLINK, other])
    assert told.text == (
        "t-0 to t-1: read_committed consumers wait for an open transaction of producer id 7 (flink-0), open for 90 s,"
        " without a record for 70 s; 42 records behind it."
    )
    assert str(told.remedy).startswith("Look whether its producer still runs. If it does, it probably commits at")
    assert "transaction.timeout.ms of 15 min" in str(told.remedy)


def test_a_transaction_at_work_is_named_once_for_all_its_partitions() -> None:
    assert FLINK.is_at_work
    assert not replace(FLINK, open_ms=9_000).is_at_work, "members wait for so long all the time"
    (said,) = of_work([FLINK, replace(FLINK, partition=("t", 1), records=2, idle_ms=None)])
    assert said == (
        "t-0 to t-1: 42 records come to read_committed members when an open transaction of producer id 7 (flink-0),"
        " open for 28 s, ends. It got its last record 400 ms ago: it is probably at work, and needs no change. If"
        " records come too late: let its producer commit more often (a shorter checkpoint interval)."
    )


def test_a_transaction_that_will_be_aborted_at_work() -> None:
    (told,) = long_waits([replace(SHORT, open_ms=58_000)])
    assert told.text == (
        "t-0: read_committed consumers wait at offset 100 for an open transaction of producer id 7 (flink-0), open for"
        " 58 s; 40 records behind it."
    )
    assert str(told.remedy).startswith("It is aborted after its transaction.timeout.ms of 60 s: let its producer")


@pytest.mark.parametrize(
    ("last_timestamp", "open_ms", "idle"),
    [(95_000, 20_000, 5_000), (75_000, 20_000, 25_000), (60_000, 20_000, None), (101_000, 20_000, 0), (None, 1, None)],
    ids=["it is newer", "it waited in its client", "the time of something else", "another clock", "not known"],
)
def test_the_time_since_the_last_record(last_timestamp: int | None, open_ms: int, idle: int | None) -> None:
    assert idle_ms(last_timestamp, open_ms, 100_000) == idle
