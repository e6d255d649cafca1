"""What happens to records becomes group events: together, and bounded."""

from barnabas_broker.groups.share.partition import Part, Reason, Returned, State, Undeliverable
from barnabas_broker.share_partitions.incidents import MOST, MOST_OF_GROUP, TOGETHER, Incidents, Letters, Place
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.members import Member

PLACE = Place("g", "t", bytes(16), 0)


def incidents() -> Incidents:
    return Incidents(
        lambda group, member: Member(member, f"client of {group}"), lambda group, member: member == "never"
    )


def values(event: GroupEvent) -> dict[str, object]:
    """The fields of an event that its type or its place do not say."""
    head = ("generation", "topic", "partition", "owner", "group", "time")
    return {name: value for name, value in event.values().items() if name not in head}


def test_what_happens_again_is_one_event_with_the_number_of_records() -> None:
    found = incidents()
    for offset in (7, 3, 9):
        found.released(PLACE, [Returned("ann", offset, offset, offset)])
    found.released(PLACE, [Returned("bob", 20, 29, 1)])
    ann, bob = [event for _, event in found.take(0.0)]
    assert (ann.type, ann.values()["owner"]) == ("share_records_released", Member("ann", "client of g"))
    assert values(ann) == {"records": 3, "first_offset": 3, "last_offset": 9, "deliveries": 9}
    assert values(bob) == {"records": 10, "first_offset": 20, "last_offset": 29, "deliveries": 1}


def test_events_come_at_once_after_a_quiet_time_and_then_together() -> None:
    found = incidents()
    assert found.take(100.0) == []
    found.released(PLACE, [Returned("ann", 0, 0, 1)])
    assert len(found.take(101.0)) == 1
    found.released(PLACE, [Returned("ann", 1, 1, 1)])
    assert found.take(101.0 + TOGETHER - 0.1) == []
    found.released(PLACE, [Returned("ann", 2, 2, 1)])
    ((group, event),) = found.take(101.0 + TOGETHER)
    assert (group, values(event)["records"]) == ("g", 2)
    found.released(PLACE, [Returned("ann", 3, 3, 1)])
    assert len(found.take(101.0 + 3 * TOGETHER)) == 1


def test_the_type_of_each_event() -> None:
    found = incidents()
    found.expired(PLACE, [Returned("ann", 0, 4, 2)], 30.0)
    gone = [
        Undeliverable(5, 5, 1, Reason.REJECTED, "ann"),
        Undeliverable(6, 9, 5, Reason.DELIVERY_LIMIT, "ann"),
    ]
    found.undeliverable(PLACE, gone, 5)
    found.dead_letters(PLACE, gone, Letters("dlq", 5, 0, None))
    found.dead_letters(PLACE, gone, Letters("dlq", 1, 4, "TIMED_OUT"))
    found.dead_letters(PLACE, gone, Letters("dlq", 2, 3, "TIMED_OUT"))
    found.blocked(PLACE, Part(10, 19, State.ACQUIRED, 3, "ann", 12.0), 200, 5.0)
    found.blocked(PLACE, Part(11, 19, State.ACQUIRED, 4, "ann", 12.0), 190, 10.0)
    of = {"first_offset": 5, "last_offset": 9, "deliveries": 5, "letters": "dlq"}
    assert [(event.type, values(event)) for _, event in found.take(0.0)] == [
        (
            "share_locks_expired",
            {"records": 5, "first_offset": 0, "last_offset": 4, "deliveries": 2, "lock_ms": 30_000.0},
        ),
        ("share_records_rejected", {"records": 1, "first_offset": 5, "last_offset": 5, "deliveries": 1}),
        ("share_records_archived", {"records": 4, "first_offset": 6, "last_offset": 9, "deliveries": 5, "limit": 5}),
        ("share_dead_letters", {**of, "records": 5, "failed": 0}),
        ("share_dead_letters", {**of, "records": 3, "failed": 7, "error": "TIMED_OUT"}),
        (
            "share_window_blocked",
            {"records": 190, "first_offset": 11, "last_offset": 11, "deliveries": 4, "waited_ms": 10_000.0},
        ),
    ]


def test_the_locks_of_a_member_that_has_acknowledged_nothing() -> None:
    found = incidents()
    found.expired(PLACE, [Returned("ann", 0, 4, 2), Returned("never", 5, 9, 1)], 30.0)
    assert [values(event).get("never_acknowledged") for _, event in found.take(0.0)] == [None, True]


def test_incidents_are_bounded() -> None:
    found = incidents()
    for number in range(MOST_OF_GROUP + 10):
        found.released(PLACE, [Returned(f"member {number}", 0, 0, 1)])
    assert (len(found), found.dropped) == (MOST_OF_GROUP, 10)
    found.released(PLACE, [Returned("member 0", 5, 5, 1)])
    assert found.dropped == 10, "one of those that are counted"
    for number in range(MOST):
        found.released(Place(f"group {number}", "t", bytes(16), 0), [Returned("ann", 0, 0, 1)])
    assert len(found) == MOST
    assert len(found.take(0.0)) == MOST and len(found) == 0
    found.released(PLACE, [Returned("another", 0, 0, 1)])
    assert len(found) == 1
