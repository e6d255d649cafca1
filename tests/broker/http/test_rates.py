"""Rates of groups from offsets that are looked at again and again; unknown ones are not 0."""

import sys
from collections.abc import Sequence

import pytest

from barnabas_broker.http import samples as module
from barnabas_broker.http.rates import LEAST, UNKNOWN, Movement, Offsets, Rates
from barnabas_broker.http.samples import Samples

Step = tuple[float, int | None, int | None]


def moved(steps: Sequence[Step]) -> Movement:
    """A group with one partition: seconds, committed offset, end."""
    movement = Movement()
    for at, committed, end in steps:
        movement.look(1_000 + at, [Offsets("t", 0, committed, end)])
    return movement


def every(seconds: int, until: int, committed: int, produced: int) -> list[Step]:
    """Looks at a group that commits and gets so many records per second."""
    return [(at, at * committed, 7 + at * produced) for at in range(0, until + 1, seconds)]


def test_a_rate_is_not_known_before_its_least_time() -> None:
    assert moved([(0, 0, 0)]).rates == UNKNOWN
    assert moved(every(2, 8, 100, 200)).rates == UNKNOWN
    assert moved(every(2, 10, 100, 200)).rates == Rates(100, 200)
    assert moved(every(2, int(LEAST), 0, 0)).rates == Rates(0, 0)


def test_commits_in_steps_are_one_rate() -> None:
    """A group that commits every five seconds, looked at every two."""
    movement = Movement()
    seen = []
    for at in range(0, 121, 2):
        movement.look(at, [Offsets("t", 0, at // 5 * 500, 100 * at)])
        if movement.rates.commit is not None:
            seen.append(movement.rates.commit)
    assert len(seen) == 56
    assert all(60 <= each <= 125 for each in seen)
    assert all(70 <= each <= 130 for each in seen[10:])
    assert movement.rates.produce == 100


def test_a_group_that_stops_has_a_rate_of_0_after_half_a_minute() -> None:
    steps = every(2, 60, 100, 100)
    stopped = [(60 + at, 6_000, 6_007) for at in range(2, 35, 2)]
    assert moved([*steps, *stopped[:3]]).rates.commit == pytest.approx(75, abs=25)
    assert moved([*steps, *stopped]).rates == Rates(0, 0)


def test_a_reset_and_a_first_commit_are_no_rate() -> None:
    steps = [*every(2, 20, 100, 100), (22, 0, 2_207), (24, 50, 2_407)]
    assert moved(steps).rates.commit == pytest.approx(2_050 / 24)
    movement = moved([(at, None, 10 * at) for at in range(0, 20, 2)])
    assert movement.rates == UNKNOWN
    movement.look(1_020, [Offsets("t", 0, 5_000, 200)])
    assert movement.rates == UNKNOWN
    for at in range(22, 32, 2):
        movement.look(1_000 + at, [Offsets("t", 0, 5_000 + at - 20, 200)])
    assert movement.rates.commit == 1


def test_other_partitions_do_not_count_as_records() -> None:
    movement = moved(every(2, 20, 10, 10))
    both = [Offsets("s", 0, 9_000, 9_000), Offsets("t", 0, 220, 227)]
    assert movement.look(1_022, both)[0] != movement.look(1_022, both)[0]  # NaN
    movement.look(1_024, [Offsets("s", 0, 9_020, 9_020), Offsets("t", 0, 240, 247)])
    # 200 records in the first 20 s, 40 in the last 2; what lies between cannot be compared.
    assert movement.rates.commit == pytest.approx(240 / 22)


def test_the_produce_rate_needs_the_ends_of_all_partitions() -> None:
    movement = Movement()
    for at in range(0, 60, 2):
        found = [Offsets("t", 0, at, 10 * at), Offsets("t", 1, at, None if at < 20 else 10 * at)]
        movement.look(at, found)
        if at in (18, 30, 36):
            assert movement.rates == Rates(2, None)
    assert movement.rates == Rates(2, 20)


def test_a_look_after_a_long_time_begins_again() -> None:
    """The console looks only while its page is open."""
    movement = moved([*every(2, 30, 100, 100), (4_000, 5_000, 5_000)])
    assert movement.rates == UNKNOWN
    for at in range(2, 13, 2):
        movement.look(5_000 + at, [Offsets("t", 0, 5_000 + at, 5_000 + at)])
    assert movement.rates.commit == 1


def test_looks_that_are_always_rare_have_a_rate() -> None:
    """A broker with very many groups looks at each once in minutes."""
    assert moved([(at * 120, at * 1_200, at * 2_400) for at in range(4)]).rates == Rates(10, 20)


def test_groups_beyond_those_with_curves_have_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GROUPS", 1)
    monkeypatch.setattr(module, "MOST_RATES", 3)
    monkeypatch.setattr(module, "MOST_MOVING", 5)
    samples = Samples()
    parts = {"a": 1, "b": 1, "c": 2, "d": 1}
    for at in range(0, 12, 2):
        for name, count in parts.items():
            samples.add(name, [Offsets(name, n, 10 * at, 20 * at) for n in range(count)], 1_000 + at)
        samples.end_round(parts)
    assert [samples.rates(name).commit for name in "abcd"] == [10, 10, 20, None]
    # A group that grows beyond the bound loses its rate; the place is free for another one.
    samples.add("c", [Offsets("c", n, 200, 200) for n in range(4)], 1_012)
    assert samples.rates("c") == UNKNOWN
    samples.add("d", [Offsets("d", 0, 200, 200)], 1_012)
    samples.end_round(parts)
    assert samples._moving == 3
    samples.end_round("a")
    assert samples.rates("b") == UNKNOWN


def test_a_clock_that_is_set_back_begins_again() -> None:
    samples = Samples()
    for at in (100, 106, 112):
        samples.add("g", [Offsets("t", 0, at, at)], at)
    assert samples.rates("g").commit == 1
    samples.add("g", [Offsets("t", 0, 200, 200)], 50)
    assert samples.rates("g") == UNKNOWN


def test_the_memory_of_a_group_is_small() -> None:
    movement = moved(every(2, 4_000, 1_000_003, 1_000_033))
    parts = [getattr(movement, name) for name in Movement.__slots__]
    marks = {id(each): each for each in (movement._sum, movement._mark, movement._before)}
    size = sys.getsizeof(movement) + sum(map(sys.getsizeof, parts))
    assert size + sum(sys.getsizeof(each) for mark in marks.values() for each in mark) < 1_000


def test_json() -> None:
    assert Rates(0.4567, None).as_data() == {"commit_rate": 0.46, "produce_rate": None}
    assert Rates(123.4, 12.0).as_data() == {"commit_rate": 123, "produce_rate": 12}
