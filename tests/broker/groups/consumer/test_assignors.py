"""The coordinator's assignors: what holds for all groups, and Kafka's answers for some.

``tests/interop/test_server_assignors.py`` compares thousands of groups with Kafka's classes.
"""

import json
import random
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_broker.errors import BrokerError
from barnabas_broker.groups.consumer.assignment import Assignor, GroupSpec, MemberSpec, Partitions
from barnabas_broker.groups.consumer.assignors import (
    CheckedAssignor,
    RangeAssignor,
    UniformAssignor,
    installed,
    load_assignors,
)
from tests.broker.groups.consumer.first import First
from tests.broker.groups.consumer.groups import (
    Target,
    after,
    check,
    compare_with_kafka,
    from_json,
    kept,
    plain,
    random_group,
    sizes,
    target_from_json,
    topic_id,
    topics,
)

KAFKAS: Final = Path(__file__).with_name("kafka_assignments.json")
ASSIGNORS: Final[Mapping[str, Assignor]] = {one.name: one for one in (UniformAssignor(), RangeAssignor())}
SEEDS: Final = range(300)


def member(*wants: int, instance: str | None = None, **assigned: list[int]) -> MemberSpec:
    """A member that wants these topics by number; ``t1=[0]`` is its target in topic 1."""
    return MemberSpec(
        frozenset(map(topic_id, wants)),
        {topic_id(int(name[1:])): frozenset(partitions) for name, partitions in assigned.items()},
        instance,
    )


def shown(target: Target) -> dict[str, str]:
    """``{"a": "1-0 1-1"}``."""
    return {
        name: " ".join(f"{int.from_bytes(id)}-{one}" for id in sorted(own) for one in sorted(own[id]))
        for name, own in target.items()
    }


def uniform(spec: GroupSpec) -> dict[str, str]:
    return shown(UniformAssignor().assign(spec))


def ranges(spec: GroupSpec) -> dict[str, str]:
    return shown(RangeAssignor().assign(spec))


# ------------------------------------------------------------------------------------------------ beside Kafka


def test_targets_are_those_of_kafka() -> None:
    cases: list[list[dict[str, Any]]] = json.loads(KAFKAS.read_text())
    assert len(cases) == 60
    for asked, answer in cases:
        spec, name = from_json(asked), asked["assignor"]
        compare_with_kafka(name, spec, ASSIGNORS[name].assign(spec), target_from_json(answer))


# ------------------------------------------------------------------------------------------------ for all groups


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda assignor: assignor.name)
def test_each_partition_has_one_owner_that_subscribes_to_it(assignor: Assignor) -> None:
    for seed in SEEDS:
        spec = random_group(random.Random(seed))
        check(spec, assignor.assign(spec))


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda assignor: assignor.name)
def test_the_order_of_members_does_not_matter(assignor: Assignor) -> None:
    for seed in SEEDS:
        dice = random.Random(seed)
        spec = random_group(dice)
        names = list(spec.members)
        dice.shuffle(names)
        shuffled = GroupSpec({name: spec.members[name] for name in names}, spec.topics)
        assert plain(assignor.assign(shuffled)) == plain(assignor.assign(spec)), seed


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda assignor: assignor.name)
def test_a_target_stays_as_it_is(assignor: Assignor) -> None:
    for seed in SEEDS:
        spec = random_group(random.Random(seed))
        target = assignor.assign(spec)
        assert plain(assignor.assign(after(spec, target))) == plain(target), seed


def test_uniform_is_balanced_and_moves_as_little_as_possible_where_all_want_the_same() -> None:
    seen = 0
    for seed in range(1000):
        spec = random_group(random.Random(seed))
        if not spec.homogeneous or not next(iter(spec.members.values())).topic_ids:
            continue
        seen += 1
        target = UniformAssignor().assign(spec)
        count = sizes(spec, target)
        assert max(count.values()) - min(count.values()) <= 1, seed
        # Each member can keep the smaller number, and as many members as get the larger one can keep that.
        smaller, larger = divmod(sum(count.values()), len(count))
        wanted = next(iter(spec.members.values())).topic_ids
        owned = [
            sum(len(partitions) for id, partitions in member.assigned.items() if id in wanted)
            for member in spec.members.values()
        ]
        best = sum(min(one, smaller) for one in owned) + min(larger, sum(one > smaller for one in owned))
        assert kept(spec, target) == best, seed
    assert seen > 100


