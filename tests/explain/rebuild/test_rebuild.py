"""Events that are rebuilt from records of classic groups, as data."""

from typing import Any

import pytest

from barnabas_explain.catalog import NOT_RECORDED, UNKNOWN_GENERATION
from barnabas_explain.rebuild.history import RebuiltMember
from barnabas_explain.records import decode_event, encode_event, record_of
from barnabas_protocol.group_records import group_key, offset_key, offset_key_head
from tests.explain.offsets_log import NOON, OffsetsLog, member


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


@pytest.fixture
def log() -> OffsetsLog:
    """A log that begins with generation 1: the member a owns t-0 to t-3."""
    log = OffsetsLog()
    log.generation(0, 1, member("a", 0, 1, 2, 3))
    return log


def test_the_first_generation_is_explained_from_nothing() -> None:
    log = OffsetsLog()
    joined, started, over = log.generation(1_000, 1, member("a", 0, 1), joined=400)
    assert (joined["type"], joined["member_id"], joined["between"]) == ("member_joined", "a", [None, NOON + 400])
    assert (started["cause"], started["generation"], started["time"]) == ("member_joined", 0, NOON + 400)
    assert (over["type"], over["generation"], over["members"]) == ("rebalance_over", 1, 1)
    assert over["sync_took_ms"] == 600
    assert [(move["member_id"], move["gained"], move["lost"]) for move in over["moves"]] == [("a", {"t": [0, 1]}, {})]
    assert over["pauses"] == []


def test_the_first_record_of_an_older_group_only_begins() -> None:
    log = OffsetsLog()
    (began,) = log.generation(0, 7, member("a", 0), member("b", 1))
    assert (began["type"], began["generation"], began["members"]) == ("history_began", 7, 2)
    assert log.rebuilder.generation == 7
    assert [each.member_id for each in log.rebuilder.members] == ["a", "b"]


def test_who_joined_and_what_moved(log: OffsetsLog) -> None:
    joined, started, over = log.generation(5_000, 2, member("a", 0, 1), member("b", 2, 3), joined=4_900)
    assert (joined["client_id"], joined["host"]) == ("client-b", "/10.0.0.7")
    assert joined["between"] == started["between"] == [NOON, NOON + 4_900]
    assert (started["cause"], [each["member_id"] for each in started["by"]]) == ("member_joined", ["b"])
    assert {move["member_id"]: (move["gained"], move["lost"]) for move in over["moves"]} == {
        "a": ({}, {"t": [2, 3]}),
        "b": ({"t": [2, 3]}, {}),
    }
    # Eager: all partitions had no owner while the leader assigned, and at most since the generation before.
    assert {(pause["partition"], pause["at_least_ms"], pause["at_most_ms"]) for pause in over["pauses"]} == {
        (partition, 100, 5_000) for partition in range(4)
    }


def test_a_commit_shows_until_when_a_partition_had_an_owner(log: OffsetsLog) -> None:
    log.commit(4_000, 2)
    events = log.generation(5_000, 2, member("a", 0, 1), member("b", 2, 3), joined=4_900)
    assert kinds(events) == ["offsets_committed", "member_joined", "rebalance_started", "rebalance_over"]
    assert [pause["at_most_ms"] for pause in events[-1]["pauses"]] == [5_000, 5_000, 5_000, 1_000]
    assert (events[0]["commits"], events[0]["generation"], events[0]["between"]) == (1, 1, [NOON + 4_000] * 2)


def test_partitions_that_are_kept_have_no_pause(log: OffsetsLog) -> None:
    """Cooperative rebalancing: the first generation takes partitions away, the second one assigns them."""
    owned = {"t": [0, 1, 2, 3]}
    over = log.generation(5_000, 2, member("a", 0, 1, owned=owned), member("b"))[-1]
    assert over["pauses"] == []
    events = log.generation(6_000, 3, member("a", 0, 1, owned={"t": [0, 1]}), member("b", 2, 3), joined=5_970)
    started, over = events
    assert (started["cause"], [each["member_id"] for each in started["by"]]) == ("member_rejoined", ["a"])
    assert [(each["partition"], each["at_least_ms"], each["at_most_ms"]) for each in over["pauses"]] == [
        (2, 30, 1_000),
        (3, 30, 1_000),
    ]


