"""Members that subscribe with regular expressions: when these are resolved, and what the group does then."""

from typing import Any

import pytest

from barnabas_broker.groups.consumer import subscriptions
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.records import ReplayedGroup, replay_record
from barnabas_broker.groups.consumer.regex import MAX_REGEXES, NAMES_PER_CALL, in_parts
from barnabas_broker.groups.consumer.states import ConsumerGroupState
from barnabas_broker.groups.effects import Caller, Persist
from barnabas_explain.catalog import EpochBumped, RegexFailed, RegexResolved, SubscriptionChanged
from barnabas_protocol.coordinator_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import group_record, read_consumer_record
from tests.broker.groups.consumer.machine import Machine, T, U, catalog, partitions, replace_topics

ORDERS = b"o" * 16


def machine_with(**topics: int) -> Machine:
    return Machine(topics=catalog(**topics))


def join(machine: Machine, member_id: str, regex: str | None, *names: str, **fields: Any) -> Any:
    return machine.send(
        member_id,
        0,
        owned={},
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=list(names),
        subscribed_topic_regex=regex,
        **fields,
    )


def set_topics(machine: Machine, **topics: int) -> None:
    replace_topics(machine.topics, topics)


def regex_records(machine: Machine) -> list[tuple[str, list[str] | None]]:
    """The records of regular expressions, with the topics; None for a tombstone."""
    found = []
    for key, value in machine.records:
        if isinstance(key, ConsumerGroupRegularExpressionKey):
            assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
            found.append((key.regular_expression, None if value is None else value.topics))
    return found


def owned_by(machine: Machine, member_id: str) -> dict[bytes, set[int]]:
    return machine.group.members[member_id].owned()


def restored(machine: Machine) -> ConsumerGroup:
    """The group as its records say, which are encoded and decoded."""
    replayed: dict[str, ReplayedGroup] = {}
    for record in machine.records:
        key, value = group_record(record)
        replay_record(replayed, *read_consumer_record(int.from_bytes(key[:2], "big"), key, value))
    return ConsumerGroup.restore("g", machine.settings, replayed["g"], machine.now, machine.wall_ms)


def test_a_member_joins_first_and_gets_what_its_regex_matches_with_a_later_heartbeat() -> None:
    machine = machine_with(orders=2, ticks=3)
    machine.resolve = False
    joined = join(machine, "a", "o.*")
    assert (joined.error_code, joined.member_epoch, partitions(joined)) == (ErrorCode.NONE, 1, {})
    assert [sorted(each.regexes) for each in machine.resolutions] == [["o.*"]]
    assert regex_records(machine) == []
    machine.resolved()
    assert regex_records(machine) == [("o.*", ["orders"])]
    assert (machine.group.epoch, machine.state()) == (2, ConsumerGroupState.ASSIGNING)
    given = machine.send("a", 1)
    assert (given.member_epoch, partitions(given)) == (2, {ORDERS: [0, 1]})
    (resolved,) = machine.of(RegexResolved)
    assert (resolved.regex, resolved.topics, resolved.added, resolved.removed) == ("o.*", 1, ("orders",), ())
    assert machine.of(EpochBumped)[-1].cause == "regex_resolved"


def test_the_records_of_a_resolved_regex_come_before_the_epoch() -> None:
    machine = machine_with(orders=2)
    machine.resolve = False
    join(machine, "a", "o.*")
    before = len(machine.records)
    machine.resolved()
    keys = [key for key, _ in machine.records[before:]]
    assert keys == [
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="o.*"),
        ConsumerGroupMetadataKey(group_id="g"),
    ]
    value = machine.records[before][1]
    assert value == ConsumerGroupRegularExpressionValue(topics=["orders"], version=1, timestamp=machine.wall_ms)


def test_names_and_matches_are_united() -> None:
    machine = machine_with(orders=1, ticks=1, users=1)
    join(machine, "a", "o.*", "ticks")
    machine.settle()
    assert owned_by(machine, "a") == {ORDERS: {0}, T: {0}}
    assert machine.group.is_subscribed_to("orders") and machine.group.is_subscribed_to("ticks")
    assert not machine.group.is_subscribed_to("users")


