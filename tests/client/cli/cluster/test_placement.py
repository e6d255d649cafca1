"""Plans of replicas and leaders: properties over random clusters, and the least number of moves by trying all."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from barnabas_client.cli.cluster.placement import (
    Brokers,
    Placement,
    PlacementError,
    moved_replicas,
    spread,
    vacated,
)
from barnabas_client.structs import TopicPartition
from tests.lots import in_lots


def random_cluster(draw: random.Random, nodes: int, partitions: int, factor: int) -> tuple[Placement, Brokers]:
    racks = draw.choice((0, 0, 1, 2, 3))
    brokers = {node: f"r{draw.randrange(racks)}" if racks else None for node in range(1, nodes + 1)}
    placement = {}
    for at in range(partitions):
        count = draw.randint(1, min(factor, nodes))
        tp = TopicPartition(draw.choice("ab"), at)
        weights = draw.sample(sorted(brokers), draw.randint(count, nodes))
        placement[tp] = tuple(draw.sample(weights, count))
    return placement, brokers


def loads(placement: Mapping[TopicPartition, tuple[int, ...]], brokers: Brokers) -> list[int]:
    counts = Counter(node for replicas in placement.values() for node in replicas)
    return [counts[node] for node in brokers]


def leaders(placement: Mapping[TopicPartition, tuple[int, ...]], brokers: Brokers) -> list[int]:
    counts = Counter(replicas[0] for replicas in placement.values())
    return [counts[node] for node in brokers]


def is_spread(replicas: tuple[int, ...], brokers: Brokers) -> bool:
    """Whether no other set of brokers has the replicas spread more evenly over racks."""
    sizes, used = Counter(brokers.values()), Counter(brokers[node] for node in replicas)
    return not any(used[one] - used[other] >= 2 and used[other] < sizes[other] for one in sizes for other in sizes)


def squares(numbers: list[int]) -> int:
    return sum(number * number for number in numbers)


@in_lots("seed", range(150))
def test_replicas_and_leaders_are_spread(seed: int) -> None:
    draw = random.Random(seed)
    placement, brokers = random_cluster(draw, draw.randint(1, 9), draw.randint(1, 60), 4)
    plan = spread(placement, brokers)
    after = {**placement, **plan}
    for tp, replicas in after.items():
        assert len(replicas) == len(placement[tp]) == len(set(replicas))
        assert set(replicas) <= set(brokers)
        assert is_spread(replicas, brokers)
    if len(set(brokers.values())) == 1:
        assert max(loads(after, brokers)) - min(loads(after, brokers)) <= 1
        # Each broker above the average gives, and nothing else moves.
        lost = sum(max(0, load) for load in map(int.__sub__, loads(placement, brokers), loads(after, brokers)))
        assert moved_replicas(placement, plan) == lost
    assert spread(after, brokers) == {}


@in_lots("seed", range(300))
def test_no_other_placement_is_more_even_or_moves_less(seed: int) -> None:
    draw = random.Random(seed)
    nodes = draw.randint(3, 5)
    placement, every_broker = random_cluster(draw, nodes, draw.randint(2, 5), 2)
    gone = draw.sample(sorted(every_broker), draw.randint(0, nodes - 2))
    brokers = {node: rack for node, rack in every_broker.items() if node not in gone}
    names = list(placement)

    def choices(tp: TopicPartition) -> list[tuple[int, ...]]:
        sets = itertools.combinations(sorted(brokers), len(placement[tp]))
        return [replicas for replicas in sets if is_spread(replicas, brokers)]

    def every_placement() -> Iterator[tuple[int, int]]:
        for chosen in itertools.product(*(choices(tp) for tp in names)):
            other = dict(zip(names, chosen, strict=True))
            yield squares(loads(other, brokers)), moved_replicas(placement, other)

    plan = spread(placement, brokers)
    after = {**placement, **plan}
    assert (squares(loads(after, brokers)), moved_replicas(placement, plan)) == min(every_placement())

    def every_leader() -> Iterator[tuple[int, int]]:
        for chosen in itertools.product(*(after[tp] for tp in names)):
            counts = Counter(chosen)
            changes = sum(placement[tp][0] != leader for tp, leader in zip(names, chosen, strict=True))
            yield squares([counts[node] for node in brokers]), changes

    changes = sum(after[tp][0] != placement[tp][0] for tp in names)
    assert (squares(leaders(after, brokers)), changes) == min(every_leader())


def test_leaders_differ_by_at_most_one_where_replicas_allow_it() -> None:
    placement = {TopicPartition("t", at): (1, 2, 3) for at in range(10)}
    plan = spread(placement, {1: None, 2: None, 3: None})
    assert sorted(leaders({**placement, **plan}, {1: None, 2: None, 3: None})) == [3, 3, 4]
    assert moved_replicas(placement, plan) == 0
    assert len(plan) == 6


@in_lots("seed", range(100))
def test_a_broker_is_emptied_and_all_else_stays(seed: int) -> None:
    draw = random.Random(2_000 + seed)
    nodes = draw.randint(4, 9)
    placement, brokers = random_cluster(draw, nodes, draw.randint(1, 60), 3)
    leaving = draw.randint(1, nodes)
    plan = vacated(placement, brokers, leaving)
    assert set(plan) == {tp for tp, replicas in placement.items() if leaving in replicas}
    for tp, replicas in plan.items():
        kept = set(placement[tp]) - {leaving}
        assert kept < set(replicas)
        assert len(replicas) == len(placement[tp]) == len(set(replicas))
        assert set(replicas) <= set(brokers) - {leaving}
        if placement[tp][0] != leaving:
            assert replicas[0] == placement[tp][0]
        # No other broker for the new replica would give the partition one more rack.
        racks = {brokers[node] for node in replicas}
        free = set(brokers) - {leaving, *kept}
        assert len(racks) == max(len({brokers[node] for node in kept | {other}}) for other in free)
    assert moved_replicas(placement, plan) == len(plan)


def test_what_leaves_goes_to_the_brokers_with_the_fewest_replicas() -> None:
    brokers = dict.fromkeys(range(1, 5))
    placement = {TopicPartition("t", at): (1 + at % 4,) for at in range(12)}
    after = {**placement, **vacated(placement, brokers, 4)}
    assert loads(after, brokers) == [4, 4, 4, 0]
    assert leaders(after, brokers) == [4, 4, 4, 0]


def test_brokers_that_are_down_keep_their_replicas_when_another_one_leaves() -> None:
    placement = {TopicPartition("t", 0): (9, 1), TopicPartition("t", 1): (1, 9)}
    plan = vacated(placement, {1: None, 2: None, 3: None}, 1)
    assert {tp.partition: set(replicas) for tp, replicas in plan.items()} in (
        {0: {9, 2}, 1: {3, 9}},
        {0: {9, 3}, 1: {2, 9}},
    )
    assert plan[TopicPartition("t", 0)][0] == 9
    assert plan[TopicPartition("t", 1)][0] != 9


def test_a_new_broker_gets_its_part_of_each_topic() -> None:
    placement = {TopicPartition(topic, at): (1 + at % 3, 1 + (at + 1) % 3) for topic in "abcd" for at in range(6)}
    brokers = dict.fromkeys(range(1, 5))
    plan = spread(placement, brokers)
    assert moved_replicas(placement, plan) == 12
    new = Counter(tp.topic for tp, replicas in plan.items() if 4 in replicas)
    assert set(new) == set("abcd")
    assert sorted(leaders({**placement, **plan}, brokers)) == [6, 6, 6, 6]


def test_the_number_of_replicas_changes_on_request() -> None:
    brokers = {1: "a", 2: "a", 3: "b", 4: "b"}
    one = {TopicPartition("t", at): (1,) for at in range(4)}
    two = {**one, **spread(one, brokers, 2)}
    assert all(len({brokers[node] for node in replicas}) == 2 for replicas in two.values())
    assert loads(two, brokers) == [2, 2, 2, 2]
    back = {**two, **spread(two, brokers, 1)}
    assert loads(back, brokers) == [1, 1, 1, 1]
    assert moved_replicas(two, spread(two, brokers, 1)) == 0


def test_too_few_brokers_are_refused() -> None:
    placement = {TopicPartition("t", 0): (1, 2)}
    with pytest.raises(PlacementError, match=r"t-0 needs 2 replicas, but there is only 1 broker"):
        vacated(placement, {1: None, 2: None}, 2)
    with pytest.raises(PlacementError, match=r"t-0 needs 3 replicas, but there are only 2 brokers"):
        spread(placement, {1: None, 2: None}, 3)


def test_racks_count_only_if_every_broker_has_one() -> None:
    placement = {TopicPartition("t", 0): (1, 2)}
    assert spread(placement, {1: "a", 2: "a", 3: None}) == {}
    assert 3 in spread(placement, {1: "a", 2: "a", 3: "b"})[TopicPartition("t", 0)]


def test_a_large_cluster_is_planned() -> None:
    draw = random.Random(5)
    brokers = {node: f"r{node % 3}" for node in range(1, 13)}
    placement = {}
    for at in range(2_000):
        order = draw.sample(range(1, 4), 3)
        placement[TopicPartition(f"t{at % 40}", at)] = tuple(3 * draw.randrange(3) + one for one in order)
    after = {**placement, **(plan := spread(placement, brokers))}
    assert max(loads(after, brokers)) - min(loads(after, brokers)) <= 1
    assert max(leaders(after, brokers)) - min(leaders(after, brokers)) <= 1
    assert moved_replicas(placement, plan) == pytest.approx(1_500, abs=120)
