"""Why members are gone, from what has been seen of them: what must be said, and what must not."""

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas_explain.catalog import (
    Departure,
    EpochBumped,
    GroupDeleted,
    GroupEmpty,
    GroupEvent,
    InstanceInUse,
    JoinPhaseOver,
    JoinRefused,
    LeaderRejoined,
    MemberAway,
    MemberDisconnected,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberNotRejoined,
    MemberNotRevoked,
    MemberRejoined,
    MemberReplaced,
    MemberSlow,
    RebalanceOver,
    RebalanceStarted,
    TopicChanged,
    TopicDeleted,
)
from barnabas_explain.explain import explain
from barnabas_explain.findings import CERTAIN, POSSIBLE, PROBABLE, Finding, find
from barnabas_explain.records import EventRecord
from barnabas_explain.words import clock
from tests.explain.reading import read

RDKAFKA = "confluent-kafka-python 2.16.1-rdkafka-2.16.0"
#: What has been seen of a member of librdkafka whose max.poll.interval.ms is 15 s, while its connection is open.
OPEN: dict[str, Any] = {
    "software": RDKAFKA,
    "joined_ago_ms": 60_000,
    "connection": "open",
    "rebalance_timeout_ms": 15_000,
    "session_ms": 6_000,
}


def event(event_type: type[GroupEvent], at: int, number: int = 1, client: str = "c", **data: Any) -> EventRecord:
    member = {"member_id": f"m{number}", "client_id": client, "host": "/h", "instance_id": None}
    head = {"version": 1, "group": "g", "time": at, "generation": 1, "type": event_type.type}
    return {**head, **member, **data}


def left(at: int = 100_000, **data: Any) -> EventRecord:
    return event(MemberLeft, at, **{**OPEN, **data})


def back(after_ms: int, at: int = 100_000) -> EventRecord:
    """The member joins again on the same connection."""
    return event(MemberJoined, at + after_ms, 2, old_member_id="m1", rejoined_ms=after_ms)


def expired(**data: Any) -> EventRecord:
    return event(MemberExpired, 100_000, **{**OPEN, "heard_ago_ms": 6_100, **data})


def not_revoked(**data: Any) -> EventRecord:
    return event(MemberNotRevoked, 100_000, **{**OPEN, "partitions": {"t": [0]}, "waited_ms": 15_000, **data})


def closed(after_ms: int) -> EventRecord:
    return event(MemberDisconnected, 100_000 + after_ms, closed_by="client", gone_ago_ms=after_ms)


def finding(*records: EventRecord) -> Finding | None:
    """The finding about the first event."""
    events = read(list(records))
    return find(events).about(events[0])


@pytest.mark.parametrize(
    ("records", "kind", "sure", "text", "remedy"),
    [
        (
            [left(), back(7_200)],
            "slow_poll",
            PROBABLE,
            "c (h) probably polled too slowly: it left by itself 60 s after it had joined, its connection stayed open,"
            " and it joined again 7.2 s later: 22.2 s passed between two polls, and its max.poll.interval.ms is 15 s",
            "Set max.poll.interval.ms of c (h) above 23 s, or give it less to do between two polls (smaller batches,"
            " max.poll.records).",
        ),
        (
            [left(client_reason="consumer poll timeout has expired."), back(7_200)],
            "slow_poll",
            CERTAIN,
            "c (h) polled too slowly: it left because it had not polled for max.poll.interval.ms (15 s), and it joined"
            " again 7.2 s later: 22.2 s passed between two polls, and its max.poll.interval.ms is 15 s",
            "Set max.poll.interval.ms of c (h) above 23 s, or give it less to do between two polls (smaller batches,"
            " max.poll.records).",
        ),
        (
            [left(software=None, rebalance_timeout_ms=6_000, committed_ago_ms=5), back(3_000)],
            "slow_poll",
            PROBABLE,
            "c (h) probably polled too slowly: it left by itself 60 s after it had joined, its connection stayed open,"
            " and it joined again 3 s later: so much more than its max.poll.interval.ms passed between two polls",
            "Raise max.poll.interval.ms of c (h) by more than 3 s, or give it less to do between two polls (smaller"
            " batches, max.poll.records).",
        ),
        (
            [left()],
            "slow_poll",
            PROBABLE,
            "c (h) has probably not polled for max.poll.interval.ms (15 s): it left by itself 60 s after it had joined,"
            " its connection stayed open, and it has not joined again: it is still busy with what it polled last, or"
            " stuck, or the thread or task that polls it has ended",
            "Look in the log of c (h) for an error that ended what polls it: then restart it, and let such an error end"
            " the program. If it is busy: raise max.poll.interval.ms, or give it less to do between two polls (smaller"
            " batches, max.poll.records).",
        ),
        (
            [left(rebalance_timeout_ms=300_000, joined_ago_ms=900_000, committed_ago_ms=4_000), back(900)],
            "slow_poll",
            POSSIBLE,
            "c (h) probably polled too slowly: it left by itself 15 min after it had joined, its connection stayed"
            " open, and it joined again 900 ms later: 5 min passed between two polls, and its max.poll.interval.ms is 5"
            " min; it had committed 4 s before, so it may also have unsubscribed and subscribed again",
            "Set max.poll.interval.ms of c (h) above 301 s, or give it less to do between two polls (smaller batches,"
            " max.poll.records).",
        ),
        (
            [left(), back(2)],
            "left_and_joined",
            POSSIBLE,
            "c (h) either polled too slowly, or unsubscribed and subscribed again: it left by itself 60 s after it had"
            " joined, its connection stayed open, and it joined again at once, 2 ms later",
            "If its log says that it exceeded max.poll.interval.ms (now 15 s), raise that, or give c (h) less to do"
            " between two polls.",
        ),
        (
            [left(joined_ago_ms=4_000), back(20)],
            "resubscribed",
            PROBABLE,
            "c (h) probably unsubscribed and subscribed again: it left by itself 4 s after it had joined, its"
            " connection stayed open, and it joined again 20 ms later; its max.poll.interval.ms is 15 s, so it was not"
            " that",
            None,
        ),
        (
            [left(), closed(5)],
            "stopped",
            CERTAIN,
            "c (h) left and closed its connection: it was stopped",
            None,
        ),
        (
            [left(), closed(5), event(MemberJoined, 102_000, 7)],
            "restarted",
            PROBABLE,
            "c (h) left and closed its connection, and came back 2 s later on another one: it was restarted",
            "With a group.instance.id of its own a restart within the session timeout costs no rebalance (KIP-345).",
        ),
        (
            [left(removed_by="admin"), back(2_000)],
            "removed",
            CERTAIN,
            "c (h) was removed by the client admin, and did not leave by itself",
            None,
        ),
        (
            [expired(connection="closed", closed_by="client", closed_ago_ms=5_900)],
            "killed",
            PROBABLE,
            "c (h) probably crashed or was killed: its connection was closed 5.9 s before it was removed (its session"
            " is 6 s), and it had not left",
            "Look why its process ended: its last lines of log, kill -9, out of memory, or an exit without close()."
            " Partitions of a member that does not leave wait for its session.timeout.ms (6 s).",
        ),
        (
            [expired(connection="closed", closed_by="client", closed_ago_ms=5_900, instance_id="i")],
            "static_away",
            CERTAIN,
            "static member i stayed away for longer than its session of 6 s: its connection was closed 5.9 s before it"
            " was removed, and it has not come back: it was stopped, or has crashed, which looks the same, as"
            " static members do not leave",
            "If it was restarted: set session.timeout.ms of i above the time that a restart takes. Otherwise look why"
            " its process ended.",
        ),
        (
            [
                expired(connection="closed", closed_by="client", closed_ago_ms=5_900, instance_id="i"),
                event(MemberJoined, 102_000, 7, instance_id="i"),
            ],
            "static_away",
            CERTAIN,
            "static member i stayed away for longer than its session of 6 s: its connection was closed 5.9 s before it"
            " was removed, and it came back 7.9 s after that",
            "Set session.timeout.ms of i above 9 s: then a restart costs no rebalance.",
        ),
        (
            [expired(connection="closed", closed_by="broker", closed_error="reset", closed_ago_ms=5_900)],
            "closed_by_broker",
            CERTAIN,
            "c (h) lost its connection: the broker closed it (reset) 5.9 s before it was removed (its session is 6 s),"
            " and it did not come back",
            "Look at the broker's log around this time.",
        ),
        (
            [expired(), back(3_000)],
            "blocked",
            PROBABLE,
            "c (h) was probably blocked or paused, or its network was cut: it sent no heartbeat for 9.1 s, its"
            " connection stayed open, and it joined again on it; its session is 6 s",
            "Move what takes long off the event loop, or the interpreter lock, that its heartbeats need; or set"
            " session.timeout.ms above 10 s. If its log says that requests timed out, look at the network.",
        ),
        (
            [
                expired(),
                event(MemberDisconnected, 101_000, closed_by="client", gone_ago_ms=1_000),
                event(MemberJoined, 103_000, 2),
            ],
            "blocked",
            PROBABLE,
            "c (h) was probably blocked or paused, or its network was cut: it sent no heartbeat for 9.1 s, its"
            " connection stayed open, and it joined again on another one; its session is 6 s",
            "Move what takes long off the event loop, or the interpreter lock, that its heartbeats need; or set"
            " session.timeout.ms above 10 s. If its log says that requests timed out, look at the network.",
        ),
        (
            [expired(fetched_ago_ms=300, denied_ago_ms=400)],
            "denied",
            CERTAIN,
            "c (h) may not read the group any more: its requests were refused (GROUP_AUTHORIZATION_FAILED), the last"
            " one 400 ms before its session of 6 s ended",
            "Look at the ACLs of the group: the user of its members needs READ on it (barnabas acls list).",
        ),
        (
            [expired(fetched_ago_ms=300), back(3_000)],
            "no_heartbeats",
            PROBABLE,
            "c (h) sent no heartbeat for 6.1 s, its session is 6 s, but it still fetched 300 ms before: its heartbeat"
            " thread or task probably starves, or its heartbeat.interval.ms is near its session",
            "Set heartbeat.interval.ms to a third of session.timeout.ms at most. If it is: look what its heartbeat"
            " thread or task waits for: a lock, or a future that nothing completes.",
        ),
        (
            [event(JoinRefused, 100_000, offered=["roundrobin"], supported=["range"])],
            "no_common_assignor",
            CERTAIN,
            "c (h) may not join (INCONSISTENT_GROUP_PROTOCOL): its partition.assignment.strategy is roundrobin, and the"
            " members support range",
            "To change the assignor: deploy the new version with both assignors first; when all members have it, deploy"
            " it once more without the old one. If it is another program: give it a group.id of its own.",
        ),
        (
            [event(JoinRefused, 100_000, offered=["v1"], supported=[], protocol_type="connect")],
            "no_common_assignor",
            CERTAIN,
            "c (h) may not join (INCONSISTENT_GROUP_PROTOCOL): it is of the protocol type connect, and the members are"
            " of another one",
            "Give it a group.id of its own.",
        ),
        (
            [expired(fetched_ago_ms=300)],
            "no_heartbeats",
            PROBABLE,
            "c (h) sent no heartbeat for 6.1 s, its session is 6 s, but it still fetched 300 ms before: its heartbeat"
            " thread or task probably starves, or its heartbeat.interval.ms is near its session",
            "Set heartbeat.interval.ms to a third of session.timeout.ms at most. If it is: look what its heartbeat"
            " thread or task waits for: a lock, or a future that nothing completes.",
        ),
        (
            [expired(fetched_ago_ms=6_300)],
            "silent",
            POSSIBLE,
            "c (h) was not heard of for 6.1 s, its session is 6 s, and its connection stayed open: it was probably"
            " blocked or paused, or its network was cut",
            "Look whether its process runs and answers. Raise session.timeout.ms, or move the work off the event loop"
            " that sends heartbeats.",
        ),
        (
            [event(MemberNotRejoined, 100_000, **OPEN, heard_ago_ms=400, waited_ms=15_000), back(4_000)],
            "slow_poll",
            PROBABLE,
            "c (h) probably polled too slowly: it did not rejoin within 15 s, though it was heard of 400 ms before, and"
            " it joined again 4 s later",
            "Set max.poll.interval.ms of c (h) above 19 s, or give it less to do between two polls (smaller batches,"
            " max.poll.records).",
        ),
        (
            [not_revoked(connection="closed", closed_by="client", closed_ago_ms=9_000)],
            "killed",
            PROBABLE,
            "c (h) probably crashed or was killed: its connection was closed 9 s before the 15 s ended in which it had"
            " to revoke t-0, and it had not left",
            "Look why its process ended: its last lines of log, kill -9, out of memory, or an exit without close()."
            " Partitions that such a member was to revoke wait for its max.poll.interval.ms, or for its session if that"
            " is shorter.",
        ),
        (
            [event(MemberReplaced, 100_000, instance_id="i", old_member_id="m0", connection="open")],
            "same_instance",
            PROBABLE,
            "two programs probably use the group.instance.id i: a member took it over while the connection of the other"
            " was open",
            "Give each program a group.instance.id of its own: the one that is replaced is fenced, and usually ends.",
        ),
    ],
)
def test_what_is_found(records: list[EventRecord], kind: str, sure: str, text: str, remedy: str | None) -> None:
    found = finding(*records)
    assert found is not None
    assert (found.kind, found.sure, found.text, found.remedy) == (kind, sure, text, remedy)


