"""The events of groups of the consumer protocol: their records, their lines and their explanations."""

import json

from barnabas_explain.explain import explain
from barnabas_explain.log_lines import GroupLines
from barnabas_explain.records import decode_event, encode_event, record_of
from tests.broker.groups.consumer.machine import Machine, T, catalog


def texts(machine: Machine) -> list[str]:
    events = [event.changed(group="g", time=at).decoded() for at, event in enumerate(machine.events)]
    records = [json.loads(encode_event(event)) for event in events]
    read = [event for event in (decode_event(encode_event(event)) for event in events) if event is not None]
    assert [record_of(event) for event in read] == records
    return [line for each in explain(read) for line in (each.text, *each.details)]


def test_each_epoch_is_explained() -> None:
    machine = Machine()
    machine.join("a", instance_id="one")
    machine.join("b", instance_id="two")
    machine.settle()
    machine.send("a", -1, instance_id="one")
    machine.settle()
    told = texts(machine)
    assert told[0] == "Epoch 2: one joined."
    assert "Epoch 3: two joined." in told
    assert "two is to get t-1, t-3." in told
    assert not any("revoke" in line or "is to give" in line or "computed" in line for line in told), "it took no time"
    assert "All members owned their partitions after 0 ms; 2 members." in told
    assert "Epoch 4: one left." in told


def test_what_a_regular_expression_matches() -> None:
    machine = Machine(topics=catalog(orders=1, users=1))
    machine.resolve = False
    machine.join("a", instance_id="one", subscribed_topic_names=[], subscribed_topic_regex="o.*")
    machine.resolved()
    machine.settle()
    machine.beat("a", subscribed_topic_regex="[ou].*")
    machine.resolved()
    machine.beat("a", subscribed_topic_regex="")
    told = texts(machine)
    assert "Epoch 2: the regular expression o.* now matches orders." in told
    changed = "one changed its subscription: removed orders and subscribed with the expression [ou].*"
    assert f"Epoch 3: {changed}; the regular expression [ou].* now matches orders and users." in told
    assert "Epoch 4: one changed its subscription: removed orders and users and dropped its expression." in told


def test_a_regular_expression_that_is_changed_to_one_that_matches_nothing() -> None:
    machine = Machine(topics=catalog(orders=1))
    machine.join("a", instance_id="one", subscribed_topic_names=[], subscribed_topic_regex="o.*")
    machine.settle()
    machine.beat("a", subscribed_topic_regex="u.*")
    changed = "one changed its subscription: removed orders and subscribed with the expression u.*"
    assert f"Epoch 3: {changed}; the regular expression u.* matches no topic." in texts(machine)


def test_a_regular_expression_that_fails() -> None:
    machine = Machine()
    machine.resolve = False
    machine.join("a", instance_id="one", subscribed_topic_names=[], subscribed_topic_regex=".*")
    machine.settle()
    names = frozenset(f"{number:0200}" for number in range(5_000))
    machine.apply(machine.group.regexes_resolved(machine.resolutions[0].ticket, {".*": names}, 1, 0.0, 0))
    reason = "the names of 5000 topics are larger than a record allows"
    assert f"The regular expression .* has no new matches: {reason}." in texts(machine)
    lines = GroupLines()
    shown = [line for line in map(lines.line_of, machine.events) if line is not None]
    line = shown[-1]
    assert (line.level, line.event, line.pairs["regex"]) == ("warning", "regular expression not resolved", ".*")
    assert line.pairs["reason"] == reason


def test_who_did_not_revoke() -> None:
    machine = Machine()
    machine.join("a", rebalance_timeout_ms=10_000)
    machine.join("b")
    machine.send("a", 2)
    for _ in range(4):
        machine.after(3)
        machine.send("a", 2)
        machine.send("b", 3)
    assert any("did not revoke t-1, t-3 within 10 s" in each for each in texts(machine))


def test_who_was_fenced_or_is_away() -> None:
    machine = Machine()
    machine.join("a", instance_id="one")
    machine.send("a", 8, instance_id="one")
    machine.send("a", -2, instance_id="one")
    told = texts(machine)
    assert "one came with member epoch 8 instead of 2, and had to join again." in told
    assert "Static member one left for a while; its partitions wait 45 s for it." in told


def test_lines() -> None:
    machine = Machine()
    machine.join("a", instance_id="one")
    lines = GroupLines()
    told = [line for event in machine.events if (line := lines.line_of(event)) is not None]
    assert [(line.event, line.pairs["reason"]) for line in told] == [("group reconciled", "one joined")]
    sentences = [event.changed(group="g").kafka() for event in machine.events]
    assert "[GroupId g] Bumped group epoch to 2." in sentences
    assert T  # The topic's id is nowhere: events name topics.
    assert not any("7474" in str(event) for event in machine.events)


def test_a_member_that_has_not_revoked_yet() -> None:
    machine = Machine()
    machine.join("a", instance_id="worker-2", rebalance_timeout_ms=300_000)
    machine.join("b")
    machine.send("a", 2)
    machine.after(12.0)
    sentence = "worker-2 has been revoking t-1, t-3 for 10 s: max.poll.interval.ms of its client is 5 min."
    assert sentence in texts(machine)
    lines = GroupLines()
    told = [line for event in machine.events if (line := lines.line_of(event)) is not None]
    assert (told[-1].level, told[-1].event) == ("warning", "member has not revoked its partitions yet")
    expected = {"member": "worker-2", "partitions": "t-1, t-3", "waited": "10.000s", "rebalance_timeout": "300.000s"}
    assert {name: told[-1].pairs[name] for name in expected} == expected
