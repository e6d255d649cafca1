"""Odd and forged events: what a page shows is never an error and never blank, and it costs no more than a bound.

Every client that may write to ``__group_events`` can forge an event, and so can a foreign cluster.
"""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_explain import explain as explain_module
from barnabas_explain import timeline, unowned
from barnabas_explain.catalog import EVENTS, GroupEvent, HistoryGap
from barnabas_explain.chart import chart
from barnabas_explain.explain import explain
from barnabas_explain.records import EventRecord, decode_event
from barnabas_explain.storm_score import storm_score
from tests.explain.reading import read
from tests.lots import in_lots

TYPES = list(EVENTS)
HEAD = {"version": 1, "group": "g", "generation": 3}
MEMBER = {"member_id": "m", "client_id": "c", "host": "/h", "instance_id": None}
#: Every field that some event has, with a value that is right for it.
GOOD: dict[str, Any] = {
    **MEMBER,
    "old_member_id": "o",
    "problem": "it is no pattern",
    "rebalance_timeout_ms": 300_000,
    "others": 2,
    "cause": "member_left",
    "by": [MEMBER],
    "moves": [{**MEMBER, "gained": {"t": [0, 1]}, "lost": {"u": [2]}}],
    "joined_after": [{**MEMBER, "after_ms": 5, "told_ms": 3, "heartbeat_ms": 25_000}],
    "pauses": [{"topic": "t", "partition": 0, "at_least_ms": 1, "at_most_ms": 2}],
    "more_pauses": 1,
    "last_commit": {"topic": "t", "partition": 0, "time": 5},
    "pending": {"t": [1]},
    "between": [1, 2],
    "possible": ["left"],
    "added": ["t"],
    "removed": ["u"],
    "classic": 1,
    "partitions": {"t": [0]},
    "members": 2,
    "offsets": 1,
    "commits": 1,
    "log_start": 5,
    "log_end": 9,
    "position": 9,
    "commits_on": True,
    "backs": 2,
    "turns": 2,
    "consumed": 20,
    "written": 80,
    "lag_before": 5,
    "every_ms": 20,
    "aborts": 3,
    "open_ms": 20,
    "transaction_timeout_ms": 10,
    "is_own": True,
    "lag": 65,
    "took_ms": 1_000,
    "led": 1,
    "committed_in": 2,
    "throttled": ["c"],
    "idle": 1,
    "only_committed": {"t": [1]},
    "reads_on": True,
    "same_offset": {"t": [0, 1]},
    "uncommitted": {"t": [1]},
    "owned": 3,
    "behind": [{**MEMBER, "lag": 60, "positions": [["t", 0, 42]], "stood_ms": 300_000}],
    "others_keep_up": True,
    "lag_of_others": 3,
    "away_ms": 20,
    "reset": "latest",
    "sent": 1,
    "other_client_id": "d",
    "other_host": "/i",
    "other_group": "h",
    "changes": [{"topic": "t", "partition": 0, "before": 1, "after": None}],
    "positions": [["t", 0, 42]],
    "committed_sum": 42,
    "unread": [["t", 0]],
    "beyond": [["t", 0, 30, 20]],
    "codec": "zstd",
    "codecs_before": ["none"],
    "least_ms": 6_000,
    "most_ms": 1_800_000,
    "stood_ms": 300_000,
    "fetches": "again",
    "fetched": 7,
    "is_incremental": True,
    "ahead": 7,
    "advanced": True,
    "offered": ["roundrobin"],
    "supported": ["range"],
    "new_topics": ["t"],
    "own_topics": ["t"],
    "created_by": ["c (h)"],
    "producer_id": 5,
    "transactional_id": "bills",
    "transactional_ids": ["bills"],
    "committed": True,
    "topic": "t",
    "principal": "User:u",
    "partition": 0,
    "owner": MEMBER,
    "first_offset": 7,
    "last_offset": 9,
    "deliveries": 2,
    "furthest": [["t", 0, 9]],
    "transactions": 31,
    "deleted_by": "retention.ms",
    "newest_timestamp": 1_795_876,
    "retention_ms": 604_800_000,
    "reconnects": 2,
    "gives_up_ms": 9_000,
    "response_bytes": 400_000,
    "max_bytes": 60_000,
    "limit": 5,
    "letters": "dlq.t",
    "never_acknowledged": True,
    "min_bytes": 1_000_000,
    "failed": 1,
    "before": 1,
    "regex": "t.*",
    "reason": "words",
    "client_reason": "words",
    "protocol": "range",
    "assignor": "uniform",
    "gap": "not_read",
    "rebalances": 6,
    "seconds_ms": 9,
    "culprit": "c",
    "times": 4,
    "old": "a",
    "new": "b",
    "inferred": True,
    "expired": False,
    "closed_by": "client",
    "is_new": False,
    "error": "E",
    "max_size": 3,
    "listener": "DOCKER",
    "advertised": "localhost:9093",
    "member_epoch": 3,
    "known_epoch": 4,
    "first": 1,
    "last": 2,
    "records": 3,
    "offset": 4,
    "record_type": 5,
    "most": 6,
    "what": "w",
    "now": 7,
    "more": 8,
    "broker": 3,
    "timestamp": -1,
    **{
        f"{name}_ms": 10
        for name in (
            *("heard_ago", "session", "waited", "took", "join_took", "sync_took", "timeout", "pending", "back", "lock"),
        )
    },
}
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None, True, -1, 0, 2**63, -(2**70), 1e308, float("nan"), float("inf"), "", "x" * 5_000, "<b>\x1b[31m", "\ud800",
        [], [None], [[]], ["a", 3], {}, {"t": None}, {"t": [None]}, {"t": ["0"]}, {"": [-5]}, [{}], [{"member_id": []}],
        [{"member_id": "m", "gained": [], "lost": 3}], [1, None], [None, None], [2**60, -5],
    ]
)  # fmt: skip
TIMES = st.one_of(st.integers(0, 10**6), st.sampled_from([0, 10**13, 10**14, 10**14 + 1, -1, 10**30, 1.5, True, "1"]))