@pytest.mark.parametrize(
    "records",
    [
        [event(MemberLeft, 100_000)],
        [event(MemberExpired, 100_000, heard_ago_ms=6_000, session_ms=6_000)],
        [expired(is_new=True)],
        [event(MemberReplaced, 100_000, instance_id="i", old_member_id="m0", connection="closed")],
        [event(MemberNotRejoined, 100_000, **OPEN, heard_ago_ms=400, waited_ms=15_000)],
        [not_revoked()],
    ],
    ids=["old leave", "old expiry", "new member", "restart of a static member", "not rejoined yet", "not revoked"],
)
def test_where_nothing_has_been_seen_nothing_is_concluded(records: list[EventRecord]) -> None:
    assert finding(*records) is None


def started(at: int, cause: type[GroupEvent], number: int, client: str = "c") -> list[EventRecord]:
    member = {"member_id": f"m{number}", "client_id": client, "host": "/h", "instance_id": None}
    head = {"version": 1, "group": "g", "time": at, "generation": 1}
    return [
        {**head, "type": RebalanceStarted.type, "cause": cause.type, "by": [member], "reason": "r"},
        {**head, "type": JoinPhaseOver.type, "members": 2},
        {**head, "type": RebalanceOver.type, "members": 2},
    ]


@pytest.mark.parametrize(("closed_ago_ms", "failed"), [(5_000, True), (8_000, False)])
def test_an_assignor_has_failed_only_if_its_leader_was_there(closed_ago_ms: int, failed: bool) -> None:
    phase, leader = started(93_000, MemberJoined, 1)[1], {"leader": {"member_id": "m1", "client_id": "c", "host": "/h"}}
    gone = expired(connection="closed", closed_by="client", closed_ago_ms=closed_ago_ms)
    events = read([phase | leader, gone])
    found = find(events).about(events[-1])
    assert found is not None
    assert ("assignor may have failed" in found.text) is failed


def test_a_client_id_keeps_its_spelling_at_the_beginning_of_a_sentence() -> None:
    records: list[EventRecord] = []
    for number in range(8):
        at = 100_000 + number * 5_000
        records += [
            event(MemberJoined, at, number, f"etl-{number}"),
            *started(at, MemberJoined, number, f"etl-{number}"),
        ]
    (storm,) = (each for each in explain(read(records)) if each.kind == "storm")
    assert "etl-7 (h) joined once." in storm.details


def slow_polls(count: int, client: str = "c") -> list[EventRecord]:
    """A member polls too slowly again and again: it leaves after 15 s, and joins again after 5 s."""
    records: list[EventRecord] = []
    for turn in range(count):
        at = 100_000 + turn * 20_000
        records += [event(MemberLeft, at, turn, client, **OPEN), *started(at, MemberLeft, turn, client)]
        rejoined = 5_000 + turn
        records.append(
            event(MemberJoined, at + rejoined, turn + 1, client, old_member_id=f"m{turn}", rejoined_ms=rejoined)
        )
        records += started(at + rejoined, MemberJoined, turn + 1, client)
    return records


def test_a_storm_names_its_cause_and_the_worst_case() -> None:
    (storm,) = explain(read(slow_polls(4)))
    assert storm.text == "Rebalance storm: 8 rebalances within 65 s: c (h) probably polled too slowly."
    assert storm.details == [
        "All of them because c (h) probably polled too slowly: it left by itself 60 s after it had joined, its"
        " connection stayed open, and it joined again 5 s later: 20 s passed between two polls, and its"
        " max.poll.interval.ms is 15 s (4 times, the worst one)."
    ]
    assert storm.remedy is not None
    assert storm.remedy.startswith("Set max.poll.interval.ms of c (h) above 21 s")


def test_the_remedy_of_a_storm_is_that_of_its_heaviest_cause() -> None:
    records = slow_polls(1)
    for number in range(20, 24):
        at = 110_000 + number
        records += [event(MemberJoined, at, number, f"c{number}"), *started(at, MemberJoined, number, f"c{number}")]
    (storm,) = explain(read(records))
    assert storm.details[0].startswith("2 of them because c (h) probably polled too slowly: it left by itself")
    assert "c20 (h) joined once" in storm.text
    assert storm.remedy is not None
    assert storm.remedy.startswith("Set max.poll.interval.ms of c (h) above 20 s")


def test_the_known_cause_of_a_storm_gives_the_remedy_though_another_member_has_more_events() -> None:
    records = slow_polls(1)
    others = ((20, MemberJoined), (21, MemberJoined), (20, LeaderRejoined), (20, LeaderRejoined))
    for at, (number, cause) in enumerate(others, 110_000):
        records += [event(cause, at, number, f"c{number}"), *started(at, cause, number, f"c{number}")]
    (storm,) = explain(read(records))
    assert "c (h) probably polled too slowly; " in storm.text
    assert "c20 (h) asked for a new assignment twice, joined once" in storm.text
    assert storm.remedy is not None
    assert storm.remedy.startswith("Set max.poll.interval.ms of c (h) above 20 s")


def test_what_else_happens_during_a_storm_stays_a_line_of_its_own() -> None:
    killed = event(
        MemberExpired, 130_000, 77, "other", **{**OPEN, "connection": "closed"}, heard_ago_ms=6_100, closed_ago_ms=6_000
    )
    records = slow_polls(5)
    at = next(number for number, each in enumerate(records) if each["time"] > 130_000)
    records[at:at] = [killed, *started(130_000, MemberExpired, 77, "other")]
    storm, other = explain(read(records))
    assert storm.text.startswith("Rebalance storm: 10 rebalances")
    assert "other" not in storm.text
    assert "other (h) probably crashed or was killed" in other.text


def test_members_with_the_same_name_get_the_end_of_their_ids_and_a_hint() -> None:
    records = [
        *(event(MemberJoined, 1, number, "rdkafka") for number in (1, 2)),
        *started(1, MemberJoined, 1, "rdkafka"),
        event(MemberLeft, 100_000, 1, "rdkafka", **OPEN),
        *started(100_000, MemberLeft, 1, "rdkafka"),
        event(MemberJoined, 107_000, 3, "rdkafka", old_member_id="m1", rejoined_ms=7_000),
        *started(107_000, MemberJoined, 3, "rdkafka"),
    ]
    events = read(records)
    explanations = explain(events)
    assert "rdkafka…m1 (h) probably polled too slowly" in explanations[1].text
    assert explanations[-1].details[-1] == (
        "Several members have the client id rdkafka, which its library has chosen, so that the end of the member id"
        " stands after it: set client.id to tell them apart."
    )
    assert all(any(each is event for event in events) for each in explanations[1].events), (
        "they are those that were given"
    )
    others = [event(MemberJoined, 2, number, "kafka-python-3.0.12") for number in (4, 5)]
    assert explain(read([*others, *records]))[-1].details[-1] == (
        "Several members have the client ids kafka-python-3.0.12 and rdkafka, which their libraries have chosen, so"
        " that the end of the member id stands after each: set client.id to tell them apart."
    )


def test_librdkafka_sends_no_heartbeats_in_the_consumer_protocol_while_it_is_not_polled() -> None:
    epoch = {"version": 1, "group": "g", "time": 99_000, "generation": 2, "type": "group_epoch_bumped"}
    found = {fetched: finding(expired(fetched_ago_ms=fetched), back(3_000), epoch) for fetched in (300, 6_300, None)}
    slow, paused, unknown = found.values()
    assert slow is not None
    assert paused is not None
    assert unknown is not None
    assert (slow.kind, paused.kind, unknown.kind) == ("slow_poll", "silent_or_slow", "silent_or_slow")
    assert (slow.sure, unknown.sure) == (PROBABLE, POSSIBLE)
    assert "it still fetched 300 ms before, and it joined again 3 s later" in slow.text
    assert "either polled too slowly, or was blocked or paused" in unknown.text


def test_a_dispute_about_an_instance_id_is_told_once() -> None:
    taken = [
        event(MemberReplaced, 1_000 * at, at, instance_id="one", old_member_id=f"m{at - 1}", connection="open")
        for at in range(1, 6)
    ]
    (told,) = explain(read(taken))
    assert told.text.startswith("Two programs probably use the group.instance.id one: a member took it over")
    assert told.details == ["one was taken over 5 times within 4 s."]


def in_use(connection: str) -> EventRecord:
    owner = {"member_id": "m1", "client_id": "c", "client_host": "/h", "group_instance_id": "i"}
    return event(InstanceInUse, 97_000, 2, instance_id="i", owner=owner, connection=connection)


