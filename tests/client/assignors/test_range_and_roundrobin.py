"""Assignments as Kafka's own assignors make them: the cases of RangeAssignorTest and RoundRobinAssignorTest."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client.assignors import (
    EAGER_ONLY,
    Assignments,
    Assignor,
    MemberSubscription,
    PartitionCounts,
    RangeAssignor,
    RoundRobinAssignor,
    in_order,
)
from barnabas_client.structs import TopicPartition

RANGE, ROUND_ROBIN = RangeAssignor(), RoundRobinAssignor()


def members(**topics: str) -> dict[str, MemberSubscription]:
    """``members(c1="t1 t2")``."""
    return {name: MemberSubscription(tuple(text.split())) for name, text in topics.items()}


def assigned(
    assignor: Assignor, partitions: Mapping[str, int], subscribers: Mapping[str, MemberSubscription]
) -> dict[str, str]:
    result = assignor.assign(partitions, subscribers)
    return {name: " ".join(str(tp) for tp in result[name]) for name in subscribers}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_no_topics(assignor: Assignor) -> None:
    assert assigned(assignor, {}, members(c1="")) == {"c1": ""}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_a_topic_that_does_not_exist(assignor: Assignor) -> None:
    assert assigned(assignor, {}, members(c1="t1")) == {"c1": ""}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_one_member_receives_all(assignor: Assignor) -> None:
    assert assigned(assignor, {"t1": 3}, members(c1="t1")) == {"c1": "t1-0 t1-1 t1-2"}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_only_topics_that_are_subscribed_to(assignor: Assignor) -> None:
    assert assigned(assignor, {"t1": 3, "other": 3}, members(c1="t1")) == {"c1": "t1-0 t1-1 t1-2"}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_one_member_of_several_topics(assignor: Assignor) -> None:
    assert assigned(assignor, {"t1": 1, "t2": 2}, members(c1="t1 t2")) == {"c1": "t1-0 t2-0 t2-1"}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_two_members_of_one_partition(assignor: Assignor) -> None:
    assert assigned(assignor, {"t1": 1}, members(c1="t1", c2="t1")) == {"c1": "t1-0", "c2": ""}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_two_members_of_two_partitions(assignor: Assignor) -> None:
    assert assigned(assignor, {"t1": 2}, members(c1="t1", c2="t1")) == {"c1": "t1-0", "c2": "t1-1"}


def test_range_with_mixed_topics() -> None:
    subscribers = members(c1="t1", c2="t1 t2", c3="t1")
    assert assigned(RANGE, {"t1": 3, "t2": 2}, subscribers) == {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"}


def test_round_robin_with_mixed_topics() -> None:
    subscribers = members(c1="t1", c2="t1 t2", c3="t1")
    assert assigned(ROUND_ROBIN, {"t1": 3, "t2": 2}, subscribers) == {
        "c1": "t1-0",
        "c2": "t1-1 t2-0 t2-1",
        "c3": "t1-2",
    }


def test_range_with_two_members_of_two_topics() -> None:
    subscribers = members(c1="t1 t2", c2="t1 t2")
    assert assigned(RANGE, {"t1": 3, "t2": 3}, subscribers) == {"c1": "t1-0 t1-1 t2-0 t2-1", "c2": "t1-2 t2-2"}


def test_round_robin_with_two_members_of_two_topics() -> None:
    subscribers = members(c1="t1 t2", c2="t1 t2")
    assert assigned(ROUND_ROBIN, {"t1": 3, "t2": 3}, subscribers) == {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"}


def test_range_with_other_numbers_of_partitions() -> None:
    subscribers = members(c1="t1 t2", c2="t1 t2")
    assert assigned(RANGE, {"t1": 5, "t2": 3}, subscribers) == {
        "c1": "t1-0 t1-1 t1-2 t2-0 t2-1",
        "c2": "t1-3 t1-4 t2-2",
    }


def test_members_are_ordered_by_id() -> None:
    subscribers = members(c2="t1", c1="t1")
    assert assigned(RANGE, {"t1": 3}, subscribers) == {"c1": "t1-0 t1-1", "c2": "t1-2"}


def test_static_members_come_first_by_instance_id() -> None:
    subscribers = {
        "a": MemberSubscription(("t",)),
        "b": MemberSubscription(("t",), instance_id="i2"),
        "c": MemberSubscription(("t",), instance_id="i1"),
    }
    assert in_order(subscribers) == ["c", "b", "a"]
    assert assigned(RANGE, {"t": 3}, subscribers) == {"a": "t-2", "b": "t-1", "c": "t-0"}
    assert assigned(ROUND_ROBIN, {"t": 4}, subscribers) == {"a": "t-2", "b": "t-1", "c": "t-0 t-3"}


def test_a_static_member_keeps_its_assignment_under_a_new_member_id() -> None:
    def assignment(member_id: str) -> str:
        subscribers = {
            member_id: MemberSubscription(("t",), instance_id="i1"),
            "m": MemberSubscription(("t",), instance_id="i2"),
        }
        return assigned(RANGE, {"t": 3}, subscribers)[member_id]

    assert assignment("a") == assignment("z") == "t-0 t-1"


def test_both_are_eager_and_keep_nothing() -> None:
    for assignor in (RANGE, ROUND_ROBIN):
        assert assignor.protocols == EAGER_ONLY
        assert assignor.user_data(["t"]) is None


# Racks (KIP-881).


def in_racks(**racks: str) -> dict[str, MemberSubscription]:
    """``in_racks(c1="t1 t2@a")``: topics and rack of each member."""
    seen = {name: text.partition("@") for name, text in racks.items()}
    return {
        name: MemberSubscription(tuple(topics.split()), rack=rack or None) for name, (topics, _, rack) in seen.items()
    }


def counted(**racks: str) -> PartitionCounts:
    """``counted(t1="ab bc")``: a topic of two partitions, with replicas in racks a and b, b and c."""
    near = {topic: [frozenset(word) for word in text.split()] for topic, text in racks.items()}
    return PartitionCounts({topic: len(partitions) for topic, partitions in near.items()}, near)


def test_range_gives_members_partitions_of_their_own_rack() -> None:
    assert assigned(RANGE, counted(t1="ab bc ca"), in_racks(c1="t1@c", c2="t1@a", c3="t1@b")) == {
        "c1": "t1-1",
        "c2": "t1-0",
        "c3": "t1-2",
    }


@pytest.mark.parametrize("members_racks", ["@", "@x"])
def test_range_without_common_racks(members_racks: str) -> None:
    subscribers = in_racks(c1="t1" + members_racks, c2="t1" + members_racks)
    assert assigned(RANGE, counted(t1="a b a b"), subscribers) == {"c1": "t1-0 t1-1", "c2": "t1-2 t1-3"}


def test_range_ignores_racks_that_all_have_all_partitions() -> None:
    subscribers = in_racks(c1="t1@b", c2="t1@a")
    assert assigned(RANGE, counted(t1="ab ab ab ab"), subscribers) == {"c1": "t1-0 t1-1", "c2": "t1-2 t1-3"}


def test_range_prefers_balance_to_racks() -> None:
    subscribers = in_racks(c1="t1@a", c2="t1@b")
    assert assigned(RANGE, counted(t1="a a a a b b"), subscribers) == {"c1": "t1-0 t1-1 t1-2", "c2": "t1-3 t1-4 t1-5"}


def test_range_keeps_the_numbers_of_topics_that_may_be_joined_together() -> None:
    subscribers = in_racks(c1="t1 t2@b", c2="t1 t2@a")
    assert assigned(RANGE, counted(t1="a b", t2="a b"), subscribers) == {"c1": "t1-1 t2-1", "c2": "t1-0 t2-0"}
    # No member is near the same number of both topics: ranges without racks.
    assert assigned(RANGE, counted(t1="a b", t2="b a"), subscribers) == {"c1": "t1-0 t2-0", "c2": "t1-1 t2-1"}


def test_range_with_a_member_without_a_rack() -> None:
    subscribers = in_racks(c1="t1@b", c2="t1")
    assert assigned(RANGE, counted(t1="a b a b"), subscribers) == {"c1": "t1-1 t1-3", "c2": "t1-0 t1-2"}


def test_counts_of_some_topics_and_what_changed() -> None:
    known = counted(t1="a b", t2="a")
    some = PartitionCounts.of(known, ["t1", "t3"], with_racks=True)
    assert some == {"t1": 2}
    assert some.racks == {"t1": known.racks["t1"]}
    assert PartitionCounts.of(known, ["t1"], with_racks=False).racks == {}
    assert PartitionCounts.of({"t1": 2}, ["t1"], with_racks=True).racks == {}
    assert some.changed(some) == []
    assert some.changed(counted(t1="a c")) == ["t1"]
    assert some.changed(counted(t1="a b", t2="a")) == ["t2"]


def test_a_custom_assignor() -> None:
    class First(Assignor):
        name = "first"

        def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
            return {
                min(members): [TopicPartition(topic, n) for topic, count in partitions.items() for n in range(count)]
            }

    own = First()
    own.assigned([], 1)
    assert own.protocols == EAGER_ONLY
    assert own.user_data(["t"]) is None
    assert own.assign({"t": 1}, members(b="t", a="t")) == {"a": [TopicPartition("t", 0)]}


# In all situations.


@given(
    racks=st.dictionaries(
        st.sampled_from(["t1", "t2", "t3"]), st.lists(st.sets(st.sampled_from("abc")).map(frozenset), max_size=8)
    ),
    homes=st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=6),
)
def test_racks_change_no_lengths(racks: dict[str, list[frozenset[str]]], homes: list[str | None]) -> None:
    counts = PartitionCounts({topic: len(near) for topic, near in racks.items()}, racks)
    subscribers = {f"m{number}": MemberSubscription(("t1", "t2", "t3"), rack=home) for number, home in enumerate(homes)}
    result = RANGE.assign(counts, subscribers)
    assert sorted(tp for partitions in result.values() for tp in partitions) == sorted(
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    )
    for topic, count in counts.items():
        lengths = sorted(sum(tp.topic == topic for tp in partitions) for partitions in result.values())
        assert lengths == sorted((count + rank) // len(subscribers) for rank in range(len(subscribers)))


@given(
    partitions=st.dictionaries(st.sampled_from(["t1", "t2", "t3"]), st.integers(1, 12)),
    subscribers=st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.sets(st.sampled_from(["t1", "t2", "t3", "t4"]))
    ),
)
@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_every_partition_has_one_subscribed_owner(
    assignor: Assignor, partitions: dict[str, int], subscribers: dict[str, set[str]]
) -> None:
    subscriptions = {name: MemberSubscription(tuple(sorted(topics))) for name, topics in subscribers.items()}
    result = assignor.assign(partitions, subscriptions)
    all_assigned = [tp for partitions in result.values() for tp in partitions]
    wanted = set().union(*subscribers.values()) if subscribers else set()
    assert len(all_assigned) == len(set(all_assigned))
    assert set(all_assigned) == {
        (topic, number) for topic, count in partitions.items() if topic in wanted for number in range(count)
    }
    assert all(tp.topic in subscribers[name] for name, partitions in result.items() for tp in partitions)


@given(count=st.integers(0, 40), size=st.integers(1, 7))
@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_assignments_of_equal_members_differ_by_at_most_one(assignor: Assignor, count: int, size: int) -> None:
    subscribers = {f"m{number}": MemberSubscription(("t",)) for number in range(size)}
    sizes = [len(partitions) for partitions in assignor.assign({"t": count}, subscribers).values()]
    assert max(sizes) - min(sizes) <= 1
