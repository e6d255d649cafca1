"""The time axis of a group: lanes, bands and gaps."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_explain.catalog import NOT_RECORDED
from barnabas_explain.rebuild.history import RebuiltMember
from barnabas_explain.timeline import Timeline, timeline
from tests.explain.offsets_log import NOON, OffsetsLog, member
from tests.explain.reading import read
from tests.explain.rebuild.test_rebuild_properties import Consumers


def lanes(made: Timeline) -> list[tuple[str, int | None, int | None, str | None]]:
    def after_noon(time: int | None) -> int | None:
        return None if time is None else time - NOON

    return [(lane.member_id, after_noon(lane.start), after_noon(lane.end), lane.end_type) for lane in made.lanes]


def test_a_classic_group() -> None:
    log = OffsetsLog()
    log.generation(10, 1, member("a", 0, 1), joined=0)
    log.generation(1_010, 2, member("a", 0), member("b", 1, instance="s"), joined=1_000)
    log.generation(2_010, 2, member("a", 0), member("c", 1, instance="s"))
    log.generation(9_010, 3, member("c", 0, 1, instance="s"), joined=9_000)
    log.raw(None, None, 9_020)
    made = timeline(log.events)
    assert lanes(made) == [
        ("a", 0, 9_000, "member_gone"),
        ("b", 1_000, 2_010, "static_member_replaced"),
        ("c", 2_010, None, None),
    ]
    spans = [
        [(span.start - NOON, span.end and span.end - NOON, span.partitions) for span in one.spans] for one in made.lanes
    ]
    assert spans[0] == [(10, 1_010, {"t": [0, 1]}), (1_010, 9_000, {"t": [0]})]
    assert [(each.generation, each.start - NOON, each.assigned and each.assigned - NOON) for each in made.bands] == [
        (1, 0, 10),
        (2, 1_000, 1_010),
        (3, 9_000, 9_010),
    ]
    assert [(each.cause, each.by, each.inferred) for each in made.bands[1:]] == [
        ("member_joined", ["s"], True),
        ("member_gone", ["client-a (10.0.0.7)"], True),
    ]
    assert [each["gap"] for each in made.gaps] == ["unreadable"]
    json.dumps(made.as_data())


def test_a_cause_that_is_not_recorded() -> None:
    log = OffsetsLog()
    log.generation(0, 1, member("a", 0))
    log.generation(1_000, 2, member("b", 0))
    assert timeline(log.events).bands[-1].cause == NOT_RECORDED


def test_looks_at_a_group() -> None:
    log = OffsetsLog()
    events = log.rebuilder.observe(NOON, "Empty", [])
    seen = RebuiltMember("a", None, "a", "/h", partitions=frozenset({("t", 0)}))
    events += log.rebuilder.observe(NOON + 1_000, "Stable", [seen])
    assert lanes(timeline(events)) == [("a", 1_000, None, None)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(("join", "leave", "settle", "wait")), max_size=15))
def test_the_rebuilt_lanes_of_epochs_are_those_of_the_recorded_events(steps: list[str]) -> None:
    run = Consumers()
    machine, names = run.machine, iter(range(100))
    for step in steps:
        members = sorted(machine.group.members)
        if step == "join" and len(members) < 3:
            run.step(lambda: machine.join(f"m{next(names)}"))
        elif step == "leave" and members:
            run.step(lambda members=members: machine.send(members[0], -1))  # type: ignore[misc]
        elif step == "settle":
            run.step(machine.settle)
        else:
            run.step(lambda: machine.after(5))
    rebuilt, recorded = timeline(run.log.events), timeline(read(run.real))
    assert [each[:3] for each in lanes(rebuilt)] == [each[:3] for each in lanes(recorded)]
    assert [(each.generation, each.start, each.assigned) for each in rebuilt.bands] == [
        (each.generation, each.start, each.assigned) for each in recorded.bands
    ]
