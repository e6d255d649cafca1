"""Members that hear late of rebalances; tests/explain/test_doctor.py has those that rejoin late."""

from typing import Any

import pytest

from barnabas_explain.catalog import (
    MAYBE_SELDOM,
    SELDOM_HEARTBEATS,
    JoinPhaseOver,
    MemberDisconnected,
    MemberJoined,
    MemberLeft,
    RebalanceOver,
    RebalanceStarted,
    RejoinAwaited,
)
from barnabas_explain.explain import explain
from barnabas_explain.records import EventRecord
from barnabas_explain.rejoins import heard_late
from barnabas_explain.words import clock
from tests.explain.reading import read
from tests.explain.test_doctor import HEALTHY, NOW, present, reader, told
from tests.explain.test_findings import RDKAFKA, event


def joins(library: str | None) -> list[EventRecord]:
    return [event(MemberJoined, 1_000, number, client=f"c{number}", software=library) for number in (1, 2)]


def waits(at: int, told_ms: int, *, after_ms: int | None = None, gap: int | None = 25_000, **data: Any) -> EventRecord:
    """A join phase whose last member heard of the rebalance after so many milliseconds."""
    late: dict[str, Any] = {"member_id": "m1", "client_id": "c1", "host": "/h", "instance_id": None}
    late |= {"after_ms": told_ms + 5 if after_ms is None else after_ms, "told_ms": told_ms, "heartbeat_ms": gap}
    soon = {**late, "member_id": "m2", "client_id": "c2", "after_ms": 4_000, "told_ms": 3_999}
    values = {"members": 3, "took_ms": told_ms, "protocol": "range", "joined_after": [late, soon], **data}
    return event(JoinPhaseOver, at, **values)


def over(at: int) -> EventRecord:
    return event(RebalanceOver, at, members=3)


def rebalances(*phases: EventRecord, library: str | None = RDKAFKA) -> list[EventRecord]:
    return [*joins(library), over(2_000), *(each for phase in phases for each in (phase, over(phase["time"] + 2)))]


def test_members_that_hear_late_of_rebalances_again_and_again_are_a_finding() -> None:
    records = rebalances(waits(60_000, 16_000), waits(160_000, 23_400))
    (found,) = told(HEALTHY, *records)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("late_heartbeats", "sick", "probable")
    assert found.text == (
        f"Rebalances took up to 23.4 s, twice since {clock(60_000 - 16_005)}, because c1 (h) heard of them only with"
        " its next heartbeat, and it sends one about every 25 s (heartbeat.interval.ms)."
    )
    assert found.remedy == SELDOM_HEARTBEATS
    assert "set heartbeat.interval.ms to 3 s" in SELDOM_HEARTBEATS
    assert told(HEALTHY, *records, since=100_000) == []
    late = [{**each, "told_ms": each["after_ms"] - 5} for each in waits(1, 9_000)["joined_after"][:1]]
    both = [*late, {**late[0], "member_id": "m2", "client_id": "c2"}]
    several = rebalances(*(waits(at, 9_000, joined_after=both) for at in (60_000, 160_000)))
    heard = heard_late(read(several))
    assert heard is not None
    assert (
        "because c1 (h) and c2 (h) heard of them only with their next heartbeat, and they send one each" in heard.text
    )


@pytest.mark.parametrize(
    ("phases", "library"),
    [
        ((waits(60_000, 16_000), waits(160_000, 23_400)), None),
        ((waits(60_000, 16_000, gap=17_000), waits(160_000, 23_400)), RDKAFKA),
        ((waits(60_000, 16_000, gap=None), waits(160_000, 23_400, gap=None)), RDKAFKA),
    ],
    ids=["a loop may be blocked", "irregular", "not recorded"],
)
def test_heartbeats_that_may_be_kept_back_have_another_remedy(
    phases: tuple[EventRecord, ...], library: str | None
) -> None:
    (found,) = told(HEALTHY, *rebalances(*phases, library=library))
    assert (found.kind, found.remedy) == ("late_heartbeats", MAYBE_SELDOM)
    assert "unblock the loop or thread that sends heartbeats" in MAYBE_SELDOM


@pytest.mark.parametrize(
    "phases",
    [
        (waits(160_000, 23_400),),
        (waits(60_000, 3_200), waits(160_000, 3_100)),
        (waits(60_000, 6_000, after_ms=9_000), waits(160_000, 6_000, after_ms=9_000)),
        (waits(60_000, 16_000, members=1), waits(160_000, 16_000, members=1)),
    ],
    ids=["once", "as long as by default", "it rejoined late", "alone"],
)
def test_members_that_do_not_hear_late(phases: tuple[EventRecord, ...]) -> None:
    assert told(HEALTHY, *rebalances(*phases)) == []


def test_a_new_member_does_not_hear_late() -> None:
    phase = waits(160_000, 23_400)
    records = [*rebalances(waits(60_000, 16_000)), event(MemberJoined, 150_000, 1, client="c1"), phase]
    assert heard_late(read(records)) is None


def test_members_of_a_cooperative_assignor_that_hear_late_are_no_disease() -> None:
    phases = [waits(at, 9_000, protocol="cooperative-sticky") for at in (60_000, 160_000)]
    (found,) = told(HEALTHY, *rebalances(*phases))
    assert (found.kind, found.as_data()["severity"]) == ("late_heartbeats", "odd")


