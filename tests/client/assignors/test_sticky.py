"""The sticky assignors: the situations of Kafka's tests of theirs, and what holds in all situations.

Equality with Kafka's assignments is tested in ``tests/interop/test_assignors.py``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client.assignors import (
    Assignments,
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    PartitionCounts,
    RebalanceProtocol,
    StickyAssignor,
)
from barnabas_client.assignors.user_data import encode_claim, encode_generation
from barnabas_client.structs import TopicPartition


def tps(text: str) -> list[TopicPartition]:
    """``tps("a-0 b-1")``."""
    return [TopicPartition(topic, int(number)) for topic, _, number in (word.rpartition("-") for word in text.split())]


def sticky(topics: str, had: str = "", generation: int = 1) -> MemberSubscription:
    return MemberSubscription(tuple(topics.split()), user_data=encode_claim(tps(had), generation))


def cooperative(topics: str, owned: str = "", generation: int = 1) -> MemberSubscription:
    return MemberSubscription(tuple(topics.split()), owned=tuple(tps(owned)), generation=generation)


def assignments(assignor: Assignor, counts: Mapping[str, int], **members: MemberSubscription) -> dict[str, str]:
    return {name: " ".join(map(str, assigned)) for name, assigned in assignor.assign(counts, members).items()}


def sizes(result: Assignments) -> list[int]:
    return sorted(len(assigned) for assigned in result.values())


@dataclass
class Group:
    """Members that rebalance until no partition has to be revoked. A partition with two owners fails."""

    kind: type[StickyAssignor] | type[CooperativeStickyAssignor]
    counts: dict[str, int]
    topics: dict[str, Sequence[str]] = field(default_factory=dict)
    assignors: dict[str, Assignor] = field(default_factory=dict)
    owned: Assignments = field(default_factory=dict)
    generation: int = 0
    rounds: int = 0

    def join(self, *members: str, topics: Sequence[str] | None = None) -> None:
        for member in members:
            self.topics[member] = tuple(self.counts) if topics is None else topics
            self.assignors.setdefault(member, self.kind())
            self.owned.setdefault(member, [])

    def leave(self, member: str) -> None:
        for known in (self.topics, self.assignors, self.owned):
            del known[member]

    def rebalance(self) -> Assignments:
        """How it ends."""
        self.rounds = 0
        while self._round():
            assert self.rounds < 4, "the group does not come to rest"
        self.check(everything=True)
        return self.owned

    def _round(self) -> bool:
        self.rounds += 1
        keeps = RebalanceProtocol.COOPERATIVE in self.kind().protocols
        members = {}
        for member, topics in self.topics.items():
            owned = [tp for tp in self.owned[member] if keeps and tp.topic in topics]
            self.owned[member] = owned
            members[member] = MemberSubscription(
                tuple(topics),
                owned=tuple(owned),
                generation=self.generation if owned else -1,
                user_data=self.assignors[member].user_data(topics),
            )
        leader = min(self.topics)
        result = self.assignors[leader].assign(self.counts, members)
        self.generation += 1
        revoked = False
        taken = {tp: member for member, owned in self.owned.items() for tp in owned}
        for member, assigned in result.items():
            assert all(taken.get(tp, member) == member for tp in assigned), "assigned before it was revoked"
            revoked |= not set(self.owned[member]) <= set(assigned)
            self.assignors[member].assigned(assigned, self.generation)
        self.owned = result
        self.check(everything=False)
        return revoked

    def check(self, *, everything: bool) -> None:
        all_assigned = [tp for assigned in self.owned.values() for tp in assigned]
        wanted = {topic for topics in self.topics.values() for topic in topics}
        all_of_them = {
            TopicPartition(topic, n) for topic, count in self.counts.items() if topic in wanted for n in range(count)
        }
        assert len(all_assigned) == len(set(all_assigned))
        assert set(all_assigned) == all_of_them if everything else set(all_assigned) <= all_of_them
        assert all(tp.topic in self.topics[member] for member, assigned in self.owned.items() for tp in assigned)


def moved(before: Assignments, after: Assignments) -> int:
    """How many partitions of members that stayed moved to another member."""
    return sum(len(set(before[member]) - set(after[member])) for member in before.keys() & after.keys())


def copy(owned: Assignments) -> Assignments:
    return {member: list(assigned) for member, assigned in owned.items()}


both = pytest.mark.parametrize("kind", [StickyAssignor, CooperativeStickyAssignor])
Kind = type[StickyAssignor] | type[CooperativeStickyAssignor]


# What is the same for both.


@both
def test_no_members_and_no_topics(kind: Kind) -> None:
    assert kind().assign({}, {}) == {}
    assert kind().assign({"t": 3}, {}) == {}
    assert assignments(kind(), {}, a=cooperative("")) == {"a": ""}
    assert assignments(kind(), {}, a=cooperative("missing")) == {"a": ""}


@both
def test_only_what_is_subscribed_to(kind: Kind) -> None:
    assert assignments(kind(), {"t": 2, "other": 2}, a=cooperative("t")) == {"a": "t-0 t-1"}


@both
def test_a_first_assignment_is_round_robin(kind: Kind) -> None:
    result = assignments(kind(), {"t1": 3, "t2": 3}, b=cooperative("t1 t2"), a=cooperative("t2 t1"))
    assert result == {"a": "t1-0 t1-2 t2-1", "b": "t1-1 t2-0 t2-2"}


@both
def test_more_members_than_partitions(kind: Kind) -> None:
    group = Group(kind, {"t": 2})
    group.join("a", "b", "c")
    assert sizes(group.rebalance()) == [0, 1, 1]


@both
def test_different_subscriptions_are_balanced_where_round_robin_is_not(kind: Kind) -> None:
    group = Group(kind, {"t1": 1, "t2": 2, "t3": 3})
    group.join("a", topics=("t1",))
    group.join("b", topics=("t1", "t2"))
    group.join("c", topics=("t1", "t2", "t3"))
    assert group.rebalance() == {"a": tps("t1-0"), "b": tps("t2-0 t2-1"), "c": tps("t3-0 t3-1 t3-2")}
    group.leave("a")
    assert group.rebalance() == {"b": tps("t2-0 t2-1 t1-0"), "c": tps("t3-0 t3-1 t3-2")}


@both
@pytest.mark.parametrize("alike", [True, False])
def test_a_new_member_takes_as_few_partitions_as_possible(kind: Kind, alike: bool) -> None:
    group = Group(kind, {"t": 20, "u": 1})
    group.join("a", "b", "c", "d", topics=("t", "u"))
    before = copy(group.rebalance())
    group.join("e", topics=("t", "u") if alike else ("t",))
    after = group.rebalance()
    assert sizes(after) == [4, 4, 4, 4, 5]
    assert moved(before, after) == 4


@both
@pytest.mark.parametrize("alike", [True, False])
def test_members_keep_their_partitions_when_another_one_leaves(kind: Kind, alike: bool) -> None:
    group = Group(kind, {"t": 20, "u": 1})
    group.join("a", "b", "c", "d", topics=("t", "u"))
    group.join("e", topics=("t", "u") if alike else ("t",))
    before = copy(group.rebalance())
    group.leave("c")
    after = group.rebalance()
    assert sizes(after) == [5, 5, 5, 6]
    assert moved(before, after) == 0
    assert group.rounds == 1, "no partition had to be revoked"


@both
def test_nothing_changes_without_a_reason(kind: Kind) -> None:
    group = Group(kind, {"t": 7, "u": 5})
    group.join("a", "b", "c", "d", "e")
    before = {member: set(assigned) for member, assigned in group.rebalance().items()}
    assert {member: set(assigned) for member, assigned in group.rebalance().items()} == before


@both
def test_an_added_and_a_removed_topic(kind: Kind) -> None:
    group = Group(kind, {"t": 6})
    group.join("a", "b", topics=("t", "u"))
    before = copy(group.rebalance())
    group.counts["u"] = 6
    after = copy(group.rebalance())
    assert moved(before, after) == 0
    assert sizes(after) == [6, 6]
    del group.counts["t"]
    assert sizes(group.rebalance()) == [3, 3]


@both
def test_the_only_topic_is_deleted(kind: Kind) -> None:
    group = Group(kind, {"t": 6})
    group.join("a", "b", topics=("t",))
    group.rebalance()
    group.counts.clear()
    assert group.rebalance() == {"a": [], "b": []}


@both
def test_a_member_that_changes_its_subscription(kind: Kind) -> None:
    group = Group(kind, {"t": 4, "u": 4})
    group.join("a", "b")
    group.rebalance()
    group.join("a", topics=("u",))
    assert sizes(group.rebalance()) == [4, 4]


@both
def test_a_topic_that_was_created_again_with_fewer_partitions(kind: Kind) -> None:
    group = Group(kind, {"t": 9})
    group.join("a", "b", "c")
    group.rebalance()
    group.counts["t"] = 4
    assert sizes(group.rebalance()) == [1, 1, 2]


@both
@pytest.mark.parametrize("first", ["a", "z"])
def test_a_member_without_topics_receives_no_partitions(kind: Kind, first: str) -> None:
    members = {first: MemberSubscription(()), "m": cooperative("t"), "n": cooperative("t")}
    assert sizes(kind().assign({"t": 4}, members)) == [0, 2, 2]
    assert kind().assign({"t": 4}, members)[first] == []


# Generations.


def test_an_older_claim_yields_to_a_newer_one() -> None:
    result = assignments(
        StickyAssignor(), {"t": 3}, a=_known(sticky("t", "t-0 t-1", 3)), b=_known(sticky("t", "t-0 t-2", 4))
    )
    assert result["b"] == "t-0 t-2"
    assert result["a"] == "t-1"


def test_two_claims_for_the_same_generation_do_not_count() -> None:
    result = assignments(
        CooperativeStickyAssignor(), {"t": 2}, a=cooperative("t", "t-0"), b=cooperative("t", "t-0 t-1")
    )
    assert result == {"a": "", "b": "t-1"}, "t-0 is free when both have given it up"


@pytest.mark.parametrize("former", ["c", "d"])
def test_a_partition_moves_back_to_its_former_owner(former: str) -> None:
    members = {"a": sticky("u", "u-0", 2), "b": sticky("t", "t-0 t-1 t-2 t-3", 2), "c": sticky("t"), "d": sticky("t")}
    members = {member: _known(seen) for member, seen in members.items()} | {former: sticky("t", "t-0", 1)}
    assert TopicPartition("t", 0) in StickyAssignor().assign({"t": 4, "u": 1}, members)[former]


def test_no_partition_moves_back_to_an_unsubscribed_member() -> None:
    for stale in ("c", "z"):
        members = {
            "a": cooperative("t u", "t-0 t-1 t-2 t-3 t-4 t-5 u-0 u-1", 2),
            "b": cooperative("t", "", 2),
            stale: cooperative("u", "t-4 t-5", 1),
        }
        result = CooperativeStickyAssignor().assign({"t": 6, "u": 2}, members)
        assert all(tp.topic == "u" for tp in result[stale])


def _known(seen: MemberSubscription) -> MemberSubscription:
    """With its generation also beside its data, as consumers send it since KIP-792."""
    claim = int.from_bytes((seen.user_data or b"")[-4:], signed=True)
    return MemberSubscription(seen.topics, user_data=seen.user_data, generation=claim)


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00\x09t"])
def test_user_data_that_cannot_be_decoded_is_no_claim(data: bytes | None) -> None:
    members = {"a": MemberSubscription(("t",), user_data=data), "b": sticky("t", "t-0")}
    assert StickyAssignor().assign({"t": 2}, members) == {"a": tps("t-1"), "b": tps("t-0")}


# The members' side.


def test_sticky_remembers_and_is_eager() -> None:
    assignor = StickyAssignor()
    assert assignor.protocols == {RebalanceProtocol.EAGER}
    assert assignor.user_data(["t"]) is None
    assignor.assigned(tps("t-0 t-1"), 7)
    assert assignor.user_data(["t"]) == encode_claim(tps("t-0 t-1"), 7)


def test_cooperative_sticky_sends_its_generation_and_supports_both_protocols() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.protocols == {RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE}
    assert assignor.user_data(["t"]) == encode_generation(-1) == b"\xff\xff\xff\xff"
    assignor.assigned(tps("t-0"), 7)
    assert assignor.user_data(["t"]) == b"\x00\x00\x00\x07"


def test_a_leader_reads_the_generation_of_older_members_from_their_data() -> None:
    old = MemberSubscription(("t",), owned=tuple(tps("t-0")), user_data=encode_generation(5))
    assert assignments(CooperativeStickyAssignor(), {"t": 1}, a=cooperative("t", "t-0", 4), b=old) == {
        "a": "",
        "b": "t-0",
    }


def test_a_moving_partition_is_first_revoked() -> None:
    members = {"a": cooperative("t", "t-0 t-1 t-2 t-3"), "b": cooperative("t")}
    first = CooperativeStickyAssignor().assign({"t": 4}, members)
    assert first == {"a": tps("t-0 t-1"), "b": []}
    members["a"] = cooperative("t", "t-0 t-1", 2)
    second = CooperativeStickyAssignor().assign({"t": 4}, members)
    assert second == {"a": tps("t-0 t-1"), "b": tps("t-2 t-3")}


# Racks (KIP-881).


@both
def test_members_receive_partitions_of_their_rack_if_that_is_balanced(kind: Kind) -> None:
    racks = {"t": [frozenset({rack}) for rack in "xyxyxy"]}
    members = {
        name: MemberSubscription(("t",), rack=rack) for name, rack in {"a": "y", "b": "x", "c": "x", "d": "y"}.items()
    }
    result = kind().assign(PartitionCounts({"t": 6}, racks), members)
    assert sizes(result) == [1, 1, 2, 2]
    assert all(members[name].rack in racks["t"][tp.partition] for name, assigned in result.items() for tp in assigned)


# In all situations.

topic_names = st.sampled_from(["t1", "t2", "t3"])
counts = st.dictionaries(topic_names, st.integers(0, 9), min_size=1)
steps = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.none() | st.sets(topic_names), st.none() | counts), min_size=1, max_size=6
)


@both
@given(first=counts, changes=steps)
def test_groups_become_stable_with_one_owner_for_each_partition(
    kind: Kind, first: dict[str, int], changes: list[tuple[str, set[str] | None, dict[str, int] | None]]
) -> None:
    group = Group(kind, dict(first))
    group.join("m", topics=("t1", "t2", "t3"))
    for member, topics, new_counts in changes:
        if topics is not None:
            group.join(member, topics=sorted(topics))
        elif member in group.topics:
            group.leave(member)
        group.counts = dict(new_counts or group.counts)
        result = group.rebalance()
        assert not _could_be_more_even(group, result)


def _could_be_more_even(group: Group, result: Assignments) -> bool:
    return any(
        len(result[other]) > len(result[member]) + 1
        for member, topics in group.topics.items()
        for other, assigned in result.items()
        if any(tp.topic in topics for tp in assigned)
    )


@both
@given(count=st.integers(0, 60), size=st.integers(1, 9), leaving=st.integers(0, 8), joining=st.integers(0, 4))
def test_no_unnecessary_moves(kind: Kind, count: int, size: int, leaving: int, joining: int) -> None:
    group = Group(kind, {"t": count})
    group.join(*(f"m{number}" for number in range(size)))
    before = copy(group.rebalance())
    for number in range(min(leaving, size - 1)):
        group.leave(f"m{number}")
    group.join(*(f"n{number}" for number in range(joining)))
    after = group.rebalance()
    assert sizes(after)[-1] - sizes(after)[0] <= 1
    # Members that stay give up what is over the new quotas, of which as many as possible are the longer ones.
    low, longer = divmod(count, len(after))
    had = sorted((len(before[member]) for member in before.keys() & after.keys()), reverse=True)
    quotas = [low + 1] * longer + [low] * len(after)
    assert moved(before, after) == sum(max(0, n - quota) for n, quota in zip(had, quotas, strict=False))


@given(owners=st.lists(st.sampled_from("abc"), min_size=1, max_size=20), data=st.data())
def test_no_partition_has_two_owners(owners: list[str], data: st.DataObject) -> None:
    owned: dict[str, list[TopicPartition]] = {member: [] for member in "abcd"}
    for number, owner in enumerate(owners):
        owned[owner].append(TopicPartition("t", number))
    members = {}
    for member, partitions in owned.items():
        topics = data.draw(st.sampled_from([("t",), ("t", "u")]))
        members[member] = MemberSubscription(topics, owned=tuple(partitions), generation=data.draw(st.integers(1, 2)))
    result = CooperativeStickyAssignor().assign({"t": len(owners), "u": 2}, members)
    assert _foreign(result, owned) == []


def _foreign(result: Assignments, owned: Mapping[str, Iterable[TopicPartition]]) -> list[TopicPartition]:
    owner = {tp: member for member, assigned in owned.items() for tp in assigned}
    return [tp for member, assigned in result.items() for tp in assigned if owner.get(tp, member) != member]
