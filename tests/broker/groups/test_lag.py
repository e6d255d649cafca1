"""A lag that grows because less is consumed than is written, and lags that are healthy."""

import random
from collections.abc import Callable, Iterable

import pytest

from barnabas_broker.groups.lag import MOST, GrowingLags, Growth

#: Seconds after which a growth is reported, and between two looks.
PATIENCE, EVERY = 60.0, 6.0
#: The hash of some partitions.
SOME = 1


def growths(states: Iterable[tuple[float, float]], every: float = EVERY, patience: float = PATIENCE) -> list[Growth]:
    """What is reported of a group, of which each look finds the records that were written, and those committed."""
    lags = GrowingLags(patience)
    found = [
        lags.look("g", SOME, int(committed), int(written - committed), at * every)
        for at, (written, committed) in enumerate(states)
    ]
    return [each for each in found if each is not None]


def rates(written: float, consumed: float, looks: int, commits_every: int = 1) -> list[tuple[float, float]]:
    """A group that consumes and commits so many records per look, or all that are written if these are fewer."""
    ends = [at * written for at in range(looks)]
    position, found = 0.0, []
    committed = 0.0
    for at, end in enumerate(ends):
        position = min(position + consumed, end)
        if at % commits_every == 0:
            committed = position
        found.append((end, committed))
    return found


def test_a_lag_that_grows_is_reported_and_again_when_it_has_lasted_twice_as_long() -> None:
    first, second, third = growths(rates(480, 120, 60))
    assert 60 <= first.seconds <= 72
    assert second.seconds == pytest.approx(120, abs=24)
    assert third.seconds == pytest.approx(240, abs=48)
    assert first.written / first.seconds == pytest.approx(80)
    assert first.consumed / first.seconds == pytest.approx(20)
    assert first.records == first.written - first.consumed


def test_a_small_deficit_is_found_later() -> None:
    found = growths(rates(480, 440, 100))
    assert found[0].seconds > 100


def test_a_group_that_commits_seldom_and_falls_behind() -> None:
    first, *_ = growths(rates(480, 120, 60, commits_every=3))
    assert first.written / first.consumed == pytest.approx(4, rel=0.1)


def noise() -> list[tuple[float, float]]:
    """A group that keeps up, with commits and records that come in any order."""
    dice, written = random.Random(7), 0.0
    found: list[tuple[float, float]] = []
    for _ in range(2_000):
        written += dice.randrange(600)
        found.append((written, max(written - dice.randrange(900), found[-1][1] if found else 0)))
    return found


def bursts() -> list[tuple[float, float]]:
    """6,000 records within half a minute, every five minutes; 40 of them are consumed per second."""
    written = position = 0.0
    found: list[tuple[float, float]] = []
    for at in range(500):
        written += 1_200 if at % 50 < 5 else 0
        position = min(position + 240, written)
        found.append((written, position))
    return found


def jump() -> list[tuple[float, float]]:
    """50,000 records at once, and then as many as are consumed."""
    return [(at * 300 + (50_000 if at > 20 else 0), at * 300) for at in range(200)]


@pytest.mark.parametrize(
    "states",
    [
        lambda: rates(300, 600, 200),
        lambda: [(1_000_000 + at * 100, at * 500) for at in range(200)],
        lambda: rates(60, 600, 300, commits_every=7),
        lambda: rates(60, 600, 300, commits_every=25),
        lambda: [(at * 100, 500) for at in range(200)],
        lambda: rates(480, 120, 10),
        noise,
        bursts,
        jump,
    ],
    ids=[
        "keeps up",
        "catches up",
        "a batch each 42 s",
        "a batch each 150 s",
        "stands still",
        "has just begun",
        "noise",
        "bursts",
        "one jump",
    ],
)
def test_a_lag_that_is_no_disease(states: Callable[[], list[tuple[float, float]]]) -> None:
    assert growths(states()) == []


@pytest.mark.parametrize("patience", [15.0, 30.0, 60.0, 120.0, 300.0])
def test_a_batch_sink_is_healthy_whatever_the_patience(patience: float) -> None:
    every = patience / 10
    seconds = [at * every for at in range(int(1_800 / every))]
    assert growths([(second * 10, second // 40 * 400) for second in seconds], every, patience) == []


def test_other_partitions_and_offsets_that_were_set_back_begin_anew() -> None:
    lags = GrowingLags(PATIENCE)
    for at in range(100):
        assert lags.look("g", at // 9, at * 120, at * 360, at * EVERY) is None
    for at in range(100):
        assert lags.look("h", SOME, at % 9 * 120, at * 360, at * EVERY) is None


def test_a_growth_that_has_ended_and_begins_again_is_another_one() -> None:
    grows = rates(480, 120, 16)
    (end, committed), *_ = grows[-1:]
    falls = [(end + at * 10, min(committed + at * 600, end + at * 10)) for at in range(1, 14)]
    again = [(falls[-1][0] + more, falls[-1][1] + done) for more, done in grows]
    first, second = growths([*grows, *falls, *again])
    assert second.first.time > first.last.time


def test_it_is_bounded() -> None:
    lags = GrowingLags(PATIENCE)
    for number in range(MOST + 1):
        lags.look(f"g{number}", SOME, 0, 0, 0)
    assert len(lags.groups()) == MOST
    lags.forget("g1")
    lags.look("one more", SOME, 0, 0, 0)
    assert len(lags.groups()) == MOST
    (*_, last) = growths(rates(480, 120, 5_000))
    assert last.seconds > 5_000