def test_two_members_with_one_regex_share_what_it_matches() -> None:
    machine = machine_with(orders=4)
    join(machine, "a", "o.*")
    machine.settle()
    joined = join(machine, "b", "o.*")
    assert joined.member_epoch == machine.group.epoch == 3
    machine.settle()
    assert machine.state() is ConsumerGroupState.STABLE
    assert sorted(len(owned_by(machine, each)[ORDERS]) for each in ("a", "b")) == [2, 2]
    assert regex_records(machine) == [("o.*", ["orders"])]


def test_a_regex_that_matches_nothing_leaves_the_member_without_partitions() -> None:
    machine = machine_with(ticks=1)
    assert join(machine, "a", "o.*").member_epoch == 1
    assert regex_records(machine) == [("o.*", [])]
    machine.settle()
    assert (machine.state(), machine.group.epoch) == (ConsumerGroupState.STABLE, 1)
    for _ in range(3):
        machine.after(11)
        machine.beat("a")
    assert regex_records(machine) == [("o.*", [])]


def test_a_new_topic_is_found_ten_seconds_after_the_last_search() -> None:
    machine = machine_with(ticks=1)
    join(machine, "a", "[ot].*")
    machine.settle()
    set_topics(machine, ticks=1, orders=2)
    machine.after(9)
    machine.beat("a")
    assert owned_by(machine, "a") == {T: {0}}
    machine.after(2)
    machine.beat("a")
    machine.beat("a")
    assert owned_by(machine, "a") == {T: {0}, ORDERS: {0, 1}}
    assert regex_records(machine) == [("[ot].*", ["ticks"]), ("[ot].*", ["orders", "ticks"])]


def test_a_deleted_topic_is_given_up_at_once_and_forgotten_with_the_next_search() -> None:
    machine = machine_with(ticks=1, orders=2)
    join(machine, "a", "[ot].*")
    machine.settle()
    set_topics(machine, ticks=1)
    machine.settle()
    assert owned_by(machine, "a") == {T: {0}}
    assert regex_records(machine) == [("[ot].*", ["orders", "ticks"])]
    machine.after(40)
    machine.beat("a")
    assert machine.group.subscriptions.resolved["[ot].*"].topics == {"orders", "ticks"}
    machine.now += machine.settings.regex_interval
    machine.beat("a")
    assert regex_records(machine)[-1] == ("[ot].*", ["ticks"])


@pytest.mark.parametrize("names", [[], ["users"]])
def test_an_empty_regex_removes_it(names: list[str]) -> None:
    machine = machine_with(orders=1, users=1)
    join(machine, "a", "o.*")
    machine.settle()
    machine.send("a", machine.group.members["a"].epoch, subscribed_topic_regex="", subscribed_topic_names=names)
    machine.settle()
    assert owned_by(machine, "a") == ({U: {0}} if names else {})
    assert regex_records(machine) == [("o.*", ["orders"]), ("o.*", None)]
    assert machine.group.subscriptions.resolved == {} and not machine.group.is_subscribed_to("orders")
    changed = machine.of(SubscriptionChanged)
    assert [(each.regex, each.removed) for each in changed] == [("", ("orders",))]


def test_a_member_that_drops_its_regex_gives_its_partitions_to_the_others() -> None:
    machine = machine_with(orders=2)
    join(machine, "a", "o.*")
    join(machine, "b", None, "orders")
    machine.settle()
    assert len(owned_by(machine, "a")[ORDERS]) == 1
    machine.send("a", machine.group.members["a"].epoch, subscribed_topic_regex="")
    machine.settle()
    assert (owned_by(machine, "a"), owned_by(machine, "b")) == ({}, {ORDERS: {0, 1}})


def test_null_leaves_the_regex_as_it_is() -> None:
    machine = machine_with(orders=1)
    join(machine, "a", "o.*")
    machine.settle()
    machine.beat("a", subscribed_topic_names=[])
    machine.settle()
    assert machine.group.members["a"].regex == "o.*" and owned_by(machine, "a") == {ORDERS: {0}}