@st.composite
def forged(draw: st.DrawFn) -> bytes:
    """The value of a record: mostly an event of a real type, with fields that are right, odd or missing."""
    event = {**HEAD, "time": draw(TIMES), "type": draw(st.sampled_from([*TYPES, "", "another"]))}
    left_out = draw(st.lists(st.sampled_from(sorted(GOOD)), max_size=4))
    event |= {name: value for name, value in GOOD.items() if name not in left_out}
    if event["type"] == "topic_changed" or draw(st.booleans()):
        event["partitions"] = 4
    if draw(st.integers(0, 3)) == 0:
        event["gap"] = draw(st.sampled_from(["compacted", "clock", "unreadable", "too_many", "went_back", "none"]))
        event.pop("more", None)
    for _ in range(draw(st.integers(0, 2))):
        event[draw(st.sampled_from([*sorted(GOOD), "generation", "group"]))] = draw(ODD)
    return json.dumps(event).encode()


def shown(values: list[bytes]) -> dict[str, Any]:
    """What a page gets of records: JSON that a browser can read."""
    made = chart([event for event in map(decode_event, values) if event is not None])
    found: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(forged(), max_size=30))
def test_no_event_makes_a_chart_fail(values: list[bytes]) -> None:
    made = shown(values)
    events = [event for event in map(decode_event, values) if event is not None]
    for event in events:
        if isinstance(event, HistoryGap) and "is left out" in str(event.reason):
            assert any(str(event.reason) in gap["text"] for gap in made["gaps"]), "what is left out has its reason"
    assert 0 <= storm_score(events, 500_000).value <= 100
    for each in explain(events):
        json.dumps(each.as_data(), allow_nan=False)
    for pause in made["pauses"]:
        assert pause["band"] is None or 0 <= pause["band"] < len(made["bands"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=60), st.text(max_size=30).map(str.encode)), max_size=20))
def test_no_bytes_make_a_chart_fail(values: list[bytes]) -> None:
    assert shown(values)["bands"] == []


@in_lots("kind", TYPES)
def test_an_event_of_each_type_needs_its_fields(kind: str) -> None:
    """With all fields every type is explained; without any, it is explained or it is a gap."""
    event = {**HEAD, "time": 5, "type": kind, **GOOD}
    if kind in ("offsets_committed", "topic_changed"):
        event["partitions"] = 4
    assert shown([json.dumps(event).encode()])["gaps"] == ([] if kind != "history_gap" else [shown_gap(event)])
    bare = decode_event(json.dumps({**HEAD, "time": 5, "type": kind}).encode())
    assert bare is not None
    assert bare.type in (kind, "history_gap")
    chart([bare])


def shown_gap(event: EventRecord) -> dict[str, Any]:
    return {
        "time": event["time"],
        "generation": event["generation"],
        "gap": "not_read",
        "text": "Gap: 8 more of this kind: events that were not read.",
    }


