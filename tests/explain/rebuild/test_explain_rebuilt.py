"""The sentences about rebuilt events: what is concluded is said to be, with its evidence."""

import time
from typing import Any

import pytest

from barnabas_explain.explain import explain
from barnabas_protocol.group_records import group_key
from tests.broker.groups.consumer.machine import T
from tests.explain.offsets_log import NOON, OffsetsLog, member
from tests.explain.rebuild.test_rebuild_properties import Consumers


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Times of day are those of UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def log() -> OffsetsLog:
    log = OffsetsLog()
    log.generation(0, 1, member("a", 0, 1), member("b", 2, 3))
    return log


def told(log: OffsetsLog, **options: Any) -> list[str]:
    log.finish()
    return [line for one in explain(log.events, **options) for line in (one.text, *one.details)]


def test_a_member_that_is_gone(log: OffsetsLog) -> None:
    log.commit(11_000, 2)
    log.generation(21_500, 2, member("a", 0, 1, 2, 3), joined=21_000)
    assert told(log, generation=2) == [
        "Generation 2: client-b (10.0.0.7) is gone between 12:00:11 and 12:00:21: left or expired.",
        "Evidence about client-b (10.0.0.7): t-2, which it owned, was committed last at 12:00:11; its session timeout"
        " is 10 s; its rebalance timeout is 60 s.",
        "Assigning 500 ms; 1 member.",
        "client-a (10.0.0.7) gained t-2 to t-3.",
        "client-b (10.0.0.7) lost t-2 to t-3.",
        "t-0 to t-1, t-3 each had no owner for at least 500 ms, at most 21.5 s.",
        "t-2 had no owner for at least 500 ms, at most 10.5 s.",
    ]


def test_a_member_that_cannot_have_expired(log: OffsetsLog) -> None:
    log.generation(5_010, 2, member("a", 0, 1, 2, 3), joined=5_000)
    assert "between 12:00:00 and 12:00:05: left, nothing else fits." in told(log, generation=2)[0]


def test_several_changes(log: OffsetsLog) -> None:
    log.generation(5_010, 2, member("a", 0, 1), member("c", 2, 3), joined=5_000)
    assert told(log, generation=2)[0] == (
        "Generation 2: client-c (10.0.0.7) joined between 12:00:00 and 12:00:05; client-b (10.0.0.7) is gone between"
        " 12:00:00 and 12:00:05: left, nothing else fits; which of these came first is not recorded."
    )


def test_no_change(log: OffsetsLog) -> None:
    log.generation(5_010, 2, member("a", 0, 1), member("b", 2, 3))
    assert told(log, generation=2)[0] == ("Generation 2: the same members joined again; why they did is not recorded.")


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    log = OffsetsLog()
    log.generation(0, 1, member("s1", 0, instance="s"))
    log.generation(2_000, 1, member("s2", 0, instance="s"))
    assert told(log)[-1] == "Static member s came back with a new member id, without a rebalance."


def test_a_storm(log: OffsetsLog) -> None:
    for number in range(2, 9):
        others = [member("b", 2, 3)] if number % 2 else []
        log.generation(number * 1_000, number, member("a", 0, 1), *others)
        log.commit(number * 1_000 + 1, 0)
    storm = explain(log.events)[0]
    assert storm.text == (
        "Rebalance storm: 8 rebalances within 8 s: client-b (10.0.0.7) was gone 4 times, joined 3 times; one of several"
        " members joined once."
    )