@pytest.mark.parametrize(
    ("joined", "committed", "session", "rebalance", "possible"),
    [
        (4_000, None, 10_000, 60_000, ["left"]),
        (10_000, None, 10_000, 60_000, ["left", "expired"]),
        (12_000, 5_000, 10_000, 60_000, ["left"]),
        (12_000, 1_000, 10_000, 60_000, ["left", "expired"]),
        (60_000, 55_000, 10_000, 60_000, ["left", "not_rejoined"]),
        (60_000, None, 10_000, 60_000, ["left", "expired", "not_rejoined"]),
    ],
)
def test_what_can_have_happened_to_a_member(
    joined: int, committed: int | None, session: int, rebalance: int, possible: list[str]
) -> None:
    log = OffsetsLog()
    log.generation(
        0, 1, member("a", 0, session=session, rebalance=rebalance), member("b", 1, session=session, rebalance=rebalance)
    )
    if committed is not None:
        log.commit(committed, 1)
    log.generation(joined + 10, 2, member("a", 0, 1), joined=joined)
    (gone,) = log.of("member_gone")
    assert (gone["member_id"], gone["possible"], gone["inferred"]) == ("b", possible, True)
    assert gone["between"] == [NOON + (committed or 0), NOON + joined]
    assert gone.get("last_commit") == (
        None if committed is None else {"topic": "t", "partition": 1, "time": NOON + committed}
    )


def test_commits_of_other_members_say_nothing_about_a_member_that_is_gone() -> None:
    log = OffsetsLog()
    log.generation(0, 1, member("a", 0), member("b", 1))
    log.commit(11_000, 0)
    log.generation(12_000, 2, member("a", 0, 1))
    (gone,) = log.of("member_gone")
    assert ("last_commit" in gone, gone["possible"]) == (False, ["left", "expired"])


def test_several_changes_leave_the_cause_open(log: OffsetsLog) -> None:
    events = log.generation(5_000, 2, member("b", 0, 1, 2, 3))
    assert kinds(events) == ["member_joined", "member_gone", "rebalance_started", "rebalance_over"]
    assert (events[2]["cause"], len(events[2]["by"])) == (NOT_RECORDED, 2)


def test_nothing_but_a_new_generation_leaves_the_cause_open(log: OffsetsLog) -> None:
    started, over = log.generation(5_000, 2, member("a", 0, 1, 2, 3))
    assert (started["cause"], started["by"]) == (NOT_RECORDED, [])
    assert over["moves"] == []


def test_a_topic_has_grown(log: OffsetsLog) -> None:
    changed, started, _ = log.generation(5_000, 2, member("a", *range(6)))
    assert (changed["topic"], changed["before"], changed["partitions"]) == ("t", 4, 6)
    assert (changed["type"], started["cause"]) == ("topic_changed", "topic_changed")


def test_a_subscription_has_changed(log: OffsetsLog) -> None:
    changed, started, _ = log.generation(5_000, 2, member("a", 0, topics=("u", "v")))
    assert (changed["added"], changed["removed"]) == (["u", "v"], ["t"])
    assert started["cause"] == "subscription_changed"


def test_a_static_member_comes_back_with_and_without_a_rebalance() -> None:
    log = OffsetsLog()
    log.generation(0, 1, member("s1", 0, instance="s"))
    (replaced,) = log.generation(2_000, 1, member("s2", 0, instance="s"))
    assert (replaced["type"], replaced["member_id"], replaced["old_member_id"]) == (
        "static_member_replaced",
        "s2",
        "s1",
    )
    events = log.generation(3_000, 2, member("s3", 0, instance="s"))
    assert kinds(events) == ["static_member_replaced", "rebalance_started", "rebalance_over"]
    assert events[1]["cause"] == "static_member_replaced"


