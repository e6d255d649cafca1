"""What a page shows of a group's events."""

import json
from typing import Any

import pytest

from barnabas_explain.catalog import EVENTS, NOT_RECORDED
from barnabas_explain.chart import chart
from barnabas_explain.explain import explain
from barnabas_explain.records import EventRecord
from tests.explain.offsets_log import OffsetsLog, member
from tests.explain.reading import read
from tests.explain.test_unowned import event, move, over


def identity(name: str) -> dict[str, Any]:
    return {"member_id": f"{name}-id", "client_id": name, "host": "/10.0.0.7", "instance_id": None}


def started(time: int, cause: str, name: str, generation: int = 1) -> EventRecord:
    data = {"cause": cause, "by": [identity(name)], "reason": "words of Kafka"}
    return {**event("rebalance_started", time, **data), "generation": generation}


def left(time: int, name: str, reason: str) -> EventRecord:
    return event("member_left", time, **identity(name), client_reason=reason)


STORY = [
    event("member_joined", 100, **identity("a")),
    started(100, "member_joined", "a", 0),
    {**over(110, {**move("a", [0, 1]), **identity("a")}), "members": 1, "join_took_ms": 1},
    left(1_000, "a", "consumer poll timeout has expired."),
    event("member_joined", 1_000, **identity("b")),
    started(1_001, "member_left", "a"),
    {**over(1_500, {**move("b", [0, 1]), **identity("b")}), "members": 1, "join_took_ms": 489, "generation": 2},
]


def test_a_band_has_all_that_a_reader_asks() -> None:
    made = chart(read(STORY))
    first, band = made["bands"]
    assert first["end"] == band["start"] == 1_001
    assert (band["kind"], band["cause_text"], band["reason"]) == ("left", "left", "consumer poll timeout has expired.")
    assert band["members"] == [{**identity("a"), "name": "a (10.0.0.7)"}]
    assert band["moves"] == [{**identity("b"), "name": "b (10.0.0.7)", "gained": {"t": [0, 1]}, "lost": {}}]
    assert band["end"] is None
    said = made["explanations"][band["explanation"]]
    assert "a (10.0.0.7) polled too slowly: it left because it had not polled" in said["text"]
    assert "max.poll.interval.ms" in said["remedy"]
    assert [(each["partition"], each["at_most_ms"], each["band"]) for each in made["pauses"]] == [
        (0, 500, 1),
        (1, 500, 1),
    ]
    json.dumps(made)


def test_the_time_of_the_requests_around_a_rebalance() -> None:
    """From ten seconds before it until two after it, unless that is around another one."""
    assert [band["around"] for band in chart(read(STORY))["bands"]] == [[-9_900, 1_000], [1_001, 3_500]]
    late = [*STORY, left(60_000, "b", ""), started(60_000, "member_left", "b", 2)]
    assert [band["around"] for band in chart(read(late))["bands"]][1:] == [[1_001, 3_500], [50_000, None]]
    again = [*late, started(60_700, "member_joined", "c", 3)]
    assert [band["around"] for band in chart(read(again))["bands"]][2:] == [[50_000, 60_699], [60_700, None]]


def test_moves_before_a_rebalance_in_the_same_millisecond_are_not_its_moves() -> None:
    same = [{**each, "time": 7} for each in STORY]
    assert [[move["client_id"] for move in band["moves"]] for band in chart(read(same))["bands"]] == [["a"], ["b"]]


def test_the_sentences_are_those_of_the_command_line() -> None:
    said = [(each["text"], each["remedy"], each["details"]) for each in chart(read(STORY))["explanations"]]
    assert said == [(each.text, each.remedy, each.details) for each in explain(read(STORY))]


def test_silence_and_revocation_are_periods_of_a_lane() -> None:
    slow = event("member_slow", 500, **identity("a"), heard_ago_ms=300, session_ms=400)
    revoking = event("member_revoking", 510, **identity("a"), partitions={"t": [0]}, timeout_ms=9_000)
    expired = event("member_expired", 620, **identity("a"), heard_ago_ms=420, session_ms=400, is_new=False)
    (lane,) = chart(read([*STORY[:3], slow, revoking, expired]))["lanes"]
    assert lane["silent"] == [{"start": 200, "end": 620}]
    assert lane["revoking"] == [{"start": 510, "end": None}]
    assert (lane["end"], lane["end_type"]) == (620, "member_expired")


def test_a_band_of_a_storm_has_its_own_explanation_and_the_storm_is_one_more() -> None:
    storm = []
    for n in range(10):
        storm += [event("member_rejoined", n * 100, **identity("a")), started(n * 100, "member_rejoined", "a", n)]
        storm.append({**over(n * 100 + 50), "members": 1})
    made = chart(read(storm))
    assert len(made["bands"]) == 10
    told = [made["explanations"][band["explanation"]] for band in made["bands"]]
    assert [each["time"] for each in told] == [band["start"] for band in made["bands"]]
    (storm_told,) = [each for each in made["explanations"] if each not in told]
    assert storm_told["text"].startswith("Rebalance storm: 10 rebalances")


def test_a_gap_has_its_reason() -> None:
    gap = event("history_gap", 90, gap="not_read", reason="older events were not read: there are too many")
    assert chart(read([gap, *STORY]))["gaps"][0]["text"] == "Gap: older events were not read: there are too many."


def test_rebuilt_events_make_a_chart_too() -> None:
    log = OffsetsLog()
    log.generation(10, 1, member("a", 0, 1), joined=0)
    log.generation(9_010, 3, member("b", 0, 1), joined=9_000)
    made = chart(log.events)
    assert made["bands"][-1]["inferred"]
    assert made["gaps"][0]["text"].startswith("Gap: ")


def test_no_events_make_an_empty_chart() -> None:
    assert chart([]) == {"lanes": [], "bands": [], "pauses": [], "gaps": [], "explanations": [], "more": False}


def test_a_long_history_and_long_names_are_cut() -> None:
    many: list[EventRecord] = []
    for n in range(1_200):
        many.append(event("member_joined", n * 100_000, **{**identity("x" * 9_000), "member_id": f"m{n}"}))
        many.append(started(n * 100_000, "member_joined", "y" * 9_000, n))
        many.append(event("member_left", n * 100_000 + 5, member_id=f"m{n}"))
        many.append({**over(n * 100_000 + 10), "members": 1})
    made = chart(read(many))
    assert made["more"]
    assert (len(made["bands"]), len(made["explanations"]), len(made["lanes"])) == (1_000, 1_000, 600)
    assert made["bands"][-1]["generation"] == 1
    assert made["bands"][-1]["explanation"] == 999
    assert max(len(lane["name"]) for lane in made["lanes"]) == 2_001


@pytest.mark.parametrize("cause", [each.type for each in EVENTS.values() if each.because] + [NOT_RECORDED])
def test_every_cause_has_a_kind(cause: str) -> None:
    (band,) = chart(read([started(1, cause, "a")]))["bands"]
    assert (band["kind"] == "unknown") == (cause == NOT_RECORDED)