def test_another_regex_replaces_the_first_and_is_resolved_at_once() -> None:
    machine = machine_with(orders=1, users=1)
    join(machine, "a", "o.*")
    machine.settle()
    machine.beat("a", subscribed_topic_regex="u.*")
    machine.settle()
    assert owned_by(machine, "a") == {U: {0}}
    assert regex_records(machine) == [("o.*", ["orders"]), ("o.*", None), ("u.*", ["users"])]


def test_a_changed_regex_bumps_the_epoch_when_it_is_resolved() -> None:
    machine = machine_with(orders=2, users=1)
    join(machine, "a", "o.*")
    join(machine, "b", None, "orders")
    machine.settle()
    before = machine.group.epoch
    machine.resolve = False
    changed = machine.beat("a", subscribed_topic_regex="u.*")
    assert (changed.member_epoch, partitions(changed)) == (before, {})
    assert machine.group.epoch == before
    machine.resolved()
    assert machine.group.epoch == before + 1
    machine.settle()
    assert (owned_by(machine, "a"), owned_by(machine, "b")) == ({U: {0}}, {ORDERS: {0, 1}})
    assert machine.group.epoch == before + 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_regex_that_is_changed_gives_its_topics_to_the_others_even_if_the_new_one_matches_nothing(
    fails: bool,
) -> None:
    machine = machine_with(orders=2)
    join(machine, "a", "o.*")
    join(machine, "b", None, "orders")
    machine.settle()
    before = machine.group.epoch
    machine.resolve = False
    machine.beat("a", subscribed_topic_regex="none")
    machine.resolved(*(["none"] if fails else []))
    assert machine.group.epoch == before + 1
    cause = "subscription_changed" if fails else "regex_resolved"
    assert machine.of(EpochBumped)[-1].cause == cause
    machine.settle()
    assert (owned_by(machine, "a"), owned_by(machine, "b")) == ({}, {ORDERS: {0, 1}})


@pytest.mark.parametrize("classic", [False, True])
def test_the_client_whose_request_starts_a_search_decides_what_it_may_find(classic: bool) -> None:
    machine = machine_with(orders=1, t=1)
    machine.resolve = False
    join(machine, "a", "o.*")
    assert machine.resolutions[0].may_describe is None
    machine.resolved()
    set_topics(machine, orders=1, t=1, users=1)
    machine.after(11)
    machine.caller = Caller("client", "/127.0.0.1", lambda topic: topic == "orders")
    if classic:
        machine.join_classic("", instance="i")
    else:
        machine.beat("a")
    assert [each.may_describe for each in machine.resolutions] == [machine.caller.may_describe]


def test_another_members_regex_waits_until_ten_seconds_have_passed() -> None:
    machine = machine_with(orders=1, users=1)
    join(machine, "a", "o.*")
    join(machine, "b", "u.*")
    machine.settle()
    assert owned_by(machine, "b") == {}
    machine.after(11)
    machine.settle()
    assert owned_by(machine, "b") == {U: {0}}


@pytest.mark.parametrize("leaves", ["leave", "expire"])
def test_the_last_member_with_a_regex_takes_it_along(leaves: str) -> None:
    machine = machine_with(orders=1)
    join(machine, "a", "o.*")
    join(machine, "b", "o.*")
    machine.settle()
    machine.send("a", -1)
    assert list(machine.group.subscriptions.resolved) == ["o.*"]
    if leaves == "leave":
        machine.send("b", -1)
    else:
        machine.after(60)
    assert machine.group.subscriptions.resolved == {} and machine.state() is ConsumerGroupState.EMPTY
    assert regex_records(machine)[-1] == ("o.*", None)
    join(machine, "c", "o.*")
    machine.settle()
    assert owned_by(machine, "c") == {ORDERS: {0}}


