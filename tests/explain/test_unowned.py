"""For how long partitions had no owner, from recorded and from rebuilt events."""

from typing import Any

from barnabas_explain.records import EventRecord
from barnabas_explain.unowned import Pauses
from tests.explain.offsets_log import NOON, OffsetsLog, member
from tests.explain.reading import read


def event(kind: str, time: int, **data: Any) -> EventRecord:
    return {"version": 1, "group": "g", "time": time, "generation": 1, "type": kind, **data}


def move(member_id: str, gained: list[int] | None = None, lost: list[int] | None = None) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "client_id": member_id,
        "host": "/h",
        "instance_id": None,
        "gained": {"t": gained} if gained else {},
        "lost": {"t": lost} if lost else {},
    }


def over(time: int, *moves: dict[str, Any], sync: int = 10, protocol: str = "range") -> EventRecord:
    return event("rebalance_over", time, members=1, sync_took_ms=sync, protocol=protocol, moves=list(moves))


def pauses(*events: EventRecord) -> list[tuple[int, int | None, int | None, int, int | None]]:
    found = Pauses().all_of(read(events))
    return [(p["partition"], p["at_least_ms"], p["at_most_ms"], p["start"], p["end"]) for p in found]


START = event("rebalance_started", 1_000, cause="member_joined", by=[])


def test_members_of_an_eager_assignor_own_nothing_from_their_rejoin_to_the_assignment() -> None:
    first = over(100, move("a", [0, 1]))
    assert pauses(first, START, over(1_500, move("a", lost=[1]), move("b", [1]))) == [
        (0, 10, 500, 1_000, 1_500),
        (1, 10, 500, 1_000, 1_500),
    ]


def test_members_of_a_cooperative_assignor_keep_what_does_not_move() -> None:
    sticky = "cooperative-sticky"
    first = over(100, move("a", [0, 1]), protocol=sticky)
    revoked = over(1_500, move("a", lost=[1]), protocol=sticky)
    again = event("rebalance_started", 1_600, cause="member_rejoined", by=[])
    assert pauses(first, START, revoked, again, over(1_700, move("b", [1]), protocol=sticky)) == [
        (1, 200, 200, 1_500, 1_700)
    ]


def test_of_an_unknown_assignor_only_what_moved_is_known() -> None:
    first = over(100, move("a", [0, 1]), protocol="mine")
    assert pauses(first, START, over(1_500, protocol="mine")) == []


def test_the_partitions_of_an_expired_member_may_have_paused_since_it_was_heard_last() -> None:
    first = over(100, move("a", [0]))
    expired = event("member_expired", 990, member_id="a", heard_ago_ms=600, session_ms=600)
    assert pauses(first, expired, START, over(1_200, move("b", [0]))) == [(0, 210, 810, 390, 1_200)]


def test_a_pause_that_lasts() -> None:
    first = over(100, move("a", [0]))
    left = event("member_left", 990, member_id="a")
    assert pauses(first, left, START) == [(0, None, None, 990, None)]


def test_an_empty_group_waits_for_nothing() -> None:
    first = over(100, move("a", [0]))
    left = event("member_left", 990, member_id="a")
    assert pauses(first, left, event("group_empty", 991), over(5_000, move("b", [0]))) == []


def test_a_static_member_that_comes_back_keeps_its_partitions() -> None:
    first = over(100, move("a", [0]))
    back = event("static_member_replaced", 500, old_member_id="a", member_id="a2")
    left = event("member_left", 990, member_id="a2")
    assert pauses(first, back, left, START, over(1_200, move("b", [0]))) == [(0, 210, 210, 990, 1_200)]


def test_the_consumer_protocol_has_bounds() -> None:
    target = event("target_assigned", 100, took_ms=1, moves=[move("a", [0, 1])])
    bumped = event("group_epoch_bumped", 1_000, cause="member_joined", by=[])
    moved = event("target_assigned", 1_001, took_ms=1, moves=[move("a", lost=[1]), move("b", [1])])
    revoking = event("member_revoking", 1_010, member_id="a", partitions={"t": [1]}, timeout_ms=1_000)
    revoked = event("member_revoked", 1_300, member_id="a", partitions={"t": [1]}, waited_ms=290)
    done = event("group_reconciled", 1_400, took_ms=400, members=2)
    assert pauses(target, bumped, moved, revoking, revoked, done) == [(1, 0, 390, 1_010, 1_400)]


def test_rebuilt_events_have_their_own_pauses() -> None:
    log = OffsetsLog()
    log.generation(10, 1, member("a", 0, 1), joined=0)
    log.generation(1_010, 2, member("a", 0), member("b", 1), joined=1_000)
    found = Pauses().all_of(log.events)
    assert {(each["partition"], each["at_most_ms"], each["end"] - NOON) for each in found} == {
        (each["partition"], each["at_most_ms"], each["end"] - NOON) for each in found if each["end"] == NOON + 1_010
    }
    assert len(found) == 2


def test_a_partition_that_another_member_of_a_share_group_has_too_is_not_without_an_owner() -> None:
    events = [
        event("target_assigned", 1_000, took_ms=0, moves=[move("a", [0, 1]), move("b", [1])]),
        event("member_left", 2_000, member_id="a", heard_ago_ms=0),
        event("target_assigned", 3_000, took_ms=0, moves=[move("b", [0])]),
        event("group_reconciled", 3_000, took_ms=0, members=1),
    ]
    found = Pauses().all_of(read(events))
    assert [(each["partition"], each["start"], each["end"]) for each in found] == [(0, 2_000, 3_000)]
