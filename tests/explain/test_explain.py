"""The sentences that explain group events, with counts of 0, 1, 2 and many."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_explain.catalog import (
    CommitsRefused,
    CommitsWentBack,
    CoordinatorSought,
    EpochBumped,
    FetchOutOfRange,
    GroupDeleted,
    GroupEmpty,
    GroupEvent,
    GroupLoaded,
    InstanceInUse,
    JoinPhaseOver,
    LeaderRejoined,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberNotRejoined,
    MemberNotSynced,
    MemberRefused,
    MemberRejoined,
    MemberReplaced,
    MemberRevoked,
    MemberSlow,
    MemberStillRevoking,
    OffsetsAltered,
    OffsetsExpired,
    OffsetsStable,
    OffsetsUnstable,
    PersistFailed,
    RebalanceOver,
    RebalanceStarted,
    RegexResolved,
    SubscriptionChanged,
    TargetAssigned,
    TopicChanged,
    TopicDeleted,
    skip_record,
)
from barnabas_explain.doctor import Present, examine
from barnabas_explain.explain import Explanation, explain
from barnabas_explain.records import EventRecord
from barnabas_explain.storms import STORM_REBALANCES
from tests.explain.reading import read


def event(event_type: type[GroupEvent], *, at: int = 0, generation: int = 1, **data: Any) -> EventRecord:
    return {"version": 1, "group": "g", "time": at, "generation": generation, "type": event_type.type, **data}


def member(number: int, name: str | None = None) -> dict[str, Any]:
    return {"member_id": f"m{number}", "client_id": name or f"c{number}", "host": "/h", "instance_id": None}


def members(count: int) -> list[dict[str, Any]]:
    return [member(number) for number in range(1, count + 1)]


def rebalance(
    cause: type[GroupEvent] = MemberLeft,
    *during: EventRecord,
    by: int = 1,
    count: int = 1,
    late: tuple[dict[str, Any], ...] = (),
    moves: list[dict[str, Any]] | None = None,
    **trigger: Any,
) -> list[EventRecord]:
    """The events of a rebalance that a member caused, after which the group has `count` members."""
    who = {**member(by), **trigger}
    over: dict[str, Any] = {} if moves is None else {"moves": moves}
    return [
        event(cause, **who),
        event(RebalanceStarted, cause=cause.type, by=[member(by)], reason="reason"),
        *during,
        event(JoinPhaseOver, generation=2, members=count, joined_after=list(late)),
        event(RebalanceOver, generation=2, members=count, join_took_ms=3, sync_took_ms=2, **over),
    ]


ADMIN: dict[str, Any] = {"client_id": "admin", "host": "/10.0.0.7", "principal": "User:alice"}


def changed(partition: int, before: int | None, after: int | None) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "before": before, "after": after}


@pytest.mark.parametrize(
    ("before", "after", "consequence"),
    [
        (500, 0, "read again what they have read"),
        (0, 500, "do not read what is in between"),
        (500, None, "start at their auto.offset.reset"),
    ],
)
def test_how_to_take_back_offsets_that_were_set_or_deleted(before: int, after: int | None, consequence: str) -> None:
    found = only([event(OffsetsAltered, offsets=1, changes=[changed(3, before, after)])])
    assert found.remedy is not None
    assert consequence in found.remedy
    assert f"`barnabas groups reset-offsets g -t t:3 --to-offset {before} --execute`" in found.remedy


@pytest.mark.parametrize(
    ("offsets", "changes", "command", "more"),
    [
        (2, [(3, 7, 0), (4, 7, 0)], "`barnabas groups reset-offsets g -t t:3,4 --to-offset 7 --execute`", ""),
        (
            4,
            [(3, 7, 0), (4, 9, 0), (5, None, 0)],
            "`printf 't,3,7\\nt,4,9\\n' | barnabas groups reset-offsets g --from-file - --execute`",
            " It has the first 2: the offsets before of the others were not recorded.",
        ),
    ],
)
def test_how_to_take_back_several_offsets(
    offsets: int, changes: list[tuple[int, int | None, int]], command: str, more: str
) -> None:
    found = only([event(OffsetsAltered, offsets=offsets, changes=[changed(*each) for each in changes])])
    assert str(found.remedy).endswith(f"with {command}.{more}")


def test_a_command_to_paste_is_one_command_whatever_a_group_is_called() -> None:
    group = "g; rm -rf ~ #$(date)"
    found = only([event(OffsetsAltered, offsets=1, changes=[changed(3, 500, 0)]) | {"group": group}])
    assert "reset-offsets 'g; rm -rf ~ #$(date)' -t t:3 " in str(found.remedy)
    assert "reset-offsets 'g; rm -rf ~ #$(date)' -t t:3 " in skip_record(group, "t", 3, 5)


def only(events: list[EventRecord]) -> Explanation:
    (explanation,) = explain(read(events))
    return explanation


@pytest.mark.parametrize(
    ("event_type", "data", "text"),
    [
        (TopicChanged, {"topic": "t", "before": 0, "partitions": 1}, "Topic t appeared with 1 partition."),
        (TopicChanged, {"topic": "t", "before": 0, "partitions": 2}, "Topic t appeared with 2 partitions."),
        (TopicChanged, {"topic": "t", "before": 1, "partitions": 9}, "Topic t grew from 1 to 9 partitions."),
        (
            GroupLoaded,
            {"members": 0},
            "The group's coordinator moved to this broker: no members, no rebalance.",
        ),
        (
            GroupLoaded,
            {"members": 1},
            "The group's coordinator moved to this broker: 1 member, no rebalance.",
        ),
        (
            GroupLoaded,
            {"members": 2},
            "The group's coordinator moved to this broker: 2 members, no rebalance.",
        ),
        (GroupDeleted, {"offsets": 0}, "The group was deleted, with no committed offsets."),
        (GroupDeleted, {"offsets": 1}, "The group was deleted, with 1 committed offset."),
        (GroupDeleted, {"offsets": 30, "expired": True}, "The group expired, with 30 committed offsets."),
        (
            GroupDeleted,
            {"offsets": 1, "client_id": "admin", "host": "/10.0.0.7", "principal": "User:alice"},
            "The group was deleted by the client admin (10.0.0.7, User:alice), with 1 committed offset. Its next"
            " members begin at their auto.offset.reset: with earliest they read everything again, with latest they skip"
            " what is written until then.",
        ),
        (TopicDeleted, {"topic": "t", "offsets": 0}, "Topic t was deleted."),
        (
            TopicDeleted,
            {"topic": "t", "offsets": 1},
            "Topic t was deleted, and 1 committed offset of the group with it.",
        ),
        (
            OffsetsAltered,
            {**ADMIN, "offsets": 2, "changes": [changed(0, 500, 0), changed(1, 7, 9)]},
            "The client admin (10.0.0.7, User:alice), which is not a member, set 2 committed offsets of the group: t-0"
            " back from 500 to 0, t-1 forward from 7 to 9.",
        ),
        (
            OffsetsAltered,
            {"offsets": 9, "changes": [changed(0, None, 3), changed(1, 4, 4)]},
            "A client, which is not a member, set 9 committed offsets of the group: t-0 to 3, where there was none, t-1"
            " to 4, as before, 7 more.",
        ),
        (
            OffsetsAltered,
            {**ADMIN, "offsets": 1, "changes": [changed(0, 500, None)]},
            "The client admin (10.0.0.7, User:alice), which is not a member, deleted 1 committed offset of the group:"
            " t-0, which was 500.",
        ),
        (
            CommitsRefused,
            {**member(1), "error": "ILLEGAL_GENERATION", "commits": 3, "sent": 0},
            "3 commits of c1 (h) in a row were refused (ILLEGAL_GENERATION): the last one was for generation 0, and the"
            " group had 1.",
        ),
        (
            CommitsRefused,
            {**member(1), "error": "UNKNOWN_MEMBER_ID", "commits": 3, "sent": 0},
            "3 commits of c1 (h) in a row were refused (UNKNOWN_MEMBER_ID): it is not a member of the group any more,"
            " and does not know it.",
        ),
        (
            CommitsWentBack,
            {**member(1), "changes": [changed(0, 20, 7)]},
            "c1 (h) committed t-0 back from 20 to 7: either it went back (seek), or its commits came out of order, or"
            " it commits the offset of another partition.",
        ),
        (
            CommitsWentBack,
            {**member(1), "changes": [changed(0, 20, 7)], "reads_on": True},
            "c1 (h) committed t-0 back from 20 to 7, and has not gone back: either its commits came out of order, or it"
            " commits the offset of another partition.",
        ),
        (
            CommitsWentBack,
            {**member(1), "changes": [changed(0, 20, 7)], "reads_on": True, "uncommitted": {"t": [1, 2]}},
            "c1 (h) committed t-0 back from 20 to 7, and has not gone back: it probably commits offsets of another"
            " partition there: it reads t-1 to t-2, of which nothing is committed.",
        ),
        (
            CommitsWentBack,
            {**member(1), "changes": [changed(0, 20, 7)], "reads_on": True, "same_offset": {"t": [0, 1]}},
            "c1 (h) committed t-0 back from 20 to 7, and has not gone back: it probably commits one offset for several"
            " partitions (t-0 to t-1).",
        ),
        (
            FetchOutOfRange,
            {**member(1), "topic": "t", "partition": 0, "offset": 3, "log_start": 15, "log_end": 40},
            "c1 (h) fetched offsets that are not in the log: t-0 at 3, and the log begins at 15.",
        ),
        (
            FetchOutOfRange,
            {**member(1), "topic": "t", "partition": 0, "offset": 90, "log_start": 0, "log_end": 40}
            | {"position": 0, "reset": "earliest"},
            "c1 (h) fetched offsets that are not in the log: t-0 at 90, and the log ends at 40; it asked for the"
            " beginning, 0, and probably goes on there.",
        ),
        (
            InstanceInUse,
            {**member(1), "instance_id": "one", "owner": member(2) | {"instance_id": "one"}, "connection": "open"},
            "Two programs probably use the group.instance.id one: c1 (h) may not join with it, because c2 (h) has it,"
            " and its connection is open.",
        ),
        (
            InstanceInUse,
            {**member(1), "instance_id": "one", "owner": member(2, "c1"), "connection": "closed"}
            | {"closed_ago_ms": 3_000},
            "Another c1 (h) may not join with the group.instance.id one yet: c1 (h) has it, closed its connection 3 s"
            " before without leaving, and its session is not over. It was probably killed and restarted.",
        ),
        (OffsetsAltered, {"offsets": 1}, "A client, which is not a member, set 1 committed offset of the group."),
        (OffsetsExpired, {"offsets": 1, "keys": [["t", 0]]}, "1 offset (t-0) expired."),
        (OffsetsExpired, {"offsets": 0}, "No offsets expired."),
        (OffsetsExpired, {"offsets": 1}, "1 offset expired."),
        (OffsetsExpired, {"offsets": 2}, "2 offsets expired."),
        (
            OffsetsUnstable,
            {"producer_id": 7, "offsets": 1, "pending_ms": 12_000},
            "A consumer waits for 1 offset: it is pending in a transaction of producer 7 since 12 s.",
        ),
        (
            OffsetsUnstable,
            {"producer_id": 7, "transactional_id": "bills", "offsets": 3, "pending_ms": 150},
            "A consumer waits for 3 offsets: they are pending in a transaction of the transactional id bills, of"
            " producer 7 since 150 ms.",
        ),
        (
            OffsetsStable,
            {"producer_id": 7, "transactional_id": "bills", "offsets": 1, "pending_ms": 14_000, "committed": True},
            "The transaction of the transactional id bills, of producer 7 was committed after 14 s, with 1 offset of"
            " the group.",
        ),
        (
            OffsetsStable,
            {"producer_id": 7, "offsets": 3, "pending_ms": 14_000, "committed": False},
            "The transaction of producer 7 was aborted after 14 s: 3 offsets of the group stayed as before.",
        ),
        (
            MemberRefused,
            {**member(1), "max_size": 1},
            "c1 (h) rejoined when the group was full (1 member) and was removed.",
        ),
        (
            MemberRefused,
            {**member(1), "max_size": 2},
            "c1 (h) rejoined when the group was full (2 members) and was removed.",
        ),
        (
            MemberSlow,
            {**member(1), "heard_ago_ms": 6_000, "session_ms": 10_000},
            "c1 (h) was silent for 6 s, its session is 10 s: it will be removed soon.",
        ),
    ],
)
def test_events_by_themselves(event_type: type[GroupEvent], data: dict[str, Any], text: str) -> None:
    assert only([event(event_type, **data)]).text == text


@pytest.mark.parametrize(
    ("cause", "data", "text"),
    [
        (MemberJoined, {}, "c1 (h) joined."),
        (MemberJoined, {"client_reason": "first"}, 'c1 (h) joined ("first").'),
        (MemberReplaced, {}, "static member c1 (h) rejoined with a new member id."),
        (MemberLeft, {"client_reason": "not provided"}, "c1 (h) left."),
        (
            MemberExpired,
            {"heard_ago_ms": 900, "session_ms": 800},
            "c1 (h) was last heard of 900 ms ago, its session is 800 ms.",
        ),
        (
            MemberExpired,
            {"heard_ago_ms": 1, "session_ms": 1_000, "is_new": True},
            "c1 (h) joined as a new member and did not receive the response within 1 s.",
        ),
        (
            MemberNotSynced,
            {"waited_ms": 60_000},
            "c1 (h) joined but did not ask for its partitions within 60 s.",
        ),
        (MemberRejoined, {}, "c1 (h) rejoined with the same topics."),
        (
            SubscriptionChanged,
            {"added": [], "removed": []},
            "c1 (h) changed its subscription, or its user data.",
        ),
        (SubscriptionChanged, {"added": ["a"], "removed": []}, "c1 (h) changed its subscription: added a."),
        (
            SubscriptionChanged,
            {"added": ["a"], "new_topics": ["a"]},
            "c1 (h) changed its subscription: added a, which was created shortly before: its regular expression"
            " probably matches.",
        ),
        (
            SubscriptionChanged,
            {"added": ["a", "b"], "new_topics": ["a", "b"], "own_topics": ["b"]},
            "c1 (h) changed its subscription: added a and b, which were created shortly before: its regular expression"
            " probably matches; b was created because a client of its client id and address used the name.",
        ),
        (
            SubscriptionChanged,
            {"added": ["a", "b"], "new_topics": ["a"]},
            "c1 (h) changed its subscription: added a and b.",
        ),
        (
            SubscriptionChanged,
            {"added": ["a", "b"], "removed": ["c"]},
            "c1 (h) changed its subscription: added a and b and removed c.",
        ),
        (
            SubscriptionChanged,
            {"added": list("abcdefg")},
            "c1 (h) changed its subscription: added a, b, c, d, e and 2 more.",
        ),
        (LeaderRejoined, {}, "the leader c1 (h) asked for a new assignment."),
        (PersistFailed, {"error": "disk"}, "the coordinator could not write the group's record (disk)."),
    ],
)
def test_causes_of_a_rebalance(cause: type[GroupEvent], data: dict[str, Any], text: str) -> None:
    assert only(rebalance(cause, **data)).text == f"Generation 2: {text}"


@pytest.mark.parametrize(("count", "text"), [(0, "no members"), (1, "1 member"), (2, "2 members"), (12, "12 members")])
def test_the_members_of_a_generation(count: int, text: str) -> None:
    assert only(rebalance(count=count)).details == [f"Joining took 3 ms, assigning 2 ms; {text}."]


@pytest.mark.parametrize(
    ("count", "text", "waits"),
    [
        (1, "c2 (h) rejoined after 2 s.", False),
        (2, "c2 (h) was the last to rejoin, after 2 s; the other member waited.", True),
        (3, "c2 (h) was the last to rejoin, after 2 s; the other 2 members waited.", True),
        (9, "c2 (h) was the last to rejoin, after 2 s; the other 8 members waited.", True),
    ],
)
def test_the_member_that_a_rebalance_waited_for(count: int, text: str, waits: bool) -> None:
    found = only(rebalance(count=count, late=({**member(2), "after_ms": 2_000},)))
    assert found.details[1] == text
    assert found.remedy is not None
    assert ("cooperative-sticky" in found.remedy) == waits


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a (h) joined too."),
        (["a", "b"], "a (h) and b (h) joined too."),
        (["a", "a"], "2 members named a (h) joined too."),
        (["a", "a", "b"], "2 members named a (h) and b (h) joined too."),
        (list("abcdef"), "a (h), b (h), c (h), d (h), e (h) and 1 more joined too."),
    ],
)
def test_members_that_joined_too(names: list[str], text: str) -> None:
    joined = [event(MemberJoined, **member(at, name)) for at, name in enumerate(names, 10)]
    assert only(rebalance(MemberJoined, *joined)).details[0] == text


@pytest.mark.parametrize(
    ("count", "more"),
    [(1, None), (2, None), (5, None), (6, "1 more member left the group."), (8, "3 more members left the group.")],
)
def test_members_that_left_too(count: int, more: str | None) -> None:
    left = [event(MemberLeft, **member(10 + at)) for at in range(count)]
    details = only(rebalance(MemberLeft, *left)).details
    assert details[0] == "c10 (h) left."
    assert details[min(count, 5) :][:-1] == ([] if more is None else [more])


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (1, None),
        (6, "1 more member did not rejoin and was removed."),
        (8, "3 more members did not rejoin and were removed."),
    ],
)
def test_members_that_did_not_rejoin(count: int, more: str | None) -> None:
    missing = [event(MemberNotRejoined, **each, waited_ms=60_000, heard_ago_ms=1_500) for each in members(count)]
    details = only(rebalance(MemberLeft, *missing, by=99)).details
    assert details[0] == ("c1 (h) did not rejoin within 60 s and was removed; it was last heard of 1.5 s before.")
    assert details[min(count, 5) :][:-1] == ([] if more is None else [more])


@pytest.mark.parametrize(
    ("count", "last"),
    [
        (0, "No partition changed its owner."),
        (1, "c1 (h) gained t-0."),
        (2, "c2 (h) gained t-0."),
        (11, "1 more member gained or lost partitions."),
        (13, "3 more members gained or lost partitions."),
    ],
)
def test_members_that_gained_partitions(count: int, last: str) -> None:
    moves = [{**each, "gained": {"t": [0]}, "lost": {}} for each in members(count)]
    assert only(rebalance(moves=moves)).details[-1] == last


@pytest.mark.parametrize(
    ("gained", "lost", "text"),
    [
        ({"t": [0]}, {}, "gained t-0"),
        ({"t": [0, 1]}, {}, "gained t-0 to t-1"),
        ({"t": [0, 2, 3, 4], "u": [1]}, {"v": [7]}, "gained t-0, t-2 to t-4, u-1 and lost v-7"),
    ],
)
def test_the_partitions_of_a_member(gained: dict[str, list[int]], lost: dict[str, list[int]], text: str) -> None:
    found = only(rebalance(moves=[{**member(1), "gained": gained, "lost": lost}]))
    assert found.details[-1] == f"c1 (h) {text}."


def test_a_group_without_members() -> None:
    left, started, *_ = rebalance()
    found = only([left, started, event(GroupEmpty, generation=2)])
    assert (found.text, found.details) == ("Generation 2: c1 (h) left.", ["The group has no members now."])


@pytest.mark.parametrize(
    ("generation", "text"), [(0, "The first rebalance started: c1 (h) left."), (3, "Generation 3 ended: c1 (h) left.")]
)
def test_a_rebalance_that_is_not_over(generation: int, text: str) -> None:
    left, started, *_ = rebalance()
    assert only([left, {**started, "generation": generation}]).text == text


@pytest.mark.parametrize(
    ("joins", "leaves", "others", "text"),
    [
        (STORM_REBALANCES, 0, 0, "c1 (h) joined 6 times."),
        (4, 2, 0, "c1 (h) joined 4 times, left twice."),
        (5, 0, 1, "c1 (h) joined 5 times; c2 (h) joined once."),
        (0, 0, 7, "; ".join(f"c{at} (h) joined once" for at in range(2, 7)) + "; 2 more causes."),
        (0, 0, 6, "; ".join(f"c{at} (h) joined once" for at in range(2, 7)) + "; 1 more cause."),
    ],
)
def test_a_storm(joins: int, leaves: int, others: int, text: str) -> None:
    causes = [(1, MemberJoined)] * joins + [(1, MemberLeft)] * leaves
    causes += [(2 + at, MemberJoined) for at in range(others)]
    events = [one for by, cause in causes for one in rebalance(cause, by=by)]
    assert only(events).text.partition(": ")[2].partition(": ")[2] == text


def test_members_that_join_again_after_their_coordinator_has_moved_are_one_explanation() -> None:
    joined = rebalance(MemberJoined, event(MemberJoined, **member(2, "c2")), count=2)
    old = {"heard_ago_ms": 6_000, "session_ms": 6_000}
    events = [
        *joined,
        event(GroupLoaded, at=100_000, members=2),
        event(MemberSlow, at=103_000, **member(1), heard_ago_ms=3_600, session_ms=6_000),
        event(MemberExpired, at=106_000, **member(1), **old),
        event(RebalanceStarted, at=106_000, cause=MemberExpired.type, by=[member(1)]),
        event(RebalanceOver, at=106_100, members=1),
        event(MemberJoined, at=107_000, **member(3, "c1")),
        event(RebalanceStarted, at=107_000, cause=MemberJoined.type, by=[member(3, "c1")]),
        event(RebalanceOver, at=107_100, members=2),
    ]
    _, told = explain(read(events))
    assert told.text == (
        "The group's coordinator moved to this broker, or started again: 2 members, and c1 (h) joined again, with a new"
        " member id."
    )
    assert told.details == [
        "1 old member id was removed: this coordinator got no request with it within the session.",
        "2 rebalances until 7.1 s after that; 2 members.",
    ]
    assert told.remedy is not None
    assert "session.timeout.ms" in told.remedy
    both = [*events[:-1], event(MemberExpired, at=107_050, **member(2, "c2"), **old), events[-1]]
    assert explain(read(both))[1].details[:2] == [
        "2 old member ids were removed: this coordinator got no request with them within the session.",
        "c2 (h) has not joined again within 2 min: stopped, crashed or cut off in the meantime.",
    ]
    another = [*joined, event(GroupLoaded, at=100_000, members=2), *rebalance(MemberJoined, by=9)]
    assert [each.text for each in explain(read(another))][1:] == [
        "The group's coordinator moved to this broker: 2 members, no rebalance.",
        "Generation 2: c9 (h) joined.",
    ]
    assert len(explain(read(events[:10]))) == 4, "it has not come back"


def test_what_one_client_does_to_offsets_one_after_the_other_is_one_explanation() -> None:
    done = [
        event(OffsetsAltered, at=at * 1_000, **ADMIN, offsets=1, changes=[changed(0, before, after)])
        for at, (before, after) in enumerate([(20, 5), (5, 6), (6, 7)])
    ]
    told = only(done)
    assert told.text == (
        "The client admin (10.0.0.7, User:alice), which is not a member, set 1 committed offset of the group in 3"
        " requests: t-0 back from 20 to 7."
    )
    assert told.remedy is not None
    assert "--to-offset 20" in told.remedy
    assert len(explain(read([done[0], {**done[1], "client_id": "another"}]))) == 2
    assert len(explain(read([done[0], {**done[1], "time": 400_000}]))) == 2
    assert len(explain(read([done[0], {**done[1], "time": 200_000}, {**done[2], "time": 400_000}]))) == 1


def test_a_client_that_commits_again_and_again_reads_without_membership() -> None:
    both = [changed(0, 3, 9), changed(1, 4, 8)]
    data: dict[str, Any] = {"client_id": "flink", "host": "/h", "offsets": 2}
    told = only([event(OffsetsAltered, changes=both, times=2, backs=0, turns=0, commits_on=True, **data)])
    assert told.text == (
        "The client flink (h), which is not a member, has committed offsets of the group more than once on one"
        " connection (t-0 to t-1): it probably reads with assign(), and needs no membership."
    )
    assert (told.remedy or "").startswith("Nothing, if it is the only program with this group.id.")
    data["transactional_id"] = "bills"
    told = only([event(OffsetsAltered, changes=both, times=2, backs=0, turns=0, commits_on=True, **data)])
    assert told.text == (
        "The client flink (h) commits offsets of the group in transactions of bills (t-0 to t-1), though the group has"
        " no member: it probably reads as a member of another group, or with assign()."
    )
    back = only([event(OffsetsAltered, changes=both, times=9, backs=4, turns=0, commits_on=True, **data)])
    assert back.text.endswith(" in 9 requests: t-0 from 3 to 9, t-1 from 4 to 8; they went back 4 times in between.")


@pytest.mark.parametrize(("seconds", "is_late"), [(1, True), (400, False)])
@pytest.mark.parametrize("commits_on", [True, None])
def test_late_commits_of_a_member_that_was_removed(seconds: int, is_late: bool, commits_on: bool | None) -> None:
    removed = event(MemberExpired, at=0, **member(1), session_ms=6_000, heard_ago_ms=6_000)
    data: dict[str, Any] = {"client_id": "c1", "host": "/h", "offsets": 1, "commits_on": commits_on}
    data["changes"] = [changed(0, 3, 9)]
    told = explain(read([removed, event(OffsetsAltered, at=seconds * 1_000, **data)]))[-1]
    assert ("which was a member until" in told.text) is is_late
    assert ("assign()" in told.text) is (not is_late and commits_on is True)
    if is_late:
        assert told.text.endswith("(t-0): the group had no members, and accepted them.")


def test_offsets_that_went_back_in_between_did_not_only_go_forward() -> None:
    told = only([_accepted(at, before, after) for at, (before, after) in enumerate([(20, 5), (30, 6), (40, 25)])])
    assert told.text == (
        "The client c1 (h), which is not a member, set 1 committed offset of the group in 3 requests: t-0 from 20 to"
        " 25; they went back 3 times in between."
    )


def test_the_name_of_a_topic_says_nothing_about_the_way_of_its_offsets() -> None:
    there = [{**changed(0, before, after), "topic": "forward"} for before, after in [(20, 5), (5, 4)]]
    done = [event(OffsetsAltered, at=at, **ADMIN, offsets=1, changes=[each]) for at, each in enumerate(there)]
    assert only(done).text.endswith(" in 2 requests: forward-0 back from 20 to 4.")


def test_two_clients_that_set_each_others_offsets_back_are_one_explanation() -> None:
    others = [{"other_client_id": name, "other_host": "/h"} for name in ("a", "c1")]
    first, second = _accepted(1, 20, 5) | others[0], _accepted(2, 30, 6, "a") | others[1]
    told = only([first, second, _accepted(3, 40, 7) | others[0]])
    assert told.text.endswith("commit the same partitions in turn: the offsets of t-0 went back 3 times.")


def test_a_member_that_commits_a_partition_of_another_one() -> None:
    moves = [{**member(2), "gained": {"t": [3]}, "lost": {}}, {**member(1), "gained": {}, "lost": {"t": [3]}}]
    back = event(CommitsWentBack, **member(1), changes=[changed(3, 2631, 2446)])
    told = explain(read([*rebalance(MemberJoined, by=2, count=2, moves=moves), back]))[-1]
    assert told.text == "c1 (h) committed t-3 back from 2631 to 2446, while c2 (h) owned that partition."
    assert told.remedy is not None
    assert "commit only what is assigned" in told.remedy
    own = event(CommitsWentBack, **member(2), changes=[changed(3, 2631, 2446)])
    told = explain(read([*rebalance(MemberJoined, by=2, count=2, moves=moves), own]))[-1]
    assert "either it went back (seek), or" in told.text


def test_a_member_that_commits_what_it_has_revoked_in_the_consumer_protocol() -> None:
    moves = [{**member(2), "gained": {"t": [3]}, "lost": {}}, {**member(1), "gained": {}, "lost": {"t": [3]}}]
    target = event(TargetAssigned, at=1, took_ms=0, members=2, moves=moves)
    revoked = event(MemberRevoked, at=2, **member(1), partitions={"t": [3]}, waited_ms=9)
    back = event(CommitsWentBack, at=3, **member(1), changes=[changed(3, 743, 737)])
    told = explain(read([target, revoked, back]))[-1]
    assert told.text == "c1 (h) committed t-3 back from 743 to 737, while c2 (h) owned that partition."
    assert "while c2" not in explain(read([target, {**back, "time": 2}]))[-1].text, "it has it until it has revoked it"
    first = event(TargetAssigned, at=0, took_ms=0, members=1, moves=[{**member(1), "gained": {"t": [3]}, "lost": {}}])
    assert "while" not in explain(read([first, back]))[-1].text


def test_a_program_that_commits_and_never_was_a_member() -> None:
    refused: dict[str, Any] = {"error": "UNKNOWN_MEMBER_ID", "commits": 3, "sent": -1}
    told = only([event(CommitsRefused, **{**member(1), "member_id": ""}, **refused)])
    assert told.text.endswith("(UNKNOWN_MEMBER_ID): it is not a member of the group, and the group has members.")
    assert told.remedy is not None
    assert "assign()" in told.remedy
    told = only([event(CommitsRefused, **member(1), **refused)])
    assert "not a member of the group any more" in told.text


def _refused(at: int, commits: int, **data: Any) -> EventRecord:
    known = {**member(1), "member_id": "", "error": "UNKNOWN_MEMBER_ID", "sent": -1}
    return event(CommitsRefused, at=at * 1_000, commits=commits, **{**known, **data})


def _accepted(at: int, before: int, after: int, client_id: str = "c1") -> EventRecord:
    changes = [changed(0, before, after)]
    return event(OffsetsAltered, at=at * 1_000, client_id=client_id, host="/h", offsets=1, changes=changes)


def test_a_program_that_commits_without_being_a_member_is_told_once() -> None:
    empty = event(GroupEmpty, at=400_000)
    told = explain(read([_accepted(1, 5, 9), _refused(2, 3), _refused(200, 30), empty, _accepted(401, 40, 20)]))
    (found,) = [each for each in told if "c1" in each.text]
    assert found.time == 1_000
    assert found.text == (
        "At least 30 commits of c1 (h) were refused (UNKNOWN_MEMBER_ID): it is not a member of the group, and the group"
        " has members; when it had none, they were accepted: t-0 back from 40 to 20, t-0 forward from 5 to 9."
    )


@pytest.mark.parametrize(
    "events",
    [
        [_refused(2, 3), _accepted(3, 40, 20, client_id="nightly-job")],
        [_refused(2, 3, member_id="m1"), _accepted(3, 40, 20)],
        [_refused(2, 3, error="ILLEGAL_GENERATION"), _accepted(3, 40, 20)],
        [_refused(2, 3), _accepted(4_000, 40, 20)],
    ],
    ids=["another client", "a former member", "an older generation", "an hour later"],
)
def test_a_client_that_sets_offsets_is_not_one_that_commits_as_a_member(events: list[EventRecord]) -> None:
    first, second = explain(read(events))
    assert "refused" in first.text
    assert "accepted" not in first.text
    assert "which is not a member, set 1 committed offset" in second.text


def test_a_member_that_rejoins_as_soon_as_it_hears_of_a_rebalance_does_not_rejoin_late() -> None:
    late = ({**member(2), "after_ms": 3_400, "told_ms": 3_100}, {**member(1), "after_ms": 3})
    found = only(rebalance(MemberJoined, count=2, late=late))
    assert found.text.endswith("; it took 3.4 s because c2 (h) heard of it with its next heartbeat.")
    assert found.details[1] == (
        "c2 (h) was told to rejoin after 3.1 s: members hear of a rebalance with their next heartbeat"
        " (heartbeat.interval.ms)."
    )
    assert "poll" not in (found.remedy or "")


def test_a_member_that_was_told_long_ago_rejoins_late() -> None:
    late = ({**member(2), "after_ms": 7_000, "told_ms": 100},)
    assert only(rebalance(MemberJoined, count=2, late=late)).text.endswith("because c2 (h) rejoined late.")


def test_a_member_that_rejoins_late_is_told_also_if_another_one_has_joined() -> None:
    late = ({**member(2), "after_ms": 7_000}, {**member(1), "after_ms": 3})
    found = only(rebalance(MemberJoined, count=2, late=late))
    assert found.details[1] == "c2 (h) was the last to rejoin, after 7 s; the other member waited."
    assert found.remedy is not None
    assert "rebalance listener" in found.remedy
    new = ({**member(1), "after_ms": 7_000},)
    assert only(rebalance(MemberJoined, count=2, late=new)).details == ["Joining took 3 ms, assigning 2 ms; 2 members."]


@pytest.mark.parametrize(
    ("joining", "assigning", "slow"), [(1_500, 8_000, True), (9_000, 8_000, False), (100, 900, False)]
)
def test_a_leader_that_takes_longer_to_assign_than_the_members_to_join_is_named(
    joining: int, assigning: int, slow: bool
) -> None:
    late = ({**member(2), "after_ms": 1_500, "told_ms": 1_450},)
    *events, joined, over = rebalance(MemberJoined, count=3, late=late)
    took = {"join_took_ms": joining, "sync_took_ms": assigning}
    found = only([*events, {**joined, "leader": member(3)}, {**over, **took}])
    assert found.text.endswith(
        "; it took 9.5 s, 8 s of them because the leader c3 (h) was probably slow to assign."
        if slow
        else "; it took 1.5 s because c2 (h) heard of it with its next heartbeat."
    )
    assert (found.remedy or "").startswith("All members wait until the leader c3 (h) has assigned") is slow


def test_what_to_do_about_a_subscription_that_grows_again_and_again() -> None:
    topics: list[dict[str, Any]] = [{"added": [f"t{number}"]} for number in range(6)]
    (storm,) = explain(read([each for changes in topics for each in rebalance(SubscriptionChanged, **changes)]))
    assert storm.text.endswith("c1 (h) changed its subscription 6 times.")
    assert "let it subscribe to all of them at once, or with a regular expression" in str(storm.remedy)


@pytest.mark.parametrize("by", ["provisioner", None])
def test_a_storm_because_topics_come_and_go_names_these_and_the_client_that_does_it(by: str | None) -> None:
    records: list[EventRecord] = []
    for number in range(6):
        makers = [f"{by} (h)"] if by else None
        new: dict[str, Any] = {
            "added": [f"t{number}"],
            "removed": [],
            "new_topics": [f"t{number}"],
            "created_by": makers,
        }
        records += rebalance(SubscriptionChanged, **new)
        records.append(event(TopicDeleted, topic=f"t{number}", offsets=0, client_id=by, host="/h" if by else None))
        records += rebalance(SubscriptionChanged, by=2, **{**member(2), "added": [], "removed": [f"t{number}"]})
    (storm,) = explain(read(records))
    said = f" by {by} (h)" if by else ""
    assert storm.text.endswith(
        "topics that match the pattern of its members were created and deleted again and again (6 created and 6 deleted"
        f" within 0 ms{said})."
    )
    assert "one topic with a key" in str(storm.remedy) and "metadata.max.age.ms" in str(storm.remedy)
    others = [each if each["type"] != TopicDeleted.type else {**each, "topic": "other"} for each in records]
    (storm,) = explain(read(others))
    assert "members were created again and again (6 created" in storm.text
    assert "c2 (h) changed its subscription 6 times" in storm.text, "it has dropped topics that still exist"


def test_a_storm_because_a_member_subscribes_to_a_topic_and_drops_it_in_turn() -> None:
    turns: list[dict[str, Any]] = [{"added": ["u"], "removed": []}, {"added": [], "removed": ["u"]}] * 4
    (storm,) = explain(read([each for turn in turns for each in rebalance(SubscriptionChanged, **turn)]))
    assert storm.text.endswith("c1 (h) subscribes to u and drops it, again and again.")
    assert str(storm.remedy).startswith("Look what makes c1 (h) subscribe differently")
    once = [each for turn in turns[:2] for each in rebalance(SubscriptionChanged, **turn)]
    assert all("again and again" not in each.text for each in explain(read(once)))


STORM_CAUSES: list[tuple[type[GroupEvent], dict[str, Any]]] = [
    (MemberJoined, {}),
    (MemberLeft, {}),
    (MemberLeft, {"connection": "open", "joined_ago_ms": 1_000, "rebalance_timeout_ms": 300_000}),
    (MemberLeft, {"removed_by": "cli"}),
    (MemberExpired, {"heard_ago_ms": 6_000, "session_ms": 6_000}),
    (MemberNotSynced, {"waited_ms": 6_000}),
    (MemberRejoined, {}),
    (LeaderRejoined, {}),
    (SubscriptionChanged, {"added": ["u"], "removed": []}),
    (SubscriptionChanged, {"added": [], "removed": ["u"]}),
    (SubscriptionChanged, {"added": ["u"], "removed": [], "new_topics": ["u"]}),
]


@given(st.lists(st.tuples(st.sampled_from(STORM_CAUSES), st.integers(1, 3)), min_size=6, max_size=12))
def test_each_storm_has_a_remedy(causes: list[tuple[tuple[type[GroupEvent], dict[str, Any]], int]]) -> None:
    records = [each for (cause, data), by in causes for each in rebalance(cause, by=by, **{**member(by), **data})]
    for told in explain(read(records)):
        assert told.kind is None or told.remedy, told.text


def test_what_to_do_about_a_member_that_is_lost_while_another_one_joins() -> None:
    seen: dict[str, Any] = {"connection": "closed", "closed_by": "client", "closed_ago_ms": 5_900}
    gone = event(MemberExpired, **member(3), heard_ago_ms=6_000, session_ms=6_000, **seen)
    told = explain(read(rebalance(MemberJoined, gone, by=1, count=1)))[-1]
    assert told.text == "Generation 2: c1 (h) joined."
    assert told.details[0].startswith("c3 (h) probably crashed or was killed")
    assert told.remedy is not None and told.remedy.startswith("Look why its process ended")


def test_topics_that_no_member_has_read_before() -> None:
    first = rebalance(MemberJoined, moves=[{**member(1), "gained": {"t": [0, 1]}, "lost": {}}])
    moves = [{**member(1), "gained": {"t": [1]}, "lost": {}}, {**member(2), "gained": {"u": [0]}, "lost": {}}]
    second = rebalance(MemberJoined, by=2, count=2, moves=moves, **member(2))
    told = explain(read([*first, *second]))[-1]
    assert told.text == "Generation 2: c2 (h) joined, and reads u, which no member read just before."
    assert told.remedy is not None and "give it a group.id of its own" in told.remedy
    appeared = event(TopicChanged, topic="u", partitions=1)
    told = explain(read([*first, appeared, *second]))[-1]
    assert "just before" not in told.text, "the topic is new itself"
    told = explain(read([*second, *second]))[-1]
    assert "just before" not in told.text


def test_topics_of_a_new_version_that_is_back_within_the_rebalance_that_the_old_one_left() -> None:
    first = rebalance(MemberJoined, moves=[{**member(1), "gained": {"t": [0, 1]}, "lost": {}}])
    back = event(MemberJoined, **{**member(1), "member_id": "m9"})
    moves = [{**member(1), "member_id": "m9", "gained": {"u": [0]}, "lost": {}}]
    told = explain(read([*first, *rebalance(MemberLeft, back, count=2, moves=moves, **member(1))]))[-1]
    assert told.text.endswith(", and c1 (h) reads u, which no member read just before.")
    assert told.remedy is not None and "If it is a new version" in told.remedy


@pytest.mark.parametrize("cause", [LeaderRejoined, MemberRejoined])
def test_the_second_half_of_a_cooperative_rebalance(cause: type[GroupEvent]) -> None:
    lost = [{**member(1), "gained": {}, "lost": {"t": [0, 1]}}]
    first = rebalance(MemberJoined, by=2, count=2, moves=lost)
    second = [{**each, "time": 6_000, "generation": 2} for each in rebalance(cause, count=2)]
    told = explain(read([*first, *second]))[-1]
    assert "c1 (h) rejoined 6 s after it had to revoke t-0 to t-1, which had no owner until then." in told.text
    assert told.remedy is not None and "In a cooperative rebalance" in told.remedy
    lost.append({**member(2), "gained": {"t": [0, 1]}, "lost": {}})
    told = explain(read([*rebalance(MemberJoined, by=2, count=2, moves=lost), *second]))[-1]
    assert "after it had to revoke" not in told.text


@pytest.mark.parametrize(
    ("then", "waited"),
    [
        ([(MemberRevoked, 7_000)], "; it took 7 s because c1 (h) revoked t-1 late."),
        ([(MemberRevoked, 900)], "."),
        ([], "; it waits because c1 (h) has not revoked t-1 4 s after it was asked to."),
        ([(MemberExpired, None)], "."),
    ],
)
def test_the_member_that_an_epoch_waits_for(then: list[tuple[type[GroupEvent], int | None]], waited: str) -> None:
    place = {**member(1), "partitions": {"t": [1]}}
    revoking = [event(MemberStillRevoking, **place, waited_ms=ms, timeout_ms=60_000) for ms in (2_000, 4_000)]
    if any(ms == 900 for _, ms in then):
        revoking = []
    after = [
        event(kind, **place, waited_ms=ms) if ms else event(kind, **member(1), heard_ago_ms=6_000, session_ms=6_000)
        for kind, ms in then
    ]
    joined = [event(MemberJoined, **member(2)), event(EpochBumped, cause=MemberJoined.type, by=[member(2)])]
    told = next(each for each in explain(read([*joined, *revoking, *after])) if each.text.startswith("Epoch"))
    assert told.text == f"Epoch 1: c2 (h) joined{waited}"
    assert ("rebalance listener" in (told.remedy or "")) == (waited != ".")
    assert sum("has been revoking" in each for each in told.details) <= 1


def out_of_range(partition: int, at: int, **more: Any) -> EventRecord:
    place: dict[str, Any] = {"topic": "t", "partition": partition, "offset": 3, "log_start": 15, "log_end": 40}
    return event(FetchOutOfRange, at=at, **member(1), **{**place, **more})


def test_a_position_that_was_reset_is_one_story_with_its_partitions_and_commits() -> None:
    reset = {"position": 40, "reset": "latest"}
    back = event(CommitsWentBack, at=9, **member(1), changes=[changed(0, 50, 40)])
    events = [out_of_range(0, 1), out_of_range(1, 2), out_of_range(0, 3, **reset), out_of_range(1, 4, **reset), back]
    lost, committed = explain(read(events))
    assert lost.text == (
        "c1 (h) fetched offsets that are not in the log: t-0 at 3, and the log begins at 15; it asked for the end, 40,"
        " and probably goes on there, so that it does not read 15 to 39; t-1 at 3, and the log begins at 15; it asked"
        " for the end, 40, and probably goes on there, so that it does not read 15 to 39."
    )
    assert "retention.ms" in (lost.remedy or "") and "auto.offset.reset=latest skips" in (lost.remedy or "")
    assert "the group was too far behind, or the records had timestamps that were too old" in (lost.remedy or "")
    assert committed.text == "c1 (h) committed t-0 back from 50 to 40: its position had been reset."
    assert committed.remedy is None
    later = event(CommitsWentBack, at=20_000, **member(1), changes=[changed(0, 60, 45)])
    assert "either it went back" in explain(read([*events, later]))[-1].text, "the reset explains only the first one"


def test_records_that_are_deleted_again_and_again_before_they_are_read_are_counted() -> None:
    reset = {"position": 40, "reset": "earliest"}
    again = [out_of_range(0, 5, offset=40, log_start=50), out_of_range(0, 6, offset=40, log_start=50, **reset)]
    (lost,) = explain(read([out_of_range(0, 1), out_of_range(0, 2, **reset), *again]))
    assert "t-0 at 40, and the log begins at 50, the last of 2 times: 22 records were deleted before it" in lost.text


@pytest.mark.parametrize(
    ("removal", "why", "remedy"),
    [
        (
            {"deleted_by": "retention.ms", "newest_timestamp": 1_795_876_800, "retention_ms": 604_800_000},
            "These records were deleted because of their timestamps: the newest one is 1970-01-21",
            "Let the producer of t write milliseconds, or set message.timestamp.type=LogAppendTime",
        ),
        (
            {"deleted_by": "retention.ms", "newest_timestamp": 1_795_876_800_000, "retention_ms": 60_000},
            "These records were deleted because they were older than retention.ms (60 s)",
            "the group was too far behind: raise retention.ms",
        ),
        (
            {"deleted_by": "retention.bytes", "newest_timestamp": 5, "retention_ms": 60_000},
            "These records were deleted because the partition was larger than retention.bytes.",
            "Raise retention.bytes of t",
        ),
    ],
)
def test_records_that_were_deleted_before_they_were_read_have_the_reason(
    removal: dict[str, Any], why: str, remedy: str
) -> None:
    (lost,) = explain(read([out_of_range(0, 1, **removal)]))
    assert why in lost.text
    assert remedy in (lost.remedy or "")


@pytest.mark.parametrize(
    ("later", "text"),
    [
        (
            {"left_ms": 12_000.0},
            "neither for the beginning nor for the end since then, for 12 s: its auto.offset.reset",
        ),
        ({"position": 20}, "t-0 at 3, and the log begins at 15; it went on at 20."),
        (
            {"position": 20, "reset": "by_duration"},
            "; it asked for the offset of a time, 20, and probably goes on there.",
        ),
    ],
)
def test_where_a_member_goes_on_after_its_records_were_deleted(later: dict[str, Any], text: str) -> None:
    (lost,) = explain(read([out_of_range(0, 1), out_of_range(0, 30_000, **later)]))
    assert text in lost.text
    assert ("--to-earliest --execute" in (lost.remedy or "")) == ("left_ms" in later)


def test_records_whose_timestamps_are_in_seconds_are_not_kept_by_a_larger_retention() -> None:
    removal = {"deleted_by": "retention.ms", "newest_timestamp": 1_795_876_800, "retention_ms": 604_800_000}
    (lost,) = explain(read([out_of_range(0, 1, left_ms=12_000.0, **removal)]))
    assert "Let the producer of t write milliseconds" in (lost.remedy or "")
    assert "for longer stops" not in (lost.remedy or "")


def test_commits_that_go_back_again_and_again_are_one_story() -> None:
    steps = [(0, 20, 7), (1, 9, 8), (0, 12, 5), (0, 10, 6)]
    events = [
        event(CommitsWentBack, at=at, **member(1), changes=[changed(*step)]) for at, step in enumerate(steps, 100_000)
    ]
    (told,) = explain(read(events))
    assert "committed t-0 back from 20 to 5, t-1 back from 9 to 8: either" in told.text


def test_a_storm_does_not_hide_what_happened_to_offsets() -> None:
    events = [
        record for number in range(STORM_REBALANCES) for record in rebalance(MemberJoined, by=1, at=number * 1_000)
    ]
    events[7:7] = [event(OffsetsExpired, at=1_500, offsets=2), out_of_range(0, 1_600)]
    texts = [each.text for each in explain(read(events))]
    assert texts[0].startswith("Rebalance storm")
    assert "2 offsets expired." in texts
    assert any("fetched offsets that are not in the log" in text for text in texts)


@pytest.mark.parametrize(("every_ms", "is_storm"), [(12_000, True), (13_000, False)])
def test_a_storm_is_what_the_broker_calls_one(every_ms: int, is_storm: bool) -> None:
    times = [100_000 + every_ms * number for number in range(STORM_REBALANCES)]
    told = explain(read([{**one, "time": at} for at in times for one in rebalance(MemberJoined, by=1)]))
    assert any(each.kind == "storm" for each in told) == is_storm


def test_a_storm_of_programs_that_come_and_go() -> None:
    events = []
    for number in range(1, 6):
        seen: dict[str, Any] = {
            "connection": "closed",
            "joined_ago_ms": 4_000,
            "closed_by": "client",
            "closed_ago_ms": 3,
        }
        events += rebalance(MemberJoined, by=number) + rebalance(MemberLeft, by=number, **seen)
    found = only(events)
    assert found.text.partition(": 10 rebalances")[2] == (
        " within 1 ms: 5 members joined once each; 5 programs were stopped, each once."
    )
    assert found.details == ["5 of them because c1 (h), c2 (h), c3 (h), c4 (h) and c5 (h) were stopped, each once."]
    assert found.remedy is not None
    assert "an autoscaler" in found.remedy
    assert "group.instance.id" not in found.remedy, "none has come back"


def come_and_go(*, stay: int = 0) -> list[EventRecord]:
    """Two members of the consumer protocol that join, and are stopped 12 s later, each 24 s; the first `stay` stay."""
    told = []
    for number in range(6):
        at, own = 24_000 * (number // 2), member(number, f"pod-{number}")
        seen: dict[str, Any] = {"connection": "closed", "joined_ago_ms": 12_000, "committed_ago_ms": 5}
        steps: list[tuple[int, type[GroupEvent], dict[str, Any]]]
        steps = [(at, MemberJoined, {}), (at + 12_000, MemberLeft, seen)]
        for time, cause, about in steps:
            if number >= stay or cause is MemberJoined:
                told.append(event(cause, at=time, **own, **about))
                told.append(event(EpochBumped, at=time, generation=2, cause=cause.type, by=[own], members=3))
    pairs = zip(told[::2], told[1::2], strict=True)
    return [each for pair in sorted(pairs, key=lambda pair: pair[0]["time"]) for each in pair]


def test_a_storm_of_programs_that_come_and_go_in_the_consumer_protocol() -> None:
    found = only(come_and_go())
    assert (found.kind, found.text) == (
        "storm",
        "Rebalance storm: 12 epochs within 60 s: 6 programs were stopped, each once; 6 members joined once each.",
    )
    assert "an autoscaler" in str(found.remedy)
    assert "reset-offsets" not in str(found.remedy)
    each = explain(read(come_and_go()), each_of_storms=True)
    assert [one.kind for one in each] == ["storm"] + 12 * [None]
    grown = explain(read(come_and_go(stay=4)))
    assert all(one.kind is None for one in grown), "only two members have come and gone"


def test_the_doctor_knows_programs_that_come_and_go_in_the_consumer_protocol() -> None:
    (found,) = examine(Present("g", "Stable"), read(come_and_go()), 61_000, 0)
    assert found.kind == "storm"
    assert "an autoscaler" in str(found.remedy)


def test_the_second_step_of_a_cooperative_rebalance_is_no_cause_of_a_storm() -> None:
    """The member that stays revokes partitions, and rejoins for each member that joins."""
    joined, moved = [], [{**member(9), "gained": {}, "lost": {"t": [0]}}]
    for number in range(1, 5):
        first = rebalance(MemberJoined, by=number, count=2, moves=moved)
        joined += first + rebalance(LeaderRejoined, by=9, count=2)
        seen: dict[str, Any] = {
            "connection": "closed",
            "joined_ago_ms": 4_000,
            "closed_by": "client",
            "closed_ago_ms": 3,
        }
        joined += rebalance(MemberLeft, by=number, **seen)
    for each in joined:
        if each["type"] in (JoinPhaseOver.type, RebalanceOver.type):
            each["protocol"] = "cooperative-sticky"
    found = only(joined)
    assert found.text.partition(": 12 rebalances")[2] == (
        " within 1 ms: 4 members joined once each; 4 programs were stopped, each once."
    )
    assert found.details[-1].startswith("4 of them because members of the cooperative assignor rejoined after")
    assert "an autoscaler" in str(found.remedy)


@pytest.mark.parametrize(
    ("assignor", "why"),
    [("range", "each rebalance stops the whole group"), ("cooperative-sticky", "it makes the group rebalance")],
)
def test_a_cooperative_storm_does_not_stop_the_group(assignor: str, why: str) -> None:
    events = [record for _ in range(6) for record in rebalance(MemberRejoined, by=9, reason="again")]
    for each in events:
        if each["type"] == JoinPhaseOver.type:
            each["protocol"] = assignor
    assert only(events).remedy == f"Look at the log of c9 (h): {why}."


def test_topics_that_no_other_member_takes_over() -> None:
    lost = {**member(1), "gained": {}, "lost": {"invoices": [0, 1]}}
    found = only(rebalance(MemberLeft, moves=[lost], count=1))
    assert found.details[0] == (
        "No other member took over the partitions of invoices from c1 (h): the others probably do not subscribe to it,"
        " and are another program, or another version of it, with the same group.id."
    )
    assert found.remedy is not None
    assert found.remedy.startswith("If they are different programs, give each a group.id of its own")
    deleted = event(TopicDeleted, topic="invoices", offsets=2)
    assert "took over" not in explain(read([deleted, *rebalance(MemberLeft, moves=[lost], count=1)]))[-1].details[0]
    taken = {**member(2), "gained": {"invoices": [0]}, "lost": {}}
    assert "took over" not in only(rebalance(MemberLeft, moves=[lost, taken], count=1)).details[0]
    kept = {**member(1), "gained": {}, "lost": {"invoices": [1]}}
    assert "took over" not in only(rebalance(MemberRejoined, moves=[kept], count=1)).details[0]


@pytest.mark.parametrize(
    ("seen", "text", "remedy"),
    [
        (
            {"asks": 240, "missing": ["ordres"]},
            "coordinator 240 times, and has neither joined the group nor read a record within 30 s: it probably does"
            " not reach the coordinator at the address that it got (kafka:9092, advertised.listeners).",
            "Check whether it can connect to kafka:9092 from where it runs; correct advertised.listeners if it cannot.",
        ),
        (
            {"asks": 0, "missing": ["ordres"], "hidden": ["secret"]},
            ": it asked for ordres, which does not exist, and for secret, which its user may not describe.",
            "Correct the name in its subscription, or create the topic (`barnabas topics list`). Allow its user to",
        ),
        (
            {"asks": 0, "are_all": True},
            ": it asked for all topics, so the pattern in its subscription probably",
            "Check",
        ),
        (
            {"asks": 0},
            ": its subscription probably matches no topic that exists, or it has not subscribed.",
            "Check the",
        ),
        ({"asks": 0, "software": "sarama 1.0"}, ": either it does not reach the coordinator at", "Check both."),
        ({}, ": either it does not reach the coordinator at", "Check both."),
    ],
)
def test_a_client_that_stays_away_is_explained_by_what_it_asked_for(
    seen: dict[str, Any], text: str, remedy: str
) -> None:
    who = {"client_id": "c", "host": "/h", "software": "librdkafka 2.5", "advertised": "kafka:9092"}
    (said,) = explain(read([event(CoordinatorSought, at=100_000, waited_ms=30_000, **{**who, **seen})]))
    assert text in said.text
    assert (said.remedy or "").startswith(remedy)


def test_a_regular_expression_that_matches_no_topic_is_explained_without_an_epoch() -> None:
    resolved = event(RegexResolved, at=100_000, regex="^ordres.*", topics=0, added=[], removed=[])
    (said,) = explain(read([event(MemberJoined, at=99_000, **member(2)), resolved]))
    assert said.text == (
        "The regular expression ^ordres.* matches no topic: a member that subscribes with it alone reads nothing."
    )
    assert said.remedy
    epoch = event(EpochBumped, at=100_000, cause="regex_resolved", by=[], members=1)
    (bumped,) = explain(read([resolved, epoch]))
    assert bumped.text == "Epoch 1: the regular expression ^ordres.* matches no topic."
