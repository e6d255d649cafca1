"""Group events: records, rebalance storms, and explanations."""

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.groups.classic.members import ClassicGroupMember
from barnabas_broker.groups.effects import Caller
from barnabas_explain import members as members_module
from barnabas_explain.catalog import EVENTS, GroupEmpty, OffsetsExpired, RebalanceStarted, SubscriptionChanged
from barnabas_explain.explain import explain
from barnabas_explain.members import Member
from barnabas_explain.records import decode_event, encode_event, record_of
from barnabas_explain.storms import STORM_REBALANCES, StormDetector
from barnabas_protocol.subscriptions import read_assignment
from tests.broker.groups.machine import Machine
from tests.broker.groups.support import Service, assignment, turn
from tests.explain.reading import read


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


async def rebalanced(service: Service, ids: list[str], generation: int, assignments: dict[str, bytes]) -> None:
    """All of `ids` rejoin and sync."""
    joins = [service.join(member_id, topics=("t",)) for member_id in ids]
    answers = [await service.ask(each, 9) for each in joins]
    assert {answer.generation_id for answer in answers} == {generation}
    leader = answers[0].leader
    syncs = [service.sync(each, generation, assignments if each == leader else None) for each in ids]
    for each in syncs:
        await service.ask(each, 5)


async def test_every_step_of_a_group_is_an_event_in_its_partition() -> None:
    service = await Service().loaded()
    member_id = await service.member()
    service.leave(member_id, reason="the consumer is being closed")
    await turn()
    events = service.events.of("g")
    assert types(events) == [
        "member_joined",
        "rebalance_started",
        "join_phase_over",
        "rebalance_over",
        "member_left",
        "rebalance_started",
        "group_empty",
    ]
    assert {event["version"] for event in events} == {1}
    assert {event["group"] for event in events} == {"g"}
    assert {partition for partition, _ in service.events.written} == {service.groups.partition_for("g")}
    assert events[1]["cause"] == "member_joined"
    assert events[1]["by"] == [
        {"member_id": member_id, "client_id": "client", "host": "/127.0.0.1", "instance_id": None}
    ]
    assert events[3]["moves"] == [
        {
            "member_id": member_id,
            "client_id": "client",
            "host": "/127.0.0.1",
            "instance_id": None,
            "gained": {"t": [0]},
            "lost": {},
        }
    ]
    assert events[3]["join_took_ms"] == 3000
    assert events[4]["client_reason"] == "the consumer is being closed"


async def test_explanations_with_details_and_remedies() -> None:
    service = await Service().loaded()
    answers = [service.join(caller=Caller(name, "/10.0.0.7")) for name in ("worker-1", "worker-2")]
    ids = [answer.member_id for answer in answers]
    joins = [
        service.join(each, caller=Caller(name, "/10.0.0.7"))
        for each, name in zip(ids, ("worker-1", "worker-2"), strict=True)
    ]
    await service.after(6.25)
    first = await service.ask(joins[0], 9)
    assignments = {ids[0]: assignment(t=[0, 1]), ids[1]: assignment(t=[2, 3])}
    syncs = [service.sync(ids[0], 1, assignments), service.sync(ids[1], 1)]
    for each in syncs:
        await service.ask(each, 5)
    assert first.generation_id == 1
    for _ in range(4):
        await service.after(2.6)
        service.heartbeat(ids[0], 1)
    assert service.describe().group_state == "PreparingRebalance"
    await rebalanced(service, ids[:1], 2, {ids[0]: assignment(t=[0, 1, 2, 3])})
    await turn()
    explanations = explain(service.events.events_of("g"))
    assert explanations[0].text == "Generation 1: worker-1 (10.0.0.7) joined."
    assert explanations[0].details[0] == "worker-2 (10.0.0.7) joined too."
    assert "worker-1 (10.0.0.7) gained t-0 to t-1." in explanations[0].details
    slow = explanations[1]
    assert slow.text.startswith("worker-2 (10.0.0.7) was silent for 6")
    assert slow.remedy is not None
    lost = explanations[2]
    assert lost.text == "Generation 2: worker-2 (10.0.0.7) was last heard of 10.1 s ago, its session is 10 s."
    assert lost.remedy is not None
    assert "session.timeout.ms" in lost.remedy
    assert "worker-2 (10.0.0.7) lost t-2 to t-3." in lost.details
    assert json.dumps([each.as_data() for each in explanations])
    assert [each.generation for each in explain(service.events.events_of("g"), generation=2)] == [1, 1]
    assert explain(service.events.events_of("g"), since=service.wall + 1) == []


def test_the_event_of_a_changed_subscription_lists_the_topics() -> None:
    machine = Machine()
    old, new = (b"\x00\x00\x00\x00\x00\x01\x00\x01" + topic + b"\xff\xff\xff\xff" for topic in (b"a", b"b"))
    machine.stable("m", protocols=(("range", old),))
    machine.join("m", next(iter(machine.group.members.by_id)), protocols=(("range", new),))
    (event,) = [event for event in machine.events if isinstance(event, SubscriptionChanged)]
    record = record_of(event)
    assert (record["added"], record["removed"]) == (["b"], ["a"])