def test_a_group_gets_empty_and_goes_on(log: OffsetsLog) -> None:
    assert kinds(log.generation(5_000, 2, kind="")) == ["member_gone", "rebalance_started", "group_empty"]
    assert log.rebuilder.state == "Empty"
    over = log.generation(9_000, 3, member("b", 0), joined=8_990)[-1]
    # It was free when the group got empty (its join phase was over 10 ms before), and owned in generation 1.
    assert [(each["at_least_ms"], each["at_most_ms"]) for each in over["pauses"]] == [(4_010, 9_000)]


def test_a_deleted_group_begins_again(log: OffsetsLog) -> None:
    log.commit(1_000, 0)
    log.raw(offset_key(offset_key_head("g", "t"), 0), None, 2_000)
    events = log.raw(group_key("g"), None, 2_000)
    assert kinds(events) == ["offsets_committed", "group_deleted"]
    assert (events[1]["offsets"], events[1]["inferred"]) == (1, True)
    assert kinds(log.generation(3_000, 1, member("b", 0))) == ["member_joined", "rebalance_started", "rebalance_over"]
    assert log.rebuilder.offsets == {}


def test_generations_that_were_never_completed(log: OffsetsLog) -> None:
    gap, *_, started, _ = log.generation(5_000, 4, member("a", 0), member("b", 1))
    assert (gap["gap"], gap["first"], gap["last"]) == ("not_completed", 2, 3)
    assert started["cause"] == NOT_RECORDED


def test_generations_that_were_compacted(log: OffsetsLog) -> None:
    log.skip(3)
    gap, *_, started, _ = log.generation(5_000, 4, member("a", 0), member("b", 1))
    assert (gap["gap"], gap["first"], gap["last"], gap["records"]) == ("compacted", 2, 3, 3)
    assert started["cause"] == NOT_RECORDED


def test_a_generation_that_gets_smaller_is_another_group(log: OffsetsLog) -> None:
    log.generation(1_000, 2, member("a", 0), member("b", 1))
    events = log.generation(2_000, 1, member("b", 0))
    assert kinds(events) == ["history_gap", "member_joined", "rebalance_started", "rebalance_over"]
    assert (events[0]["gap"], events[0]["before"], events[0]["now"]) == ("went_back", 2, 1)


def test_clocks_that_disagree(log: OffsetsLog) -> None:
    log.commit(60_000, 0)
    events = log.generation(30_000, 2, member("a", 0), member("b", 1))
    assert (events[0]["gap"], events[0]["back_ms"]) == ("clock", 30_000)
    assert events[-1]["pauses"] == []


@pytest.mark.parametrize("timestamp", [-1, 2**62])
def test_times_that_cannot_be_right(log: OffsetsLog, timestamp: int) -> None:
    (gap,) = (
        log.raw(group_key("other"), b"", timestamp, absolute=True)
        or log.raw(group_key("g"), b"\x00\x63", timestamp, absolute=True)[:1]
    )
    assert (gap["gap"], gap["timestamp"]) == ("clock", timestamp)
    assert log.generation(5_000, 2, member("a", 0), member("b", 1))[-1]["time"] == NOON + 5_000


def test_what_cannot_be_read_is_a_gap_with_its_reason(log: OffsetsLog) -> None:
    for key, value, kind in (
        (None, b"", "unreadable"),
        (b"\x00", b"", "unreadable"),
        (group_key("g"), b"\x00\x63", "unreadable"),
        (group_key("g"), b"", "unreadable"),
        (group_key("g")[:2] + b"\x00\x01g" + b"\x00", b"", "unreadable"),
        (offset_key_head("g", "t") + b"\x00", b"", "unreadable"),
        (offset_key(offset_key_head("g", "t"), 0), b"\x00\x03", "unreadable"),
        (b"\x00\x0a" + group_key("g")[2:], b"", "unknown_type"),
    ):
        (gap,) = log.raw(key, value)
        assert (gap["type"], gap["gap"], gap["offset"]) == ("history_gap", kind, log.offset - 1)
    assert log.raw(b"\x00\x0a" + group_key("g")[2:], b"") == []  # a type is reported once
    assert log.rebuilder.holes == 7


