"""Programs that leave because their group rebalances, and healthy ones whose leaves look similar."""

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas_explain.catalog import GroupEmpty, GroupEvent, MemberJoined, MemberLeft, RebalanceOver, RebalanceStarted
from barnabas_explain.explain import explain
from barnabas_explain.findings import Findings, find
from barnabas_explain.records import EventRecord
from barnabas_explain.stops import falls, leaves_at_rebalances, stays_at_rebalances
from tests.explain.reading import read

#: A rebalance takes so many milliseconds.
REBALANCE_MS = 2_000


class Group:
    """A group of the classic protocol, whose coordinator records what happens."""

    def __init__(self) -> None:
        self.records: list[EventRecord] = []
        self.members: dict[str, tuple[str, int]] = {}
        self._joins = 0
        self._over: int | None = None

    def join(self, name: str, at: int) -> None:
        """A program starts, and joins."""
        self.pass_time(at)
        self._joins += 1
        self.members[name] = f"{name}-{self._joins}", at
        self._record(MemberJoined, at, **self._member(name))
        self._start(at, MemberJoined, self._member(name))

    def leave(self, name: str, at: int, **seen: Any) -> None:
        """A program stops, and leaves."""
        self.pass_time(at)
        member, (_, joined) = self._member(name), self.members.pop(name)
        seen = {"connection": "closed", "joined_ago_ms": at - joined, "session_ms": 10_000, **seen}
        self._record(MemberLeft, at, **member, **seen)
        self._start(at, MemberLeft, member)
        if not self.members:
            self._record(GroupEmpty, at)
            self._over = None

    def pass_time(self, at: int) -> None:
        """The rebalance that is under way is over if it has begun long enough before this time."""
        if self._over is not None and self._over <= at:
            self._record(RebalanceOver, self._over, members=len(self.members))
            self._over = None

    def _member(self, name: str) -> dict[str, Any]:
        return {"member_id": self.members[name][0], "client_id": name, "host": "/h", "instance_id": None}

    def _start(self, at: int, cause: type[GroupEvent], by: dict[str, Any]) -> None:
        if self._over is None:
            self._record(RebalanceStarted, at, cause=cause.type, by=[by], reason="r")
            self._over = at + REBALANCE_MS

    def _record(self, kind: type[GroupEvent], at: int, **data: Any) -> None:
        self.records.append({"version": 1, "group": "g", "time": at, "generation": 1, "type": kind.type, **data})


def fall(group: Group, at: int, first: str, *others: str, **seen: Any) -> None:
    """A program starts, and other ones 10 s later; these stop the first one when they join, which stops them."""
    group.join(first, at)
    for number, name in enumerate(others):
        group.join(name, at + 10_000 + number)
    over = at + 10_000 + REBALANCE_MS
    group.leave(first, over + 100, **seen)
    for number, name in enumerate(others):
        group.leave(name, over + 100 + REBALANCE_MS + 50 + number, **seen)


def roll(group: Group, at: int, *pods: str, away_ms: int, ready_ms: int) -> int:
    """Restart pods one after the other: each is away for so long, and the next one stops so long after its start."""
    for name in pods:
        group.leave(name, at)
        group.join(name, at + away_ms)
        at += away_ms + ready_ms
    return at


def found_in(group: Group) -> tuple[list[GroupEvent], Findings]:
    events = read(group.records)
    return events, find(events)


def said(group: Group) -> str:
    """All that is said of a group, with the remedies."""
    told = explain(read(group.records))
    return "\n".join(str(each) for one in told for each in (one.text, *one.details, one.remedy))


_STOPS = "left again and again right after rebalances that others of them caused"


def test_programs_that_stop_each_other_when_they_start_are_one_finding() -> None:
    group = Group()
    fall(group, 100_000, "app-0", "app-1")
    fall(group, 120_000, "app-2", "app-0")
    group.join("app-1", 140_000)
    events, findings = found_in(group)
    leaves = [findings.about(event) for event in events if isinstance(event, MemberLeft)]
    back = [findings.of_joins.get(id(event)) for event in events if isinstance(event, MemberJoined)]
    (finding,) = {id(each): each for each in leaves}.values()
    assert finding is not None
    assert back == [None, None, None, finding, finding]
    assert (finding.kind, finding.sure) == ("restart_loop", "probable")
    assert finding.text == (
        "app-0 (h), app-1 (h) and app-2 (h) left again and again right after rebalances that others of them caused:"
        " they lived 4.2 s to 12.1 s each time, 4 times within 34.1 s, and left during such a rebalance, or up to 250"
        " ms after it, twice until the group was empty; probably they stop when their group rebalances (an exception in"
        " their rebalance listener?)"
    )
    assert str(finding.remedy).startswith("Look in the logs of app-0 (h), app-1 (h) and app-2 (h) for an error in")
    assert "group.instance.id" not in said(group)