async def test_a_storm_is_one_explanation() -> None:
    service = await Service(group_initial_rebalance_delay_ms="0").loaded()
    member_id = (await service.ask(service.join(version=3, caller=Caller("steady", "/h")), 3)).member_id
    generation = 1
    await service.ask(service.sync(member_id, generation, {member_id: assignment(t=[0])}), 5)
    for _ in range(10):
        flapping = service.join(version=3, caller=Caller("flapping", "/h"))
        generation += 1
        await service.after(0.5)
        joined = service.join(member_id)
        await service.ask(joined, 9)
        flapper = (await service.ask(flapping, 3)).member_id
        service.leave(flapper)
        generation += 1
        await service.ask(service.join(member_id), 9)
        await service.after(0.5)
    events = service.events.of("g")
    storms = [event for event in events if event["type"] == "rebalance_storm"]
    assert len(storms) == 1
    assert storms[0]["culprit"] == "flapping (h)"
    explanations = explain(read(events))
    assert len(explanations) <= 3
    (storm,) = [each for each in explanations if each.text.startswith("Rebalance storm")]
    assert "flapping (h)" in storm.text
    assert storm.remedy is not None
    assert service.groups.journal.metrics.rebalances["member_joined"] >= 10
    assert len(service.groups.journal.recent("g")) == 32


async def test_recent_events_include_those_that_are_not_written_yet() -> None:
    service = await Service().loaded()
    journal, written = service.groups.journal, len(service.events.written)
    journal.add(OffsetsExpired(group="g", generation=0, offsets=0))
    await turn()
    for offsets in range(1, 41):
        for group in ("g", "other"):
            journal.add(OffsetsExpired(group=group, generation=0, offsets=offsets))
    before = len(service.events.written)
    assert before == written + 1
    assert [record_of(event)["offsets"] for event in journal.recent("g")] == list(range(9, 41))
    assert len(service.events.written) == before
    await turn()
    assert len(service.events.written) == before + 80
    assert [record_of(event)["offsets"] for event in journal.recent("g")] == list(range(9, 41))


def test_a_storm_is_over_when_the_group_is_calm() -> None:
    watch = StormDetector()
    by = (Member(client_id="c", host="/h"),)
    start = RebalanceStarted(group="g", generation=1, cause="member_joined", by=by)
    assert all(watch.add(start, float(at)) is None for at in range(STORM_REBALANCES - 1))
    assert not watch.is_storm("g")
    assert watch.add(start, 10.0) is not None
    assert watch.is_storm("g")
    assert watch.add(start, 11.0) is None
    assert watch.add(start, 500.0) is None
    assert not watch.is_storm("g")


def test_an_event_is_encoded_as_json_and_other_values_are_not_events() -> None:
    event = GroupEmpty(group="gruppe ä", generation=3, time=17)
    assert decode_event(encode_event(event)) == event
    for broken in (b"", b"[]", b"{}", b'{"version":2}', b'{"version":1,"time":"x"}', b"\xff"):
        assert decode_event(broken) is None


def test_records_of_each_type_are_read_and_written_with_the_same_fields() -> None:
    """The records are those of the brokers before events had classes."""
    lines = (Path(__file__).parent / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert {record["type"] for record in records} == {each.type for each in EVENTS.values() if each.recorded}
    for record in records:
        (event,) = read([record])
        assert json.loads(encode_event(event)) == record


def test_an_event_that_is_too_large_is_shortened() -> None:
    event = OffsetsExpired(group="g", generation=3, time=17, offsets=1, keys=(("t" * 300_000, 0),))
    short = decode_event(encode_event(event))
    assert isinstance(short, OffsetsExpired)
    assert short.shortened
    assert short.offsets == 1
    assert short.keys is None


@pytest.mark.parametrize(("changed", "read"), [(0, 0), (150, 300), (3_000, 400)])
def test_of_thousands_of_assignments_only_those_are_read_that_an_event_lists(
    monkeypatch: pytest.MonkeyPatch, changed: int, read: int
) -> None:
    members = [ClassicGroupMember(f"m{n}", None, "c", "/h", 1.0, 1.0, (), 0.0) for n in range(3_000)]
    before = [(member, assignment(t=[number])) for number, member in enumerate(members)]
    after = [(member, assignment(t=[number, 9_999])) for number, member in enumerate(members[:changed])]
    count = 0

    def counted(data: bytes) -> dict[str, list[int]] | None:
        nonlocal count
        count += 1
        return read_assignment(data)

    monkeypatch.setattr(members_module, "read_assignment", counted)
    moves = members_module.moves_between(before, [*after, *before[changed:]])
    assert count == read
    assert len(moves) == min(changed, members_module.MOST_MEMBERS)
    assert all((move.gained, move.lost) == ({"t": [9_999]}, {}) for move in moves)


async def test_events_that_cannot_be_written_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    service = await Service().loaded()

    def fail(partition: int, batch: bytearray) -> None:
        raise OSError("disk")

    monkeypatch.setattr(service.events, "append", fail)
    await service.member()
    assert service.groups.journal.metrics.dropped > 0
    assert service.groups.journal.recent("g")[-1].type == "rebalance_over"
