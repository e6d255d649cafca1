"""Remedies do not name what the members of the group have already, whatever has happened to it."""

import re
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_explain.catalog import (
    Departure,
    GroupEvent,
    JoinPhaseOver,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberNotRejoined,
    MemberReplaced,
    RebalanceOver,
    RebalanceStarted,
)
from barnabas_explain.doctor import Present, examine
from barnabas_explain.explain import explain
from barnabas_explain.records import EventRecord
from tests.explain.reading import read

#: The settings of a group: assignor, session and poll interval in ms, whether its members are static.
Settings = tuple[str, int, int, bool]
SETTINGS = st.tuples(
    st.sampled_from(["range", "cooperative-sticky"]),
    st.sampled_from([6_000, 45_000, 300_000]),
    st.sampled_from([15_000, 300_000]),
    st.booleans(),
)
#: What happens one after the other: to which member, after how long, and for how long it is away.
HAPPENS = st.lists(
    st.tuples(
        st.sampled_from([MemberLeft, MemberExpired, MemberNotRejoined, MemberReplaced, RebalanceStarted]),
        st.integers(0, 2),
        st.integers(100, 400_000),
        st.integers(100, 400_000),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def _member(number: int, life: int, is_static: bool) -> dict[str, Any]:
    instance = f"i{number}" if is_static else None
    return {"member_id": f"m{number}-{life}", "client_id": f"c{number}", "host": "/h", "instance_id": instance}


def _end(kind: type[GroupEvent], is_closed: bool, silent: int, of: Settings) -> dict[str, Any]:
    """What has been seen of a member that is gone."""
    _, session, poll, _ = of
    seen: dict[str, Any] = {"software": "rdkafka", "joined_ago_ms": 400_000, "committed_ago_ms": 5_000}
    seen |= {"session_ms": session, "rebalance_timeout_ms": poll, "connection": "closed" if is_closed else "open"}
    if is_closed:
        seen |= {"closed_ago_ms": silent % session, "closed_by": "client"}
    if kind is MemberExpired:
        seen |= {"heard_ago_ms": session + 100}
    elif kind is MemberNotRejoined:
        seen |= {"heard_ago_ms": 300, "waited_ms": poll}
    return seen


def _records(of: Settings, happens: Iterable[tuple[type[GroupEvent], int, int, int, bool, bool]]) -> list[EventRecord]:
    """The events of a group of three members with these settings."""
    assignor, session, poll, is_static = of
    records: list[EventRecord] = []
    at, generation, lives = 1_000_000, 1, [0, 0, 0]

    def add(kind: type[GroupEvent], **data: Any) -> None:
        records.append({"version": 1, "group": "g", "time": at, "generation": generation, "type": kind.type, **data})

    def join(number: int, **data: Any) -> None:
        settings = {"session_ms": session, "rebalance_timeout_ms": poll, "software": "rdkafka"}
        add(MemberJoined, **_member(number, lives[number], is_static), **settings, **data)

    def rebalance(cause: type[GroupEvent], number: int, late_ms: int) -> None:
        nonlocal at, generation
        member = _member(number, lives[number], is_static)
        add(RebalanceStarted, cause=cause.type, by=[member], reason="r")
        generation += 1
        at += late_ms
        late = {**member, "after_ms": late_ms}
        add(JoinPhaseOver, members=3, took_ms=late_ms, protocol=assignor, joined_after=[late])
        add(RebalanceOver, members=3, protocol_type="consumer", protocol=assignor, join_took_ms=late_ms)

    for number in range(3):
        join(number)
    rebalance(MemberJoined, 0, 10)
    for kind, number, after, away, is_closed, is_back in happens:
        at += after
        if issubclass(kind, Departure):
            add(kind, **_member(number, lives[number], is_static), **_end(kind, is_closed, after, of))
            rebalance(kind, number, 10)
            old, lives[number] = f"m{number}-{lives[number]}", lives[number] + 1
            at += away
            join(number, **({"old_member_id": old, "rejoined_ms": away} if is_back and not is_closed else {}))
            rebalance(MemberJoined, number, 10)
        elif kind is MemberReplaced and is_static:
            old, lives[number] = f"m{number}-{lives[number]}", lives[number] + 1
            seen = _end(kind, is_closed, after, of)
            add(kind, **_member(number, lives[number], True), old_member_id=old, **seen)
        else:
            rebalance(MemberJoined, number, min(after, poll))
    return records


def _has_already(remedy: str, of: Settings) -> list[str]:
    """The parts of a remedy that name what members have already."""
    assignor, session, poll, is_static = of
    found = [part for part in ("use the cooperative", "With the assignor cooperative") if part in remedy]
    found = found if "cooperative" in assignor else []
    if is_static and "With a group.instance.id of its own" in remedy:
        found.append("a group.instance.id")
    for setting, value in re.findall(
        r"[Ss]et (session|max\.poll\.interval)\.\S+ (?:of \S+ (?:\(h\) )?)?above (\d+) s", remedy
    ):
        if int(value) * 1_000 < (session if setting == "session" else poll):
            found.append(f"{setting} above {value} s")
    return found


@given(SETTINGS, HAPPENS)
@settings(max_examples=150, deadline=None)
def test_no_remedy_names_what_members_have_already(
    of: Settings, happens: list[tuple[type[GroupEvent], int, int, int, bool, bool]]
) -> None:
    events = read(_records(of, happens))
    last = events[-1].time
    remedies = [each.remedy for each in explain(events)]
    remedies += [each.remedy for each in examine(Present("g", "Stable"), events, last, 0)]
    assert [(remedy, found) for remedy in remedies if remedy and (found := _has_already(remedy, of))] == []