def test_a_static_member_that_came_back_too_early_is_not_said_to_stay_away() -> None:
    gone = expired(connection="closed", closed_by="client", closed_ago_ms=5_900, instance_id="i")
    events = read([in_use("closed"), gone])
    found = find(events).about(events[1])
    assert found is not None
    assert (found.kind, found.sure) == ("static_away", PROBABLE)
    assert found.text.endswith("it was refused when it came back before that: it was probably killed and restarted")
    assert found.remedy is not None
    assert found.remedy.startswith("After a kill it has to wait for the rest of its session (6 s)")


def test_a_program_with_another_instance_id_after_each_start() -> None:
    started = event(MemberJoined, 95_000, 2, instance_id="pod-x7")
    gone = expired(connection="closed", closed_by="client", closed_ago_ms=5_900, instance_id="pod-a1")
    events = read([event(MemberJoined, 10_000, instance_id="pod-a1"), started, gone])
    found = find(events).about(events[2])
    assert found is not None
    assert (found.kind, found.sure) == ("static_away", PROBABLE)
    assert "pod-x7 joined meanwhile" in found.text
    assert "has another group.instance.id after each start" in found.text
    assert found.remedy is not None
    assert "the same group.instance.id at each start" in found.remedy
    events = read([started | {"client_id": "another"}, gone])
    found = find(events).about(events[1])
    assert found is not None
    assert "has not come back" in found.text


def new_instances(times_: int) -> list[EventRecord]:
    """A program that is restarted each minute, each time with another instance id; its session is 6 s."""
    records = []
    for number in range(times_ + 1):
        pod, at = {"instance_id": f"pod-{number}"}, number * 60_000
        records.append(event(MemberJoined, at + 1_000, number, "pod", **pod))
        records.append(event(MemberAway, at + 59_000, number, "pod", **pod, session_ms=6_000))
        if number < times_:
            closed = {"connection": "closed", "closed_by": "client", "closed_ago_ms": 6_000, "heard_ago_ms": 6_000}
            records.append(event(MemberExpired, at + 65_000, number, "pod", **{**OPEN, **closed, **pod}))
    return sorted(records, key=lambda record: record["time"])


def test_a_program_that_has_another_instance_id_after_each_start_again_and_again() -> None:
    events = read(new_instances(4))
    findings = find(events)
    gone = [findings.about(each) for each in events if isinstance(each, Departure)]
    away = [findings.about(each) for each in events if isinstance(each, MemberAway)]
    assert len({id(each) for each in (*gone, *away[1:])}) == 1
    assert gone[0] is not None
    assert gone[0].kind == "new_instance"
    assert gone[0].text == (
        "the program with the client id pod probably has another group.instance.id after each start: 4 times within 3"
        " min a static member of it stayed away for longer than its session of 6 s, and another one had joined"
        " meanwhile"
    )
    events = read(new_instances(2))
    assert [each.kind for each in map(find(events).about, events) if each is not None] == ["static_away"] * 2


def test_a_member_that_may_not_join_because_another_has_its_instance_id_is_a_finding() -> None:
    found = finding(in_use("open"))
    assert found is not None
    assert (found.kind, found.sure) == ("same_instance", PROBABLE)
    assert found.text.startswith("Two programs probably use the group.instance.id i: ")


def lives(*spans: tuple[int, int], client: str = "c") -> list[EventRecord]:
    """Members of one name: each joins, crashes so many seconds after zero, and is removed 6 s later."""
    records = []
    for number, (start, end) in enumerate(spans, 1):
        seen: dict[str, Any] = {**OPEN, "connection": "closed", "closed_by": "client", "closed_ago_ms": 6_000}
        seen |= {"joined_ago_ms": (end + 6 - start) * 1_000, "heard_ago_ms": 6_100}
        records.append(event(MemberJoined, start * 1_000, number, client))
        records.append(event(MemberExpired, (end + 6) * 1_000, number, client, **seen))
    return sorted(records, key=lambda record: record["time"])


def kinds(records: list[EventRecord]) -> list[str | None]:
    """The kinds of findings about the ends of members."""
    events = read(records)
    found = find(events)
    ends = [found.about(each) for each in events if isinstance(each, MemberExpired | MemberReplaced)]
    return [None if each is None else each.kind for each in ends]


def test_a_program_that_crashes_again_and_again_is_one_finding() -> None:
    events = read(lives((100, 102), (103, 105), (106, 109)))
    found = find(events)
    about = [found.about(each) for each in events if not isinstance(each, MemberJoined) or each.time > 100_000]
    assert len({id(each) for each in about}) == 1
    finding = about[0]
    assert finding is not None
    assert (finding.kind, finding.sure) == ("crash_loop", PROBABLE)
    assert finding.text == (
        "c (h) probably crashed again and again: it lived 2 s to 3 s each time, 3 times within 9 s, and its connection"
        " was closed without a leave each time"
    )
    assert finding.remedy == (
        "Look why the process of c (h) ends: its last lines of log, out of memory, or a record at which it fails each"
        " time. Let what starts it again wait longer each time. After each crash its partitions wait for its"
        " session.timeout.ms (6 s)."
    )


@pytest.mark.parametrize(
    ("committed_s", "moved", "is_first"), [(0.2, 50, True), (1.5, 50, False), (0.2, 0, False), (None, 50, False)]
)
def test_a_program_that_commits_and_then_crashes_again_and_again_may_lose_records(
    committed_s: float | None, moved: int, is_first: bool
) -> None:
    records = []
    for number, record in enumerate(lives((100, 104), (105, 109), (110, 114))):
        if record["type"] == "member_expired":
            ago = None if committed_s is None else record["joined_ago_ms"] - 1_000 * committed_s
            record = {**record, "committed_ago_ms": ago, "committed_sum": moved * number}
            records.append(record)
        else:
            records += [record, *started(record["time"], MemberJoined, 1)]
    (finding,) = {each.text: each for each in find(read(records)).of_departures.values()}.values()
    said = "Each time it committed just after it had got its partitions, and went on for 3.8 s or more without a commit"
    assert (said in (finding.remedy or "")) is is_first


def ends_at(records: list[EventRecord], *ends: dict[int, int], moved: int = 50) -> list[EventRecord]:
    """The lives of a program, with the offset of each of its partitions at each end."""
    found = iter(ends)
    for number, record in enumerate(records):
        if record["type"] in ("member_expired", "member_left"):
            positions = [["t", partition, offset] for partition, offset in next(found).items()]
            records[number] = {**record, "positions": positions, "committed_sum": 100 + moved * number}
    return records


@pytest.mark.parametrize(
    ("ends", "moved", "text"),
    [
        (
            ({0: 42, 1: 10}, {0: 42, 1: 30}, {0: 42}),
            50,
            "; it owned t-0 each time, and its committed offset was 42, while the group advanced by 100 records in"
            " other partitions: if there is a record at that offset, it probably fails at that one, or at one soon"
            " after it",
        ),
        (({0: -1}, {0: -1}, {0: -1}), 0, "; it owned t-0 each time, and nothing of it was committed"),
        (({0: 42, 1: 10}, {0: 42, 1: 10}, {0: 42, 1: 10}), 0, ""),
        (({0: 42}, {0: 43}, {0: 44}), 50, ""),
        (({0: 42}, {1: 42}, {0: 42}), 50, ""),
    ],
    ids=["one partition stands still", "one partition", "all stand still", "one that advances", "others"],
)
def test_a_program_that_crashes_again_and_again_at_one_offset(
    ends: tuple[dict[int, int], ...], moved: int, text: str
) -> None:
    events = read(ends_at(lives((100, 102), (103, 105), (106, 109)), *ends, moved=moved))
    finding = find(events).about(events[-1])
    assert finding is not None
    assert finding.text.partition("without a leave each time")[2] == text
    assert finding.remedy is not None
    skip = "`barnabas groups reset-offsets g -t t:0 --to-offset 43 --execute`"
    assert (skip in finding.remedy) == ("probably fails" in text)


@pytest.mark.parametrize(("commits", "found"), [(None, True), (3, False)])
def test_a_program_that_is_killed_before_it_commits_reads_the_same_records_in_each_life(
    commits: int | None, found: bool
) -> None:
    records = ends_at(lives((100, 135), (140, 175), (180, 215)), *[{0: 528}] * 3, moved=0)
    ends = [each for each in records if each["type"] == "member_expired"]
    ends[1] |= {"furthest": [["t", 0, 6_600]]}
    for each in ends:
        each |= {"commits": commits, "unread": [["t", 0]]}
    events = read(records)
    finding = find(events).about(events[-1])
    assert finding is not None
    said = "; in none of its 3 lives did it commit, though it fetched t-0 up to 6600: each life begins at 528 again"
    assert (said in finding.text) is found
    assert ("Let c (h) commit sooner than it dies" in (finding.remedy or "")) is found
    assert ("a record at which it fails" in (finding.remedy or "") or "reset-offsets" in (finding.remedy or "")) is (
        not found
    )


def test_a_program_that_leaves_and_comes_back_again_and_again_is_one_finding() -> None:
    records = []
    for number, start in enumerate((100, 110, 120), 1):
        records.append(event(MemberJoined, start * 1_000, number))
        seen = {**OPEN, "connection": "closed", "joined_ago_ms": 5_000}
        records.append(event(MemberLeft, (start + 5) * 1_000, number, **seen))
    events = read(ends_at(records, {0: 42, 1: 10}, {0: 42, 1: 30}, {0: 42, 1: 50}))
    finding = find(events).about(events[-1])
    assert finding is not None
    assert (finding.kind, finding.sure) == ("restart_loop", CERTAIN)
    assert finding.text.startswith(
        "c (h) stopped and started again and again: it lived 5 s each time, 3 times within 25 s, and it left the group"
        " each time; it owned t-0 each time, and its committed offset was 42"
    )


@pytest.mark.parametrize(("commits", "took"), [(None, 1), (3, 1), (None, 8)])
def test_a_program_that_is_a_member_for_a_moment_again_and_again_may_be_a_probe(commits: int | None, took: int) -> None:
    records = []
    for number, start in enumerate((100, 110, 120, 130), 1):
        records.append(event(MemberJoined, start * 1_000, number))
        seen = {**OPEN, "connection": "closed", "joined_ago_ms": took * 1_000, "commits": commits}
        records.append(event(MemberLeft, (start + took) * 1_000, number, **seen))
    events = read(records)
    finding = find(events).about(events[-1])
    assert finding is not None and finding.kind == "restart_loop"
    is_probe = commits is None and took == 1
    assert finding.text.endswith("it left the group each time, without a commit") is is_probe
    assert ("If it is a health check: give it a group.id of its own" in str(finding.remedy)) is is_probe
    assert "ook what stops c (h): an error after which it closes its consumer" in str(finding.remedy)