def test_programs_of_one_name_that_stop_each_other_are_members_of_that_name() -> None:
    group = Group()
    for at in (100_000, 120_000, 140_000):
        fall(group, at, "app-0", "app-1")
    for record in group.records:
        for each in (record, *record.get("by", ())):
            each.update({"client_id": "app"} if "client_id" in each else {})
    _, findings = found_in(group)
    (finding,) = {id(each): each for each in findings.of_departures.values()}.values()
    assert finding.text.startswith(f"members named app (h) {_STOPS}: "), "not the runs of a scheduled job"


def test_once_is_not_again_and_again_but_a_static_member_is_no_remedy() -> None:
    group = Group()
    fall(group, 100_000, "app-0", "app-1", "app-2")
    for name in ("app-0", "app-1", "app-2"):
        group.join(name, 130_000)
    _, findings = found_in(group)
    assert {each.kind for each in findings.of_departures.values()} == {"restarted"}
    assert {each.remedy for each in findings.of_departures.values()} == {
        "It left during a rebalance that another member had begun, or just after it: if it was not stopped on purpose,"
        " look in its log for what stops it when its group rebalances."
    }


def test_one_leave_just_after_a_rebalance_may_be_a_restart() -> None:
    group = Group()
    group.join("app-0", 100_000)
    group.join("app-1", 110_000)
    group.leave("app-0", 112_100)
    group.join("app-0", 113_000)
    assert "group.instance.id" in said(group)
    group.leave("app-1", 114_200)
    group.join("app-1", 116_000)
    assert "group.instance.id" not in said(group), "two of two"
    group.leave("app-0", 130_000)
    group.join("app-0", 131_000)
    assert "group.instance.id" in said(group), "two of three"


def test_programs_that_fail_at_one_record_after_each_other_do_not_stop_because_of_rebalances() -> None:
    group = Group()
    stands: dict[str, Any] = {"positions": [["t", 0, 42]], "unread": [["t", 0]]}
    fall(group, 100_000, "app-0", "app-1", **stands)
    fall(group, 120_000, "app-2", "app-0", **stands)
    assert _STOPS not in said(group)


@pytest.mark.parametrize("names", [("app-0", "app-1", "app-2", "other"), ("app-0", "app-1", "app-2", "app-3")])
def test_programs_that_never_come_back_or_are_different_ones_are_not_one_finding(names: Sequence[str]) -> None:
    group = Group()
    fall(group, 100_000, names[0], names[1])
    fall(group, 120_000, names[2], names[3])
    assert _STOPS not in said(group)
    fall(group, 140_000, names[0], names[3])
    assert (_STOPS in said(group)) is (names[3] != "other")


@pytest.mark.parametrize("pods", [2, 3, 4, 10])
@pytest.mark.parametrize("away_ms", [500, 1_500, 8_000])
@pytest.mark.parametrize("ready_ms", [0, 1_000, REBALANCE_MS, REBALANCE_MS + 100, 15_000])
def test_a_rolling_restart_is_not_said_to_be_programs_that_stop_at_rebalances(
    pods: int, away_ms: int, ready_ms: int
) -> None:
    names = [f"app-{number}" for number in range(pods)]
    group = Group()
    for number, name in enumerate(names):
        group.join(name, 100_000 + number * 1_000)
    at = roll(group, 130_000, *reversed(names), away_ms=away_ms, ready_ms=ready_ms)
    # A second one begins at once.
    at = roll(group, at, *reversed(names), away_ms=away_ms, ready_ms=ready_ms)
    events = read(group.records)
    assert list(falls(events, leaves_at_rebalances(events))) == []
    assert "rebalance listener" not in said(group)
    if ready_ms >= REBALANCE_MS:
        # Further ones, of pods that are ready when they have partitions.
        at = roll(group, at, *reversed(names), away_ms=away_ms, ready_ms=ready_ms)
        at = roll(group, at, *reversed(names), away_ms=away_ms, ready_ms=ready_ms)
        assert "rebalance listener" not in said(group)
    # They are stopped in order, each when the one before has left.
    for number, name in enumerate(names):
        group.leave(name, at + 20_000 + number * 1_000)
    assert "rebalance listener" not in said(group)


