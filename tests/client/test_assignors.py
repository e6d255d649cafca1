"""Assignments as Kafka's own assignors make them: the cases of RangeAssignorTest and RoundRobinAssignorTest."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client.assignors import (
    EAGER_ONLY,
    Assignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    in_order,
)

RANGE, ROUND_ROBIN = RangeAssignor(), RoundRobinAssignor()


def members(**topics: str) -> dict[str, MemberSubscription]:
    """``members(c1="t1 t2")``."""
    return {name: MemberSubscription(tuple(text.split())) for name, text in topics.items()}


def assigned(
    assignor: Assignor, partitions: Mapping[str, int], who: Mapping[str, MemberSubscription]
) -> dict[str, str]:
    result = assignor.assign(partitions, who)
    return {name: " ".join(str(tp) for tp in result[name]) for name in who}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_no_topics(assignor: Assignor) -> None:
    assert assigned(assignor, {}, members(c1="")) == {"c1": ""}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_a_topic_that_does_not_exist(assignor: Assignor) -> None:
    assert assigned(assignor, {}, members(c1="t1")) == {"c1": ""}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_one_member_gets_all(assignor: Assignor) -> None:
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
    who = members(c1="t1", c2="t1 t2", c3="t1")
    assert assigned(RANGE, {"t1": 3, "t2": 2}, who) == {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"}


def test_round_robin_with_mixed_topics() -> None:
    who = members(c1="t1", c2="t1 t2", c3="t1")
    assert assigned(ROUND_ROBIN, {"t1": 3, "t2": 2}, who) == {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"}


def test_range_with_two_members_of_two_topics() -> None:
    who = members(c1="t1 t2", c2="t1 t2")
    assert assigned(RANGE, {"t1": 3, "t2": 3}, who) == {"c1": "t1-0 t1-1 t2-0 t2-1", "c2": "t1-2 t2-2"}


def test_round_robin_with_two_members_of_two_topics() -> None:
    who = members(c1="t1 t2", c2="t1 t2")
    assert assigned(ROUND_ROBIN, {"t1": 3, "t2": 3}, who) == {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"}


def test_range_with_other_numbers_of_partitions() -> None:
    who = members(c1="t1 t2", c2="t1 t2")
    assert assigned(RANGE, {"t1": 5, "t2": 3}, who) == {
        "c1": "t1-0 t1-1 t1-2 t2-0 t2-1",
        "c2": "t1-3 t1-4 t2-2",
    }


def test_members_are_taken_by_id_not_by_order_of_arrival() -> None:
    who = members(c2="t1", c1="t1")
    assert assigned(RANGE, {"t1": 3}, who) == {"c1": "t1-0 t1-1", "c2": "t1-2"}


def test_static_members_come_first_by_instance_id() -> None:
    who = {
        "a": MemberSubscription(("t",)),
        "b": MemberSubscription(("t",), instance_id="i2"),
        "c": MemberSubscription(("t",), instance_id="i1"),
    }
    assert in_order(who) == ["c", "b", "a"]
    assert assigned(RANGE, {"t": 3}, who) == {"a": "t-2", "b": "t-1", "c": "t-0"}
    assert assigned(ROUND_ROBIN, {"t": 4}, who) == {"a": "t-2", "b": "t-1", "c": "t-0 t-3"}


def test_a_static_member_keeps_its_share_under_a_new_member_id() -> None:
    def share(member_id: str) -> str:
        who = {
            member_id: MemberSubscription(("t",), instance_id="i1"),
            "m": MemberSubscription(("t",), instance_id="i2"),
        }
        return assigned(RANGE, {"t": 3}, who)[member_id]

    assert share("a") == share("z") == "t-0 t-1"


def test_both_are_eager_and_keep_nothing() -> None:
    for assignor in (RANGE, ROUND_ROBIN):
        assert assignor.protocols == EAGER_ONLY
        assert assignor.user_data(["t"]) is None


@given(
    partitions=st.dictionaries(st.sampled_from(["t1", "t2", "t3"]), st.integers(1, 12)),
    who=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sets(st.sampled_from(["t1", "t2", "t3", "t4"]))),
)
@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_every_partition_goes_to_one_member_that_wants_it(
    assignor: Assignor, partitions: dict[str, int], who: dict[str, set[str]]
) -> None:
    subscriptions = {name: MemberSubscription(tuple(sorted(topics))) for name, topics in who.items()}
    result = assignor.assign(partitions, subscriptions)
    dealt = [tp for share in result.values() for tp in share]
    wanted = set().union(*who.values()) if who else set()
    assert len(dealt) == len(set(dealt))
    assert set(dealt) == {
        (topic, number) for topic, count in partitions.items() if topic in wanted for number in range(count)
    }
    assert all(tp.topic in who[name] for name, share in result.items() for tp in share)


@given(count=st.integers(0, 40), size=st.integers(1, 7))
@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_equal_members_get_shares_that_differ_by_one_at_most(assignor: Assignor, count: int, size: int) -> None:
    who = {f"m{number}": MemberSubscription(("t",)) for number in range(size)}
    sizes = [len(share) for share in assignor.assign({"t": count}, who).values()]
    assert max(sizes) - min(sizes) <= 1