@pytest.mark.parametrize("assigned", [False, True])
def test_a_program_that_leaves_each_time_before_it_has_got_partitions(*, assigned: bool) -> None:
    records = []
    for number, start in enumerate((100, 120, 140), 1):
        at = start * 1_000
        who = {"member_id": f"m{number}", "client_id": "c", "host": "/h", "instance_id": None}
        records += [
            event(MemberJoined, at, number),
            event(RebalanceStarted, at, reason="joined", cause="member_joined", by=[who], delay_ms=3_000),
        ]
        if assigned and number == 2:
            records.append(event(RebalanceOver, at + 900, members=1))
        seen = {**OPEN, "joined_ago_ms": 1_000, "commits": None}
        records += [
            event(MemberLeft, at + 1_000, number, **seen),
            event(MemberDisconnected, at + 1_001, number, closed_by="client", gone_ago_ms=1),
            event(GroupEmpty, at + 3_000),
        ]
    events = read(records)
    (finding,) = {find(events).about(each) for each in events if isinstance(each, MemberLeft)}
    assert finding is not None and (finding.kind, finding.sure) == ("restart_loop", CERTAIN)
    if assigned:
        assert finding.text.endswith("it left the group each time, without a commit")
        return
    assert finding.text == (
        "c (h) stopped and started again and again: it lived 1 s each time, 3 times within 41 s, and it left the group"
        " each time before it had got partitions, so that it never got a record: joining a group without members takes"
        " 3 s (group.initial.rebalance.delay.ms of the broker), and it stays for 1 s at most"
    )
    assert str(finding.remedy).startswith("If c (h) polls once, or for 1 s only: let it poll in a loop until it has")
    *_, first = explain(events[:5])
    assert first.details[0] == (
        "c (h) left after 1 s, before it had got partitions: joining a group without members takes 3 s"
        " (group.initial.rebalance.delay.ms of the broker)."
    )
    (*_, loop) = explain(events)
    assert "before it had got partitions" not in " ".join(loop.details), "that stands in its text"


@pytest.mark.parametrize(
    ("by", "after_ms", "is_domino"),
    [(77, 50, True), (77, 2_000, False), (None, 50, False)],
    ids=["just after", "later", "its own join"],
)
def test_a_program_that_stops_right_after_rebalances_that_others_caused(
    by: int | None, after_ms: int, is_domino: bool
) -> None:
    records = []
    for number in range(4):
        at = 100_000 + number * 10_000
        seen = {**OPEN, "connection": "closed", "joined_ago_ms": 5_000}
        records += [event(MemberJoined, at, number), *started(at + 10, MemberJoined, number)]
        if by is not None:
            records += [event(MemberJoined, at + 5_000 - after_ms, by + number, client="other")]
            records += started(at + 5_000 - after_ms, MemberJoined, by + number, client="other")
        records.append(event(MemberLeft, at + 5_000, number, **seen))
        records += started(at + 5_000, MemberLeft, number)
    found = find(read(records))
    (finding,) = {id(each): each for each in found.of_departures.values() if each.member.client_id == "c"}.values()
    assert (
        "c (h) left again and again right after a rebalance that another member caused" in finding.text
    ) is is_domino
    assert ("error in its rebalance listener" in str(finding.remedy)) is is_domino


def runs(
    *starts: int,
    took: int = 5,
    open_ms: int | None = 20,
    unread: Any = None,
    offset: int | None = None,
    lags: Sequence[int | None] = (),
) -> list[EventRecord]:
    """A program that starts so many seconds after zero, is alone in its group, leaves, and closes its connection."""
    records = []
    for number, start in enumerate(starts, 1):
        at = (start + took) * 1_000
        by = [{"member_id": f"m{number}", "client_id": "c", "host": "/h", "instance_id": None}]
        head = {"version": 1, "group": "g", "generation": 2 * number}
        where = {"positions": [["t", 0, 10 * number if offset is None else offset]], "committed_sum": 10 * number}
        seen = {**OPEN, "joined_ago_ms": took * 1_000, **where, "unread": unread}
        seen["lag"] = lags[number - 1] if lags else None
        records += [
            event(MemberJoined, start * 1_000, number),
            {**head, "time": start * 1_000, "type": RebalanceStarted.type, "cause": MemberJoined.type, "by": by},
            {**head, "time": start * 1_000 + 10, "type": RebalanceOver.type, "members": 1},
            event(MemberLeft, at, number, **seen),
            {**head, "time": at, "type": RebalanceStarted.type, "cause": MemberLeft.type, "by": by},
            {**head, "time": at, "type": GroupEmpty.type},
        ]
        if open_ms is not None:
            records.append(event(MemberDisconnected, at + open_ms, number, closed_by="client", gone_ago_ms=open_ms))
    return records


@pytest.mark.parametrize(
    ("lags", "grows"),
    [
        ([0, 0, 19, 38, 57, 76], True),
        ([0, 0, 19, 38, 37, 76], False),
        ([1, 2, 3, 4, 5, 6], False),
        ([0, 0, 19, None, 57, 76], False),
    ],
)
def test_runs_that_leave_more_records_each_time_fall_behind(lags: list[int | None], grows: bool) -> None:
    told = explain(read(runs(*range(100, 700, 100), lags=lags)))[-1]
    behind = "Runs: each of the last runs of c (h) left more records than the one before, as more is written than they"
    behind += " read: 19, 38, 57 and 76 waited at their ends; c (h) was alone in the group, and started and stopped"
    assert told.text.startswith(behind) is grows
    assert (told.remedy or "").startswith("Let each run read all that is there") is grows


@pytest.mark.parametrize("by", [{"client_id": "janitor", "host": "/h"}, {"expired": True}])
def test_a_group_that_is_deleted_between_the_runs_of_a_program(by: dict[str, Any]) -> None:
    records = []
    for each in runs(*range(100, 700, 100)):
        records.append(each)
        if each["type"] == "member_disconnected":
            head = {"version": 1, "group": "g", "generation": 2, "time": each["time"] + 1_000}
            records.append({**head, "type": GroupDeleted.type, "offsets": 3, **by})
    told = next(each for each in explain(read(records)) if each.text.startswith("Runs"))
    deleted = (
        "Runs: the client janitor (h) deleted the group with its committed offsets 5 times between the runs of c (h)"
    )
    assert told.text.startswith(deleted) is ("client_id" in by)
    assert ("records were committed" in told.text) is not ("client_id" in by)


def test_a_program_that_is_alone_and_starts_and_stops_is_no_storm() -> None:
    first, told = explain(read(runs(*range(100, 700, 60))))
    assert first.text == "Generation 2: c (h) joined."
    assert told.text == (
        "Runs: c (h) was alone in the group, and started and stopped: 10 runs within 9 min, of 5 s each, which joined"
        " the empty group and left it; from the end of the first one to that of the last one"
        " 90 records were committed."
    )
    assert (told.remedy or "").startswith("A scheduled job looks like that, and needs no change as long as")


def rounds(*starts: int, pods: int = 2, apart_ms: int = 300) -> list[EventRecord]:
    """Programs of one client id that start so many seconds after zero, work for 20 s, and leave one after the other."""
    records: list[EventRecord] = []
    for turn, start in enumerate(starts):
        for pod in range(pods):
            at, number = start * 1_000 + pod * apart_ms, turn * pods + pod
            end = at + 20_000
            seen = {**OPEN, "joined_ago_ms": 20_000, "committed_sum": 10 * turn}
            records += [
                event(MemberJoined, at, number),
                *(started(at, MemberJoined, number)[:1] if not pod else []),
                *(started(at + 3_000, MemberJoined, number)[1:] if pod == pods - 1 else []),
                event(MemberLeft, end, number, **seen, positions=[["t", 0, 10 * turn + pod]]),
                *started(end, MemberLeft, number)[: 3 if pod < pods - 1 else 1],
                event(MemberDisconnected, end + 5, number, closed_by="client", gone_ago_ms=5),
            ]
        head = {"version": 1, "group": "g", "generation": 1}
        records.append({**head, "time": start * 1_000 + (pods - 1) * apart_ms + 20_000, "type": GroupEmpty.type})
    return sorted(records, key=lambda each: each["time"])


@pytest.mark.parametrize("pods", [2, 4])
@pytest.mark.parametrize("every", [50, 70, 150])
def test_a_job_of_several_members_is_told_as_its_runs(pods: int, every: int) -> None:
    told = explain(read(rounds(*range(100, 100 + 4 * every, every), pods=pods)))
    (runs_of_job,) = [each for each in told if each.text.startswith("Runs: ")]
    assert "c (h) was alone in the group with several members, and started and stopped: 4 runs" in runs_of_job.text
    assert f", the last one of {pods} members, which joined the empty group and left it" in runs_of_job.text
    assert (runs_of_job.remedy or "").startswith("A scheduled job looks like that, and needs no change as long as")
    assert not any("restarted" in each.text or each.kind == "storm" for each in told)


def test_what_the_members_of_runs_do_is_not_told_again() -> None:
    rejoins = [
        record
        for turn, at in enumerate((109_000, 179_000, 249_000, 319_000))
        for record in (event(MemberRejoined, at, 2 * turn), *started(at, MemberRejoined, 2 * turn))
    ]
    # The fifth one still runs.
    records = [each for each in rounds(100, 170, 240, 310, 380) if each["time"] < 390_000]
    told = explain(read(sorted([*records, *rejoins], key=lambda each: each["time"])))
    assert [each.text.partition(":")[0] for each in told] == ["Generation 1", "Runs"]


def test_the_first_runs_of_several_members_are_perhaps_those_of_a_job() -> None:
    told = explain(read(rounds(100, 170)))
    (again,) = [each for each in told if "joined again" in each.text]
    assert again.text.endswith("c…m2 (h) joined again: it was restarted, or it is a job that runs now and then.")
    assert again.cause is not None
    assert again.cause.remedy == "The group had no other members that waited. If it should run on: look what stops it."
    said = " ".join(text for each in told for text in (each.text, *each.details))
    assert "it was restarted." not in said


def test_members_that_start_or_leave_far_apart_are_no_job() -> None:
    told = explain(read(rounds(100, 170, 240, 310, apart_ms=16_000)))
    assert not any(each.text.startswith("Runs: ") for each in told)


def test_runs_that_follow_each_other_at_once_are_no_schedule() -> None:
    _, told = explain(read(runs(*range(100, 170, 7))))
    assert told.text == (
        "New consumers: c (h) probably makes a consumer again and again: it was alone in the group, and started and"
        " stopped: 10 runs within 68 s, of 5 s each, which joined the empty group and left it; from the end"
        " of the first one to that of the last one 90 records were committed; cron and Kubernetes start a job once a"
        " minute at most."
    )
    assert (told.remedy or "").startswith("Keep one consumer open for as long as the program runs, and poll it")
    assert "needs no change" not in (told.remedy or "")


@pytest.mark.parametrize(
    "records",
    [runs(*range(100, 163, 7)), runs(*range(100, 700, 60), took=58), runs(*range(100, 300, 20))],
    ids=["few", "each minute, with a short pause", "each 20 s, with a longer pause"],
)
def test_runs_that_something_may_have_started_by_the_clock_are_those_of_a_job(records: list[EventRecord]) -> None:
    *_, told = explain(read(records))
    assert (told.remedy or "").startswith("A scheduled job looks like that, and needs no change as long as")


def test_a_program_that_is_alone_and_starts_again_is_not_restarted() -> None:
    *_, told = explain(read(runs(100, 110, 120, 130)[:-4]))
    assert told.text.startswith("Runs: c (h) was alone in the group, and started and stopped: 3 runs within 25 s")
    assert "joined again" not in told.text