def test_a_static_member_comes_back_with_its_regex() -> None:
    machine = machine_with(orders=2)
    join(machine, "a", "o.*", instance_id="one")
    machine.settle()
    machine.send("a", -2, instance_id="one")
    back = join(machine, "a2", "o.*", instance_id="one")
    assert partitions(back) == {ORDERS: [0, 1]}
    machine.send("a2", -1, instance_id="one")
    assert machine.group.subscriptions.resolved == {}


def test_a_regex_that_takes_too_long_keeps_what_it_has_and_is_tried_again() -> None:
    machine = machine_with(orders=1, ticks=1)
    machine.resolve = False
    join(machine, "a", "o.*")
    machine.resolved("o.*")
    assert machine.group.subscriptions.resolved == {}
    machine.after(9)
    machine.beat("a")
    assert machine.resolutions == []
    machine.after(2)
    machine.beat("a")
    machine.resolved()
    assert machine.group.subscriptions.resolved["o.*"].topics == {"orders"}
    set_topics(machine, orders=1, ticks=1, others=1)
    machine.after(11)
    machine.beat("a")
    machine.resolved("o.*")
    assert machine.group.subscriptions.resolved["o.*"].topics == {"orders"}


def test_a_regex_that_left_meanwhile_is_ignored() -> None:
    machine = machine_with(orders=1, users=1)
    machine.resolve = False
    join(machine, "a", "o.*")
    machine.beat("a", subscribed_topic_regex="u.*")
    machine.resolved()
    assert machine.group.subscriptions.resolved == {}
    machine.after(11)
    machine.beat("a")
    machine.resolved()
    assert list(machine.group.subscriptions.resolved) == ["u.*"]


def test_there_is_one_search_at_a_time_and_stale_tickets_are_ignored() -> None:
    machine = machine_with(orders=1)
    machine.resolve = False
    join(machine, "a", "o.*")
    machine.after(30)
    machine.beat("a")
    (asked,) = machine.resolutions
    assert machine.group.regexes_resolved(asked.ticket + 1, {"o.*": frozenset({"orders"})}, 1, 0.0, 0) == []
    assert machine.group.subscriptions.resolved == {}
    machine.group.mark_dead(machine.now)
    assert machine.group.regexes_resolved(asked.ticket, {"o.*": frozenset({"orders"})}, 1, 0.0, 0) == []


def test_matches_that_do_not_fit_into_a_record_are_refused() -> None:
    machine = Machine(topics=catalog(orders=1))
    machine.resolve = False
    join(machine, "a", ".*")
    names = frozenset(f"{number:0200}" for number in range(5_000))
    machine.apply(machine.group.regexes_resolved(machine.resolutions[0].ticket, {".*": names}, 1, 0.0, 0))
    assert machine.group.subscriptions.resolved == {} and regex_records(machine) == []
    assert machine.of(RegexFailed)[0].reason == ("the names of 5000 topics are larger than a record allows")


def test_a_failed_append_of_a_regex_is_repeated() -> None:
    machine = machine_with(orders=1)
    machine.resolve = False
    join(machine, "a", "o.*")
    machine.hold = True
    machine.resolved()
    while machine.appends:
        machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert regex_records(machine) == []
    machine.hold = False
    machine.settle()
    assert regex_records(machine) == [("o.*", ["orders"])]
    assert owned_by(machine, "a") == {ORDERS: {0}}


def test_large_results_are_appended_one_by_one() -> None:
    machine = machine_with(orders=1)
    machine.resolve = False
    for number in range(3):
        join(machine, f"m{number}", f"o.*{number}?")
    machine.resolved()
    machine.after(11)
    machine.hold = True
    machine.beat("m0")
    machine.resolved()
    sizes = [
        sum(isinstance(key, ConsumerGroupRegularExpressionKey) for key, _ in append.records)
        for append in machine.appends
        if isinstance(append, Persist)
    ]
    assert max(sizes) == 1 and sum(sizes) == 2