def test_the_records_of_other_groups_say_nothing(log: OffsetsLog) -> None:
    log.commit(1_000, 0, group="other")
    log.raw(group_key("gg"), b"broken")
    log.raw(group_key(""), b"broken")
    assert log.finish() == []


def test_gaps_of_a_kind_are_counted() -> None:
    log = OffsetsLog()
    for _ in range(50):
        log.raw(None, None)
    (rest,) = log.finish()
    assert (len(log.of("history_gap")), rest["more"]) == (21, 30)


def test_a_group_of_another_protocol_has_members_without_partitions() -> None:
    log = OffsetsLog()
    over = log.generation(0, 1, member("a", 0), kind="connect")[-1]
    assert ("moves" in over, over["members"]) == (False, 1)


def test_offsets_at_the_end(log: OffsetsLog) -> None:
    log.commit(1_000, 0, 10)
    log.commit(2_000, 0, 20)
    log.commit(3_000, 1, 5)
    log.raw(offset_key(offset_key_head("g", "t"), 1), None, 4_000)
    committed, expired = log.finish()
    assert (committed["commits"], committed["partitions"]) == (3, 2)
    assert (expired["offsets"], expired["inferred"]) == (1, True)
    assert {name: each.offset for name, each in log.rebuilder.offsets.items()} == {("t", 0): 20}


def test_an_open_transaction() -> None:
    log = OffsetsLog()
    (gap,) = map(record_of, log.rebuilder.unstable_from(17, 4))
    assert (gap["gap"], gap["offset"], gap["records"]) == ("open_transaction", 17, 4)


def test_every_event_is_one_of_the_topic(log: OffsetsLog) -> None:
    log.generation(5_000, 4, member("b", 0), member("c", 1, instance="c"))
    log.generation(6_000, 4, member("b", 0), member("d", 1, instance="c"))
    log.raw(None, None)
    log.finish()
    assert len(log.events) > 8
    for event in log.events:
        assert decode_event(encode_event(event)) == event


# Looks at the group instead of records


def seen(name: str, *partitions: int) -> RebuiltMember:
    return RebuiltMember(name, None, f"client-{name}", "/h", partitions=frozenset(("t", each) for each in partitions))


def test_looks_are_compared() -> None:
    log = OffsetsLog()
    look = log.look
    (began,) = look(NOON, "Stable", [seen("a", 0, 1)])
    assert (began["type"], began["generation"]) == ("history_began", UNKNOWN_GENERATION)
    assert look(NOON + 1_000, "Stable", [seen("a", 0, 1)]) == []
    assert look(NOON + 2_000, "PreparingRebalance", []) == []
    joined, started, over = look(NOON + 3_000, "Stable", [seen("a", 0), seen("b", 1)])
    assert (joined["member_id"], started["cause"]) == ("b", "member_joined")
    assert started["between"] == [NOON + 1_000, NOON + 2_000]
    assert [(each["at_least_ms"], each["at_most_ms"]) for each in over["pauses"]] == [(1_000, 2_000)] * 2


def test_a_member_that_is_not_seen_again_may_have_gone_in_any_way() -> None:
    log = OffsetsLog()
    log.look(NOON, "Stable", [seen("a", 0), seen("b", 1)])
    gone, *_ = log.look(NOON + 1_000, "Stable", [seen("a", 0, 1)])
    assert (gone["type"], gone["possible"]) == ("member_gone", ["left", "expired", "not_rejoined"])
    assert gone["between"] == [NOON, NOON + 1_000]