def test_the_first_runs_of_a_program_that_is_alone_are_perhaps_those_of_a_job() -> None:
    _, left, again, _ = explain(read(runs(100, 400)))
    assert left.text == (
        "Generation 2: c (h) left and closed its connection, and came back 5 min later on another one: it was"
        " restarted, or it is a job that runs now and then."
    )
    assert (left.remedy or "").startswith("It was alone in the group, so that no other member waited. If it should")
    assert again.text == "Generation 4: c (h) joined again: it was restarted, or it is a job that runs now and then."
    finding = find(events := read(runs(100, 400)))
    assert [each.end for each in finding.runs] == [each for each in events if isinstance(each, MemberLeft)]
    # No schedule starts a job so soon.
    *_, again, _ = explain(read(runs(100, 130)))
    assert again.text == (
        "Generation 4: c (h) joined again: it was restarted, or it is started when there are records, and stopped when"
        " it has read them."
    )


def test_a_program_that_is_alone_and_stops_at_a_record_each_time_is_a_restart_loop() -> None:
    events = read(runs(100, 110, 120, unread=[["t", 0]], offset=42))
    finding = find(events).about(events[-4])
    assert finding is not None
    assert finding.kind == "restart_loop"
    assert finding.text.endswith(
        "and it left the group each time; the committed offset of t-0 was 42 each time, though records waited there: it"
        " probably fails at the record there, or at one soon after it"
    )
    assert "`barnabas groups reset-offsets g -t t:0 --to-offset 43 --execute`" in str(finding.remedy)
    for healthy in (runs(100, 110, 120, offset=42), runs(100, 110, 120, unread=[["t", 0]])):
        (kind,) = {each.kind for each in find(read(healthy)).of_departures.values()}
        assert kind == "alone"


def uncommitted(*starts: int, unread: Any = None) -> list[EventRecord]:
    """Runs of a program that has committed no offset."""
    found = runs(*starts, unread=unread, offset=-1)
    return [{**record, "committed_sum": 0} if "positions" in record else record for record in found]


def test_a_program_whose_runs_commit_nothing_reads_everything_again() -> None:
    *_, told = explain(read(uncommitted(*range(100, 200, 10), unread=[["t", 0]])))
    assert told.text == (
        "Runs: c (h) was alone in the group, and started and stopped: 10 runs within 95 s, of 5 s each, which joined"
        " the empty group and left it; none of them has committed an offset, though there are records: each begins at"
        " its auto.offset.reset."
    )
    assert (told.remedy or "").startswith(
        "Let it commit (enable.auto.commit and close(), or commit() after each batch)"
    )
    *_, nothing = explain(read(uncommitted(*range(100, 200, 10))))
    assert nothing.text.endswith("left it; none of them has committed an offset.")
    assert (nothing.remedy or "").startswith("If it reads records: let it commit")


def overlapping(*starts: float, took: float = 70, hosts: int = 1, **data: Any) -> list[EventRecord]:
    """Members of one program that start so many seconds after zero, and leave by themselves.

    Args:
        starts: of the members.
        took: for how many seconds each is a member.
        hosts: from so many hosts they come, in turn.
        data: of their ends.
    """
    records: list[EventRecord] = []
    for number, start in enumerate(starts):
        at, end = round(start * 1_000), round((start + took) * 1_000)
        host = {"host": f"/h{number % hosts}"}
        records += [
            event(MemberJoined, at, number) | host,
            *started(at, MemberJoined, number),
            event(MemberLeft, end, number, **OPEN | {"joined_ago_ms": took * 1_000} | data) | host,
            *started(end, MemberLeft, number),
            event(MemberDisconnected, end + 5, number, closed_by="client", gone_ago_ms=5) | host,
        ]
    return sorted(records, key=lambda each: each["time"])


JOB = (100, 157, 218, 277, 337, 400)
SOCKETS = (100, 103, 119, 121, 135, 160, 166, 167, 190, 203)


@pytest.mark.parametrize("starts", [SOCKETS, range(100, 220, 12)], ids=["at any time", "regularly"])
def test_members_of_one_program_for_each_connection_are_no_jobs(starts: Sequence[float]) -> None:
    storm = next(each for each in explain(read(overlapping(*starts))) if each.kind == "storm")
    assert storm.text.endswith("c (h0) probably makes many consumers in one group, one for each request or connection.")
    assert "Use one consumer that hands the records out to all, or give each a group of its own" in str(storm.remedy)
    assert "flock" not in str(storm.remedy)
    assert "autoscaler" not in str(storm.remedy)
    assert "while others of them were there; a new one starts about every" in storm.details[0]


@pytest.mark.parametrize("hosts", [1, 6], ids=["cron", "a CronJob"])
def test_runs_of_a_program_that_overlap_are_no_restarts(hosts: int) -> None:
    records = overlapping(*JOB, hosts=hosts)
    (each,) = {finding.text: finding for finding in find(read(records)).of_departures.values()}.values()
    assert (each.kind, each.sure) == ("overlapping_runs", "probable")
    name = "h0" if hosts == 1 else "h5"
    assert each.text == (
        f"c ({name}) has runs that overlap: a new one starts about every 60 s, and each stays for 70 s and leaves (6"
        " within 6 min)"
    )
    assert "flock" in str(each.remedy)
    assert "group.instance.id" not in str(each.remedy)


def test_a_member_of_which_others_are_there_may_not_have_come_back() -> None:
    events = read(overlapping(100, 140, 200, 225))
    found = next(each for each in find(events).of_departures.values() if each.kind == "restarted")
    assert found.text == (
        "c (h0) left and closed its connection, and another one of its name joined 30 s later, while a third one was a"
        " member: it was restarted, or runs of it overlap"
    )
    assert found.sure == POSSIBLE
    assert "do not start one before the last one has ended" in str(found.remedy)


@pytest.mark.parametrize(
    ("away_ms", "protocol", "remedy"),
    [
        (20_000, None, "With a group.instance.id of its own a restart within the session timeout costs no rebalance"),
        (200_000, None, "set session.timeout.ms, now 45 s, above 200 s. A program that crashes then keeps"),
        (50_000, "consumer", "set group.consumer.session.timeout.ms of the broker, now 45 s, above 50 s."),
        (480_000, None, None),
        (200_000, "consumer", None),
    ],
)
def test_static_membership_is_advised_where_a_session_may_be_so_long(
    away_ms: int, protocol: str | None, remedy: str | None
) -> None:
    records = [left(session_ms=45_000), closed(5), event(MemberJoined, 100_000 + away_ms, 7)]
    if protocol is not None:
        records.append(event(EpochBumped, 100_001, members=1, cause="member_left"))
    found = finding(*records)
    assert found is not None
    assert found.kind == "restarted"
    assert (remedy is None and found.remedy is None) or (remedy or "?") in (found.remedy or "")


def replaced(members: int, rounds: int, every: float = 6) -> list[EventRecord]:
    """Members of one program that start together, are replaced one after the other, and are stopped together."""
    records: list[EventRecord] = []
    ends = {(0, number): 100 + members * rounds * every + number / 10 for number in range(members)}
    at = 100.0
    for done in range(rounds):
        for number in range(members):
            at += every
            ends[done + 1, number] = ends[done, number]
            ends[done, number] = at
    for (round_, number), end in ends.items():
        start = 70 + number / 10 if round_ == 0 else ends[round_ - 1, number] + 1.5
        one = round_ * members + number
        records += [
            event(MemberJoined, round(start * 1_000), one) | {"host": "/h"},
            event(MemberLeft, round(end * 1_000), one, **OPEN | {"joined_ago_ms": (end - start) * 1_000})
            | {"host": "/h"},
            event(MemberDisconnected, round(end * 1_000) + 5, one, closed_by="client", gone_ago_ms=5) | {"host": "/h"},
        ]
    return sorted(records, key=lambda each: each["time"])


@pytest.mark.parametrize(("members", "rounds"), [(2, 2), (6, 1), (6, 2), (3, 4)])
def test_deployments_are_not_many_consumers_of_one_program(members: int, rounds: int) -> None:
    kinds = {each.kind for each in find(read(replaced(members, rounds))).of_departures.values()}
    assert not kinds & {"consumers_at_once", "overlapping_runs"}
    assert "restarted" in kinds


def test_a_program_that_is_started_when_there_are_records_spares_no_member_a_rebalance() -> None:
    def of_the_first(**data: Any) -> Finding:
        events = read(runs(100, 130, **data))
        return find(events).of_departures[id(next(each for each in events if isinstance(each, MemberLeft)))]

    found = of_the_first()
    assert (found.kind, found.sure) == ("stopped", POSSIBLE)
    started = "it is started when there are records, and stopped when it has read them"
    assert found.text.endswith(f"it was restarted, or {started}")
    assert str(found.remedy).startswith("It was alone in the group, so that no other member waited.")
    found = of_the_first(unread=[["t", 0]])
    assert (found.kind, found.sure) == ("restarted", POSSIBLE)
    assert started not in found.text
    assert "group.instance.id" not in str(found.remedy)


def test_runs_that_overlap_are_one_cause_of_a_storm() -> None:
    told = explain(read(overlapping(*range(100, 172, 12), took=20, hosts=6)))
    storm = next(each for each in told if each.kind == "storm")
    assert storm.text == (
        "Rebalance storm: 11 rebalances within 68 s: c (h5) has runs that overlap: a new one starts about every 12 s."
    )
    assert not any("restarted" in each.text or "came back" in each.text for each in told)


def test_runs_that_overlap_and_make_no_storm_are_told_once() -> None:
    first, told = explain(read(overlapping(*(600 * number for number in range(1, 6)), took=900)))
    assert first.text.startswith("Generation 1: c")
    assert told.text.startswith("Runs that overlap: c (h0) has runs that overlap: a new one starts about every 10 min")


@pytest.mark.parametrize(
    "records",
    [
        overlapping(100, 140),
        overlapping(100, 140, 200, 225),
        overlapping(100, 140, 180, 220, took=30),
        overlapping(100, 101, 102, took=3_000),
        overlapping(100, 104, 180, 184, 260, 264),
        overlapping(100, 140, 180, 220, removed_by="admin"),
        overlapping(100, 140, 180, 220, took=5_000),
    ],
    ids=["two", "at any time", "no overlap", "a deployment that is stopped", "pairs", "an administrator", "services"],
)
def test_other_members_that_come_and_go_are_no_runs_that_overlap(records: list[EventRecord]) -> None:
    assert "overlapping_runs" not in {each.kind for each in find(read(records)).of_departures.values()}


def not_closed(*starts: int, waits: Sequence[int] = (300, 303, 298, 300, 301), **data: Any) -> list[EventRecord]:
    """Members of one program that start so many seconds after zero, and leave so many seconds after the next one has
    started."""
    records: list[EventRecord] = []
    for number, (start, after) in enumerate(zip(starts, (*starts[1:], None), strict=True)):
        records += [event(MemberJoined, start * 1_000, number), *started(start * 1_000, MemberJoined, number)]
        if after is not None:
            end = after + waits[number % len(waits)]
            seen = {**OPEN, "software": None, "joined_ago_ms": (end - start) * 1_000, "committed_ago_ms": 2_000, **data}
            records += [event(MemberLeft, end * 1_000, number, **seen), *started(end * 1_000, MemberLeft, number)]
    return sorted(records, key=lambda each: each["time"])


