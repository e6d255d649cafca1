"""What the doctor finds in a group, worst first."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from barnabas_explain.catalog import (
    AbortedRecordsRead,
    CommitsRefused,
    CommitsWentBack,
    FetchDenied,
    FetchesWaited,
    FetchOutOfRange,
    GroupEmpty,
    GroupLoaded,
    JoinPhaseOver,
    JoinRefused,
    LagGrows,
    MemberAway,
    MemberBeganLate,
    MemberDisconnected,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberReconnected,
    MemberRewound,
    OffsetsAltered,
    OffsetsStable,
    OffsetsStuck,
    OffsetsUnstable,
    RebalanceOver,
    RebalanceStarted,
    RecordsAborted,
    RegexRefused,
    RegexResolved,
    RejoinAwaited,
    SessionRefused,
    SubscriptionChanged,
    TopicChanged,
    TopicDeleted,
)
from barnabas_explain.doctor import (
    BROKEN,
    ODD,
    OF_EVENTS,
    OF_NOW,
    SICK,
    Diagnosis,
    Present,
    Reader,
    examine,
    examine_missing,
    notes,
    patience_of,
    too_early,
    with_aborts,
    with_now,
    worst_first,
)
from barnabas_explain.explain import explain
from barnabas_explain.members import Member, Partition
from barnabas_explain.records import EventRecord
from barnabas_explain.words import Told, clock, moment
from tests.explain.reading import read
from tests.explain.test_findings import (
    OPEN,
    asks,
    back,
    calls,
    closed,
    event,
    expired,
    finding,
    left,
    new_instances,
    rounds,
    runs,
    slow_polls,
    static_runs,
    uncommitted,
)
from tests.explain.test_unowned import move, over

NOW = 200_000


def reader(number: int, topics: tuple[str, ...] = ("t",), partitions: tuple[int, ...] = ()) -> Reader:
    member = Member(f"m{number}", f"c{number}", "/h", None)
    return Reader(member, frozenset(topics), frozenset((topics[0], each) for each in partitions))


def present(*readers: Reader, **values: Any) -> Present:
    return Present("g", values.pop("state", "Stable"), readers, **{"topics": {"t": 2, "u": 2}, **values})


def told(group: Present, *records: EventRecord, since: int = 0) -> list[Diagnosis]:
    diagnoses = examine(group, read(list(records)), NOW, since)
    assert {each.kind for each in diagnoses} <= {*OF_EVENTS, *OF_NOW}, "groups watch --until does not know it"
    return diagnoses


HEALTHY = present(reader(1, partitions=(0, 1)), lags={("t", 0): 5_000})


@pytest.mark.parametrize(
    "group",
    [
        HEALTHY,
        present(state="Empty"),
        present(reader(1), reader(2), reader(3), state="PreparingRebalance"),
        present(reader(1, ("t", "u"), (0,)), reader(2, ("t",), (1,))),
        present(reader(1, partitions=(0, 1)), lags={("t", 0): 3_000, ("t", 1): 2_000}),
        present(reader(1, partitions=(0,)), reader(2, partitions=(1,)), lags={("t", 0): 3_000, ("t", 1): 2_000}),
    ],
    ids=[
        "one that lags",
        "one without members and records",
        "one that rebalances",
        "subscriptions that overlap",
        "an even lag",
        "an even lag of two members",
    ],
)
def test_nothing_is_wrong_with(group: Present) -> None:
    assert told(group) == []


def test_a_rebalance_that_is_not_over() -> None:
    began = event(RebalanceStarted, at=NOW - 40_000, reason="c3 joined")
    group = present(reader(1), reader(2), reader(3), state="PreparingRebalance")
    (found,) = told(group, began)
    assert (found.kind, found.sure) == ("rebalancing", "certain")
    assert found.text.startswith("A rebalance has been under way for 40 s: it waits until all members have joined")
    assert told(group, {**began, "time": NOW - 9_000}) == []
    over = event(RebalanceOver, at=NOW - 1, members=3, took_ms=39_999)
    assert told(group, began, over) == []
    assert told(HEALTHY, began) == []


AWAITED: dict[str, Any] = {
    "waited_ms": 10_000,
    "heard_ago_ms": 900,
    "told_ms": 2_000,
    "rebalance_timeout_ms": 3_600_000,
    "others": 2,
    "protocol": "range",
    "connection": "open",
}


def test_a_rebalance_that_waits_for_a_member_names_it() -> None:
    began = event(RebalanceStarted, at=NOW - 40_000, reason="c3 joined")
    group = present(reader(1), reader(2), reader(3), state="PreparingRebalance")
    waits = event(RejoinAwaited, NOW - 30_000, 2, client="slow", **AWAITED)
    (found,) = told(group, began, waits)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("rebalancing", "broken", "certain")
    assert found.text == (
        "A rebalance has been under way for 40 s: it waits for slow (h), which has not rejoined, though the responses"
        " to its heartbeats tell it to: its program probably does not poll. Meanwhile 2 members wait, and read nothing."
    )
    assert str(found.remedy).endswith("it rejoins, leaves or misses its session, at the latest 60 min after it began.")
    (found,) = told(group, began, waits, {**waits, "client_id": "other", "member_id": "m9"})
    assert found.evidence[0].startswith("It waits for other (h), too, which has not rejoined")
    (found,) = told(group, began, {**waits, "protocol": "cooperative-sticky"})
    assert found.as_data()["severity"] == "sick"
    closed = event(MemberDisconnected, NOW - 20_000, 2, client="slow", closed_by="client")
    (found, *_) = [each for each in told(group, began, waits, closed) if each.kind == "rebalancing"]
    assert "slow (h), which has not rejoined, and its connection is closed." in found.text
    (found,) = told(group, began, {**waits, "told_ms": None, "heard_ago_ms": 9_000})
    assert "slow (h), which has not rejoined, and was silent for 9 s when this was noted." in found.text
    (found,) = told(group, began, {**waits, "heard_ago_ms": 8_000})
    assert "and was silent for 8 s when this was noted." in found.text, "its last heartbeat is that which told it to"
    left = event(MemberLeft, NOW - 20_000, 2, client="slow")
    (found, *_) = [each for each in told(group, began, waits, left) if each.kind == "rebalancing"]
    assert "it waits until all members have joined again" in found.text


def test_a_leader_that_is_gone_is_not_said_to_assign_slowly() -> None:
    began = event(RebalanceStarted, at=NOW - 16_000, reason="c1 joined")
    closed = event(MemberDisconnected, NOW - 15_000, 1, closed_by="client", session_ms=45_000)
    chosen = {"member_id": "m1", "client_id": "c", "host": "/h", "instance_id": None}
    phase = event(JoinPhaseOver, at=NOW - 13_000, members=1, took_ms=3_000, leader=chosen)
    group = present(reader(1), state="CompletingRebalance")
    (found,) = [each for each in told(group, began, closed, phase) if each.kind == "rebalancing"]
    assert found.text == (
        "A rebalance has been under way for 16 s: all members have joined, and wait for the assignment by c (h), whose"
        f" connection was closed at {clock(NOW - 15_000)}: it probably crashed or was killed, and is removed when its"
        " session of 45 s is over."
    )
    assert str(found.remedy).startswith("Look why its process ended")
    back = event(MemberReconnected, NOW - 14_000, 1)
    (found,) = [each for each in told(group, began, closed, back, phase) if each.kind == "rebalancing"]
    assert str(found.remedy).startswith("Look at the log of the leader")


def test_a_topic_that_members_do_not_read_any_more_says_nothing_about_how_they_keep_up() -> None:
    lags = {("carts", 0): 416, ("carts", 1): 416, ("t", 0): 18}
    changed = event(SubscriptionChanged, 100_000, 1, added=["t"], removed=["carts"])
    group = present(reader(1, partitions=(0,)), lags=lags)
    (found,) = told(group, changed, grows(members=1, idle=0, owned=1))
    assert (found.kind, found.as_data()["severity"]) == ("left_topic", "sick")
    assert found.text == (
        "832 records of carts wait, which no member reads since c (h) removed it from its subscription at"
        f" {clock(100_000)}."
    )
    assert "subscribe() replaces the subscription before" in str(found.remedy)
    assert "`barnabas groups delete g --topic carts`" in str(found.remedy)
    assert told(group) == [], "it may have been so for long"
    assert told(present(reader(1), lags={("t", 0): 18}), changed) == [], "nothing waits there"


def test_a_member_that_held_up_a_rebalance_until_it_was_gone() -> None:
    began = event(RebalanceStarted, at=100_000, reason="c3 joined", cause="member_joined")
    waits = event(RejoinAwaited, 110_000, 2, client="slow", **AWAITED)
    gone = event(MemberExpired, 160_000, 2, client="slow", heard_ago_ms=45_000, session_ms=45_000)
    joined = [
        {"member_id": "m1", "client_id": "c", "host": "/h", "instance_id": None, "after_ms": 1_900, "told_ms": 1_850}
    ]
    over = [
        event(JoinPhaseOver, at=160_000, members=2, took_ms=60_000, joined_after=joined, protocol="range"),
        event(RebalanceOver, at=160_004, members=2, join_took_ms=60_000, sync_took_ms=4, protocol="range"),
    ]
    records = [event(MemberJoined, 99_999, 3, client="new"), began, waits, gone, *over]
    (found,) = (each for each in told(HEALTHY, *records) if each.kind == "late_member")
    assert found.text == (
        "slow (h) did not rejoin until it was removed or left, though the responses to its heartbeats told it to: the"
        " other members waited for 60 s."
    )
    assert str(found.remedy).startswith("Look where its program stands")
    (said,) = (each for each in explain(read(records)) if "it took" in each.text)
    assert said.text.endswith("; it took 60 s because slow (h) did not rejoin.")
    held_up = "slow (h) held it up: it did not rejoin, though the responses to its heartbeats told it to."
    assert f"{held_up} Its program probably did not poll." in said.details
    assert str(said.remedy).startswith("Look where its program stands")


def test_members_that_rejoin_are_not_idle_while_the_lag_grows() -> None:
    waits = present(reader(1), reader(2), state="PreparingRebalance", lags={("t", 0): 3_500, ("t", 1): 3_600})
    (found,) = told(waits, grows(members=2, idle=0, owned=2))
    (said,) = explain(read([grows(members=2, idle=0, owned=2)]))
    assert (found.kind, found.text, found.remedy) == ("lag_grows", said.text, said.remedy)


@pytest.mark.parametrize(
    ("group", "kind", "severity", "text"),
    [
        (
            present(state="Empty", lags={("t", 0): 7, ("t", 1): 0}),
            "no_members",
            "broken",
            "g has no members, and 7 records to read.",
        ),
        (
            present(reader(1, ("t", "nowhere"), (0, 1))),
            "no_topic",
            "broken",
            "c1 (h) subscribes to nowhere, which does not exist.",
        ),
        (
            present(reader(1, ("u",), (0,)), reader(2, ("u",), (1,)), empty=frozenset({"u"})),
            "empty_topic",
            "odd",
            "c1 (h) and c2 (h) subscribe to u, which has no record.",
        ),
        (
            present(reader(1, partitions=(0,)), reader(2, partitions=(1,)), reader(3)),
            "too_many_members",
            "odd",
            "1 of 3 members have no partition: there are 2 partitions.",
        ),
        (
            present(reader(1, partitions=(0, 1)), outside={("t", 0): (3, 15, 20)}),
            "offset_out_of_range",
            "sick",
            "The committed offset of t-0 is 3, and its log begins at 15: 12 records before that may be lost, unless its"
            " member had fetched them before they were deleted.",
        ),
        (
            present(reader(1, partitions=(0,)), reader(2, partitions=(1,)), lags={("t", 0): 4_980, ("t", 1): 20}),
            "hot_partition",
            "odd",
            "t-0 has 4,980 of the 5,000 records that g has not consumed, and the topic has 2 partitions; c1 (h)"
            " owns it.",
        ),
        (
            present(
                reader(1, partitions=(0, 1)),
                reader(2, ("t", "u"), (2,)),
                topics={"t": 3, "u": 2},
                lags={("t", 0): 2_000, ("t", 1): 2_000, ("t", 2): 20},
            ),
            "slow_member",
            "odd",
            "The partitions of c1 (h) have 4,000 of the 4,020 records that g has not consumed (t-0 to t-1), and it is a"
            " member: it is probably slow or stuck, or it has paused them.",
        ),
        (
            present(reader(1, partitions=(0, 1)), waits=[Told("t-0: read_committed consumers wait.", "Look.")]),
            "open_transaction",
            "sick",
            "t-0: read_committed consumers wait.",
        ),
        (
            present(state="Empty", outside={("t", 0): (30, 0, 20)}),
            "offset_out_of_range",
            "sick",
            "The committed offset of t-0 is 30, and its log ends at 20: there is no such record.",
        ),
        (
            present(reader(1, ("t",), (0, 1)), reader(2, ("u",), (0, 1))),
            "different_subscriptions",
            "sick",
            "Probably different programs share the group id g: c1 (h) to t; c2 (h) to u subscribed.",
        ),
    ],
)
def test_what_is_wrong_now(group: Present, kind: str, severity: str, text: str) -> None:
    (found,) = told(group)
    assert (found.kind, found.as_data()["severity"], found.text) == (kind, severity, text)
    assert found.remedy


def test_a_member_that_subscribes_to_no_topic_is_named() -> None:
    nobody = Member("m2", "c2", "/h", None)
    (found,) = told(present(reader(1, partitions=(0, 1)), Reader(nobody, frozenset(), frozenset())))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("no_subscription", "odd", "certain")
    assert found.text == (
        "c2 (h) is a member, and subscribes to no topic: it reads nothing. Clients whose pattern matches no topic do"
        " so."
    )
    unknown = Reader(nobody, frozenset(), frozenset(), is_known=False)
    assert told(present(reader(1, partitions=(0, 1)), unknown)) == []


def test_a_regular_expression_that_matches_no_topic_is_named() -> None:
    def idle(matched: int | None = None) -> Reader:
        return Reader(Member("m2", "c2", "/h", None), frozenset(), frozenset(), "^ordres.*", matched)

    resolved: EventRecord = {**event(RegexResolved, 100_000, regex="^ordres.*", topics=0, added=[], removed=[])}
    text = "c2 (h) is a member, and its regular expression ^ordres.* matches no topic: it reads nothing."
    owner = reader(1, partitions=(0, 1))
    for group, records in ((present(owner, idle(0)), []), (present(owner, idle()), [resolved])):
        (found,) = told(group, *records)
        assert (found.kind, found.text, found.sure) == ("no_subscription", text, "certain")
        assert found.remedy
    (probable,) = told(present(idle()))
    assert "its regular expression ^ordres.* probably matches no topic" in probable.text
    assert told(present(owner, idle())) == [], "others may own all partitions of what it matches"
    assert told(present(owner, idle(1)), resolved) == [], "it matches one now"
    assert told(present(idle(), state="Assigning")) == []


TENANTS = {f"t{number}": 1 for number in range(6)}


@pytest.mark.parametrize(("has_epochs", "better"), [(False, "cooperative-sticky"), (True, "uniform")])
def test_members_that_range_leaves_without_a_partition_are_named(has_epochs: bool, better: str) -> None:
    def group(assignor: str, *readers: Reader) -> Present:
        return present(*readers, topics=TENANTS, assignor=assignor, has_epochs=has_epochs)

    all_of_them = Reader(Member("m1", "c1", "/h", None), frozenset(TENANTS), frozenset((each, 0) for each in TENANTS))
    idle = [
        Reader(Member(f"m{number}", f"c{number}", "/h", None), frozenset(TENANTS), frozenset()) for number in (2, 3)
    ]
    (found,) = told(group("range", all_of_them, *idle))
    assert (found.kind, found.as_data()["severity"]) == ("topics_apart", "odd")
    assert found.text == (
        "2 of 3 members have no partition, though there are 6 (c2 (h) and c3 (h)): the assignor range assigns each"
        " topic alone, so that the first members get the partitions of all small topics."
    )
    assert better in (found.remedy or "")
    assert told(group("mine", all_of_them, *idle)) == []


def test_a_member_without_a_partition_that_no_assignor_can_help_is_not_named() -> None:
    others = [Reader(Member(f"m{n}", "c", "/h", None), frozenset("t"), frozenset({("t", n)})) for n in (1, 2)]
    group = present(*others, reader(3, ("t", "u")), topics={"t": 2, "u": 4}, assignor="range")
    assert told(group) == []


def test_a_group_that_never_had_members_is_read_without_membership() -> None:
    assert told(present(state="Empty", had_members=False, lags={("t", 0): 5})) == []


def altered(at: int, before: int, after: int, by: str = "b", **data: Any) -> EventRecord:
    change = {"topic": "t", "partition": 0, "before": before, "after": after}
    return event(OffsetsAltered, at, **{"client_id": by, "host": "/h", "offsets": 1, "changes": [change], **data})


def test_the_last_member_is_named_unless_a_client_without_membership_commits_since_then() -> None:
    empty = present(state="Empty", lags={("t", 0): 7})
    (gone,) = told(empty, left(), closed(5))
    assert (gone.as_data()["severity"], gone.sure) == ("broken", "certain")
    assert gone.evidence[0].startswith("The last one was c (h), until ")
    (read_by,) = told(empty, left(), closed(5), altered(150_000, 3, 9))
    assert (read_by.kind, read_by.as_data()["severity"], read_by.sure) == ("no_members", "odd", "possible")
    assert "; the client b (h), which is not a member, committed at " in read_by.text


def test_clients_without_membership_that_commit_the_same_partitions_in_turn() -> None:
    empty = present(state="Empty", lags={("t", 0): 7})
    other = {"other_client_id": "a", "other_host": "/h"}
    (found,) = told(empty, *(altered(100_000 + at, 50 + at, 3 + at, **other) for at in range(4)))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("committed_in_turn", "sick", "certain")
    assert found.text == (
        "b (h) and a (h), which are not members, commit the same partitions in turn: the offsets of t-0 went back 4"
        " times."
    )
    assert "Give each of these programs a group.id of its own" in str(found.remedy)
    (once,) = told(empty, altered(100_000, 50, 3, **other))
    assert once.kind == "no_members", "an administrator may have set it back"


def test_a_member_whose_offsets_another_one_sets_back_is_not_slow() -> None:
    member: dict[str, Any] = {"member_id": "m1", "client_id": "c1", "host": "/h"}
    change = {"topic": "t", "partition": 1, "before": 90, "after": 30}
    owned = over(100_000, move("m1", [0]), move("m2", [1]))
    group = present(*TWO, lags={("t", 1): 5_000})
    assert [each.kind for each in told(group, owned)] == ["slow_member"]
    (found,) = told(group, owned, event(CommitsWentBack, 190_000, changes=[change], **member))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("commits_of_lost", "sick", "certain")
    assert found.text == "c1 (h) committed t-1 back from 90 to 30, while m2 (h) owned that partition."
    assert "forget them when they are revoked" in (found.remedy or "")
    joins = [event(MemberJoined, 90_000 + number, number) for number in (1, 2)]
    alike = [{**move(f"m{number}", [number - 1]), "client_id": "c"} for number in (1, 2)]
    back = event(CommitsWentBack, 190_000, changes=[change])
    (found,) = [each for each in told(group, *joins, over(100_000, *alike), back) if each.kind == "commits_of_lost"]
    assert found.text == "c…m1 (h) committed t-1 back from 90 to 30, while c…m2 (h) owned that partition."
    gone = event(CommitsWentBack, 190_000, changes=[change], **{**member, "member_id": "m9"})
    assert [each.kind for each in told(group, owned, gone)] == ["slow_member"]


def test_a_member_that_commits_offsets_of_other_partitions() -> None:
    member: dict[str, Any] = {"member_id": "m1", "client_id": "c1", "host": "/h"}
    change = {"topic": "t", "partition": 0, "before": 90, "after": 30}
    of_another: dict[str, Any] = {"reads_on": True, "uncommitted": {"t": [1]}}
    lost = event(FetchOutOfRange, 189_000, topic="t", partition=0, offset=90, log_start=0, log_end=20, **member)
    back = event(CommitsWentBack, 190_000, changes=[change], **of_another, **member)
    found = {each.kind: each for each in told(present(*TWO), over(100_000, move("m1", [0, 1])), lost, back)}
    finding = found["commits_of_another"]
    assert (finding.as_data()["severity"], finding.sure) == ("sick", "probable")
    assert "it probably commits offsets of another partition there: it reads t-1, of which nothing" in finding.text
    stopped = told(present(state="Empty"), over(100_000, move("m1", [0, 1])), back)
    assert [each.kind for each in stopped] == ["commits_of_another"]


@pytest.mark.parametrize(("client", "kinds"), [("c2", []), ("c1", ["slow_member"])])
def test_a_member_that_reads_records_again_is_not_slow(client: str, kinds: list[str]) -> None:
    back = event(MemberRewound, 190_000, client=client, topic="t", partition=1, log_start=0, offset=5_000, position=4)
    group = present(*TWO, lags={("t", 1): 5_000})
    assert [each.kind for each in told(group, back)] == kinds


@pytest.mark.parametrize("name", ["Rebalance storm", "Probably a deployment"])
def test_a_client_cannot_be_named_so_that_its_group_has_another_disease(name: str) -> None:
    member: dict[str, Any] = {"member_id": "m1", "client_id": name, "host": "/h"}
    change = {"topic": "t", "partition": 0, "before": 9, "after": 3}
    assert told(HEALTHY, event(CommitsWentBack, 100_000, changes=[change], **member)) == []


RESTART = [left(), closed(5), event(MemberJoined, 102_000, 7)]


@pytest.mark.parametrize(
    ("records", "kinds"),
    [
        ([left(), back(7_200)], ["slow_poll"]),
        ([expired(connection="closed", closed_by="client", closed_ago_ms=6_000)], ["killed"]),
        ([left(), closed(5)], []),
        (RESTART, []),
        ([left(joined_ago_ms=4_000), back(20)], []),
        (slow_polls(5), ["storm"]),
    ],
    ids=["a slow poll", "a crash", "a stop", "one restart", "another subscription", "a storm"],
)
def test_what_was_wrong_lately(records: list[EventRecord], kinds: list[str]) -> None:
    assert [each.kind for each in told(HEALTHY, *records)] == kinds


def test_what_happened_often_is_told_once_with_its_worst_case() -> None:
    (found,) = told(HEALTHY, *slow_polls(2))
    assert found.evidence == ("This happened twice, this was the worst time.",)
    assert "5 s later: 20 s passed" in found.text


def test_what_events_tell_is_not_told_again_as_it_is_now() -> None:
    """A member has joined since the lag began to grow."""
    now = present(reader(1, partitions=(0,)), reader(2, partitions=(1,)), lags={("t", 0): 3_500, ("t", 1): 3_600})
    records = [grows(members=1, idle=0, owned=2)]
    diagnoses = told(now, *records)
    (said,) = with_now(explain(read(records)), diagnoses, NOW)
    assert "There is a member for each partition" in (said.remedy or "")
    assert (said.text, said.remedy) == (diagnoses[0].text, diagnoses[0].remedy)
    alone = with_now([], diagnoses, NOW)
    assert [(each.text, each.time) for each in alone] == [(diagnoses[0].text, NOW)]


def test_a_storm_and_its_cause_are_one_finding() -> None:
    (found,) = told(HEALTHY, *slow_polls(3))
    assert (found.kind, found.as_data()["causes"]) == ("storm", ["slow_poll"])
    assert "5 s later: 20 s passed" in found.evidence[0]
    assert found.evidence[0].endswith("(3 times, the worst one).")


def test_what_has_not_happened_again_is_a_smaller_finding() -> None:
    """A storm that is over does not make a group sick, whose score is 0 by then."""
    events = read(slow_polls(3))
    (now,) = examine(HEALTHY, events, events[-1].time + 600_000, 0)
    (later,) = examine(HEALTHY, events, events[-1].time + 1_500_000, 0)
    assert (now.as_data()["severity"], later.as_data()["severity"]) == ("sick", "odd")
    assert later.evidence[-1] == f"It has not happened again since {clock(events[-1].time)}, 25 min ago."
    assert not any("Storm score" in line for line in later.evidence)


def test_a_job_that_is_alone_in_its_group_and_comes_again_is_healthy() -> None:
    between = present(state="Empty", lags={("t", 0): 7})
    assert told(between, *runs(*range(100, 190, 10))) == []
    assert [each.kind for each in told(between, *runs(100, 110, 120))] == ["no_members"], "the next run is overdue"
    assert told(between, *rounds(10, 60, 110, 160)) == []
    waited = runs(*range(100, 190, 10), unread=[["t", 0]], offset=42)
    assert [each.kind for each in told(HEALTHY, *waited)] == ["storm"]


@pytest.mark.parametrize(
    ("starts", "later", "severity", "evidence", "remedy"),
    [
        ((100,), 60, "broken", ".", "nothing, its next run reads them."),
        (
            (100, 400),
            60,
            "odd",
            ". It has run twice, with pauses of up to 4 min.",
            "look whether the next run is late.",
        ),
        ((100, 400), 900, "broken", ". It has run twice, with pauses of up to 4 min.", "look whether the next run is"),
        ((100, 400, 700), 900, "broken", ". It has run 3 times, with pauses of up to 4 min.", "look whether the next"),
    ],
)
def test_a_program_that_was_alone_for_a_short_time_is_perhaps_a_job(
    starts: tuple[int, ...], later: int, severity: str, evidence: str, remedy: str
) -> None:
    events = read(runs(*starts, took=40))
    (left,) = [each for each in events if isinstance(each, MemberLeft)][-1:]
    between = present(state="Empty", lags={("t", 0): 7})
    (found,) = examine(between, events, left.time + later * 1_000, 0)
    assert (found.text, found.as_data()["severity"]) == ("g has no members, and 7 records to read.", severity)
    alone = f"The last one was c (h): it was alone in the group for 40 s, and was closed at {moment(left.time)}"
    assert found.evidence == (f"{alone}{evidence}",)
    assert (found.remedy or "").startswith("If its program should run all the time: start it, and look what stops it.")
    assert f"If it is a job that runs now and then: {remedy}" in (found.remedy or "")


@pytest.mark.parametrize(("committed_ago_ms", "is_cause"), [(None, True), (30_000, True), (1_000, False)])
def test_a_group_whose_last_member_stopped_while_its_commits_were_refused(
    committed_ago_ms: int | None, is_cause: bool
) -> None:
    joined, started, over, left, *rest = runs(100, took=40)
    why: dict[str, Any] = {"error": "OFFSET_METADATA_TOO_LARGE", "commits": 3, "sent": 1}
    refused = event(CommitsRefused, left["time"] - 5_000, member_id=left["member_id"], **why)
    records = [joined, started, over, refused, {**left, "committed_ago_ms": committed_ago_ms}, *rest]
    (found,) = examine(present(state="Empty", lags={("t", 0): 7}), read(records), left["time"] + 60_000, 0)
    assert ("nothing, its next run reads them" in (found.remedy or "")) is not is_cause
    assert (found.remedy or "").startswith("Commit shorter metadata") is is_cause
    assert any("were refused (OFFSET_METADATA_TOO_LARGE)" in each for each in found.evidence) is is_cause


def test_a_group_whose_members_come_back_again_and_again_is_not_without_members_in_between() -> None:
    records = [event(MemberJoined, 90_000), event(RebalanceOver, 91_000, members=2)]
    for at in range(100_000, 140_000, 10_000):
        records += [event(GroupEmpty, at), event(MemberJoined, at + 4_000)]
    records.append(event(GroupEmpty, 140_000))
    empty, events = present(state="Empty", lags={("t", 0): 7}), read(records)
    assert examine(empty, events, 150_000, 0) == []
    (found,) = examine(empty, events, 153_000, 0)
    assert (found.kind, found.sure) == ("no_members", "certain")
    assert found.remedy == "If its program should run all the time: start it, and look what stops it."
    (found,) = examine(empty, read([records[0], records[-1]]), 150_000, 0)
    assert (found.kind, found.remedy) == ("no_members", "Start a member.")


def test_members_that_are_ill_come_before_groups_without_members() -> None:
    gone = Diagnosis("a", "no_members", BROKEN, "gone", "certain")
    ill = Diagnosis("b", "topic_denied", BROKEN, "ill", "certain", time=NOW - 60_000)
    perhaps = Diagnosis("c", "stuck", BROKEN, "perhaps", "possible")
    sick = Diagnosis("d", "storm", SICK, "sick", "certain")
    assert worst_first([sick, perhaps, gone, ill], NOW) == [ill, gone, perhaps, sick]


@pytest.mark.parametrize(
    ("starts", "severity", "evidence", "remedy"),
    [
        ((100,), "broken", ".", "nothing, its next run reads them."),
        ((100, 400), "odd", ". They have run twice, with pauses of up to 5 min.", "look whether the next run is late."),
    ],
)
def test_members_that_were_alone_together_are_perhaps_a_job(
    starts: tuple[int, ...], severity: str, evidence: str, remedy: str
) -> None:
    events = read(rounds(*starts))
    (*_, left) = [each for each in events if isinstance(each, MemberLeft)]
    (found,) = examine(present(state="Empty", lags={("t", 0): 7}), events, left.time + 60_000, 0)
    assert (found.kind, found.as_data()["severity"]) == ("no_members", severity)
    alone = (
        "The last ones were 2 members with the client id c: they were alone in the group for 20.3 s, and were closed"
    )
    assert found.evidence == (f"{alone} at {moment(left.time)}{evidence}",)
    assert f"If it is a job that runs now and then: {remedy}" in (found.remedy or "")


def test_a_job_that_commits_nothing_reads_everything_again() -> None:
    (found,) = told(present(state="Empty"), *uncommitted(*range(100, 190, 10), unread=[["t", 0]]))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("runs_uncommitted", "odd", "certain")
    assert found.evidence == ()


def test_a_program_that_makes_a_consumer_again_and_again_is_sick() -> None:
    (found,) = told(present(state="Empty"), *runs(*range(100, 170, 7)))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("consumer_loop", "sick", "probable")
    assert found.text.startswith("c (h) probably makes a consumer again and again: it was alone in the group")
    assert "consumer_timeout_ms" in str(found.remedy)


def test_a_consumer_for_each_call_and_a_subscription_for_each_poll_are_sick() -> None:
    for records, cause in (
        (calls(10), "makes a consumer for each call"),
        (asks(*range(100_000, 110_000, 500)), "calls subscribe() in its loop"),
    ):
        (found,) = told(HEALTHY, *records)
        assert (found.kind, cause in found.text) == ("storm", True)


ASSIGNED: dict[str, Any] = {"state": "Empty", "had_members": False, "lags": {("t", 0): 7}}
GROWN = {("t", 2): 400, ("t", 3): 20}


def grew(at: int, *more: EventRecord, before: int = 2, partitions: int = 4) -> list[EventRecord]:
    """A topic of a group, whose leader is c1, grows."""
    leader = {"member_id": "m1", "client_id": "c1", "host": "/h", "instance_id": None}
    return [
        event(MemberJoined, 1_000, client="c1", software="some 1.2"),
        event(JoinPhaseOver, 2_000, leader=leader),
        event(TopicChanged, at, topic="t", before=before, partitions=partitions),
        *more,
    ]


HALVES = reader(1, partitions=(0,)), reader(2, partitions=(1,))
WIDE = present(*HALVES, topics={"t": 4}, left_out=GROWN, committed={("t", 0): 5, ("t", 1): 9}, assignor="range")


def test_partitions_that_the_leader_has_not_noticed_are_assigned_to_no_member() -> None:
    (found,) = told(WIDE, *grew(NOW - 30_000))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("unassigned", "odd", "probable")
    assert found.text == (
        "t-2 to t-3 are assigned to no member since t grew from 2 to 4 partitions, 30 s ago, and 420 records wait"
        " there. The leader of the group, c1 (h) (some 1.2), assigns partitions in the classic protocol, and has"
        " probably not noticed the new ones yet: clients look for them every metadata.max.age.ms, 5 min by default."
    )
    assert (found.remedy or "").startswith("Wait until the leader has noticed them. A lower metadata.max.age.ms")
    one = replace(WIDE, topics={"t": 3}, left_out={})
    (alone,) = told(one, *grew(NOW - 30_000, partitions=3))
    assert alone.text.startswith(
        "t-2 is assigned to no member since t grew from 2 to 3 partitions, 30 s ago. The leader"
    )


def test_partitions_that_are_left_out_for_longer_are_so_perhaps_on_purpose() -> None:
    over = event(RebalanceOver, NOW - 20_000, members=2)
    group = replace(WIDE, topics={"t": 4})
    (found,) = examine(group, read(grew(NOW - 30_000, over)), NOW + 400_000, 0)
    assert (found.kind, found.sure) == ("unassigned", "certain")
    assert found.text.endswith(
        " 1 rebalance was over since then, and the leader of the group, c1 (h) (some 1.2), has left them out, for"
        " longer than clients keep their metadata by default (assignor range)."
    )
    assert "`--ignore unassigned`" in (found.remedy or "")


@pytest.mark.parametrize(
    ("now", "records"),
    [
        (WIDE, grew(NOW - 10_000)),
        (WIDE, []),
        (WIDE, grew(NOW - 30_000, before=0)),
        (replace(WIDE, has_epochs=True), grew(NOW - 30_000)),
        (replace(WIDE, state="PreparingRebalance"), grew(NOW - 30_000)),
        (replace(WIDE, committed={("t", each): 1 for each in range(4)}), grew(NOW - 30_000)),
        (replace(WIDE, readers=(reader(1, partitions=(0, 1, 2, 3)),)), grew(NOW - 30_000)),
        (replace(WIDE, readers=(reader(1, ("u",), ()), HALVES[1]), topics={"t": 2, "u": 2}), grew(NOW - 30_000)),
    ],
    ids=[
        "a rebalance may follow",
        "it has not grown",
        "it is new",
        "the broker assigns",
        "a rebalance",
        "they are read",
        "they are assigned",
        "it was created anew",
    ],
)
def test_partitions_that_are_assigned_soon_are_no_finding(now: Present, records: list[EventRecord]) -> None:
    assert [each for each in told(now, *records) if each.kind == "unassigned"] == []


def test_records_without_a_committed_offset_are_counted_when_the_members_are_gone() -> None:
    gone = present(state="Empty", lags={("t", 0): 1}, committed={("t", 0): 5, ("t", 1): 9}, left_out=GROWN)
    (found,) = told(gone)
    assert found.text == (
        "g has no members, and 1 record to read, and 420 records in 2 partitions without a committed offset (t-2 to"
        " t-3), of which its auto.offset.reset decides."
    )
    read_up = replace(gone, lags={})
    assert told(read_up) == [], "it begins at latest, and they are older"
    (found,) = told(read_up, *grew(NOW - 30_000))
    assert "420 records in 2 partitions" in found.text


def test_a_program_with_assign_whose_topic_has_grown() -> None:
    now = present(**ASSIGNED, committed={("t", 0): 5, ("t", 1): 9}, left_out=GROWN)
    (found,) = told(now)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("left_out", "odd", "probable")
    assert found.text == (
        "Probably no program of g reads t-2 to t-3: the group has no members, and committed offsets of t-0 to t-1 only,"
        " while 420 records wait in them. A program that reads with assign() keeps its list of partitions when its"
        " topic grows; t has 4 partitions now."
    )
    assert str(found.remedy).startswith("Use subscribe(), which follows the topic")
    one = present(**ASSIGNED, committed={("t", 0): 5}, left_out={("t", 1): 9})
    reads: dict[str, Any] = {
        "offsets": 1,
        "changes": [{"topic": "t", "partition": 0, "before": 3, "after": 4}],
        "commits_on": True,
    }
    assert [each.kind for each in told(one, event(OffsetsAltered, 100_000, **reads))] == ["left_out"]


@pytest.mark.parametrize(
    "now",
    [
        present(**ASSIGNED, committed={("t", 0): 5}, left_out={("t", 1): 9}),
        present(**ASSIGNED, committed={("t", 1): 5, ("t", 3): 5}, left_out={("t", 0): 50, ("t", 2): 50}),
        present(**ASSIGNED, committed={("t", 0): 5, ("t", 1): 9}, left_out={("t", 2): 7}),
        present(**ASSIGNED, committed={("t", 0): 5, ("t", 1): 9}, left_out={("t", 2): 0}),
        present(**{**ASSIGNED, "lags": {}, "had_members": True}, committed={("t", 0): 5, ("t", 1): 9}, left_out=GROWN),
    ],
    ids=["one offset, set by hand", "some on purpose", "a program that is gone", "nothing is written", "had members"],
)
def test_partitions_that_are_left_out_for_another_reason(now: Present) -> None:
    assert told(now) == []


@pytest.mark.parametrize(
    ("ids", "who"),
    [
        (["prices"], "The producer with the transactional.id prices"),
        (["a", "b"], "The producers with the transactional ids a and b"),
        (None, "A producer"),
    ],
)
def test_members_that_get_only_aborted_records_are_well(ids: list[str] | None, who: str) -> None:
    figures: dict[str, Any] = {"partitions": {"t": [0]}, "records": 2_400, "took_ms": 120_000, "transactional_ids": ids}
    aborted = event(RecordsAborted, 150_000, **figures)
    (found,) = told(HEALTHY, aborted)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("records_aborted", "sick", "certain")
    assert found.text == (
        f"{who} aborted all transactions in t-0 for 2 min: of 2,400 records that were looked at the members, which are"
        " read_committed, get none, and are well. The lag counts these records."
    )
    (said,) = explain(read([aborted, {**aborted, "time": 270_000, "took_ms": 240_000}]))
    assert ("for 4 min" in said.text, said.remedy) == (True, found.remedy)
    assert told(HEALTHY, {**aborted, "time": 10_000}) == [], "it would have been reported again"
    assert told(present(state="Empty"), aborted) == []


def test_a_member_that_is_given_records_of_aborted_transactions_is_odd() -> None:
    figures: dict[str, Any] = {
        "partitions": {"t": [0]},
        "transactions": 31,
        "took_ms": 120_000,
        "transactional_ids": ["payer-1"],
    }
    read_them = event(AbortedRecordsRead, 150_000, **figures)
    (found,) = told(HEALTHY, read_them)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("aborted_records_read", "odd", "certain")
    assert found.text == (
        "c (h) reads t-0 with isolation.level=read_uncommitted, and was given the records of 31 aborted transactions"
        " (transactional.id payer-1) within 2 min."
    )
    assert (found.remedy or "").startswith("Set isolation.level=read_committed of c (h)")
    (said,) = explain(read([read_them]))
    assert (said.text, said.remedy) == (found.text, found.remedy)
    assert told(HEALTHY, {**read_them, "time": 10_000}) == [], "it would have been reported again"


def grows(at: int = NOW, **data: Any) -> EventRecord:
    """A lag that grew from 1,000 to 7,000 within 100 s."""
    figures = {"consumed": 2_000, "written": 8_000, "lag_before": 1_000, "lag": 7_000, "took_ms": 100_000}
    return event(LagGrows, at, **{**figures, "led": 2, "committed_in": 2, **data})


TWO = [reader(1, partitions=(0,)), reader(2, partitions=(1,))]
BEHIND = present(*TWO, lags={("t", 0): 3_500, ("t", 1): 3_600})


def test_a_lag_that_grows_says_what_is_committed_and_what_is_written() -> None:
    (found,) = told(BEHIND, grows())
    assert (found.kind, found.as_data()["severity"], found.sure) == ("lag_grows", "sick", "certain")
    assert found.text == (
        "20 records/s are committed and 80 records/s are written: the lag grew from 1,000 to 7,000 within 100 s; it"
        " needs about 4 times the work."
    )
    assert found.evidence == ("The lag is 7,100 now.",)
    assert (found.remedy or "").startswith("There is a member for each partition: give the topics more partitions")
    (said,) = explain(read([grows(100_000), grows(180_000, took_ms=180_000, lag=10_000, written=11_000)]))
    assert (said.time, "to 10,000 within 3 min" in said.text) == (100_000, True)
    assert len(explain(read([grows(100_000), grows(900_000)]))) == 2, "it had stopped to grow"


def test_members_that_are_missing_or_have_no_partition_come_first() -> None:
    one_member = present(reader(1, partitions=(0, 1)), lags={("t", 0): 3_500, ("t", 1): 3_600})
    (alone,) = told(one_member, grows(written=3_900))
    assert (alone.remedy or "").startswith("Start more members: there is 1, and 2 partitions")
    (far,) = told(one_member, grows())
    assert (far.remedy or "").startswith("First let each member do more: less work for each record")
    assert "More members are not enough: there is 1, and 2 partitions, of which each can have its own" in str(
        far.remedy
    )
    assert "so that they do at most 2 times the work" in str(far.remedy)
    one = reader(1, ("t",), (0, 1))
    two = present(one, reader(2), assignor="range", lags={("t", 0): 3_500, ("t", 1): 3_600})
    assert {each.kind: (each.remedy or "")[:33] for each in told(two, grows())} == {
        "topics_apart": "Use an assignor that assigns all ",
        "lag_grows": "Let the idle members have partiti",
    }


SERVICES = (("billing-service", "confluent-kafka-python 2.16.1"), ("shipping-service", None))


def services(
    *programs: tuple[str, str | None], minutes: float = 10, topics: str = "tt", **data: Any
) -> list[Diagnosis]:
    """Programs that have joined so many minutes ago, and share the partitions of a topic, or read one each."""
    events = [
        event(MemberJoined, round(NOW * 10 - minutes * 60_000), number, client=client, software=software, **data)
        for number, (client, software) in enumerate(programs)
    ]
    readers = [
        Reader(Member(f"m{number}", client, "/h", None), frozenset({topic}), frozenset({(topic, number)}))
        for number, ((client, _), topic) in enumerate(zip(programs, cycle(topics), strict=False))
    ]
    return examine(present(*readers), read(events), NOW * 10, 0)


def test_two_services_with_one_group_id_are_perhaps_no_team() -> None:
    (found,) = services(*SERVICES)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("two_services", "odd", "possible")
    assert found.text == (
        "billing-service (h) and shipping-service (h) have been members together for more than 5 min, with client ids"
        " and libraries (confluent-kafka-python and another one, which does not say its name) that have nothing in"
        " common: each reads only a part of the records of t."
    )
    assert (found.remedy or "").startswith("If these are two services, give each a group.id of its own")
    assert (found.remedy or "").endswith("this is fine (`--ignore two_services`).")
    assert services(*SERVICES, minutes=4.9) == [], "it may be a deployment"
    assert [each.kind for each in services(*SERVICES, topics="tu")] == ["different_subscriptions"]
    assert services(*SERVICES, inferred=True) == [], "their libraries are not known"
    assert services(*(("billing", "a 1"), ("shipping", "b 1")))[0].text.count("(a and b)") == 1


@pytest.mark.parametrize(
    "programs",
    [
        (("billing-service", "a 1"), ("shipping-service", "a 2")),
        (("quotes-v1-b", "a 1"), ("quotes-v2-a", "b 1")),
        (("orderapi", "a 1"), ("orderworker", "b 1")),
        (("billing-service", "a 1"), ("canary-billing", "b 1")),
        (("rdkafka", "a 1"), ("aiokafka-0.14.0", None)),
        (("billing", None), ("shipping", None)),
        (("billing-1", "a 1"), ("shipping-1", "b 1"), ("billing-2", "b 1")),
        (("billing", "a 1"), ("shipping", "b 1"), ("stock", "c 1")),
        (("", "a 1"), ("shipping", "b 1")),
    ],
    ids=[
        "one library",
        "versions",
        "one beginning",
        "canary",
        "default ids",
        "not known",
        "being moved",
        "three libraries",
        "no id",
    ],
)
def test_other_members_may_be_one_service(programs: Sequence[tuple[str, str | None]]) -> None:
    assert services(*programs) == []


def test_members_that_stand_by_need_nothing() -> None:
    both, more = reader(1, partitions=(0, 1)), [reader(2), reader(3)]
    ((one,), (two,)) = (told(present(both, *more[:idle], topics={"t": 1})) for idle in (1, 2))
    assert one.remedy == (
        "Nothing, if it stands by for the others. Otherwise start 1 member at most, or give the topics more partitions."
        " Keys may get other partitions then, so that their new records are not in order with those before."
    )
    assert (two.remedy or "").startswith("Nothing, if they stand by for the others.")


def behind(*positions: list[Any], stood_ms: float | None = None) -> list[dict[str, Any]]:
    """The first member has nearly all of the lag."""
    member = {"member_id": "m1", "client_id": "c1", "host": "/h", "instance_id": None}
    return [{**member, "lag": 6_900, "positions": list(positions), "stood_ms": stood_ms}]


@pytest.mark.parametrize(
    ("lags", "spread", "says", "remedy"),
    [
        (
            {("t", 0): 6_900, ("t", 1): 100},
            {"behind": behind(["t", 0, 5])},
            "Nearly all of it, 6,900 records, waits in t-0, which c1 (h) owns.",
            "Either most records have keys of this partition: spread them over more keys. Or its member does not get on"
            " there: look at its log, and whether the offset moves. More members do not help: a partition has one.",
        ),
        (
            {("t", 0): 6_900, ("t", 1): 100},
            {"behind": behind(["t", 0, 5]), "written_there": 7_900},
            "Nearly all of it, 6,900 records, waits in t-0, which c1 (h) owns: about 7,900 of the 8,000 records that"
            " were written meanwhile came there, and its committed offset moves.",
            "Spread the records over more partitions: most of them probably have the same key, or a few keys. Or make"
            " the work for each record shorter. More members do not help: a partition has one.",
        ),
        (
            {("t", 0): 6_900, ("t", 1): 100},
            {"behind": behind(["t", 0, 5]), "written_there": 4_000},
            "Nearly all of it, 6,900 records, waits in t-0, which c1 (h) owns.",
            "Either most records have keys of this partition: spread them over more keys. Or its member does not get on"
            " there: look at its log, and whether the offset moves. More members do not help: a partition has one.",
        ),
        (
            {("t", 0): 3_450, ("t", 1): 3_450, ("t", 2): 100},
            {"behind": behind(["t", 0, 5], ["t", 1, 7])},
            "Nearly all of it, 6,900 records, waits in the partitions of c1 (h) (t-0 to t-1), while the other members"
            " keep up.",
            "Look why c1 (h) does less than the others: its log, its machine, its records; whether it"
            " pauses partitions, and whether a quota limits it (barnabas quotas list). More members do not make it"
            " faster.",
        ),
        (
            {("t", 0): 3_450, ("t", 1): 3_450, ("t", 2): 100},
            {"behind": behind(["t", 0, 5], ["t", 1, 7], stood_ms=300_000)},
            "Nearly all of it, 6,900 records, waits for c1 (h): the committed offsets of t-0 to t-1 have not moved for"
            " 5 min, while the rest of the group gets on.",
            "Look where the program of c1 (h) stands, and whether it commits. It keeps these partitions, so that more"
            " members do not help.",
        ),
    ],
    ids=[
        "a partition",
        "a partition to which most is written",
        "a partition to which half is written",
        "a slow member",
        "a member that stands still",
    ],
)
def test_a_lag_that_grows_in_one_place_needs_no_more_members(
    lags: dict[tuple[str, int], int], spread: dict[str, Any], says: str, remedy: str
) -> None:
    record = grows(**spread, members=2, idle=0, owned=3)
    (said,) = explain(read([record]))
    assert (said.text.partition(" within 100 s. ")[2], said.remedy) == (says, remedy)
    here = present(reader(1, partitions=(0, 1)), reader(2, partitions=(2,)), lags=lags)
    committed = {("t", 0): 5, ("t", 1): 7}
    (found,) = told(replace(here, committed=committed), record)
    as_now = said.text.replace("Nearly all of it, 6,900 records, waits", "Now 6,900 of the 7,000 records wait")
    assert (found.kind, found.text, found.remedy, found.evidence) == ("lag_grows", as_now, remedy, ())


def test_a_hot_partition_is_told_from_a_member_that_does_not_get_on_by_what_was_written_there() -> None:
    two = present(
        reader(1, partitions=(0,)),
        replace(reader(2, partitions=(1,)), member=Member("long-id-2222", "c1", "/h", None)),
        lags={("t", 0): 20, ("t", 1): 4_980},
    )
    hot, even = (replace(two, committed={("t", 0): at, ("t", 1): 2_000}) for at in (100, 7_000))
    (found,) = told(hot)
    assert (found.kind, found.text) == (
        "hot_partition",
        "t-1 has 4,980 of the 5,000 records that g has not consumed: 6,980 of the 7,100 records that were ever written"
        " to t came there. c1…2222 (h) owns it, and its committed offset is 2,000.",
    )
    assert (found.remedy or "").startswith("Spread the records over more partitions: most of them probably have")
    assert (found.remedy or "").endswith("does not move: look where the program of c1…2222 (h) stands.")
    (found,) = told(even)
    assert found.text.endswith(", and the topic has 2 partitions; c1…2222 (h) owns it.")
    assert (found.remedy or "").startswith("Either most records have keys of this partition")


def test_a_member_that_stood_still_and_has_moved_is_slow() -> None:
    here = present(reader(1, partitions=(0, 1)), reader(2, partitions=(2,)), lags={("t", 0): 3_500, ("t", 1): 3_500})
    record = grows(behind=behind(["t", 0, 5], ["t", 1, 7], stood_ms=300_000), members=2, idle=0, owned=3)
    (found,) = told(replace(here, committed={("t", 0): 9, ("t", 1): 7}), record)
    assert "wait in the partitions of c1 (h)" in found.text


def test_a_lag_that_grows_in_a_group_larger_than_its_partitions() -> None:
    record = grows(members=3, idle=2, owned=1)
    (said,) = explain(read([record]))
    assert said.text.endswith(
        "; it needs about 4 times the work. 2 of 3 members have no partition: there is 1 partition."
    )
    assert str(said.remedy).startswith("There is a member for each partition: give the topics more partitions, as more")
    here = present(reader(1, partitions=(0,)), reader(2), reader(3), topics={"t": 1}, lags={("t", 0): 7_000})
    (found,) = told(here, record)
    assert (found.kind, found.text, found.remedy) == ("lag_grows", said.text, said.remedy)


def test_a_lag_that_grew_before_its_members_were_recorded() -> None:
    (said,) = explain(read([grows()]))
    assert str(said.remedy).startswith("Look first whether one member or one partition has most of the lag")


def test_a_lag_that_grows_says_why_offsets_of_some_partitions_stand_still() -> None:
    stands: dict[str, Any] = {"positions": [["t", 0, 5]], "records": 3_500, "stood_ms": 30_000, "fetches": "beyond"}
    stuck = event(OffsetsStuck, NOW, client="c1", ahead=90, **stands)
    group = present(*TWO, lags={("t", 0): 3_500, ("t", 1): 3_600}, committed={("t", 0): 5, ("t", 1): 9})
    assert [each.kind for each in told(group, stuck)] == ["not_committed"]
    assert [each.kind for each in told(group, stuck, grows())] == ["lag_grows"]
    again = {**stuck, "fetches": "again", "offset": 5, "deliveries": 9}
    assert [each.kind for each in told(group, again, grows())] == ["stuck"]


def test_a_lag_that_grows_because_of_a_quota_needs_no_more_members() -> None:
    (found,) = told(BEHIND, grows(throttled=["bi-export"]))
    assert (found.kind, found.sure) == ("lag_grows", "probable")
    assert found.text.endswith(
        " to 7,000 within 100 s. A quota of the broker probably slows it down: bi-export had to wait for records within"
        " the last minute."
    )
    assert (found.remedy or "").startswith("Look which quota it is, and raise it (`barnabas quotas list`")


def test_a_lag_that_grows_only_where_offsets_stand_still_needs_no_more_members() -> None:
    stands: dict[str, Any] = {"positions": [["t", 0, 5], ["t", 1, 7]], "records": 7_000, "stood_ms": 30_000}
    stuck = event(OffsetsStuck, NOW, client="c1", fetches="beyond", ahead=90, committed_ago_ms=2_000, **stands)
    lags, committed = {("t", 0): 3_500, ("t", 1): 3_500, ("u", 0): 9}, {("t", 0): 5, ("t", 1): 7, ("u", 0): 80}
    one = reader(1, ("t", "u"), (0, 1))
    (found,) = told(present(one, lags=lags, committed=committed), stuck, grows())
    assert found.kind == "not_committed"
    assert "the committed offsets of t-0 to t-1 have not moved" in found.text
    moved = {**committed, ("t", 0): 6}
    assert "lag_grows" in {each.kind for each in told(present(one, lags=lags, committed=moved), stuck, grows())}


def test_the_coordinator_knows_only_partitions_that_its_broker_leads() -> None:
    (found,) = told(BEHIND, grows(committed_in=6))
    assert "are written (in 2 of 6 partitions, whose logs the coordinator knows): " in found.text


@pytest.mark.parametrize(
    ("at", "lag", "is_so"),
    [(NOW, 7_000, True), (NOW - 50_000, 9_900, True), (NOW - 50_000, 7_000, False), (NOW - 50_000, 0, False)],
    ids=["now", "it goes on", "it has stopped to grow", "it was caught up with"],
)
def test_a_lag_that_grows_is_a_finding_while_it_does(at: int, lag: int, is_so: bool) -> None:
    halves = {("t", 0): lag // 2, ("t", 1): lag // 2}
    assert [each.kind for each in told(present(*TWO, lags=halves), grows(at))] == ["lag_grows"] * is_so
    assert told(present(state="Empty", lags=halves), grows(at)) == told(present(state="Empty", lags=halves))


def test_offsets_that_are_pending_for_long_name_the_transactional_id() -> None:
    pending: dict[str, Any] = {"producer_id": 7, "transactional_id": "bills", "offsets": 1, "pending_ms": 20}
    waits = event(OffsetsUnstable, NOW - 11_000, **pending)
    (found,) = told(HEALTHY, waits)
    assert (found.kind, found.as_data()["severity"]) == ("pending_offsets", "sick")
    assert found.text == (
        "A consumer waits for 1 offset: it is pending in a transaction of the transactional id bills, of producer 7"
        " since 11 s."
    )
    assert "transactions list" not in str(found.remedy)
    (unknown,) = told(HEALTHY, {**waits, "transactional_id": None})
    assert "`barnabas transactions list` has the transactional id of each producer" in str(unknown.remedy)
    assert told(HEALTHY, {**waits, "time": NOW - 5_000}) == []
    assert told(HEALTHY, waits, event(OffsetsStable, NOW - 500, **pending, committed=True)) == []


def test_what_happened_long_ago_does_not_count() -> None:
    assert told(HEALTHY, left(), back(7_200), since=150_000) == []


def cut(at: int, age_ms: int, member: int = 1, *, returns: bool = True) -> list[EventRecord]:
    closed = event(MemberDisconnected, at, member, closed_by="client", age_ms=age_ms)
    return [closed, event(MemberReconnected, at + 300, member)] if returns else [closed]


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (
            [
                *cut(20_000, 9_010, 1),
                *cut(25_000, 8_990, 2),
                *cut(85_000, 9_200, 2),
                *cut(150_000, 9_000, returns=False),
            ],
            True,
        ),
        ([*cut(20_000, 9_000), *cut(85_000, 9_000), *cut(150_000, 9_000)], False),
        ([*cut(20_000, 9_000), *cut(85_000, 31_000), *cut(120_000, 2_000), *cut(150_000, 9_000)], False),
        ([each for number in range(6) for each in cut(20_000 + number, 9_000, number)], False),
        ([each for at in range(20, 140, 20) for each in cut(at * 1_000, 9_000, at, returns=False)], False),
    ],
    ids=["several members", "three times", "other ages", "all at once", "the programs end"],
)
def test_connections_that_end_at_one_age(records: list[EventRecord], found: bool) -> None:
    diagnoses = [each for each in told(HEALTHY, *records) if each.kind == "cut_connections"]
    assert bool(diagnoses) is found
    for each in diagnoses:
        assert (each.as_data()["severity"], each.sure) == ("odd", "probable")
        assert "end at an age of about 9 s each time (4 times seen within 2 min)" in each.text
        assert "for how long a connection may last" in str(each.remedy)


def test_partitions_of_a_member_whose_connection_is_closed_wait() -> None:
    disconnected = event(MemberDisconnected, 199_000, closed_by="client", session_ms=OPEN["session_ms"])
    (found,) = told(HEALTHY, disconnected)
    assert (found.kind, found.sure) == ("disconnected", "possible")
    assert "t-0 to t-1 wait until its session of 6 s is over, unless it has connected again" in found.text
    assert told(HEALTHY, {**disconnected, "time": NOW - 6_001}) == [], "it is still a member"
    loaded = {**disconnected, "type": GroupLoaded.type, "members": 1}
    assert told(HEALTHY, disconnected, loaded) == [], "the broker has closed all connections"
    assert told(HEALTHY, disconnected, event(MemberReconnected, 199_500)) == []
    assert told(HEALTHY, {**disconnected, "time": 190_000}, disconnected) == [], "it connects again and again"


def test_a_static_member_that_was_stopped_for_good() -> None:
    """Its program closes its connection, and does not leave: a set of pods was made smaller."""
    data: dict[str, Any] = {"client": "c1", "instance_id": "meter-1", "session_ms": 1_200_000, "closed_by": "client"}
    member = Member("m1", "c1", "/h", "meter-1")
    static = Reader(member, frozenset("t"), frozenset({("t", 0), ("t", 1)}))
    others = Reader(Member("m2", "c2", "/h", "meter-2"), frozenset("t"), frozenset({("t", 2)}))
    lags = {("t", 0): 900, ("t", 1): 1_100}
    here = present(static, others, lags=lags, topics={"t": 3})
    assert [each.kind for each in told(here)] == ["slow_member"]
    (found,) = told(here, event(MemberDisconnected, NOW - 120_000, **data))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("disconnected", "sick", "probable")
    assert found.text == (
        f"Static member meter-1 closed its connection at {clock(NOW - 120_000)} without leaving the group, as static"
        " members do when they end, and has not connected again for 2 min: its program has probably ended, and t-0 to"
        f" t-1 wait until its session of 20 min is over, at {clock(NOW + 1_080_000)}; 2,000 records wait there."
    )
    assert found.remedy == (
        "Look whether its process still runs. Start it again with group.instance.id=meter-1: it gets its partitions"
        " back at once. If it was meant to go: `barnabas groups remove-member g meter-1`, as static members stay when a"
        " group is made smaller. Others get its partitions sooner with a shorter session.timeout.ms: it is 20 min, and"
        " 45 s by default; as long as a restart takes is enough."
    )
    (soon,) = told(here, event(MemberDisconnected, NOW - 50_000, **data))
    assert (soon.sure, "unless it has connected again" in soon.text) == ("possible", True)


def test_the_lag_of_a_member_that_has_gone_has_that_cause() -> None:
    gone = event(MemberDisconnected, NOW - 120_000, client="c1", session_ms=1_200_000, closed_by="client")
    lags = {("t", 0): 6_900, ("t", 1): 100}
    here = present(reader(1, partitions=(0,)), reader(2, partitions=(1,)), lags=lags, committed={("t", 0): 5})
    grew = grows(NOW, behind=behind(["t", 0, 5], stood_ms=100_000), members=2, idle=0, owned=2)
    assert "lag_grows" not in {each.kind for each in told(here, gone, grew)}
    (found,) = (each for each in told(here, gone, grew) if each.kind == "disconnected")
    said = with_now(explain(read([gone, grew])), [found], NOW)
    assert [each.text for each in said] == [found.text]
    assert said[0].details == [
        "Meanwhile 20 records/s are committed and 80 records/s are written: the lag grew from 1,000 to 7,000 within 100"
        " s."
    ]
    before = {**grew, "time": NOW - 130_000}
    assert len(with_now(explain(read([before, gone])), [found], NOW)) == 2


def test_a_pattern_that_is_refused_is_a_finding_until_the_program_is_a_member() -> None:
    problem = "SubscribedTopicRegex `(?=a)` is not a valid regular expression: it has lookaround."
    refused = event(RegexRefused, 100_000, member_id="", problem=problem)
    (found,) = told(present(state="Empty"), refused, {**refused, "time": 160_000})
    assert (found.kind, found.as_data()["severity"], found.sure) == ("regex_refused", "sick", "certain")
    assert found.text == f"c (h) may not subscribe (INVALID_REGULAR_EXPRESSION): {problem}"
    assert str(found.remedy).startswith("Write the pattern for RE2")
    (said,) = explain(read([refused, {**refused, "time": 160_000}]))
    assert said.text == found.text
    (found,) = examine_missing("g", read([refused]), NOW, 0)
    assert found.kind == "regex_refused"


def test_what_is_possible_comes_after_what_is_certain() -> None:
    refused = event(CommitsRefused, 198_000, error="OFFSET_METADATA_TOO_LARGE", commits=30, sent=1)
    stands = event(
        OffsetsStuck, 198_500, positions=[["t", 0, 5]], records=5, stood_ms=100_000, fetches="beyond", ahead=5
    )
    disconnected = event(MemberDisconnected, 199_000, closed_by="client", session_ms=OPEN["session_ms"])
    still = present(reader(1, partitions=(0, 1)), committed={("t", 0): 5, ("t", 1): 9}, lags={("t", 0): 5})
    assert [each.sure for each in told(still, refused, stands, disconnected)] == ["certain", "possible"]


def test_a_member_that_fell_silent_is_a_finding_until_its_program_is_back() -> None:
    silent = expired(fetched_ago_ms=6_300)
    joined = [event(MemberJoined, 90_000, 3), event(MemberJoined, 96_000, 2)]

    def found(*members: int) -> list[str]:
        here = [Reader(Member(f"m{number}", "c", "/h", None), frozenset("t"), frozenset()) for number in members]
        return [each.kind for each in told(present(*here, topics={"t": 9}), *joined, silent)]

    assert "silent" in found()
    assert "silent" in found(3), "another member of the same client id, which was there before, is not it"
    assert "silent" not in found(2)


def test_a_session_timeout_that_is_not_allowed_is_a_finding_until_the_program_is_a_member() -> None:
    limits: dict[str, Any] = {"least_ms": 6_000, "most_ms": 1_800_000}
    refused = event(SessionRefused, 100_000, member_id="", session_ms=1_000, **limits)
    (found,) = told(present(state="Empty"), refused, {**refused, "time": 160_000})
    assert (found.kind, found.as_data()["severity"], found.sure) == ("session_refused", "sick", "certain")
    assert found.text == (
        "c (h) may not join (INVALID_SESSION_TIMEOUT): its session.timeout.ms is 1 s, and the broker allows at least"
        " 6 s (group.min.session.timeout.ms)."
    )
    (said,) = explain(read([refused, {**refused, "time": 160_000}]))
    assert (said.text, said.remedy) == (found.text, found.remedy)
    (long,) = told(present(state="Empty"), {**refused, "session_ms": 2_000_000})
    assert "at most 30 min (group.max.session.timeout.ms)" in long.text
    here = Reader(Member("m2", "c", "/h", None), frozenset("t"), frozenset({("t", 0)}))
    assert told(present(here, topics={"t": 1}), refused, event(MemberJoined, 170_000, 2)) == []


def test_an_assignor_that_the_broker_does_not_have_is_a_finding_until_the_program_is_a_member() -> None:
    names: dict[str, Any] = {"error": "UNSUPPORTED_ASSIGNOR", "offered": ["sticky"], "supported": ["uniform", "range"]}
    refused = [event(JoinRefused, at, at, **names) for at in (100_000, 160_000)]
    (found,) = examine_missing("g", read(refused), 200_000, 0)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("no_common_assignor", "sick", "certain")
    assert found.text == (
        "c (h) may not join (UNSUPPORTED_ASSIGNOR): its group.remote.assignor is sticky, and the broker has uniform and"
        " range."
    )
    (said,) = explain(read(refused))
    assert (said.text, said.remedy) == (found.text, found.remedy)
    assert said.details == [f"This was recorded twice until {clock(160_000)}."]
    here = Reader(Member("m2", "c", "/h", None), frozenset("t"), frozenset({("t", 0)}))
    assert told(present(here, topics={"t": 1}), *refused, event(MemberJoined, 170_000, 2)) == []


def test_records_that_were_deleted_are_not_to_be_read() -> None:
    now = present(
        state="Empty", lags={("t", 0): 17, ("t", 1): 17}, outside={("t", 0): (3, 20, 20), ("t", 1): (3, 15, 20)}
    )
    text = [each.text for each in told(now) if each.kind != "offset_out_of_range"]
    assert text == ["g has no members, and 5 records to read."]


def test_a_member_that_loses_records_to_retention_is_a_finding() -> None:
    now = present(reader(1, partitions=(0, 1)), reader(2))
    records = lost(100_000), lost(199_000, offset=40, log_start=50)
    (found,) = [each for each in told(now, *records) if each.kind == "records_deleted"]
    assert found.text == (
        "c1 (h) fetched offsets that are not in the log: t-0 at 40, and the log begins at 50, the last of 2 times: 22"
        " records were deleted before it read them."
    )
    assert "retention.ms" in str(found.remedy)


def lost(at: int, partition: int = 0, offset: int = 3, **data: Any) -> EventRecord:
    place = {"topic": "t", "partition": partition, "offset": offset, "log_start": 15, "log_end": 90}
    return event(FetchOutOfRange, at, client="c1", **{**place, **data})


LOST: dict[str, Any] = {"topic": "t", "partition": 0, "offset": 3, "log_start": 15, "log_end": 90, "client": "c2"}
BEFORE: dict[Partition, tuple[int, int, int]] = {("t", 0): (3, 40, 90), ("t", 1): (3, 40, 90)}


def test_a_member_that_goes_on_nowhere_after_its_records_were_deleted_is_broken() -> None:
    now = present(reader(1, partitions=(0, 1)), outside=BEFORE)
    kept: dict[str, Any] = {"deleted_by": "retention.ms", "newest_timestamp": NOW + 10**12, "retention_ms": 30_000}
    (found,) = told(now, lost(150_000, 1, **kept), lost(150_001, **kept), since=199_000)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("no_reset", "broken", "probable")
    assert found.text == (
        "c1 (h) fetched offsets that are not in the log: t-0 at 3, and the log begins at 15; t-1 at 3, and the log"
        " begins at 15. These records were deleted because they were older than retention.ms (30 s): their newest"
        f" timestamp is {moment(NOW + 10**12)}. It has asked neither for the beginning nor for the end since then, for"
        " 50 s: its auto.offset.reset is probably none (error with librdkafka), and its program polls on after the"
        " error. It reads nothing there."
    )
    assert found.remedy == (
        "Stop the members, then `barnabas groups reset-offsets g -t t:0,1 --to-earliest --execute` (--to-latest skips"
        " what is in the log), or start the program with auto.offset.reset=earliest or latest. Let the program end at"
        " this error (OFFSET_OUT_OF_RANGE, _AUTO_OFFSET_RESET with librdkafka). A larger retention.ms of t keeps the"
        " records for longer stops."
    )
    told_of = [lost(150_000, 1, **kept), lost(150_001, **kept)]
    (one,) = with_now(explain(read(told_of)), [found], NOW)
    assert (one.text, one.remedy) == (found.text, found.remedy)
    again = [lost(10_000), lost(150_000, left_ms=140_000.0)]
    (later,) = told(present(reader(1, partitions=(0, 1)), outside={("t", 0): (3, 40, 90)}), *again)
    assert "since then, for 3 min: its" in later.text


@pytest.mark.parametrize(
    ("now", "record"),
    [
        (present(reader(1, partitions=(0, 1)), outside={("t", 0): (3, 40, 90)}), lost(NOW - 9_000)),
        (
            present(reader(1, partitions=(0, 1)), outside={("t", 0): (3, 40, 90)}),
            lost(150_000, position=90, reset="latest"),
        ),
        (present(reader(1, partitions=(0, 1)), outside={("t", 0): (3, 40, 90)}), lost(150_000, position=50)),
        (present(reader(1, partitions=(0, 1)), outside={("t", 0): (9, 40, 90)}), lost(150_000)),
        (present(reader(1, partitions=(0, 1)), outside={("t", 0): (95, 0, 90)}), lost(150_000, offset=95)),
        (present(reader(2, partitions=(0, 1)), outside={("t", 0): (3, 40, 90)}), lost(150_000)),
        (present(reader(1, partitions=(0, 1)), committed={("t", 0): 60}), lost(150_000)),
    ],
    ids=["just now", "reset", "goes on by itself", "committed since", "after the end", "another owner", "in the log"],
)
def test_a_member_that_may_go_on_is_not_without_a_reset(now: Present, record: EventRecord) -> None:
    assert "no_reset" not in {each.kind for each in told(now, record)}


def test_a_group_whose_last_member_had_no_reset_is_not_just_to_be_started() -> None:
    gone = event(MemberLeft, 160_000, client="c1")
    now = present(state="Empty", lags={("t", 0): 87, ("t", 1): 87}, outside=BEFORE)
    found, none = told(now, lost(150_000), lost(150_001, 1), gone)
    assert (found.kind, found.severity, none.kind) == ("no_reset", BROKEN, "no_members")
    assert "It asked neither for the beginning nor for the end before it was gone" in found.text
    assert "gets the same error" in found.text
    assert str(found.remedy).startswith("Before a start: `barnabas groups reset-offsets g -t t:0,1 --to-earliest")
    assert str(none.remedy).startswith("First correct the offsets of t-0 to t-1, or auto.offset.reset: with")


def test_a_program_that_ends_at_each_start_as_it_has_no_reset_is_found_also_while_it_runs() -> None:
    now = present(reader(2, partitions=(0, 1)), outside={("t", 0): (3, 40, 90)})
    runs = [event(FetchOutOfRange, at, number, **LOST) for number, at in ((1, 150_000), (2, NOW - 1_000))]
    (found,) = [each for each in told(now, *runs) if each.kind == "no_reset"]
    assert "before it was gone" in found.text
    went_on = event(FetchOutOfRange, 150_001, 1, **LOST, position=15, reset="earliest")
    assert "no_reset" not in {each.kind for each in told(now, runs[0], went_on, runs[1])}


def test_a_member_without_a_reset_does_not_stand_still_for_another_reason() -> None:
    stuck = event(OffsetsStuck, 180_000, client="c1", positions=[["t", 0, 3]], records=50, stood_ms=1.0, fetches="none")
    now = present(
        reader(1, partitions=(0, 1)),
        outside={("t", 0): (3, 40, 90)},
        committed={("t", 0): 3},
        lags={("t", 0): 87},
    )
    assert [each.kind for each in told(now, stuck, lost(150_000))] == ["no_reset"]
    assert [each.kind for each in told(now, stuck)] == ["offset_out_of_range", "not_committed"]


def test_offsets_before_their_logs_are_one_finding_of_a_member() -> None:
    (found,) = told(present(reader(1, partitions=(0, 1)), outside=BEFORE))
    assert found.text == (
        "The committed offsets of t-0 to t-1 are before the beginning of their logs (t-0 at 3, and the log begins at"
        " 40; t-1 at 3, and the log begins at 40): 74 records before that may be lost, unless its member had fetched"
        " them before they were deleted."
    )
    assert (found.kind, found.sure) == ("offset_out_of_range", "possible")
    assert "with none (error with librdkafka) it reads nothing until the offsets are set anew" in str(found.remedy)
    both = told(present(reader(1, partitions=(0,)), reader(2, partitions=(1,)), outside=BEFORE))
    assert len(both) == 2
    went_on = lost(150_000, position=90, reset="latest")
    found, _ = told(present(reader(1, partitions=(0,)), outside={("t", 0): (3, 40, 90)}), went_on)
    assert (found.sure, found.text) == (
        "certain",
        "The committed offset of t-0 is 3, and its log begins at 40: 37 records were deleted before the group committed"
        " them.",
    )


def test_a_member_whose_fetches_wait_for_large_batches_is_odd() -> None:
    def waited(at: int, times: int) -> EventRecord:
        return event(FetchesWaited, at, client="c1", times=times, min_bytes=1_000_000, waited_ms=25_000)

    (found,) = told(HEALTHY, waited(100_000, 3), waited(150_000, 30))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("fetches_waited", "odd", "certain")
    assert found.text == (
        "c1 (h) gets records up to 25 s late: 30 Fetches of it waited for 25 s, all of its fetch.max.wait.ms, while"
        " records were there, but fewer bytes than its fetch.min.bytes (1,000,000)."
    )
    (one,) = explain(read([waited(100_000, 3), waited(150_000, 30)]))
    assert one.text == found.text
    assert told(present(reader(2, partitions=(0, 1))), waited(100_000, 3)) == [], "it is not a member any more"


def test_members_that_begin_to_read_late_again_and_again_are_odd() -> None:
    def late(at: int, client: str) -> EventRecord:
        return event(MemberBeganLate, at, client=client, took_ms=48_000, partitions={"t": [0, 1]}, records=15)

    assert told(HEALTHY, late(100_000, "c1")) == [], "one start may be slow"
    (found,) = told(HEALTHY, late(100_000, "c1"), late(150_000, "c2"))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("began_late", "odd", "probable")
    said = (
        "c2 (h) began to read 48 s after it had got t-0 to t-1, while 15 records waited there: its program probably"
        " does something else between subscribe() and its first poll (such as loading a model), or in its rebalance"
        " listener. The members of a group get their partitions when they join."
    )
    assert found.text == f"{said} Members of the group began late 2 times."
    assert "Do that before subscribe()" in str(found.remedy)
    assert "max.poll.interval.ms" in str(found.remedy)
    explained = with_now(explain(read([late(100_000, "c1"), late(150_000, "c2")])), [found], NOW)
    assert [each.text for each in explained] == [said.replace("c2", "c1"), said], "nothing is said twice"


def test_a_member_whose_user_may_not_read_its_topic_is_broken() -> None:
    def denied(at: int, client: str = "c1") -> EventRecord:
        return event(FetchDenied, at, client=client, topic="t", principal="User:geo x")

    newest = NOW - 10_000
    (found,) = told(HEALTHY, denied(newest - 130_000), denied(newest))
    assert (found.kind, found.as_data()["severity"], found.sure, found.time) == (
        "topic_denied",
        "broken",
        "certain",
        newest,
    )
    assert found.text == (
        "c1 (h) may not read the topic t: the Fetches of its user, User:geo x, are refused"
        " (TOPIC_AUTHORIZATION_FAILED), so that it gets no record of it."
    )
    assert "`barnabas acls add 'User:geo x' --operation read --topic t`" in str(found.remedy)
    (one,) = explain(read([denied(newest - 130_000), denied(newest)]))
    assert one.text == found.text
    assert told(present(reader(2, partitions=(0, 1))), denied(newest)) == [], "it is not a member any more"
    assert told(HEALTHY, denied(NOW - 181_000)) == [], "it would have been reported again"


def test_a_topic_that_was_deleted_is_not_misspelt_and_members_have_time_to_follow() -> None:
    deleted = read([event(TopicDeleted, 100_000, topic="gone", offsets=0, client_id="tool", host="/h")])
    here = present(reader(1, ("t", "gone"), (0, 1)), reader(2, ("t",)), alike={"gone": "gong"})
    assert [each.kind for each in examine(here, deleted, 400_000, 0)] == []
    (found,) = examine(here, deleted, 411_000, 0)
    assert (found.kind, found.sure) == ("no_topic", "certain")
    assert found.text == (
        f"c1 (h) still subscribes to gone, which was deleted by the client tool (h) at {moment(100_000)}."
    )
    assert "Remove it from the subscription" in str(found.remedy)


def test_a_topic_that_is_new_needs_no_record_yet() -> None:
    here = present(reader(1, ("t", "u"), (0, 1)), empty=frozenset({"u"}))
    new = event(SubscriptionChanged, NOW - 60_000, client="c1", added=["u"], new_topics=["u"])
    assert [each.kind for each in told(here)] == ["empty_topic"]
    assert told(here, new) == []
    assert told(here, event(TopicChanged, NOW - 60_000, topic="u", partitions=2, before=0)) == []


def test_a_member_that_probably_reads_what_its_program_writes_is_odd() -> None:
    changed = event(SubscriptionChanged, 100_000, client="c1", added=["u"], new_topics=["u"], own_topics=["u"])
    (found,) = told(present(reader(1, ("t", "u"), (0, 1))), changed)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("own_topic", "odd", "possible")
    assert "it reads its own records again and again" in str(found.remedy)
    assert told(HEALTHY, changed) == [], "it does not subscribe to it any more"


def test_a_static_member_that_is_away_between_its_runs_is_well() -> None:
    records = static_runs(*range(100, 400, 60), session=300)[:-4]
    away = event(MemberDisconnected, 345_100, 5, closed_by="client", session_ms=300_000, instance_id="i")
    here = Reader(Member("m5", "c", "/h", "i"), frozenset({"t"}), frozenset({("t", 0)}))
    assert told(present(here), *records, away) == []
    crashes = static_runs(*range(100, 400, 60), session=300, committed_ms=None)[:-4]
    assert "disconnected" in {each.kind for each in told(present(here), *crashes, away)}


def test_a_static_member_that_is_away_is_expected_back() -> None:
    closed = event(MemberDisconnected, NOW - 2_000, client="c1", instance_id="i", session_ms=45_000, closed_by="client")
    away = event(MemberAway, NOW - 2_000, client="c1", instance_id="i", session_ms=45_000)
    here = present(Reader(Member("m1", "c1", "/h", "i"), frozenset("t"), frozenset({("t", 0), ("t", 1)})))
    (found,) = told(here, away, closed)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("disconnected", "odd", "certain")
    assert found.text == (
        f"Static member i left for a while at {clock(NOW - 2_000)}: t-0 to t-1 wait for it until its session of 45 s is"
        " over."
    )
    (found,) = told(here, closed)
    assert found.as_data()["severity"] == "sick"


def test_members_that_end_in_the_same_way_are_one_finding() -> None:
    ends = [
        event(
            MemberExpired,
            NOW - number * 1_000,
            number,
            f"c{number}",
            **{**OPEN, "connection": "closed", "closed_by": "client", "closed_ago_ms": 5_900, "heard_ago_ms": 6_000},
        )
        for number in (3, 2, 1)
    ]
    (found,) = told(HEALTHY, *ends)
    assert (found.kind, found.text.partition(" ")[0]) == ("killed", "c1")
    head, *others = found.evidence
    assert head == f"The same of 2 more members since {clock(NOW - 3_000)}:"
    assert [each.partition(" ")[0] for each in others] == ["c2", "c3"]


def test_a_program_with_another_instance_id_after_each_start_is_one_finding() -> None:
    here = present(Reader(Member("m4", "pod", "/h", "pod-4"), frozenset("t"), frozenset({("t", 0), ("t", 1)})))
    (found,) = told(here, *new_instances(4))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("new_instance", "sick", "probable")


def test_a_topic_without_records_whose_name_is_nearly_that_of_one_with_records() -> None:
    joined = {**over(100_000, move("m1", [0])), "own_topics": ["invoces"]}
    reads = reader(1, ("invoces",), (0,))
    here = present(reads, topics={"invoces": 1}, empty=frozenset({"invoces"}))
    (found,) = told(here, joined)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("empty_topic", "odd", "certain")
    says = "c1 (h) subscribes to invoces, which has no record"
    created = "and invoces was created automatically because it used the name"
    assert found.text == f"{says}, {created}."
    (found,) = told(replace(here, alike={"invoces": "invoices"}), joined)
    assert (found.as_data()["severity"], found.sure) == ("sick", "probable")
    assert found.text == f"{says}, {created}. Did you mean invoices, which has records?"
    assert str(found.remedy).startswith("Correct the name in the subscription")
    (found,) = told(replace(here, alike={"invoces": "invoices"}))
    assert (found.as_data()["severity"], found.sure) == ("odd", "possible")
    assert found.text == f"{says}. Did you mean invoices, which has records?"
    (found,) = told(present(reads, alike={"invoces": "invoices"}))
    assert found.text.endswith("to invoces, which does not exist. Did you mean invoices, which has records?")


def rejoins(at: int, after_ms: int, client: str = "slow", **data: Any) -> list[EventRecord]:
    """A rebalance that waited for a member."""
    member = {"member_id": client, "client_id": client, "host": "/h", "instance_id": None}
    late = {**member, "after_ms": after_ms, "told_ms": data.pop("told_ms", 3)}
    phase = {"members": 3, "took_ms": after_ms, "protocol": "range", "leader": member, "joined_after": [late], **data}
    return [event(JoinPhaseOver, at, **phase), over(at + 1)]


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (
            [*rejoins(50_000, 12_000), *rejoins(90_000, 20_000)],
            "slow (h) rejoined late twice: the other members waited for up to 20 s, and 32 s in all"
            f" since {clock(50_000 - 12_000)}",
        ),
        (rejoins(90_000, 61_400), "slow (h) rejoined late once: the other members waited for 61.4 s"),
        (rejoins(90_000, 12_000), None),
        ([*rejoins(50_000, 12_000), *rejoins(90_000, 20_000, "other")], None),
        (rejoins(90_000, 61_400, protocol="cooperative-sticky"), None),
        (rejoins(90_000, 61_400, told_ms=61_000), None),
        (rejoins(90_000, 61_400, members=1), None),
        ([event(MemberJoined, 40_000, client="slow", member_id="slow"), *rejoins(90_000, 61_400)], None),
    ],
    ids=["twice", "for long", "once", "two members", "others go on", "heard late", "alone", "a new member"],
)
def test_a_member_for_which_its_group_waits(records: list[EventRecord], says: str | None) -> None:
    found = [each for each in told(HEALTHY, *records) if each.kind == "late_member"]
    assert [each.text for each in found] == [f"{says}."] * (says is not None)
    for each in found:
        assert (each.as_data()["severity"], each.sure) == ("sick", "certain")
        assert "reduce the work between two polls (max.poll.records)" in str(each.remedy)


def holds_up(at: int, waited_ms: int, client: str = "slow") -> list[EventRecord]:
    """A rebalance that waited for a member until it left."""
    return [
        event(RebalanceStarted, at=at - waited_ms, reason="c3 joined", cause="member_joined"),
        event(RejoinAwaited, at - waited_ms + 10_000, 2, client=client, **AWAITED),
        event(MemberLeft, at, 2, client=client),
        event(JoinPhaseOver, at=at, members=2, took_ms=waited_ms, joined_after=[], protocol="range"),
        over(at + 1),
    ]


@pytest.mark.parametrize(
    ("waited_ms", "worst", "hangs"), [(18_000, "20 s, and 50 s", False), (48_000, "48 s, and 80 s", True)]
)
def test_a_member_that_rejoins_late_and_is_stopped_once_before_it_does(
    waited_ms: int, worst: str, *, hangs: bool
) -> None:
    records = [*rejoins(50_000, 12_000), *rejoins(90_000, 20_000), *holds_up(160_000, waited_ms)]
    (found,) = (each for each in told(HEALTHY, *records) if each.kind == "late_member")
    assert found.text == (
        "slow (h) rejoined late twice, and once it did not rejoin until it was removed or left, though the responses to"
        f" its heartbeats told it to: the other members waited for up to {worst} in all since {clock(38_000)}."
    )
    assert ("Look where its program stands" in str(found.remedy)) is hangs
    assert ("max.poll.records" in str(found.remedy)) is not hangs


def test_a_member_that_does_not_rejoin_again_and_again() -> None:
    records = [*holds_up(90_000, 18_000), *holds_up(160_000, 48_000)]
    (found,) = (each for each in told(HEALTHY, *records) if each.kind == "late_member")
    assert found.text == (
        "slow (h) twice did not rejoin until it was removed or left, though the responses to its heartbeats told it to:"
        f" the other members waited for up to 48 s, and 66 s in all since {clock(72_000)}."
    )
    assert str(found.remedy).startswith("Look where its program stands")


def quits(at: int, number: int = 1, **data: Any) -> list[EventRecord]:
    """A member of aiokafka that has got up to 71 of t-0, and leaves with 43 committed."""
    seen: dict[str, Any] = {"software": None, "connection": "open", "committed_ago_ms": 20_000, "commits": 1}
    seen |= {"positions": [["t", 0, 43], ["t", 1, 43]], "given": [["t", 0, 71]], **data}
    gone = event(MemberDisconnected, at + 100, number, client=f"c{number}", closed_by="client", gone_ago_ms=100)
    return [event(MemberLeft, at, number, client=f"c{number}", **seen), gone]


def test_a_program_that_leaves_without_a_commit_of_what_it_has_got() -> None:
    said = finding(*quits(100_000))
    assert said is not None
    assert said.text == (
        "c1 (h) left, with 28 records uncommitted that it had got (t-0 up to 71, committed 43), which are read again,"
        " and closed its connection: it was stopped"
    )
    assert "left_uncommitted" not in {each.kind for each in told(HEALTHY, *quits(100_000))}, "once"
    again = [*quits(100_000), *quits(150_000, 2)]
    (found,) = [each for each in told(HEALTHY, *again) if each.kind == "left_uncommitted"]
    assert (found.as_data()["severity"], found.sure) == ("sick", "probable")
    assert found.text.startswith(
        "c1 (h) and c2 (h) left twice without a commit of records that were fetched, 56 in all. The last one"
    )
    assert (found.remedy or "").startswith("Let it commit what it has done before it closes its consumer")
    ahead = [*quits(100_000, software="librdkafka 2"), *quits(150_000, 2, software="librdkafka 2")]
    (found,) = [each for each in told(HEALTHY, *ahead) if each.kind == "left_uncommitted"]
    assert (found.as_data()["severity"], found.sure) == ("odd", "possible")
    assert ", perhaps, as its library fetches ahead, with 28 records uncommitted" in found.text


@pytest.mark.parametrize(
    "data",
    [
        {"committed_ago_ms": 500},
        {"committed_ago_ms": None},
        {"transactional_id": "of-orders"},
        {"removed_by": "admin"},
        {"positions": [["t", 0, -1]]},
        {"positions": [["t", 0, 70]]},
        {"given": None},
    ],
    ids=[
        "it commits on closing",
        "offsets elsewhere",
        "in transactions",
        "removed",
        "none",
        "the last record",
        "not known",
    ],
)
def test_a_program_that_has_committed_what_it_has_got(data: dict[str, Any]) -> None:
    found = told(HEALTHY, *quits(100_000, **data), *quits(150_000, 2, **data))
    assert "left_uncommitted" not in {each.kind for each in found}


def test_a_program_whose_connection_is_open_still_runs() -> None:
    empty = present(state="Empty", lags={("t", 0): 7})
    (found,) = [each for each in told(empty, left()) if each.kind == "no_members"]
    assert found.evidence == (
        "c (h) was among the last ones, and its connection is still open: its program probably still runs.",
    )
    assert (found.remedy or "").startswith("Do not start it a second time")
    (found,) = [each for each in told(empty, left(), closed(2_000)) if each.kind == "no_members"]
    assert (found.remedy or "").startswith("Start a member")


def test_an_offset_that_stands_still_is_found_after_the_poll_interval() -> None:
    joined = [event(MemberJoined, 1_000, software="librdkafka 2", rebalance_timeout_ms=900_000, session_ms=6_000)]
    assert patience_of(HEALTHY, read(joined), 300_000) == 900_000
    assert patience_of(HEALTHY, [], 300_000) == 300_000
    assert patience_of(HEALTHY, read([{**joined[0], "rebalance_timeout_ms": 86_400_000}]), 300_000) == 1_800_000


def test_members_that_joined_lately_may_not_get_on() -> None:
    joined = read([event(MemberJoined, 100_000), event(MemberJoined, 150_000, 2)])
    assert too_early(HEALTHY, joined, NOW, 300_000) == 100_000, "the other one is no member any more"
    assert too_early(present(*TWO), joined, NOW, 300_000) == 50_000
    assert too_early(present(*TWO), joined, 450_000, 300_000) == 300_000, "the broker looks each 30 s"
    assert too_early(present(*TWO), joined, 510_000, 300_000) is None
    assert too_early(present(*TWO), joined, NOW, 40_000) is None, "the broker looks sooner"
    assert too_early(present(*TWO), [], 2_000_000_000_000, 300_000) is None


@pytest.mark.parametrize(
    ("unseen", "said"),
    [
        ({("t", 0)}, "The leader of t-0 did not answer"),
        ({("t", 0), ("t", 1)}, "The leaders of t-0 to t-1 did not answer"),
    ],
)
def test_partitions_whose_leaders_do_not_answer(unseen: set[Partition], said: str) -> None:
    now = present(reader(1, partitions=(0, 1)), unseen=frozenset(unseen))
    what = "whether members of g get on there is not known. To do: barnabas cluster status"
    assert notes(now) == [f"{said}: {what}"]


def aborted(at: int, transactional_id: str = "etl") -> dict[str, Any]:
    """A transaction was aborted by its timeout, on any broker."""
    known = {"transactional_id": transactional_id, "client_id": "writer", "open_ms": 10_000, "timeout_ms": 9_000}
    return {"time": at, "cause": "timeout", "committed": False, **known}


def test_transactions_that_another_broker_has_aborted() -> None:
    again: dict[str, Any] = {
        "fetches": "again",
        "offset": 5,
        "deliveries": 4,
        "every_ms": 15_000,
        "positions": [["t", 0, 5]],
    }
    now = present(reader(1, partitions=(0,)), committed={("t", 0): 5}, lags={("t", 0): 15})

    def found(*aborts: dict[str, Any], **data: Any) -> Diagnosis:
        stuck = event(OffsetsStuck, NOW, client="c1", records=15, stood_ms=60_000, **again, **data)
        (diagnosis,) = with_aborts(told(now, stuck), read([stuck]), aborts)
        return diagnosis

    own = found(aborted(NOW - 50_000), aborted(NOW - 30_000), transactional_id="etl")
    assert (own.kind, own.severity, own.sure) == ("stuck", BROKEN, "probable")
    assert "its transactions (etl) were aborted twice since then, because their timeout of 9 s was over" in own.text
    perhaps = found(aborted(NOW - 50_000), aborted(NOW - 30_000))
    assert (perhaps.kind, perhaps.severity) == ("not_committed", ODD)
    assert perhaps.evidence[0].startswith("Meanwhile transactions of etl (client writer) were aborted twice because")
    for few in ([aborted(NOW - 50_000)], [aborted(NOW - 90_000), aborted(NOW - 80_000)], []):
        assert found(*few).evidence == (), "once, or before"