def test_a_storm_of_changes_whose_order_is_not_known() -> None:
    log = OffsetsLog()
    for number in range(1, 9):
        log.generation(number * 1_000, number, member(f"a{number}", 0, client="worker"))
    (storm,) = explain(log.events)
    assert storm.text == (
        "Rebalance storm: 8 rebalances within 7 s: worker (10.0.0.7) joined or was gone 7 times, joined once."
    )


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda log: log.raw(None, None), "Gap: the record at offset 1 cannot be read: it has no key."),
        (
            lambda log: log.raw(b"\x00\x0a" + group_key("g")[2:], b""),
            "Gap: the record at offset 1 is of type 10: of a share group, a streams group, or of a later version.",
        ),
        (
            lambda log: (log.skip(2), log.generation(1_000, 4, member("a", 0), member("b", 1))),
            "Gap: generations 2 to 3 have no record; 2 records of this time are missing: compacted, or of"
            " transactions.",
        ),
        (
            lambda log: log.generation(1_000, 3, member("a", 0), member("b", 1)),
            "Gap: generation 2 has no record, and nothing is missing: the assignment was never completed.",
        ),
        (
            lambda log: (log.generation(1_000, 9, member("a", 0)), log.generation(2_000, 5, member("a", 0))),
            "Gap: the generation went back from 9 to 5: the group was deleted and created again.",
        ),
        (
            lambda log: log.commit(-5_000, 0) and log.generation(-6_500, 2, member("a", 0)),
            "Gap: the record at offset 1 is 5 s older than the one before: clocks disagree, so durations across it are"
            " left out.",
        ),
        (
            lambda log: log.raw(group_key("g"), b"", -1, absolute=True),
            "Gap: the record at offset 1 has no usable time (-1).",
        ),
        (
            lambda log: log.events.extend(log.rebuilder.unstable_from(7, 1)),
            "Gap: a transaction is open since offset 7: of the 1 record from there on, commits may not count yet.",
        ),
    ],
)
def test_gaps(log: OffsetsLog, write: Any, text: str) -> None:
    write(log)
    assert text in told(log)


def test_more_gaps_than_are_told(log: OffsetsLog) -> None:
    for _ in range(30):
        log.raw(None, None)
    assert told(log)[-1] == "Gap: 10 more of this kind: records that cannot be read."


def test_commits_and_removed_offsets(log: OffsetsLog) -> None:
    for at in range(0, 20_000, 500):
        log.commit(at + 500, at // 500 % 4)
    log.raw(b"\x00\x01" + group_key("g")[2:] + b"\x00\x01t" + bytes(4), None, 21_000)
    assert told(log)[-2:] == [
        "40 offsets were committed in 4 partitions between 12:00:00 and 12:00:20, 2.1 a second.",
        "1 offset expired or was deleted.",
    ]


def test_a_deleted_group_and_one_with_a_past(log: OffsetsLog) -> None:
    log.raw(group_key("g"), None, 1_000)
    log.generation(2_000, 8, member("a", 0))
    assert told(log)[-2:] == [
        "The group was deleted or expired, with no committed offsets.",
        "What is known begins with generation 8, with 1 member: earlier records were not read, or are compacted.",
    ]


def test_only_what_happened_since(log: OffsetsLog) -> None:
    log.commit(1_000, 0)
    log.generation(100_000, 2, member("a", 0, 1, 2, 3))
    assert [each.generation for each in explain(log.events, since=NOON + 50_000)] == [1]


def test_epochs() -> None:
    run = Consumers()
    machine = run.machine
    for act in (
        lambda: machine.join("a", instance_id="one"),
        lambda: machine.join("b", instance_id="two"),
        lambda: machine.after(1),
        machine.settle,
        lambda: machine.send("b", -2, instance_id="two"),
        lambda: machine.after(2),
        lambda: machine.join("c", instance_id="two"),
        machine.settle,
        lambda: machine.send("a", -1, instance_id="one"),
    ):
        run.step(act)
    texts = told(run.log)
    assert texts[:3] == [
        "Epoch 2: one joined.",
        "one is to get t-0 to t-3.",
        "All members owned their partitions after 0 ms; 1 member.",
    ]
    assert not any("revoke" in text for text in texts), "it took no time"
    assert "Static member two left for a while; its partitions wait for it." in texts
    assert "Static member two came back with a new member id, without a rebalance." in texts
    assert "Epoch 4: one is gone: left or expired." in texts
    assert run.log.of("history_gap") == []


def test_a_topic_without_a_name_has_its_id() -> None:
    run = Consumers()
    run.log = OffsetsLog()
    run.step(lambda: run.machine.join("a"))
    shown = "dHR0dHR0dHR0dHR0dHR0dA"
    assert f"client (127.0.0.1) is to get {shown}-0 to {shown}-3." in told(run.log), T
