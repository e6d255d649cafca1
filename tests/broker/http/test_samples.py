"""Lag, ages and rates of groups from samples of offsets; their memory is bounded."""

import random
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas_broker.http import samples as module
from barnabas_broker.http.rates import Offsets
from barnabas_broker.http.samples import COLUMNS, GROUP_BYTES, Age, OffsetTimes, Samples

BEGAN = 1_700_000_000.0


def sampled(steps: Sequence[tuple[float, int | None, int | None]]) -> tuple[Samples, dict[str, Any]]:
    """The curves of a group with one partition: seconds, committed offset, end."""
    samples = Samples()
    for at, committed, end in steps:
        samples.add("g", [Offsets("t", 0, committed, end)], BEGAN + at)
        samples.end_round({"g"})
    return samples, samples.curves("g", 0)


def test_lag_and_rates() -> None:
    _, curves = sampled([(0, 0, 0), (2, 10, 100), (4, 10, 100), (6, 100, 120)])
    assert curves == {
        "times": [round(BEGAN * 1000) + at * 1000 for at in (0, 2, 4, 6)],
        "lag": [0, 90, 90, 20],
        # Offsets 0 to 100 were written within the first two seconds, 100 to 120 in the last two.
        "lag_ms": [0, 1800, 3800, 2000],
        "commit_rate": [None, 5, 0, 45],
        "produce_rate": [None, 50, 0, 10],
        "kept": True,
    }


def test_records_behind_the_oldest_one_that_are_processed_do_not_count() -> None:
    samples = Samples()
    for at, complete in ((0, 0), (2, 7)):
        samples.add("g", [Offsets("t", 0, 5, 15, complete)], BEGAN + at)
    assert samples.curves("g", 0)["lag"] == [10, 3]


def test_the_group_is_as_old_as_its_oldest_partition() -> None:
    samples = Samples()
    for at, ends in ((0, (5, 0)), (2, (5, 10)), (4, (9, 10))):
        offsets = [Offsets("t", n, end, limit) for n, (end, limit) in enumerate(zip((5, 0), ends, strict=True))]
        samples.add("g", offsets, BEGAN + at)
        samples.end_round({"g"})
    assert samples.age("g") == Age(4000, True)
    assert samples.curves("g", 0)["lag"] == [0, 10, 14]


def test_an_age_before_the_first_sample_is_the_least() -> None:
    samples, curves = sampled([(0, 5, 50), (10, 5, 50)])
    assert samples.age("g") == Age(10_000, False)
    assert curves["lag_ms"] == [0, 10_000]


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(None, 10, None), (5, None, None), (None, None, None), (12, 10, 0)]
)
def test_what_is_not_known_is_null(committed: int | None, end: int | None, lag: int | None) -> None:
    _, curves = sampled([(0, committed, end), (2, committed, end)])
    assert curves["lag"] == [lag, lag]


def test_a_first_commit_and_a_reset_are_no_rate() -> None:
    _, curves = sampled([(0, None, 5_000), (2, 5_000, 5_000), (4, 100, 5_000), (6, 110, 5_000)])
    assert curves["commit_rate"] == [None, 0, 0, 5]
    samples = Samples()
    samples.add("g", [Offsets("t", 0, 5, 5)], BEGAN)
    # Another topic is consumed: its offsets are not records that were consumed in these two seconds.
    samples.add("g", [Offsets("s", 0, 9_000, 9_000), Offsets("t", 0, 7, 7)], BEGAN + 2)
    assert samples.curves("g", 0)["commit_rate"] == [None, None]


def test_a_clock_that_is_set_back_begins_new_curves() -> None:
    _, curves = sampled([(100, 0, 10), (102, 0, 10), (50, 0, 10), (52, 1, 10)])
    assert curves["times"] == [round((BEGAN + at) * 1000) for at in (50, 52)]


def test_a_log_that_was_truncated_has_new_marks() -> None:
    times = OffsetTimes()
    times.add(1, 100)
    times.add(2, 200)
    times.add(3, 150)
    assert times.age(120, 5) == Age(2000, False)


def test_ages_are_right_within_their_bound_however_many_marks_are_dropped() -> None:
    chance = random.Random(5)
    times = OffsetTimes()
    written: list[float] = []
    now, end = 0.0, 0
    times.add(now, end)
    for _ in range(4_000):
        now += chance.choice((1, 2, 2, 3))
        end += chance.choice((0, 0, 1, 50, 400))
        times.add(now, end)
        written += [now] * (end - len(written))
        offset = chance.randrange(end + 1)
        age = times.age(offset, now)
        if offset == end:
            assert age == Age(0, True)
        else:
            real = now - written[offset]
            assert age.exact
            # The share of an age that a dropped mark may cost, and two samples.
            assert abs(age.ms / 1000 - real) <= 0.36 * real + 6
        assert len(times._times) <= module._MOST_MARKS


def test_memory_is_bounded() -> None:
    samples = Samples()
    for n in range(2_000):
        samples.add("g", [Offsets("t", 0, n, 2 * n)], BEGAN + 2 * n)
    (group,) = samples._groups.values()
    arrays: list[array[Any]] = [ring._times for ring in group._rings]
    arrays += [column for ring in group._rings for column in ring._columns]
    assert sum(len(each) * each.itemsize for each in arrays) == GROUP_BYTES
    assert sum(map(sys.getsizeof, arrays)) < 1.3 * GROUP_BYTES + len(arrays) * 100
    times = samples.curves("g", 0)["times"]
    assert times == sorted(set(times))
    # The last hour, of which the last ten minutes are finer.
    assert times[-1] - times[0] == pytest.approx(3_600_000, abs=20_000)
    assert [b - a for a, b in zip(times[-300:], times[-299:], strict=False)] == [2_000] * 299
    since = samples.curves("g", times[-10])
    assert since["times"] == times[-10:]
    assert {len(since[name]) for name in COLUMNS} == {10}


def test_further_groups_and_partitions_have_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    monkeypatch.setattr(module, "MOST_PARTITIONS", 2)
    samples = Samples()
    for name in "abc":
        samples.add(name, [Offsets(name, 0, 1, 2)], BEGAN)
    samples.end_round("abc")
    assert [samples.newest(name) > 0 for name in "abc"] == [True, True, False]
    assert (samples.curves("a", 0)["kept"], samples.curves("c", 0)["kept"]) == (True, False)
    assert samples.age("c") is None
    samples.end_round("bc")
    samples.add("c", [Offsets("c", 0, 1, 2)], BEGAN + 2)
    assert samples.age("c") == Age(0, False)
    assert samples.newest("a") == 0


def test_a_partition_of_several_groups_is_marked_once_a_round() -> None:
    samples = Samples()
    for at in range(4):
        for name in ("a", "b"):
            samples.add(name, [Offsets("t", 0, 0, 10 * at)], BEGAN + 2 * at + (name == "b") * 0.1)
        samples.end_round({"a", "b"})
    assert samples.age("a") == Age(6000, True)