LEAKS = (100, 142, 184, 300, 330, 410, 455)


def test_a_program_that_does_not_close_its_consumers_is_one_finding() -> None:
    records = not_closed(*LEAKS)
    (found,) = {each.text: each for each in find(read(records)).of_departures.values()}.values()
    assert (found.kind, found.sure) == ("consumers_not_closed", "probable")
    assert found.text == (
        "c (h) probably makes a new consumer again and again, and does not close the old one: of 7 members of one"
        " client id and host, which joined within 6 min, 6 left by themselves about 5 min after the next one had"
        " joined, and did not join again: they have probably not been polled since then"
    )
    assert "to raise that makes it worse" in str(found.remedy)
    _, told, *others = explain(read(records))
    assert told.text == f"Consumers that are not closed: {found.text}."
    assert others == []


@pytest.mark.parametrize(
    ("software", "closes"),
    [
        ("aiokafka", "(await consumer.stop()); or keep it"),
        ("kafka-python 3.0.12", "(consumer.close()); or keep it"),
        (None, "(consumer.close(), or await consumer.stop() with aiokafka); or keep it"),
    ],
)
def test_a_consumer_is_closed_as_its_library_does(software: str | None, closes: str) -> None:
    joined = {"software": software}
    records = [each | joined if each["type"] == MemberJoined.type else each for each in not_closed(*LEAKS)]
    _, told = explain(read(records))
    assert closes in str(told.remedy)


@pytest.mark.parametrize(
    "records",
    [
        not_closed(*LEAKS, waits=(300, 120, 420, 60, 500, 210)),
        not_closed(100, 142, 500),
        not_closed(100, 101, 102, 103, 104),
        sorted(
            [
                *not_closed(*LEAKS),
                *(
                    event(MemberJoined, (start + 330) * 1_000, 10 + at, old_member_id=f"m{at}", rejoined_ms=30_000)
                    for at, start in enumerate(LEAKS[1:])
                ),
            ],
            key=lambda each: each["time"],
        ),
    ],
    ids=["at any time", "twice", "started together", "polls again"],
)
def test_other_members_that_poll_too_slowly_are_no_consumers_left_open(records: list[EventRecord]) -> None:
    found = find(read(records)).of_departures.values()
    assert {each.kind for each in found if each.kind != "slow_poll"} == set()


def anew(after_ms: int, number: int = 2) -> EventRecord:
    """A member of the same name joins on a new connection."""
    return event(MemberJoined, 100_000 + after_ms, number)


@pytest.mark.parametrize(
    ("records", "is_network"),
    [
        ([expired(), anew(40_000)], True),
        ([expired(), anew(40_000), closed(600_000)], True),
        ([expired(), anew(40_000), closed(40_300)], False),
        ([expired(), closed(39_900), anew(40_000)], False),
        ([expired(), anew(400_000)], False),
        ([anew(-50_000, 3), expired(), anew(40_000)], False),
        ([expired(), back(40_000)], False),
        ([expired()], False),
    ],
    ids=["anew", "closed much later", "closed then", "closed before", "later", "twin", "the same connection", "away"],
)
def test_a_client_that_connects_anew_while_its_old_connection_stays_open_was_cut_off(
    records: list[EventRecord], is_network: bool
) -> None:
    events = read(records)
    gone = next(each for each in events if isinstance(each, MemberExpired))
    found = find(events).about(gone)
    assert found is not None
    assert found.text.startswith("the network between c (h) and the broker was probably cut") == is_network
    assert ("firewalls" in str(found.remedy)) == is_network


def left_over(*ends: EventRecord, starts: Sequence[int] = (100, 200, 300)) -> list[EventRecord]:
    """Members of one program that start so many seconds after zero, and their ends."""
    joins = [event(MemberJoined, start * 1_000, number) for number, start in enumerate(starts)]
    causes = [each for number, start in enumerate(starts) for each in started(start * 1_000, MemberJoined, number)]
    return sorted([*joins, *causes, *ends], key=lambda each: each["time"])


def unpolled(event_type: type[GroupEvent], at: int, number: int, **data: Any) -> EventRecord:
    """The end, so many seconds after zero, of a member whose max.poll.interval.ms is 15 s."""
    seen: dict[str, Any] = {**OPEN, "joined_ago_ms": 90_000}
    if event_type is MemberNotRejoined:
        seen |= {"heard_ago_ms": 300, "waited_ms": 15_000}
    elif event_type is MemberNotRevoked:
        seen |= {"partitions": {"t": [0]}, "waited_ms": 15_000}
    return event(event_type, at * 1_000, number, **seen, **data)


@pytest.mark.parametrize(
    ("event_type", "seen"),
    [
        (MemberLeft, "left by themselves about 15 s after the next one had joined, and did not join again"),
        (
            MemberNotRejoined,
            "did not rejoin within 15 s when the next one had joined, though their connections were open",
        ),
        (
            MemberNotRevoked,
            "did not give up partitions within 15 s when the next one had joined, though their connections were open",
        ),
    ],
)
def test_two_consumers_are_left_over_if_each_is_not_polled_since_the_next_one_joined(
    event_type: type[GroupEvent], seen: str
) -> None:
    records = left_over(unpolled(event_type, 215, 0), unpolled(event_type, 315, 1))
    (found,) = {each.text: each for each in find(read(records)).of_departures.values()}.values()
    assert (found.kind, found.sure) == ("consumers_not_closed", PROBABLE)
    assert found.text == (
        "c (h) probably makes a new consumer again and again, and does not close the old one: of 3 members of one"
        f" client id and host, which joined within 3 min, 2 {seen}: they have probably not been polled since then"
    )


@pytest.mark.parametrize(
    "records",
    [
        left_over(unpolled(MemberLeft, 215, 0), unpolled(MemberLeft, 330, 1)),
        left_over(
            unpolled(MemberNotRejoined, 215, 0),
            event(MemberDisconnected, 230_000, 0, closed_by="client", gone_ago_ms=15_000),
            unpolled(MemberNotRejoined, 315, 1),
        ),
        left_over(unpolled(MemberNotRejoined, 215, 0), unpolled(MemberNotRejoined, 215, 1), starts=(100, 200)),
        left_over(
            unpolled(MemberNotRejoined, 215, 0) | {"connection": "closed"},
            unpolled(MemberNotRejoined, 315, 1) | {"connection": "closed"},
        ),
        left_over(
            unpolled(MemberNotRejoined, 215, 0) | {"heard_ago_ms": 20_000},
            unpolled(MemberNotRejoined, 315, 1) | {"heard_ago_ms": 20_000},
        ),
        left_over(unpolled(MemberLeft, 216, 0), unpolled(MemberLeft, 217, 1), starts=(100, 201, 202)),
    ],
    ids=["at any time", "a slow stop", "no third one", "crashed", "silent", "one outage"],
)
def test_two_members_that_are_gone_are_no_consumers_left_over(records: list[EventRecord]) -> None:
    kinds = {each.kind for each in find(read(records)).of_departures.values()}
    assert "consumers_not_closed" not in kinds


def calls(count: int, took_ms: int = 20, moved: int = 1, joining_ms: int = 3_000) -> list[EventRecord]:
    """Members of one program that join one after the other, have their partitions for some milliseconds, and leave."""
    records: list[EventRecord] = []
    for number in range(count):
        at = 100_000 + number * 5_000
        seen = {**OPEN, "joined_ago_ms": joining_ms + took_ms, "committed_sum": moved * number}
        records += [
            event(MemberJoined, at, number),
            *({**each, "time": at + joining_ms} for each in started(at, MemberJoined, number)),
            event(MemberLeft, at + joining_ms + took_ms, number, **seen, positions=[["t", 0, number]]),
            *started(at + joining_ms + took_ms, MemberLeft, number),
            event(MemberDisconnected, at + joining_ms + took_ms + 5, number, closed_by="client", gone_ago_ms=5),
        ]
    return records


def test_a_program_that_makes_a_consumer_for_each_call_is_one_finding() -> None:
    (told,) = explain(read(calls(10)))
    assert told.text == (
        "Rebalance storm: 20 rebalances within 45 s: c (h) probably makes a consumer for each call or record."
    )
    assert told.details == [
        "All of them because c (h) probably makes a consumer for each call or record: it joined and left 10 times"
        " within 48 s, and had its partitions for 20 ms at the median."
    ]
    assert (told.remedy or "").startswith("Keep one consumer for as long as the program runs, and poll it")


@pytest.mark.parametrize(
    ("client", "software", "committed_ms", "is_other"),
    [
        ("svc-1", None, None, True),
        ("svc-1", None, 500, False),
        ("c-2", None, None, False),
        ("svc-1", "rdkafka 2", None, False),
    ],
    ids=["unlike the others", "commits", "a client id like theirs", "the same library"],
)
def test_a_probe_in_the_group_of_a_service_gets_another_group(
    client: str, software: str | None, committed_ms: int | None, is_other: bool
) -> None:
    records = [event(MemberJoined, 90_000, 77, client=client, software=software), *started(90_000, MemberJoined, 77)]
    for each in calls(10):
        more: dict[str, Any] = {"software": "rdkafka 1"} if each["type"] == MemberJoined.type else {}
        if each["type"] == MemberLeft.type:
            more = {"committed_ago_ms": committed_ms}
        records.append({**each, **more})
    told = explain(read(records))
    (storm,) = (each for each in told if each.kind)
    assert ("c (h) joins and leaves again and again, and probably does not belong to" in storm.text) is is_other
    assert (storm.remedy or "").startswith("Give c (h) a group.id of its own" if is_other else "Keep one consumer")


@pytest.mark.parametrize(
    "records",
    [calls(5), calls(10, took_ms=1_500), calls(10, moved=0)],
    ids=["few", "longer lives", "lives in which nothing is committed"],
)
def test_other_restarts_are_no_consumers_for_each_call(records: list[EventRecord]) -> None:
    events = read(records)
    assert {each.kind for each in find(events).of_departures.values()} == {"restart_loop"}


def test_runs_of_milliseconds_are_consumers_for_each_call() -> None:
    records = runs(*range(100, 200, 10))
    for number, record in enumerate(records):
        if record["type"] == RebalanceOver.type:
            records[number] = {**record, "time": record["time"] + 4_970}
    (kind,) = {each.kind for each in find(read(records)).of_departures.values()}
    assert kind == "consumer_per_call"


def test_a_member_that_was_alone_and_polls_too_slowly_has_no_runs() -> None:
    records = runs(100, 106, 112, open_ms=None)
    for number, record in enumerate(records):
        if record["type"] == MemberJoined.type and number:
            records[number] = {**record, "old_member_id": f"m{number // 6}", "rejoined_ms": 1_000}
    found = {each.kind for each in find(read(records)).of_departures.values()}
    assert found
    assert "alone" not in found