def test_a_group_is_restored_with_its_regexes() -> None:
    machine = machine_with(orders=2, ticks=1)
    join(machine, "a", "o.*", "ticks")
    machine.settle()
    machine.group = restored(machine)
    assert machine.group.subscriptions.resolved["o.*"].topics == {"orders"}
    assert machine.group.is_subscribed_to("orders")
    before = machine.group.epoch
    machine.beat("a")
    assert (machine.group.epoch, machine.state()) == (before, ConsumerGroupState.STABLE)
    set_topics(machine, orders=2, ticks=1, others=1)
    machine.after(11)
    machine.settle()
    assert machine.group.subscriptions.resolved["o.*"].topics == {"orders", "others"}


@pytest.mark.parametrize("regex", ["o.*", "nothing"])
def test_a_member_whose_regex_matches_nothing_yet_costs_no_epoch_when_the_group_is_restored(regex: str) -> None:
    """It has no target in the log, and none is missing. Before it is resolved, and if it matches nothing afterwards."""
    machine = machine_with(orders=2)
    machine.resolve = False
    join(machine, "a", None, "orders")
    machine.settle()
    join(machine, "b", regex)
    if regex == "nothing":
        machine.resolved()
        machine.settle()
        assert "nothing" in machine.group.subscriptions.resolved
    before = machine.group.epoch, machine.state()
    machine.group = restored(machine)
    assert (machine.group.epoch, machine.state()) == before
    machine.resolutions.clear()
    machine.resolve = True
    machine.after(11)
    machine.settle()
    assert (machine.group.epoch > before[0]) is (regex == "o.*")
    assert [sum(map(len, owned_by(machine, each).values())) for each in "ab"] == ([1, 1] if regex == "o.*" else [2, 0])


def test_topics_that_were_created_while_the_group_was_not_loaded_are_found() -> None:
    machine = machine_with(ticks=1)
    join(machine, "a", "[ot].*")
    machine.settle()
    machine.after(11)
    machine.topics = catalog(ticks=1, orders=1)
    machine.settings = Machine(topics=machine.topics).settings
    machine.group = restored(machine)
    machine.settle()
    assert machine.group.subscriptions.resolved["[ot].*"].topics == {"orders", "ticks"}


def test_a_record_without_a_subscriber_gets_a_tombstone() -> None:
    machine = machine_with(orders=1)
    join(machine, "a", None, "orders")
    key = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="gone.*")
    machine.records.append((key, ConsumerGroupRegularExpressionValue(topics=["x"], version=1, timestamp=1)))
    machine.group = restored(machine)
    assert machine.group.subscriptions.resolved == {}
    machine.send("a", -1)
    assert regex_records(machine)[-1] == ("gone.*", None)


def test_the_tombstones_of_a_group_have_its_regexes_before_its_epoch() -> None:
    machine = machine_with(orders=1)
    join(machine, "a", "o.*")
    kinds = [type(key) for key, _ in machine.group.tombstones()]
    assert kinds.index(ConsumerGroupRegularExpressionKey) == len(kinds) - 3


def test_a_member_without_a_regex_has_an_empty_one_in_its_record() -> None:
    machine = machine_with(orders=1)
    join(machine, "a", None, "orders")
    value = machine.records[0][1]
    assert isinstance(value, ConsumerGroupMemberMetadataValue) and value.subscribed_topic_regex == ""


def test_a_group_has_a_hundred_different_regexes_and_refuses_more() -> None:
    machine = machine_with(orders=1, ticks=1)
    for number in range(MAX_REGEXES):
        assert join(machine, f"m{number}", f"orders|{number}").error_code == ErrorCode.NONE
    before = len(machine.records), len(machine.events), machine.group.epoch, len(machine.group.members)
    refused = join(machine, "other", "o.*")
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        "The members of group g have 100 different SubscribedTopicRegex, and a group may not have more. Subscribe with"
        " one that another member has.",
    )
    assert (len(machine.records), len(machine.events), machine.group.epoch, len(machine.group.members)) == before
    assert join(machine, "other", "orders|7").error_code == ErrorCode.NONE
    epoch = machine.group.members["m7"].epoch
    shared = machine.send("m7", epoch, subscribed_topic_regex="o.*")
    assert shared.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION, "another member has its present one, too"
    own = machine.send("m8", machine.group.members["m8"].epoch, subscribed_topic_regex="o.*")
    assert own.error_code == ErrorCode.NONE, "its present one is not needed any more"
    assert join(machine, "another", "t.*").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    machine.send("m9", -1)
    assert join(machine, "another", "t.*").error_code == ErrorCode.NONE