@pytest.mark.parametrize("wait_ms", [100, 5_000], ids=["as soon as they have partitions", "later"])
@pytest.mark.parametrize("apart_ms", [1, 700])
def test_programs_that_are_stopped_together_do_not_stop_because_of_rebalances(wait_ms: int, apart_ms: int) -> None:
    group = Group()
    for at in (100_000, 140_000):
        group.join("app-0", at)
        group.join("app-1", at + 20_000)
        group.leave("app-0", at + 20_000 + REBALANCE_MS + wait_ms)
        group.leave("app-1", at + 20_000 + REBALANCE_MS + wait_ms + apart_ms)
    assert _STOPS not in said(group)


def test_programs_that_are_stopped_together_again_and_again_do_not_stop_because_of_rebalances() -> None:
    group = Group()
    for at in (100_000, 140_000, 180_000, 220_000):
        for number in range(3):
            group.join(f"app-{number}", at + number * 10_000)
        for number in range(3):
            group.leave(f"app-{number}", at + 30_000 + number * 100)
    assert "rebalance listener" not in said(group)


def domino(group: Group, starts: Sequence[int]) -> None:
    """A program that stops 100 ms after the rebalance that another one begins 10 s after its start."""
    for number, at in enumerate(starts):
        group.join("app", at)
        group.join(f"other-{number}", at + 10_000)
        group.leave("app", at + 10_000 + REBALANCE_MS + 100)


@pytest.mark.parametrize("later_ms", [30_000, 400_000], ids=["soon", "after long"])
def test_a_stop_in_order_does_not_change_what_was_said_of_the_leaves_before(later_ms: int) -> None:
    group = Group()
    domino(group, (100_000, 120_000, 140_000))
    before = said(group)
    assert "app (h) left again and again right after a rebalance that another member caused" in before
    assert "3 times within 52.1 s, and it left 3 times during such a rebalance" in before
    group.join("app", 160_000)
    group.leave("app", 160_000 + later_ms)
    events, findings = found_in(group)
    leaves = [findings.about(event) for event in events if isinstance(event, MemberLeft)]
    assert [each and each.kind for each in leaves] == ["restart_loop"] * 3 + ["stopped"]
    assert "3 times within 52.1 s, and it left 3 times during such a rebalance" in said(group)


def test_a_program_that_ran_for_long_was_stopped_in_order_before_it_stopped_again_and_again() -> None:
    group = Group()
    group.join("other", 10_000)
    group.join("app", 100_000)
    group.leave("app", 500_000)
    for at in (510_000, 530_000, 550_000):
        group.join("app", at)
        group.leave("app", at + 5_000)
    events, findings = found_in(group)
    leaves = [findings.about(event) for event in events if isinstance(event, MemberLeft)]
    assert [each and each.kind for each in leaves] == ["restarted"] + ["restart_loop"] * 3


@pytest.mark.parametrize(
    ("leaves", "count"),
    [
        ((("a", 5_000), ("b", 5_100)), 0),
        ((("b", 2_600), ("a", 2_700)), 1),
        ((("a", 3_100), ("b", 3_200)), 2),
        ((("a", 3_251), ("b", 3_300)), 0),
        ((("a", 3_250), ("b", 6_000)), 1),
    ],
    ids=["the first by itself", "the one that joined does not", "both", "too late", "the other one later"],
)
def test_a_leave_counts_if_the_one_that_began_its_rebalance_does(leaves: Sequence[tuple[str, int]], count: int) -> None:
    """The member b joins at 1 s, and its rebalance is over at 3 s."""
    group = Group()
    group.join("a", 90_000)
    group.join("b", 101_000)
    for name, at in leaves:
        group.leave(name, 100_000 + at)
    assert len(leaves_at_rebalances(read(group.records))) == count


def test_a_member_stays_if_it_is_there_when_the_next_rebalance_begins() -> None:
    """The members a and b are there when c joins; b leaves 250 ms after that rebalance, and c 10 s later."""
    group = Group()
    group.join("a", 80_000)
    group.join("b", 90_000)
    group.join("c", 101_000)
    group.leave("b", 103_250)
    group.leave("c", 113_250)
    group.join("d", 120_000)
    stays = stays_at_rebalances(read(group.records))
    assert stays == {"a": [101_000, 113_250, 120_000], "c": [113_250]}


@pytest.mark.parametrize(("client", "is_said"), [("app-1", False), ("other", True)])
def test_a_program_whose_replicas_stay_does_not_stop_because_of_rebalances(client: str, *, is_said: bool) -> None:
    group = Group()
    group.join(client, 80_000)
    domino(group, (100_000, 120_000, 140_000))
    assert ("right after a rebalance that another member caused" in said(group)) is is_said