def test_no_single_move_would_balance_uniform_better() -> None:
    for seed in SEEDS:
        spec = random_group(random.Random(seed), max_members=20)
        target = UniformAssignor().assign(spec)
        count = sizes(spec, target)
        for giver, own in target.items():
            for id in own:
                takers = [name for name, member in spec.members.items() if id in member.topic_ids]
                assert count[giver] - min(count[name] for name in takers) <= 1, seed


def test_range_assigns_contiguous_ranges_of_equal_size_in_order() -> None:
    for seed in SEEDS:
        spec = random_group(random.Random(seed))
        target = RangeAssignor().assign(spec)
        order = sorted(
            spec.members,
            key=lambda name: (spec.members[name].instance_id is None, spec.members[name].instance_id, name),
        )
        for id, topic in spec.topics.items():
            subscribers = [name for name in order if id in spec.members[name].topic_ids]
            own = [sorted(target[name].get(id, ())) for name in subscribers]
            if subscribers:
                assert [one for partitions in own for one in partitions] == list(range(topic.partitions)), seed
                assert [len(one) for one in own] == sorted((len(one) for one in own), reverse=True), seed
                assert len(own[0]) - len(own[-1]) <= 1, seed


# ------------------------------------------------------------------------------------------------ uniform, by hand


def test_uniform_takes_from_the_first_members_what_a_new_one_needs() -> None:
    spec = GroupSpec({"a": member(1, t1=[0, 1, 2, 3]), "b": member(1)}, topics(orders=4))
    assert uniform(spec) == {"a": "1-0 1-1", "b": "1-2 1-3"}


def test_uniform_leaves_the_larger_share_with_the_member_that_has_it() -> None:
    spec = GroupSpec({"a": member(1, t1=[0]), "b": member(1, t1=[1, 2]), "c": member(1)}, topics(orders=4))
    assert uniform(spec) == {"a": "1-0", "b": "1-1 1-2", "c": "1-3"}


def test_uniform_gives_more_members_than_partitions_one_or_none() -> None:
    spec = GroupSpec({name: member(1) for name in "abc"}, topics(orders=2))
    assert sorted(uniform(spec).values()) == ["", "1-0", "1-1"]


def test_uniform_assigns_the_partitions_of_a_member_that_left() -> None:
    spec = GroupSpec({"a": member(1, 2, t1=[0]), "b": member(1, 2, t2=[0])}, topics(orders=2, payments=2))
    assert uniform(spec) == {"a": "1-0 1-1", "b": "2-0 2-1"}


def test_uniform_hands_back_the_very_target_that_does_not_change() -> None:
    for wants in ((1,), (1, 2)):
        spec = GroupSpec({"a": member(*wants, t1=[0]), "b": member(1, t1=[1])}, topics(orders=2, empty=0))
        target = UniformAssignor().assign(spec)
        assert all(target[name] is spec.members[name].assigned for name in spec.members)


def test_uniform_drops_what_does_not_exist_or_has_two_owners() -> None:
    for others in ((1,), (1, 2)):
        members = {"a": member(1, t1=[0, 7], t3=[0]), "b": member(*others, t1=[0, 1], t3=[1])}
        assert uniform(GroupSpec(members, topics(orders=2, empty=0))) == {"a": "1-0", "b": "1-1"}


def test_uniform_moves_along_overlapping_subscriptions() -> None:
    members = {"a": member(1, t1=[0, 1, 2, 3]), "b": member(1, 2), "c": member(2, t2=[0, 1])}
    spec = GroupSpec(members, topics(orders=4, payments=2))
    assert sizes(spec, UniformAssignor().assign(spec)) == {"a": 2, "b": 2, "c": 2}


def test_uniform_leaves_partitions_with_the_only_subscriber() -> None:
    spec = GroupSpec({"a": member(1, 2), "b": member(1)}, topics(orders=2, payments=5))
    assert uniform(spec) == {"a": "2-0 2-1 2-2 2-3 2-4", "b": "1-0 1-1"}


# ------------------------------------------------------------------------------------------------ range, by hand


def test_range_gives_the_same_numbers_of_two_topics_to_one_member() -> None:
    spec = GroupSpec({name: member(1, 2) for name in "ab"}, topics(orders=3, payments=3))
    assert ranges(spec) == {"a": "1-0 1-1 2-0 2-1", "b": "1-2 2-2"}