def restarts(number: int) -> list[EventRecord]:
    """A program that is restarted so many times, each time after 90 s, and a member that hears late of that."""
    records = rebalances()
    for times in range(number):
        at, ids = 100_000 * (times + 1), [10 + times, 11 + times]
        who = {"member_id": f"m{ids[0]}", "client_id": "c3", "host": "/h", "instance_id": None}
        seen = {"software": RDKAFKA, "joined_ago_ms": 90_000, "connection": "open", "commits": 3, "session_ms": 80_000}
        records += [
            event(MemberLeft, at, ids[0], client="c3", **seen),
            event(RebalanceStarted, at, reason="c3 left", cause="member_left", by=[who]),
            event(MemberDisconnected, at + 10, ids[0], client="c3", closed_by="client", gone_ago_ms=10),
            event(MemberJoined, at + 3_000, ids[1], client="c3", software=RDKAFKA),
            waits(at + 23_000, 22_995),
            event(RebalanceOver, at + 23_002, members=3, join_took_ms=23_000, sync_took_ms=2),
        ]
    return records


@pytest.mark.parametrize("number", [1, 4])
def test_rebalances_of_which_a_member_hears_late_say_so_with_a_remedy(number: int) -> None:
    last = explain(read(restarts(number)))[-1]
    details = " ".join(last.details)
    if number == 1:
        assert "it took 23 s because c1 (h) heard of it with its next heartbeat" in last.text
        assert "(heartbeat.interval.ms), which came 25 s after the one before." in details
        assert str(last.remedy).endswith(f" {MAYBE_SELDOM}")
    else:
        assert last.text.startswith("Restart loop: c3 (h) stopped and started again and again")
        assert "because c1 (h) heard of them only with its next heartbeat, and it sends one about every 25 s" in details
        assert "ook what stops c3 (h)" in str(last.remedy)
        assert str(last.remedy).endswith(f" {SELDOM_HEARTBEATS}")


AWAITED: dict[str, Any] = {
    "waited_ms": 10_000,
    "heard_ago_ms": 3_000,
    "heartbeat_ago_ms": 12_000,
    "heartbeat_ms": 25_000,
    "rebalance_timeout_ms": 300_000,
    "others": 1,
    "protocol": "range",
    "connection": "open",
}
BEGAN = event(RebalanceStarted, NOW - 12_200, reason="c3 left")


def under_way(*awaited: dict[str, Any], after_ms: int = 12_200) -> tuple[str, str, str, str]:
    """What is said of a rebalance that waits for members: severity, sureness, text and remedy."""
    records = [
        event(RejoinAwaited, NOW - 2_200, number, client=f"c{number}", **each) for number, each in enumerate(awaited)
    ]
    shift = 12_200 - after_ms
    moved = [{**each, "time": each["time"] + shift} for each in (BEGAN, *records)]
    group = present(reader(1), reader(2), reader(3), state="PreparingRebalance")
    (found,) = told(group, *moved)
    assert found.kind == "rebalancing"
    return str(found.as_data()["severity"]), found.sure, " ".join((found.text, *found.evidence)), str(found.remedy)


def test_a_rebalance_waits_for_a_member_that_has_not_heard_of_it() -> None:
    severity, sure, text, remedy = under_way(AWAITED, AWAITED)
    assert (severity, sure) == ("sick", "probable")
    assert text == (
        "A rebalance has been under way for 12.2 s: it waits for c0 (h), which has not heard of it yet: its last"
        " heartbeat was 14.2 s ago, before the rebalance began, and the one before 25 s earlier. Meanwhile 1 member"
        " waits, and read nothing. It waits for c1 (h), too, which has not heard of it yet: its last heartbeat was"
        " 14.2 s ago, before the rebalance began, and the one before 25 s earlier."
    )
    assert remedy == SELDOM_HEARTBEATS


def test_a_member_that_may_have_heard_of_the_rebalance_since_then() -> None:
    _, _, text, remedy = under_way(AWAITED, after_ms=40_000)
    assert "c0 (h), which had not heard of it when this was noted: its last heartbeat was before it began" in text
    assert remedy.startswith(f"{SELDOM_HEARTBEATS} If it does not rejoin at its next heartbeat: look where its program")


def test_a_member_that_has_heard_of_the_rebalance_is_worse() -> None:
    hangs = {**AWAITED, "told_ms": 1_000, "heard_ago_ms": 500, "heartbeat_ago_ms": 500, "heartbeat_ms": 3_000}
    severity, sure, text, remedy = under_way(AWAITED, hangs)
    assert (severity, sure) == ("broken", "certain")
    assert "it waits for c1 (h), which has not rejoined, though the responses to its heartbeats tell it to" in text
    assert "It waits for c0 (h), too, which has not heard of it yet" in text
    assert remedy.startswith("Look where its program stands")


@pytest.mark.parametrize(
    ("changed", "heard"),
    [
        ({"heartbeat_ms": 3_000, "heard_ago_ms": 11_900}, True),
        ({"heartbeat_ms": 3_000, "heard_ago_ms": 11_900, "heartbeat_ago_ms": 11_900}, True),
        ({"heartbeat_ms": None, "heard_ago_ms": 12_000}, True),
        ({"connection": "closed"}, True),
        ({"heartbeat_ms": None, "heartbeat_ago_ms": None}, True),
        ({"heartbeat_ms": None}, False),
        ({"heartbeat_ms": 3_000}, False),
        ({"heard_ago_ms": 12_000}, False),
    ],
    ids=["silent", "all silent", "unknown", "closed", "not recorded", "it commits", "it commits later", "no commit"],
)
def test_a_member_that_is_silent_is_not_said_to_send_heartbeats_seldom(changed: dict[str, Any], *, heard: bool) -> None:
    severity, _, text, remedy = under_way({**AWAITED, **changed})
    assert ("not heard of it" not in text) is heard
    assert (severity == "broken") is heard
    assert ("heartbeat.interval.ms" not in remedy) is heard