@pytest.mark.parametrize(
    "spans",
    [
        [(100, 102), (103, 105)],
        [(100, 110), (101, 111), (102, 112)],
        [(100, 102), (1_000, 1_002), (2_000, 2_002)],
    ],
    ids=["two crashes", "three programs of one name that are killed together", "crashes far apart"],
)
def test_other_crashes_are_no_loop(spans: list[tuple[int, int]]) -> None:
    assert kinds(lives(*spans)) == ["killed"] * len(spans)


def static_lives(took: int, *ends: int) -> list[EventRecord]:
    """A static member that comes back a second after each of these ends, in seconds after zero."""
    seen: dict[str, Any] = {**OPEN, "connection": "closed", "closed_by": "client", "closed_ago_ms": 1_000}
    seen |= {"joined_ago_ms": (took + 1) * 1_000, "instance_id": "i"}
    return [
        event(MemberReplaced, (end + 1) * 1_000, number, old_member_id=f"m{number - 1}", **seen)
        for number, end in enumerate(ends, 1)
    ]


def test_a_static_member_that_comes_back_again_and_again_crashed_or_was_restarted() -> None:
    events = read(static_lives(2, 102, 105, 108))
    finding = find(events).about(events[-1])
    assert finding is not None
    assert (finding.kind, finding.sure) == ("crash_loop", POSSIBLE)
    assert (
        "i probably crashed or was restarted again and again: it lived 2 s each time, 3 times within 8 s"
        in finding.text
    )
    assert kinds(static_lives(400, 500, 902, 1_304)) == [None] * 3
    assert kinds(static_lives(2, 102, 105)) == [None] * 2


def test_a_static_member_that_crashes_again_and_again_at_one_offset() -> None:
    records = static_lives(2, 102, 105, 108)
    for number, record in enumerate(records):
        at = {"positions": [["t", 0, 42], ["t", 1, 10 * number]], "committed_sum": 42 + 10 * number}
        records[number] = {**record, **at}
    events = read(records)
    finding = find(events).about(events[-1])
    assert finding is not None
    assert (
        "; it owned t-0 each time, and its committed offset was 42, while the group advanced by 20 records in other"
        " partitions"
    ) in finding.text
    assert "--to-offset 43 --execute`" in str(finding.remedy)


def static_runs(
    *starts: int, session: int, committed_ms: int | None = 1_040, advance: int = 10, commits: int = 2
) -> list[EventRecord]:
    """A static member that is alone, runs for 5 s, and does not leave; its session ends so many seconds after that."""
    records: list[EventRecord] = []
    before = 0
    for number, start in enumerate(starts, 1):
        seen: dict[str, Any] = {**OPEN, "connection": "closed", "closed_by": "client", "instance_id": "i"}
        seen["commits"] = None if committed_ms is None else commits
        seen["committed_sum"] = advance * number
        end = start + 5
        if before:
            since = (start - starts[number - 2] - 5) * 1_000
            seen |= {"closed_ago_ms": since, "joined_ago_ms": since + 5_000, "committed_sum": advance * (number - 1)}
            seen["committed_ago_ms"] = None if committed_ms is None else since + committed_ms - 1_000
            records.append(event(MemberReplaced, start * 1_000, number, old_member_id=f"m{before}", **seen))
        else:
            records += [
                event(MemberJoined, start * 1_000, number, instance_id="i"),
                *({**each, "members": 1} for each in started(start * 1_000, MemberJoined, number)),
            ]
        before = number
        if number == len(starts) or starts[number] > end + session:
            at = (end + session) * 1_000
            seen |= {"closed_ago_ms": session * 1_000, "joined_ago_ms": (5 + session) * 1_000}
            seen |= {"heard_ago_ms": session * 1_000, "committed_sum": advance * number}
            seen["committed_ago_ms"] = None if committed_ms is None else session * 1_000 + committed_ms - 1_000
            slow: dict[str, Any] = {
                "heard_ago_ms": 3_600,
                "session_ms": 6_000,
                "connection": "closed",
                "closed_ago_ms": 3_600,
            }
            head = {"version": 1, "group": "g", "generation": 2 * number, "time": at}
            by = [{"member_id": f"m{number}", "client_id": "c", "host": "/h", "instance_id": "i"}]
            records += [
                event(MemberSlow, at - 100, number, instance_id="i", **slow),
                event(MemberExpired, at, number, **seen),
                {**head, "type": RebalanceStarted.type, "cause": MemberExpired.type, "by": by},
                {**head, "type": GroupEmpty.type},
            ]
            before = 0
    return records


@pytest.mark.parametrize("session", [45, 300])
def test_a_scheduled_job_with_a_static_member_is_told_as_its_runs(session: int) -> None:
    """Whether its session ends between two runs or not."""
    first, told = explain(read(static_runs(*range(100, 400, 60), session=session)))
    assert first.text.endswith(": i joined.")
    assert told.text.startswith(
        "Runs: i was alone in the group, and started and stopped: 5 runs within 4 min, of 5 s each, which committed at"
        " their ends, and closed their connections (static members do not leave); from the end of the first one to"
        " that of the last one "
    )
    assert (told.remedy or "").startswith("A scheduled job looks like that, and needs no change as long as")


@pytest.mark.parametrize("session", [45, 300])
@pytest.mark.parametrize(
    ("committed_ms", "advance", "commits"), [(1_300, 10, 2), (1_040, 0, 2), (None, 0, 0), (1_040, 10, 60)]
)
def test_a_static_member_that_does_not_stop_in_order_or_gains_nothing_has_no_runs(
    session: int, committed_ms: int | None, advance: int, commits: int
) -> None:
    given: dict[str, Any] = {"committed_ms": committed_ms, "advance": advance, "commits": commits}
    records = static_runs(*range(100, 400, 60), session=session, **given)
    found = {each.kind for each in find(read(records)).of_departures.values()}
    assert found
    assert not found & {"alone", "runs_uncommitted"}


def test_the_runs_of_a_static_member_of_the_consumer_protocol() -> None:
    """It says that it is away, also if it had nothing to commit."""
    records = static_runs(*range(100, 400, 60), session=300, committed_ms=None, advance=0)
    away = [
        event(MemberAway, start * 1_000 + 5_000, n, instance_id="i") for n, start in enumerate(range(100, 400, 60), 1)
    ]
    told = explain(read(sorted([*records, *away], key=lambda each: each["time"])))
    assert [each.text for each in told if "left for a while; " in each.text] == []
    (runs,) = (each.text for each in told if each.text.startswith("Runs: "))
    assert "5 runs within 4 min, of 5 s each, which left for a while, as static members do" in runs


def in_turn(
    count: int, transactional_id: str | None = "bills; x", other: str = "b", late_ms: int = -500
) -> list[EventRecord]:
    """Two programs, each of which ends when the other one joins, and comes back 4 s later."""
    records: list[EventRecord] = []
    for turn in range(count):
        at, name, fenced = 100_000 + 5_000 * turn, ("a", other)[turn % 2], ("a", other)[1 - turn % 2]
        records.append(event(MemberJoined, at, turn, name))
        records += started(at, MemberJoined, turn, name)
        if turn:
            end = at - late_ms
            seen = {
                **OPEN,
                "connection": "closed",
                "joined_ago_ms": 5_000 - late_ms,
                "transactional_id": transactional_id,
            }
            records.append(event(MemberLeft, end, turn - 1, fenced, **seen))
            records += started(end, MemberLeft, turn - 1, fenced)
    return sorted(records, key=lambda each: each["time"])


def together(count: int) -> list[EventRecord]:
    """Two members of one program, which is started again and again."""
    records: list[EventRecord] = []
    for life in range(count):
        at = 100_000 + 10_000 * life
        for number, name in enumerate("ab", 2 * life):
            records += [
                event(MemberJoined, at + number, number, name),
                *started(at + number, MemberJoined, number, name),
            ]
        for number, name in enumerate("ab", 2 * life):
            seen = {**OPEN, "connection": "closed", "joined_ago_ms": 3_000, "transactional_id": "bills"}
            end = at + 3_000 + number
            records += [event(MemberLeft, end, number, name, **seen), *started(end, MemberLeft, number, name)]
    return records


@pytest.mark.parametrize("late_ms", [-500, 300], ids=["it ends after the other has joined", "just before that"])
def test_programs_that_fence_each_other_are_one_finding(late_ms: int) -> None:
    (storm,) = (each for each in explain(read(in_turn(9, late_ms=late_ms))) if "storm" in each.text)
    assert storm.text.endswith(": a (h) and b (h) probably fence each other with the transactional.id bills; x.")
    assert "one of them stopped when the other started" in storm.details[0]
    assert "`barnabas transactions explain 'bills; x'`" in str(storm.remedy)
    assert str(storm.remedy).startswith("Give each program a transactional.id of its own")


@pytest.mark.parametrize(
    "records",
    [
        in_turn(9, transactional_id=None),
        in_turn(3),
        [each for each in in_turn(9) if each["client_id" if "client_id" in each else "type"] != "b"],
        together(5),
    ],
    ids=["no transactions", "few", "one program", "members of one program, which end together"],
)
def test_other_programs_that_end_do_not_fence_each_other(records: list[EventRecord]) -> None:
    assert "fencing" not in {each.kind for each in find(read(records)).of_departures.values()}


@pytest.mark.parametrize("storm", [False, True])
def test_a_crash_loop_is_explained_once(storm: bool) -> None:
    records: list[EventRecord] = []
    for number, record in enumerate(lives((100, 102), (110, 112), (120, 122))[0 if storm else 1 :]):
        head = {"version": 1, "group": "g", "time": record["time"], "generation": number}
        by = [{name: record[name] for name in ("member_id", "client_id", "host", "instance_id")}]
        records += [record, {**head, "type": RebalanceStarted.type, "cause": record["type"], "by": by}]
        records.append({**head, "generation": number + 1, "type": RebalanceOver.type, "members": 1})
    (told,) = explain(read(records))
    said = told.details[0] if storm else told.text
    assert "c (h) probably crashed again and again: it lived 2 s each time, 3 times within 22 s" in said
    assert told.text.startswith("Rebalance storm: 6 rebalances") is storm
    assert (told.remedy or "").startswith("Look why the process of c (h) ends")
    assert bool(told.details and told.details[0].startswith("It has caused what happened until ")) is not storm
    assert [each.generation for each in explain(read(records), generation=4)] == [3]


def test_what_belongs_to_a_crash_loop_is_not_told_again() -> None:
    """Each life is still a member when the next one joins, and is missed just before its session ends."""
    records: list[EventRecord] = []
    for life in range(5):
        at, number = 100_000 + 63_000 * life, life + 1
        end = at + 60_000
        gone: dict[str, Any] = {**OPEN, "connection": "closed", "closed_by": "client", "joined_ago_ms": 66_000}
        silent: dict[str, Any] = {"connection": "closed", "heard_ago_ms": 4_000, "session_ms": 6_000}
        *start, over = started(at, MemberJoined, number)
        removed = event(MemberExpired, end + 6_000, number, **gone, closed_ago_ms=6_000, heard_ago_ms=6_100)
        records += [
            event(MemberJoined, at, number),
            *start,
            {**over, "time": at + 4_000},
            event(MemberSlow, end + 4_000, number, **silent, closed_ago_ms=4_000),
            removed,
        ]
    records = sorted(records[:-2], key=lambda record: record["time"])
    first, told = explain(read(records))
    assert first.text.endswith(": c (h) joined.")
    assert told.text.startswith("Crash loop: c (h) probably crashed again and again: it lived 60 s each time, 4 times")
    assert not any("crashed again" in detail for detail in told.details)