def test_a_group_that_has_more_regexes_in_the_log_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_with(orders=1)
    for number in range(3):
        join(machine, f"m{number}", f"orders|{number}")
    machine.settle()
    monkeypatch.setattr(subscriptions, "MAX_REGEXES", 2)
    machine.group = restored(machine)
    machine.settle()
    assert len(machine.group.members) == 3
    assert machine.beat("m0", subscribed_topic_regex="orders|0").error_code == ErrorCode.NONE
    assert machine.beat("m0", subscribed_topic_regex="orders|4").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_what_all_regexes_of_a_group_match_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_NAMES", 5)
    machine = machine_with(a1=1, a2=1, a3=1, b=1)
    machine.resolve = False
    join(machine, "a", "a.")
    join(machine, "b", "a.|x")
    join(machine, "c", "b")
    machine.resolved()
    for _ in range(3):
        machine.after(11)
        machine.beat("a")
        machine.resolved()
    assert {regex: sorted(each.topics) for regex, each in machine.group.subscriptions.resolved.items()} == {
        "a.": ["a1", "a2", "a3"],
        "b": ["b"],
    }
    failed = "it matches 3 topics, and the others of the group %d: a group may have 5 matches in all"
    assert [(each.regex, each.reason) for each in machine.of(RegexFailed)] == [
        ("a.|x", failed % 3),
        ("a.|x", failed % 4),
    ]
    machine.send("a", -1)
    machine.after(11)
    machine.beat("b")
    machine.resolved()
    assert sorted(machine.group.subscriptions.resolved) == ["a.|x", "b"]


def test_the_different_topics_that_all_regexes_of_a_group_match_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_TOPICS", 3)
    machine = machine_with(a1=1, a2=1, a3=1, b=1)
    join(machine, "a", "a.")
    join(machine, "b", "a[12]")
    join(machine, "c", "b")
    join(machine, "d", ".*")
    machine.settle()
    for _ in range(3):
        machine.after(11)
        machine.beat("a")
        machine.settle()
    assert sorted(machine.group.subscriptions.resolved) == ["a.", "a[12]"]
    reasons = {each.regex: each.reason for each in machine.of(RegexFailed)}
    assert reasons == dict.fromkeys(("b", ".*"), "the group would match more than 3 different topics")


def test_a_result_that_comes_in_parts_begins_one_epoch() -> None:
    machine = machine_with(orders=2, ticks=3)
    machine.resolve = False
    join(machine, "a", "o.*")
    machine.resolved()
    join(machine, "b", "t.*")
    machine.after(11)
    machine.beat("a")
    epoch = machine.group.epoch
    machine.resolved("t.*", last=False)
    assert machine.group.epoch == epoch
    machine.resolved("o.*", last=False)
    assert machine.group.epoch == epoch
    assert machine.group.subscriptions.resolved["t.*"].topics == {"ticks"}
    machine.beat("a")
    assert len(machine.resolutions) == 1, "it has not ended"
    machine.resolved("o.*", "t.*")
    assert machine.group.epoch == epoch + 1
    assert machine.of(EpochBumped)[-1].cause == "regex_resolved"
    machine.settle()
    assert owned_by(machine, "b") == {T: {0, 1, 2}}


def test_results_are_cut_into_parts_of_some_thousand_names() -> None:
    names = [frozenset(f"{regex}{number}" for number in range(NAMES_PER_CALL // 3)) for regex in range(7)]
    matches = {f"r{number}": each for number, each in enumerate(names)} | {"none": frozenset[str]()}
    parts = list(in_parts(matches))
    assert [list(part) for part in parts] == [["none", "r0", "r1", "r2"], ["r3", "r4", "r5"], ["r6"]]
    assert {regex: each for part in parts for regex, each in part.items()} == matches
    assert list(in_parts({})) == [{}]