def test_a_damaged_event_among_good_ones_is_a_gap_at_its_time() -> None:
    good = [{**HEAD, "time": n, "type": "rebalance_started", "cause": "member_left", "by": [MEMBER]} for n in (1, 9)]
    bad = {**HEAD, "time": 5, "type": "rebalance_over", "members": 1, "moves": [{"member_id": "m"}]}
    made = shown([json.dumps(each).encode() for each in (good[0], bad, good[1])])
    assert len(made["bands"]) == 2
    (gap,) = made["gaps"]
    assert (gap["time"], gap["text"]) == (
        5,
        "Gap: an event (rebalance_over) is left out: its field moves is not valid.",
    )


def test_an_upgrade_that_no_member_caused_is_a_gap() -> None:
    forged = {**HEAD, "time": 5, "type": "group_upgraded", "members": 1, "by": []}
    (gap,) = shown([json.dumps(forged).encode()])["gaps"]
    assert gap["text"] == "Gap: an event (group_upgraded) is left out: its field by is missing."


def test_an_event_without_a_place_on_the_time_axis_is_no_event() -> None:
    for odd in ("x", None, -1, 10**15, 1.5, True):
        assert decode_event(json.dumps({**HEAD, "time": odd, "type": "group_empty"}).encode()) is None
    assert decode_event(json.dumps({**HEAD, "generation": True, "time": 1, "type": "group_empty"}).encode()) is None


def test_a_value_longer_than_any_event_is_left_out() -> None:
    value = json.dumps({**HEAD, "time": 5, "type": "group_empty", "more": "x" * 300_000}).encode()
    assert shown([value])["gaps"][0]["text"] == "Gap: an event (group_empty) is left out: it is too long."


def moved(time_ms: int, member: str, gained: dict[str, list[int]], lost: dict[str, list[int]] | None = None) -> bytes:
    move = {**MEMBER, "member_id": member, "gained": gained, "lost": lost or {}}
    event = {**HEAD, "time": time_ms, "type": "rebalance_over", "members": 1, "moves": [move], "protocol": "range"}
    return json.dumps(event).encode()


def test_what_members_owned_is_drawn_as_far_as_a_bound_and_the_rest_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "_MOST_OWNED", 1_000)
    monkeypatch.setattr(timeline, "_MOST_WORK", 100_000)
    monkeypatch.setattr(unowned, "_MOST_WORK", 100_000)
    values = [moved(0, "m", {"t": [*range(100)]}), *(moved(n, "m", {"t": [100 + n]}) for n in range(1, 50))]
    made = shown(values)
    spans = made["lanes"][0]["spans"]
    assert sum(len(each["partitions"]["t"]) for each in spans) <= 1_000
    assert spans[-1]["partitions"] == {"t": [*range(100), *range(101, 150)]}
    assert made["gaps"] == [
        {
            "time": spans[0]["start"],
            "generation": -1,
            "gap": "too_many",
            "text": "Gap: before this, it is not drawn what members owned: there is too much of it.",
        }
    ]
    everything = shown([*values, *(moved(n, "m", {"t": [100 + n]}) for n in range(50, 2_000))])
    assert [each["text"] for each in everything["gaps"]] == [
        "Gap: before this, it is not drawn what members owned: there is too much of it.",
        "Gap: from here on, it is not drawn what members owned: there is too much of it.",
        "Gap: not all pauses of partitions are drawn: there is too much of it.",
    ]


@pytest.mark.parametrize(
    "kinds",
    [
        ("member_rejoined",),
        ("member_slow",),
        ("group_epoch_bumped",),
        ("rebalance_started",),
        ("group_upgraded", "group_downgraded"),
        ("rebalance_started", "member_slow", "group_empty"),
    ],
)
def test_the_work_for_a_chart_grows_with_the_events_and_not_with_their_square(
    kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times as many events are looked at about four times as often, not sixteen times."""
    monkeypatch.setattr(explain_module, "_LOOK_BACK", 50)

    def looks(count: int) -> int:
        rng = random.Random(7)
        looked = 0

        def watched(event: GroupEvent) -> GroupEvent:
            def look(self: GroupEvent, name: str) -> Any:
                nonlocal looked
                looked += 1
                return object.__getattribute__(self, name)

            cls = type("Watched", (type(event),), {"__getattribute__": look, "__slots__": ()})
            seen: GroupEvent = cls(**event.values())
            return seen

        events = []
        for n in range(count):
            event = {**HEAD, "time": n * rng.choice((1, 500)), "type": kinds[n % len(kinds)], **GOOD, "moves": []}
            (read_one,) = read([{**event, "cause": "member_expired", "member_id": "another"}])
            events.append(watched(read_one))
        chart(events)
        return looked

    small, large = looks(500), looks(2_000)
    assert large < 6 * small, f"{small} and {large}"