def asks(*times: int, number: int = 1) -> list[EventRecord]:
    """The leader of a group asks for a new assignment at these times, in ms."""
    return [each for at in times for each in (event(LeaderRejoined, at, number), *started(at, LeaderRejoined, number))]


TOPIC_GREW = {
    "version": 1,
    "group": "g",
    "generation": 1,
    "type": "topic_changed",
    "topic": "t",
    "before": 2,
    "partitions": 4,
}


def test_a_leader_that_asks_again_and_again_though_no_topic_changes_calls_subscribe_in_its_loop() -> None:
    (told,) = explain(read(asks(*range(100_000, 110_000, 500))))
    assert told.text == ("Rebalance storm: 20 rebalances within 9.5 s: c (h) probably calls subscribe() in its loop.")
    assert told.details == [
        "All of them because c (h) probably calls subscribe() in its loop: it asked for a new assignment 20 times"
        " within 9.5 s, without a change of a topic."
    ]
    assert (told.remedy or "").startswith("Call subscribe() once, before the loop")


@pytest.mark.parametrize("reason", [None, "rebalance enforced by user"])
def test_a_leader_that_asks_a_few_times_or_gives_a_reason_is_no_loop(reason: str | None) -> None:
    records = asks(*range(100_000, 102_500 if reason is None else 110_000, 500))
    records = [{**each, "client_reason": reason} if each["type"] == LeaderRejoined.type else each for each in records]
    assert find(read(records)).of_departures == {}


def test_a_new_assignment_is_because_of_a_topic_only_if_one_has_changed() -> None:
    grew: EventRecord = {**TOPIC_GREW, "time": 50_000}
    *_, first, second = explain(read([grew, *started(60_000, MemberLeft, 7), *asks(100_000, 300_000)]))
    assert "when a topic is created or gets more partitions" in (first.remedy or "")
    assert second.text == "Generation 1: the leader c (h) asked for a new assignment."
    assert second.remedy is None


def test_a_leader_that_knew_no_topic_when_it_joined_asks_again_at_once() -> None:
    joined = [event(MemberJoined, 100_000), *started(100_000, MemberJoined, 1)]
    joined[-1] = {**joined[-1], "moves": []}
    *_, told = explain(read([*joined, *asks(100_106)]))
    assert told.text == (
        "Generation 1: the leader c (h) asked for a new assignment just after its first one: its client probably knew"
        " no topic before."
    )
    assert told.remedy is None


@pytest.mark.parametrize(("protocol", "is_normal"), [("cooperative-sticky", True), ("range", False), (None, False)])
def test_a_member_that_rejoins_is_normal_only_if_the_assignor_is_cooperative(
    protocol: str | None, is_normal: bool
) -> None:
    first, again = (started(at, kind, 1) for at, kind in ((1_000, MemberJoined), (8_000, MemberRejoined)))
    first[-1] |= {"protocol": protocol}
    told = explain(read([event(MemberJoined, 1_000), *first, event(MemberRejoined, 8_000), *again]))[-1]
    assert told.text == "Generation 1: c (h) rejoined with the same topics."
    normal = (
        "This is normal for cooperative rebalancing: a member that has revoked partitions rejoins, so that others get"
    )
    assert told.remedy == (f"{normal} them." if is_normal else None)


def late(*times: int, number: int = 1) -> list[EventRecord]:
    """Heartbeats of a member are late at these times, in ms."""
    seen = {"heard_ago_ms": 3_600, "session_ms": 6_000, "connection": "open"}
    return [event(MemberSlow, at, number, f"c{number}", **seen) for at in times]


def test_heartbeats_that_are_late_again_and_again_are_one_line() -> None:
    (told,) = explain(read(late(*range(100_000, 200_000, 5_900))))
    assert told.text == (
        f"c1 (h) was silent for 3.6 s 17 times until {clock(194_400)}, its session is 6 s: its heartbeat.interval.ms is"
        " probably near its session, or what sends its heartbeats is blocked again and again."
    )
    assert (told.remedy or "").startswith("Set heartbeat.interval.ms to a third of session.timeout.ms at most.")
    assert len(explain(read(late(100_000, 200_000)))) == 2


@pytest.mark.parametrize("back_ms", [None, 2_000, 20_000])
def test_a_member_whose_heartbeats_come_once_per_session_is_not_blocked(back_ms: int | None) -> None:
    again = [] if back_ms is None else [back(back_ms)]
    ends = [expired(), expired(fetched_ago_ms=100)]
    for end in ends:
        records = [*late(*range(70_000, 95_000, 5_900), number=2), end, *again]
        (told,) = {each.kind: each for each in find(read(records)).of_departures.values()}.values()
        blocked = back_ms == 20_000 and end is ends[0]
        assert told.kind == ("blocked" if blocked else "no_heartbeats")
        assert blocked or told.text.endswith(": its heartbeat.interval.ms is probably near its session")
    late_once = late(70_000, 75_900, 85_000, 89_000, 94_900, number=2)
    (told,) = find(read([*late_once, expired()])).of_departures.values()
    assert told.kind == "no_heartbeats"
    (few,) = find(read([*late(70_000, 90_000, number=2), expired(), *again])).of_departures.values()
    assert few.kind in ("silent", "blocked")


def test_the_wait_of_a_join_is_no_silence() -> None:
    records = [*late(*range(70_000, 95_000, 5_900), number=2), event(MemberJoined, 98_000, 3), expired(), back(20_000)]
    (told,) = find(read(records)).of_departures.values()
    assert told.kind == "no_heartbeats"


def test_a_topic_that_grew_is_the_cause_and_no_member_is_to_blame() -> None:
    member = {"member_id": "m1", "client_id": "c", "host": "/h", "instance_id": None}
    head = {"version": 1, "group": "g", "time": 100_000, "generation": 1}
    records = [
        {**head, "type": TopicChanged.type, "topic": "orders", "before": 2, "partitions": 4},
        event(LeaderRejoined, 100_000),
        {**head, "type": RebalanceStarted.type, "cause": LeaderRejoined.type, "by": [member]},
        {**head, "type": RebalanceOver.type, "generation": 2, "members": 1},
    ]
    (told,) = explain(read(records))
    expected = (
        "Generation 2: topic orders grew from 2 to 4 partitions, and the leader c (h) asked for a new assignment."
    )
    assert (told.text, told.remedy) == (expected, None)
    bumped = {**head, "type": EpochBumped.type, "generation": 2, "cause": TopicChanged.type}
    assert [each.text for each in explain(read([records[0], bumped]))] == [
        "Epoch 2: topic orders grew from 2 to 4 partitions."
    ]
    joined = {**bumped, "cause": MemberJoined.type}
    assert len(explain(read([records[0], joined]))) == 2


def test_a_topic_that_was_deleted_and_created_again_is_one_cause() -> None:
    head = {"version": 1, "group": "g", "time": 100_000, "generation": 1}
    records = [
        {**head, "type": TopicDeleted.type, "topic": "orders", "offsets": 2},
        {**head, "type": TopicChanged.type, "topic": "other", "before": 1, "partitions": 2},
        {**head, "time": 107_000, "type": TopicChanged.type, "topic": "orders", "before": 0, "partitions": 4},
        {**head, "time": 107_000, "type": EpochBumped.type, "generation": 2, "cause": TopicChanged.type},
    ]
    assert [each.text for each in explain(read(records))] == [
        "Epoch 2: topic orders was deleted, and 2 committed offsets of the group with it, topic other grew from 1 to 2"
        " partitions, topic orders was created again with 4 partitions, 7 s after it was deleted."
    ]


def test_a_guest_that_committed_is_no_restart() -> None:
    """Such as a console consumer with the group.id of a service."""

    def said(
        members: int = 2, *later: EventRecord, own: str = "c", other: str = "orders-1", **data: Any
    ) -> tuple[str, str | None]:
        stays = event(MemberJoined, 20_000, 9, other)
        joined = event(MemberJoined, 88_000, client=own)
        over = event(RebalanceOver, 88_100, members=members, assign_took_ms=1)
        gone = left(**{"joined_ago_ms": 12_000, "committed_ago_ms": 20, "client_id": own, **data})
        events = read([stays, joined, over, gone, {**closed(5), "client_id": own}, *later])
        finding = find(events).of_departures[id(events[3])]
        return finding.text, finding.remedy

    text, remedy = said()
    assert text == "c (h), a member for 12 s only, left and closed its connection: it was stopped"
    assert str(remedy).startswith("If it does not belong to the group (a console consumer, a test): give it a group.id")
    changes = [
        {"topic": "t", "partition": 0, "before": 180, "after": 239},
        {"topic": "t", "partition": 1, "before": 5, "after": 5},
    ]
    text, remedy = said(changes=changes)
    assert text == (
        "c (h), a member for 12 s only, committed t-0 forward from 180 to 239, and was stopped: other members do not"
        " get these records any more"
    )
    assert "stop the members, then `barnabas groups reset-offsets g -t t:0 --to-offset 180 --execute`." in str(remedy)
    changes[0]["before"] = None
    text, remedy = said(changes=changes)
    assert "committed t-0 to 239, where there was none, and was stopped" in text
    assert "(barnabas groups reset-offsets g)" in str(remedy)
    assert "do not get these records" not in said(changes=changes[1:])[0], "it has not moved"
    stopped = "c (h) left and closed its connection: it was stopped"
    assert said(1)[0] == stopped, "nobody else reads"
    assert said(committed_ago_ms=None)[0] == stopped
    assert said(joined_ago_ms=60_000)[0] == stopped
    assert "a member for 12 s only" not in said(2, event(MemberJoined, 160_000, 7))[0], "its program came back"
    assert "a member for 12 s only" not in said(own="orders-7d9f5-wcp8d", other="orders-7d9f5-mmqh4")[0]
    assert "a member for 12 s only" in said(own="console-consumer", other="consumer-orders-1")[0]


def test_programs_of_many_names_that_come_and_go_are_no_guests() -> None:
    records = [event(MemberJoined, 0, 99, "zeta"), event(RebalanceOver, 1, members=9, assign_took_ms=1)]
    for number, client in enumerate(("alpha", "beta", "gamma", "delta")):
        about = {"connection": "closed", "joined_ago_ms": 9_000, "committed_ago_ms": 20}
        records += [
            event(MemberJoined, 10_000 * number + 10, number, client),
            event(MemberLeft, 10_000 * number + 9_010, number, client, **about),
        ]
    events = read(records)
    found = find(events)
    assert {found.of_departures[id(each)].remedy for each in events if isinstance(each, MemberLeft)} == {None}
    fewer = read(records[:-2])
    found = find(fewer)
    assert all(found.of_departures[id(each)].remedy for each in fewer if isinstance(each, MemberLeft))