def test_range_puts_static_members_first_by_instance_id() -> None:
    members = {"a": member(1), "b": member(1, instance="2"), "c": member(1, instance="1")}
    assert ranges(GroupSpec(members, topics(orders=3))) == {"a": "1-2", "b": "1-1", "c": "1-0"}


def test_range_orders_ids_as_java_does() -> None:
    members = {"\uffee": member(1), "\U0001f600": member(1)}
    assert ranges(GroupSpec(members, topics(orders=2))) == {"\U0001f600": "1-0", "\uffee": "1-1"}


# ------------------------------------------------------------------------------------------------ ends


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda assignor: assignor.name)
def test_nothing_is_assigned_without_members_or_topics(assignor: Assignor) -> None:
    assert assignor.assign(GroupSpec({}, {})) == {}
    assert plain(assignor.assign(GroupSpec({"a": member(t1=[0]), "b": member()}, topics(orders=1)))) == {}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda assignor: assignor.name)
def test_a_topic_that_does_not_exist_is_an_error(assignor: Assignor) -> None:
    for others in ((2,), (1, 2)):
        with pytest.raises(ValueError, match="topic 00000000000000000000000000000002, which does not exist"):
            assignor.assign(GroupSpec({"a": member(2), "b": member(*others)}, topics(orders=1)))


# ------------------------------------------------------------------------------------------------ those of others


SPEC: Final = GroupSpec({"a": member(1), "b": member(1)}, topics(orders=2, payments=2))


def test_targets_of_other_assignors_are_checked() -> None:
    spec = GroupSpec({"a": member(1), "b": member(1)}, topics(orders=2))
    assert CheckedAssignor(First()).assign(spec) == {"a": {topic_id(1): frozenset({0, 1})}}
    assert CheckedAssignor(First(b={topic_id(1): []})).assign(spec) == {"a": {topic_id(1): frozenset({0, 1})}, "b": {}}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"z": {}}, "assigns partitions to 'z', which is not a member"),
        ({"a": {topic_id(2): [0]}}, "assigns a topic to 'a' that it does not subscribe to"),
        ({"a": {topic_id(1): [2]}}, "assigns partition 2 of topic 'orders' to 'a', which does not exist"),
        ({"a": {topic_id(1): [-1]}}, "assigns partition -1 of topic 'orders' to 'a', which does not exist"),
        ({"a": {topic_id(1): [True]}}, "assigns partition True of topic 'orders' to 'a', which does not exist"),
        (
            {"a": {topic_id(1): [0]}, "b": {topic_id(1): [0]}},
            "assigns partition 0 of topic 'orders' to both 'a' and 'b'",
        ),
    ],
)
def test_wrong_targets_are_errors(wrong: dict[str, Partitions], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CheckedAssignor(First(**wrong)).assign(SPEC)


def test_assignors_are_found_by_name() -> None:
    assert list(load_assignors(["range", "uniform"])) == ["range", "uniform"]
    kafkas = ["org.apache.kafka.coordinator.group.assignor.UniformAssignor"]
    assert isinstance(load_assignors(kafkas)["uniform"], UniformAssignor)


def test_assignors_are_found_as_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints(
        EntryPoint(name, f"{First.__module__}:{value}", installed.ENTRY_POINTS)
        for name, value in {"first": "First", "second": "First", "gone": "Gone", "plain": "PLAIN"}.items()
    )
    monkeypatch.setattr(installed, "entry_points", points.select)
    loaded = load_assignors(["uniform", "first"])
    assert list(loaded) == ["uniform", "first"]
    assert isinstance(loaded["first"], CheckedAssignor)
    for name, text in {
        "second": "must have that name and a method `assign`",
        "gone": "cannot be loaded: AttributeError",
        "plain": "cannot be loaded: TypeError",
        "other": "the installed assignors are first, gone, plain, range, second, uniform",
    }.items():
        with pytest.raises(BrokerError, match=text):
            load_assignors([name])


@pytest.mark.parametrize(("names", "text"), [([], "is empty"), (["range", "range"], "names 'range' twice")])
def test_wrong_lists_of_assignors_are_errors(names: list[str], text: str) -> None:
    with pytest.raises(BrokerError, match=text):
        load_assignors(names)
