"""The sentences about share groups: why their epochs grew, and what happened to their records."""

from typing import Any

import pytest

from barnabas_explain import words
from barnabas_explain.catalog import (
    EpochBumped,
    GroupEvent,
    ShareDeadLetters,
    ShareLocksExpired,
    ShareOffsetsAltered,
    SharePartitionsOpened,
    ShareRecordsArchived,
    ShareRecordsRejected,
    ShareRecordsReleased,
    ShareWindowBlocked,
    ShareWindowMoved,
)
from barnabas_explain.doctor import SEVERITIES, Diagnosis, Present, examine
from barnabas_explain.explain import explain
from barnabas_explain.records import EventRecord
from tests.explain.reading import read


def event(event_type: type[GroupEvent], *, at: int = 100_000, generation: int = 2, **data: Any) -> EventRecord:
    return {"version": 1, "group": "g", "time": at, "generation": generation, "type": event_type.type, **data}


@pytest.mark.parametrize(
    ("cause", "data", "text", "without"),
    [
        (
            SharePartitionsOpened,
            {"partitions": {"t": [0, 1]}},
            "the share state of t-0 to t-1 was created: members can get records from there",
            "the group has new share partitions",
        ),
        (
            ShareOffsetsAltered,
            {"partitions": {"t": [0]}},
            "a client altered the share offsets of t-0",
            "the group has other share offsets",
        ),
    ],
)
def test_causes_of_the_epoch_of_a_share_group(
    cause: type[GroupEvent], data: dict[str, Any], text: str, without: str
) -> None:
    trigger, bumped = event(cause, **data), event(EpochBumped, generation=3, cause=cause.type, by=[])
    (told,) = explain(read([trigger, bumped]))
    assert told.text == f"Epoch 3: {text}."
    (told,) = explain(read([bumped]))
    assert told.text == f"Epoch 3: {without}.", "its trigger was not read"
    (told,) = explain(read([trigger]))
    assert told.text == f"{words.capital(text)}.", "no epoch has followed"


OWNER = {"member_id": "m1", "client_id": "worker", "host": "/h", "instance_id": None}
ONE: dict[str, Any] = {"topic": "t", "partition": 0, "owner": OWNER, "records": 1, "first_offset": 7, "last_offset": 7}
SOME: dict[str, Any] = {**ONE, "records": 3, "first_offset": 1000, "last_offset": 1200}


@pytest.mark.parametrize(
    ("event_type", "data", "text", "remedy"),
    [
        (
            ShareLocksExpired,
            {**SOME, "deliveries": 2, "lock_ms": 30_000},
            "worker (h) did not acknowledge 3 records of t-0 (offsets 1,000 to 1,200) within the lock of 30 s;"
            " delivered up to twice so far.",
            "group.share.record.lock.duration.ms",
        ),
        (
            ShareLocksExpired,
            {**SOME, "deliveries": 2, "lock_ms": 30_000, "never_acknowledged": True},
            "worker (h) has not acknowledged a single record: the locks (30 s) of 3 records of t-0 (offsets 1,000 to"
            " 1,200) expired; delivered up to twice so far.",
            "does not acknowledge: with share.acknowledgement.mode=explicit",
        ),
        (
            ShareLocksExpired,
            {**ONE, "deliveries": 1, "lock_ms": 30_000, "never_acknowledged": True},
            "worker (h) has not acknowledged a single record: the lock (30 s) of the record at offset 7 of t-0 expired;"
            " delivered once so far.",
            "slower than its lock, or it hangs",
        ),
        (
            ShareRecordsReleased,
            {**ONE, "deliveries": 1},
            "worker (h) released the record at offset 7 of t-0; delivered once so far.",
            None,
        ),
        (
            ShareRecordsReleased,
            {**ONE, "deliveries": 4},
            "worker (h) released the record at offset 7 of t-0; delivered 4 times so far.",
            "group.share.delivery.count.limit",
        ),
        (
            ShareRecordsReleased,
            {**ONE, "records": 3, "deliveries": 3},
            "worker (h) released the record at offset 7 of t-0 3 times; delivered 3 times so far.",
            "group.share.delivery.count.limit",
        ),
        (
            ShareRecordsRejected,
            {**ONE, "owner": None},
            "A member rejected the record at offset 7 of t-0: not delivered any more; delivered once so far.",
            None,
        ),
        (
            ShareRecordsReleased,
            {**SOME, "records": 1_000, "deliveries": 1},
            "worker (h) released 201 records of t-0 (offsets 1,000 to 1,200); delivered once so far.",
            None,
        ),
        (
            ShareRecordsArchived,
            {**SOME, "deliveries": 5, "limit": 5},
            "3 records of t-0 (offsets 1,000 to 1,200) reached the limit of 5 deliveries: not delivered any more;"
            " worker (h) had them last.",
            "group.share.delivery.count.limit",
        ),
        (
            ShareRecordsArchived,
            {**ONE, "limit": 5},
            "The record at offset 7 of t-0 reached the limit of 5 deliveries: not delivered any more;"
            " worker (h) had it last.",
            "group.share.delivery.count.limit",
        ),
        (
            ShareDeadLetters,
            {**SOME, "letters": "dlq.t", "failed": 0},
            "3 records of t-0 (offsets 1,000 to 1,200) went to the dead letters in dlq.t.",
            None,
        ),
        (
            ShareDeadLetters,
            {**SOME, "records": 0, "letters": "dlq.t", "failed": 3, "error": "POLICY_VIOLATION"},
            "3 records of t-0 should have become dead letters in dlq.t, and did not: POLICY_VIOLATION.",
            "errors.deadletterqueue.group.enable",
        ),
        (
            ShareWindowBlocked,
            {**ONE, "records": 2000, "deliveries": 3, "waited_ms": 12_000},
            "The window of t-0 is full (2,000 records): for 12 s its start has waited for the record at offset 7, which"
            " is with worker (h); delivered 3 times so far.",
            "group.share.partition.max.record.locks",
        ),
        (
            ShareWindowBlocked,
            {**ONE, "owner": None, "records": 2000, "deliveries": 1, "waited_ms": 12_000},
            "The window of t-0 is full (2,000 records): for 12 s its start has waited for the record at offset 7, which"
            " waits to be delivered again; delivered once so far.",
            "group.share.partition.max.record.locks",
        ),
        (
            ShareWindowMoved,
            {**ONE, "owner": None, "deliveries": 3, "waited_ms": 12_000},
            "The window of t-0 moves on: the record at offset 7 held it back for 12 s.",
            None,
        ),
    ],
)
def test_what_happened_to_records(
    event_type: type[GroupEvent], data: dict[str, Any], text: str, remedy: str | None
) -> None:
    given = {name: value for name, value in data.items() if value is not None}
    (told,) = explain(read([event(event_type, **given)]))
    assert told.text == text
    assert (told.remedy is None) if remedy is None else (remedy in (told.remedy or ""))


