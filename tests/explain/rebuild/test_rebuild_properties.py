"""Rebuilt events beside the events of the coordinator's own machines, and with records that no broker should write."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.effects import Persist
from barnabas_explain.catalog import NOT_RECORDED, HistoryGap, RebalanceStarted
from barnabas_explain.explain import explain
from barnabas_explain.members import by_topic
from barnabas_explain.rebuild.history import MOST_GAPS
from barnabas_explain.records import decode_event, encode_event, record_of
from barnabas_protocol.coordinator_records import GroupMetadataKey
from barnabas_protocol.group_records import group_key, group_record, group_value, offset_key_head
from tests.broker.groups import machine as classic
from tests.broker.groups.consumer import machine as consumer
from tests.broker.groups.support import assignment, subscription
from tests.explain.offsets_log import NOON, OffsetsLog, Record, member

#: What a coordinator knows about a member that is gone, and the records do not.
GONE = ("member_left", "member_expired", "member_not_rejoined", "member_not_synced", "member_not_revoked")


class Consumers:
    """A group of the consumer protocol whose records are rebuilt while it runs."""

    def __init__(self) -> None:
        self.machine = consumer.Machine(topics=consumer.catalog(t=4, u=2))
        self.start = self.machine.now
        self.log = OffsetsLog(topic_names={consumer.T: "t", consumer.U: "u"})
        self.written = self.told = 0
        self.real: list[dict[str, Any]] = []

    def step(self, act: Callable[[], Any]) -> None:
        """Do something, and read what was written."""
        act()
        at = round((self.machine.now - self.start) * 1000)
        for record in self.machine.records[self.written :]:
            self.log.coordinator_record(record, at)
        self.written = len(self.machine.records)
        for event in self.machine.events[self.told :]:
            self.real.append(json.loads(encode_event(event.changed(group="g", time=NOON + at))))
        self.told = len(self.machine.events)

    def of(self, *event_types: str) -> list[dict[str, Any]]:
        return [event for event in self.real if event["type"] in event_types]


NAMES = ("a", "b", "c")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("join", "join u", "leave", "beat", "settle", "wait", "long wait")), st.sampled_from(NAMES)
    ),
    max_size=25,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_epochs_are_rebuilt_as_the_coordinator_had_them(steps: list[tuple[str, str]]) -> None:
    run = Consumers()
    machine = run.machine
    incarnations = dict.fromkeys(NAMES, 0)

    def member_id(name: str) -> str:
        return f"{name}{incarnations[name]}"

    def act(what: str, name: str) -> None:
        known = member_id(name) in machine.group.members
        if what == "join" and not known:
            incarnations[name] += 1
            machine.join(member_id(name), rebalance_timeout_ms=20_000)
        elif what == "join u" and known:
            machine.beat(member_id(name), subscribed_topic_names=["t", "u"])
        elif what == "leave" and known:
            machine.send(member_id(name), -1)
        elif what == "beat" and known:
            machine.beat(member_id(name))
        elif what == "settle":
            machine.settle(6)
        elif what == "wait":
            machine.after(3)
        elif what == "long wait":
            machine.after(40)

    for what, name in steps:
        run.step(lambda what=what, name=name: act(what, name))  # type: ignore[misc]
    run.log.finish()
    log = run.log
    # The same members, with the same partitions.
    rebuilt = {each.member_id: by_topic(each.partitions) for each in log.rebuilder.members}
    names = {consumer.T: "t", consumer.U: "u"}
    assert rebuilt == {
        each: {names[topic]: sorted(partitions) for topic, partitions in one.assigned.items() if partitions}
        for each, one in machine.group.members.items()
    }
    # The same epochs, each with the cause that it had, or none.
    bumps = [(event["generation"], event["cause"]) for event in log.of("group_epoch_bumped")]
    real = [
        (event["generation"], "member_gone" if event["cause"] in GONE else event["cause"])
        for event in run.of("group_epoch_bumped")
    ]
    assert [epoch for epoch, _ in bumps] == [epoch for epoch, _ in real]
    assert all(cause in (known, NOT_RECORDED) for (_, cause), (_, known) in zip(bumps, real, strict=True))
    # Who joined, who is gone, who changed its subscription, who revoked what.
    for told, known in (("member_joined", ("member_joined",)), ("member_gone", GONE)):
        assert [one["member_id"] for one in log.of(told)] == [one["member_id"] for one in run.of(*known)]
    for gone, known_gone in zip(log.of("member_gone"), run.of(*GONE), strict=True):
        assert known_gone["type"].removeprefix("member_") in gone["possible"]
    for told in ("subscription_changed", "member_revoked", "member_revoking"):
        shown = ("member_id", "partitions", "added", "removed")
        assert [[one.get(name) for name in shown] for one in log.of(told)] == [
            [one.get(name) for name in shown] for one in run.of(told)
        ]
    # The same targets: what moves in the eyes of the members that stay.
    assert [(one["generation"], _moves(one)) for one in log.of("target_assigned")] == [
        (one["generation"], _moves(one)) for one in run.of("target_assigned")
    ]
    assert log.of("history_gap") == []
    json.dumps([one.as_data() for one in explain(log.events)])


def _moves(event: dict[str, Any]) -> dict[str, Any]:
    return {each["member_id"]: (each["gained"], each["lost"]) for each in event["moves"]}


CLASSIC_STEPS = st.lists(
    st.tuples(st.sampled_from(("enter", "leave", "rejoin", "wait", "expire")), st.integers(0, 3)), max_size=12
)


@settings(max_examples=80, deadline=None)
@given(CLASSIC_STEPS)
def test_generations_are_rebuilt_as_the_coordinator_had_them(steps: list[tuple[str, int]]) -> None:
    machine = classic.Machine(initial_delay=0.0, hold=True)
    log = OffsetsLog()
    start = machine.now
    known: list[str] = []
    completed: list[tuple[int, dict[str, list[int]]]] = []

    def written() -> None:
        while machine.persists:
            persist: Persist = machine.persists[0]
            at = round((machine.now - start) * 1000) + 1
            value = classic.value_of(persist)
            since = machine.now if persist.state_since is None else persist.state_since
            value.current_state_timestamp = NOON + round((since - start) * 1000)
            key, encoded = group_record((GroupMetadataKey(group="g"), None))[0], group_value(value)
            log.raw(key, encoded, at)
            if value.generation:  # a new group is recorded before it has a generation
                completed.append(
                    (value.generation, {one.member_id: _assigned(one.assignment) for one in value.members})
                )
            machine.persisted()

    def finish() -> None:
        """All members rejoin, and get the partitions in turn."""
        for _ in range(10):
            if machine.state in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY):
                break
            for each in list(machine.group.members):
                machine.join(f"join {each.member_id}", each.member_id, protocols=PROTOCOLS)
            machine.after(1.0)
            written()
            if machine.state is ClassicGroupState.COMPLETING_REBALANCE:
                members = [each.member_id for each in machine.group.members]
                shares = {each: assignment(t=range(4)[at :: len(members)]) for at, each in enumerate(members)}
                for name in members:
                    leads = name == machine.group.members.leader
                    machine.sync(f"sync {name}", name, assignments=shares if leads else None)
                written()
        written()

    for what, number in steps:
        members = [each.member_id for each in machine.group.members]
        if what == "enter" and len(members) < 4:
            known.append(machine.enter(f"new {len(known)}", protocols=PROTOCOLS))
        elif what == "leave" and members:
            machine.leave(members[number % len(members)])
        elif what == "rejoin" and members:
            machine.join("again", members[number % len(members)], protocols=PROTOCOLS)
        elif what == "wait":
            machine.after(2.0)
        elif what == "expire" and members:
            alive = members[1:]
            for _ in range(6):
                machine.after(2.0)
                for each in alive:
                    machine.heartbeat(each)
        finish()
    told = [record_of(event) for event in log.events if event.type in ("rebalance_over", "group_empty")]
    assert [(event["generation"], event.get("members", 0)) for event in told] == [
        (number, len(members)) for number, members in completed
    ]
    # Members and partitions are those of the coordinator at each step, by replaying the moves.
    has: dict[str, set[int]] = {}
    for event, (_, assigned) in zip(told, completed, strict=True):
        for move in event.get("moves", ()):
            owned = has.setdefault(move["member_id"], set())
            owned -= set(move["lost"].get("t", ()))
            owned |= set(move["gained"].get("t", ()))
        if event["type"] == "group_empty":
            has.clear()
        assert {each: sorted(owned) for each, owned in has.items() if owned} == {
            each: sorted(owned) for each, owned in assigned.items() if owned
        }
    real = [record_of(event.changed(group="g")) for event in machine.events]
    gone = {event["member_id"]: event["type"].removeprefix("member_") for event in real if event["type"] in GONE}
    for event in log.of("member_gone"):
        assert gone[event["member_id"]] in (*event["possible"], "not_synced")
    # A cause is that of the coordinator, or it is left open.
    causes = {event["generation"]: event["cause"] for event in real if event["type"] == RebalanceStarted.type}
    for event in log.of("rebalance_started"):
        cause = causes[event["generation"]]
        cause = "member_gone" if cause in GONE else cause
        assert event["cause"] in (cause, NOT_RECORDED)
    json.dumps([one.as_data() for one in explain(log.events)])


PROTOCOLS = (("range", subscription("t")),)


def _assigned(data: Any) -> list[int]:
    read = bytes(data)
    count = int.from_bytes(read[9:13], "big") if len(read) > 13 else 0
    return [int.from_bytes(read[13 + 4 * each : 17 + 4 * each], "big") for each in range(count)]


# Records that no coordinator writes

VALID = [
    (group_key("g"), b"\x00\x03" + bytes(40)),
    (offset_key_head("g", "t") + bytes(4), b"\x00\x03" + bytes(22)),
    *((bytes((0, kind)) + group_key("g")[2:] + b"\x00\x01m", bytes(30)) for kind in range(24)),
]
RECORDS = st.lists(
    st.one_of(
        st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=60)),
        st.tuples(
            st.integers(0, 24).map(lambda kind: bytes((0, kind)) + group_key("g")[2:]),
            st.none() | st.binary(max_size=60),
        ),
        st.sampled_from(VALID),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@example([VALID[0]], [10**14 + 1])  # A time that no reader of events accepts.
@given(RECORDS, st.lists(st.integers(-(2**63), 2**63 - 1) | st.just(NOON), min_size=1, max_size=8))
def test_foreign_records_never_stop_it(records: list[tuple[bytes | None, bytes | None]], times: list[int]) -> None:
    log = OffsetsLog()
    for at, (key, value) in enumerate(records):
        log.raw(key, value, times[at % len(times)], absolute=True)
    log.finish()
    for event in log.events:
        assert decode_event(encode_event(event)) is not None
    for one in explain(log.events):
        json.dumps(one.as_data())


@pytest.fixture(scope="module")
def story() -> list[Record]:
    """The records of a classic group and of a group of the consumer protocol, with commits."""
    log = OffsetsLog()
    written: list[Record] = []
    raw = log.rebuilder.add

    def keep(records: Any) -> Any:
        written.extend(records)
        return raw(records)

    log.rebuilder.add = keep  # type: ignore[method-assign]
    log.generation(0, 1, member("a", 0, 1))
    log.commit(1_000, 0)
    log.generation(5_000, 2, member("a", 0), member("b", 1, instance="b"))
    log.generation(6_000, 2, member("a", 0), member("c", 1, instance="b"))
    log.raw(group_key("g"), None, 7_000)
    run = Consumers()
    run.log = log
    run.step(lambda: run.machine.join("x"))
    run.step(lambda: run.machine.join("y"))
    run.step(lambda: run.machine.settle())
    run.step(lambda: run.machine.send("x", -1))
    assert len(written) > 20
    return written


@pytest.mark.parametrize("what", ["value", "key"])
def test_truncation_at_every_byte_is_a_gap_or_says_nothing(story: list[Record], what: str) -> None:
    for at, record in enumerate(story):
        whole = (record.value if what == "value" else record.key) or b""
        for size in range(len(whole)):
            log = OffsetsLog()
            cut = record._replace(value=whole[:size]) if what == "value" else record._replace(key=whole[:size])
            log.events += log.rebuilder.add([*story[:at], cut, *story[at + 1 :]])
            log.finish()
            if what == "value":
                assert any(isinstance(event, HistoryGap) and event.gap == "unreadable" for event in log.events), (
                    record,
                    size,
                )
            explain(log.events)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_compaction_never_makes_up_a_cause(data: st.DataObject) -> None:
    """Records of the story are missing: each member in the events was in it, each cause was or is left open."""
    log = OffsetsLog()
    log.generation(0, 1, member("a", 0, 1))
    full = OffsetsLog()
    records = data.draw(st.lists(st.booleans(), min_size=8, max_size=8))
    names = [("a",), ("a", "b"), ("a", "b", "c"), ("b", "c"), ("b",), (), ("d",), ("d", "e")]
    for at, (kept, members) in enumerate(zip(records, names, strict=True)):
        parts = [member(name, number) for number, name in enumerate(members)]
        full.generation(1_000 * (at + 1), at + 2, *parts)
        if kept:
            log.generation(1_000 * (at + 1), at + 2, *parts)
        else:
            log.skip()
    for event in log.of("rebalance_started"):
        before = [
            one
            for one in log.of("history_gap")
            if one["last"] == event["generation"] or one["first"] == event["generation"] + 1
        ]
        if before:
            assert event["cause"] == NOT_RECORDED
    skipped = {one["first"] + n for one in log.of("history_gap") for n in range(one["last"] - one["first"] + 1)}
    first_missing = [at + 2 for at, kept in enumerate(records) if not kept]
    assert skipped == {number for number in first_missing if any(records[number - 1 :])}
    assert all(one["gap"] == "compacted" for one in log.of("history_gap"))


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    log = OffsetsLog()
    events = log.rebuilder.add(Record(at, NOON, None, None) for at in range(50_000))
    assert len(events) == MOST_GAPS
    many = (
        Record(at, NOON, offset_key_head("g", "t") + at.to_bytes(4, "big"), b"\0\3" + bytes(22))
        for at in range(210_000)
    )
    log = OffsetsLog()
    log.events += log.rebuilder.add(many)
    log.finish()
    assert len(log.rebuilder.offsets) == 200_000
    assert {one["gap"] for one in log.of("history_gap")} == {"too_many"}
