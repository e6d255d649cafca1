"""The storm score of a group, from its events."""

from typing import Any

import pytest

from barnabas_explain.records import EventRecord
from barnabas_explain.storm_score import FLAPPING, WINDOW_MS, StormScore, storm_score
from tests.explain.reading import read
from tests.explain.test_chart import STORY, identity, left, started
from tests.explain.test_findings import runs
from tests.explain.test_unowned import event, move, over

NOW = 10_000_000
MINUTE = 60_000


def rebalances(count: int, names: str, *, every: int = MINUTE) -> list[EventRecord]:
    """So many rebalances that end now; the members of `names` cause them by turns."""
    return [started(NOW - n * every, "member_left", names[n % len(names)]) for n in reversed(range(count))]


def test_a_group_without_rebalances_is_calm() -> None:
    score = storm_score([], NOW)
    assert (score.value, score.rebalances, score.ownerless) == (0, 0, None)
    assert score.text == "Storm score 0 of 100: no rebalance in the last 10 minutes."
    assert storm_score(read(STORY), STORY[-1]["time"] + WINDOW_MS + 1).value == 0


@pytest.mark.parametrize(
    ("count", "names", "points"),
    [
        (1, "a", 5),  # one has no repeated cause
        (2, "ab", 10),
        (2, "aa", 10 + 20),
        (5, "abcde", 25),
        (5, "aaaab", 25 + 15),
        (10, "abcdefghij", 50),  # one a minute has all points
        (10, "a", 70),
    ],
)
def test_rebalances_and_repeated_causes_have_points(count: int, names: str, points: int) -> None:
    assert storm_score(read(rebalances(count, names)), NOW).value == points


def test_the_score_falls_when_rebalances_are_ten_minutes_ago() -> None:
    events = rebalances(10, "a")
    values = [storm_score(read(events), NOW + n * MINUTE).value for n in range(11)]
    assert values == sorted(values, reverse=True)
    assert (values[0], values[-1]) == (70, 0)


def test_time_without_an_owner_has_points() -> None:
    def paused(seconds: int) -> list[EventRecord]:
        """All partitions of a member that has died have no owner for so long."""
        begin = NOW - seconds * 1000
        return [
            over(begin - 5, {**move("a", [0, 1]), **identity("a")}),
            event("member_expired", begin, **identity("a"), heard_ago_ms=0, session_ms=1),
            over(NOW, {**move("b", [0, 1]), **identity("b")}),
        ]

    for seconds, points in ((0, 0), (20, 3), (100, 15), (200, 30), (500, 30)):
        score = storm_score(read(paused(seconds)), NOW)
        assert score.ownerless == pytest.approx(seconds / 600, abs=1e-3)
        assert score.value == points
    assert "partitions had no owner for at least 16.7% of the time" in storm_score(read(paused(100)), NOW).text
    # It counts while it lasts, too.
    assert storm_score(read(paused(100)[:-1]), NOW).value == 15


def test_all_points_are_100() -> None:
    story = [over(NOW - WINDOW_MS - 1, {**move("a", [0]), **identity("a")}), *rebalances(30, "a", every=10_000)]
    lost = event("member_expired", NOW - 2 * WINDOW_MS, **identity("a"), heard_ago_ms=0, session_ms=1)
    assert storm_score(read([story[0], {**lost, "time": NOW - WINDOW_MS}, *story[1:]]), NOW).value == 100


def test_runs_of_a_program_that_is_alone_do_not_count() -> None:
    assert storm_score(read(runs(*range(100, 400, 10))), 400_000).value == 0
    slow = [each for each in runs(*range(100, 400, 10)) if each["type"] != "member_disconnected"]
    assert storm_score(read(slow), 400_000).value >= FLAPPING, "it may poll too slowly"


def test_the_sentence_names_the_repeated_cause() -> None:
    assert storm_score(read(rebalances(4, "aaab")), NOW).text == (
        "Storm score 33 of 100: 4 rebalances in the last 10 minutes, 3 of them because a (10.0.0.7) left."
    )
    (only,) = rebalances(1, "a")
    topic: dict[str, Any] = {**only, "cause": "topic_changed", "by": []}
    assert "all of them because a topic has changed" in storm_score(read([topic, topic]), NOW).text


def test_events_that_come_one_by_one_have_the_same_score() -> None:
    story = [*STORY, left(2_000, "b", "x"), *rebalances(7, "ab")]
    made = StormScore()
    for each in story:
        made.add(*read([each]))
        assert made.at(each["time"]) == storm_score(read(story[: story.index(each) + 1]), each["time"])
    assert made.at(NOW).value >= FLAPPING, (
        "seven rebalances, and since the last member left its partitions have no owner"
    )


def test_a_clock_that_is_a_little_ahead_hides_no_rebalance() -> None:
    assert storm_score(read(rebalances(10, "a")), NOW - 5_000).value == 70
    assert storm_score(read([started(NOW + 86_400_000, "member_left", "a")]), NOW).value == 0