def test_what_happens_to_records_again_soon_is_told_once() -> None:
    released = {**ONE, "deliveries": 2}
    later = {**SOME, "deliveries": 3}
    events = [
        event(ShareRecordsReleased, **released),
        event(ShareRecordsReleased, at=110_000, **{**released, "owner": {**OWNER, "client_id": "other"}}),
        event(ShareRecordsReleased, at=150_000, **later),
        event(ShareRecordsReleased, at=900_000, **later),
    ]
    first, other, again = explain(read(events))
    assert first.text == "worker (h) released 4 records of t-0 (offsets 7 to 1,200); delivered up to 3 times so far."
    assert first.details == [f"This was recorded twice until {words.clock(150_000)}."]
    assert other.text.startswith("other (h) released the record at offset 7")
    assert again.text.startswith("worker (h) released 3 records") and not again.details
    assert [each.text for each in explain(read(events), since=120_000)] == [
        "worker (h) released 3 records of t-0 (offsets 1,000 to 1,200); delivered up to 3 times so far.",
        again.text,
    ]


def test_a_window_that_stays_blocked_is_told_once_with_its_newest_duration() -> None:
    blocked = {**ONE, "records": 2000, "deliveries": 3}
    events = [event(ShareWindowBlocked, at=at, **blocked, waited_ms=at) for at in (5_000, 10_000, 20_000)]
    events.append(event(ShareWindowBlocked, at=30_000, **{**blocked, "first_offset": 8}, waited_ms=5_000))
    first, second = explain(read(events))
    assert "for 20 s its start has waited for the record at offset 7" in first.text
    assert "for 5 s its start has waited for the record at offset 8" in second.text


def diagnosed(*records: EventRecord) -> list[Diagnosis]:
    return examine(Present("g", ""), read(list(records)), 400_000, 0)


EXPIRED: dict[str, Any] = {**SOME, "deliveries": 2, "lock_ms": 30_000}
FULL: dict[str, Any] = {**ONE, "records": 2_000, "waited_ms": 60_000}


@pytest.mark.parametrize(
    ("event_type", "data", "severity"),
    [
        (ShareLocksExpired, EXPIRED, "odd"),
        (ShareLocksExpired, {**EXPIRED, "never_acknowledged": True}, "sick"),
        (ShareRecordsReleased, {**ONE, "deliveries": 4}, "odd"),
        (ShareRecordsArchived, {**ONE, "limit": 5}, "sick"),
        (ShareDeadLetters, {**ONE, "letters": "dlq", "failed": 1, "error": "POLICY_VIOLATION"}, "sick"),
        (ShareWindowBlocked, FULL, "broken"),
    ],
)
def test_the_doctor_says_what_explains_records_that_come_back(
    event_type: type[GroupEvent], data: dict[str, Any], severity: str
) -> None:
    (found,) = diagnosed(event(event_type, **data))
    (said,) = explain(read([event(event_type, **data)]))
    assert (found.text, found.remedy) == (said.text, said.remedy)
    assert (found.kind, SEVERITIES[found.severity], found.sure) == (event_type.type, severity, "certain")
    assert found.evidence == (f"The last time was {words.moment(100_000)}.",)


def test_records_that_come_back_for_long_are_one_finding() -> None:
    (found,) = diagnosed(*(event(ShareLocksExpired, at=at, **EXPIRED) for at in range(100_000, 400_000, 100_000)))
    assert found.time == 300_000


@pytest.mark.parametrize(
    "records",
    [
        [event(ShareLocksExpired, **{**EXPIRED, "deliveries": 1})],
        [event(ShareRecordsReleased, **ONE, deliveries=1)],
        [event(ShareRecordsRejected, **ONE)],
        [event(ShareWindowBlocked, **FULL), event(ShareWindowMoved, at=200_000, **FULL)],
    ],
    ids=["a restart", "a retry", "a record that was rejected", "a window that moved on"],
)
def test_share_groups_that_are_well(records: list[EventRecord]) -> None:
    assert diagnosed(*records) == []
