"""Rebalances with their causes, from the events that a broker writes."""

import json
from typing import Any

from barnabas_pipeline.lag.rebalances import by_group, rebalances


def event(kind: str, time: int, **rest: Any) -> bytes:
    value = {"version": 1, "group": "g", "time": time, "generation": 4, "type": kind, **rest}
    return json.dumps(value).encode()


WHO = {"member_id": "m-1", "client_id": "worker-1", "host": "10.0.0.7", "instance_id": None}
EVENTS = [
    event("member_expired", 1_000, **WHO, heard_ago_ms=10_200, session_ms=10_000),
    event("rebalance_started", 1_000, cause="member_expired", by=[WHO], reason="removing a member"),
    event(
        "rebalance_over", 4_000, generation=5, moves=[], members=2, join_took_ms=2_900, sync_took_ms=100, leader="m-2"
    ),
    event("member_slow", 9_000, **WHO, heard_ago_ms=9_000, session_ms=10_000),
]


def test_a_rebalance_has_a_cause_and_a_duration() -> None:
    (row,) = rebalances({"g": EVENTS}, 0, 10_000)
    assert (row["group"], row["time"], row["until"], row["cause"]) == ("g", 1_000, 4_000, "member_expired")
    assert "worker-1 (10.0.0.7)" in row["text"]
    assert row["remedy"]


def test_rebalances_outside_the_window_are_skipped() -> None:
    assert rebalances({"g": EVENTS}, 5_000, 10_000) == []
    assert rebalances({"g": EVENTS}, 0, 999) == []


def test_records_that_are_not_events_are_skipped() -> None:
    values = by_group([(None, b"x"), (b"g", None), (b"g", b"\xff"), (b"g", b"{}"), (b"h", b"[]")])
    assert values == {"g": [b"\xff", b"{}"], "h": [b"[]"]}
    assert rebalances(values, 0, 10_000) == []
