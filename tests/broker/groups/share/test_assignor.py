"""The assignor of share groups: every partition has a member, every member a partition, evenly, with few changes."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.groups.share.assignor import Partitions, assign

A, B, C = (bytes([number] * 16) for number in (1, 2, 3))


def members(count: int, *topics: bytes) -> dict[str, frozenset[bytes]]:
    return {f"m{number:03}": frozenset(topics) for number in range(count)}


def loads(assigned: dict[str, dict[bytes, tuple[int, ...]]]) -> list[int]:
    return sorted(sum(map(len, each.values())) for each in assigned.values())


def test_fewer_members_than_partitions() -> None:
    assigned = assign(members(2, A), {A: range(5)}, {})
    assert loads(assigned) == [2, 3]
    assert sorted(number for each in assigned.values() for number in each[A]) == list(range(5))


def test_more_members_than_partitions() -> None:
    assigned = assign(members(5, A), {A: range(2)}, {})
    assert loads(assigned) == [1] * 5
    counts = [sum(number in each[A] for each in assigned.values()) for number in range(2)]
    assert sorted(counts) == [2, 3]


def test_nothing_to_assign() -> None:
    assert assign({}, {A: range(2)}, {}) == {}
    assert assign(members(1, A), {}, {}) == {"m000": {}}
    assert assign(members(1, B), {A: range(2)}, {}) == {"m000": {}}


def test_members_with_different_subscriptions() -> None:
    subscriptions = {"a": frozenset([A]), "b": frozenset([A, B]), "c": frozenset([B])}
    assigned = assign(subscriptions, {A: range(2), B: range(1)}, {})
    assert set(assigned["a"]) | set(assigned["b"]) == {A, B}
    assert assigned["c"] == {B: (0,)}


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 5), min_size=1),
)
def test_even_complete_and_sticky(before: int, after: int, topics: dict[bytes, int]) -> None:
    partitions: Partitions = {topic_id: range(count) for topic_id, count in topics.items()}
    total = sum(topics.values())
    first = assign(members(before, *topics), partitions, {})
    for count, current, assigned in (
        (before, first, first),
        (before, first, assign(members(before, *topics), partitions, first)),
        (after, first, assign(members(after, *topics), partitions, first)),
    ):
        sizes = loads(assigned)
        assert sizes[-1] - sizes[0] <= 1 and sizes[0] >= (1 if count else 0) * min(1, total)
        given_to = [(topic_id, one) for each in assigned.values() for topic_id, many in each.items() for one in many]
        assert set(given_to) == {(topic_id, one) for topic_id, many in partitions.items() for one in many}
        shared = [given_to.count(one) for one in set(given_to)]
        assert max(shared) - min(shared) <= 1
        if count == before:
            assert assigned == current
        elif count <= total:
            assert len(given_to) == total
    if after > before and after <= total:
        later = assign(members(after, *topics), partitions, first)
        moved = sum(
            len(set(many) - set(later.get(member, {}).get(topic_id, ())))
            for member, each in first.items()
            for topic_id, many in each.items()
        )
        assert moved == sum(loads({name: each for name, each in later.items() if name not in first}))
