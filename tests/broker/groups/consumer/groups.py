"""Random groups for the tests of assignors, and what these tests measure."""

import random
from collections.abc import Collection, Mapping
from struct import Struct
from typing import Any, Final

from barnabas_broker.groups.consumer.assignment import GroupSpec, MemberSpec, Topic

#: An assignment: partitions by topic id by member.
Target = Mapping[str, Mapping[bytes, Collection[int]]]

_LONGS: Final = Struct(">qq")


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def topics(**partitions: int) -> dict[bytes, Topic]:
    """Topics with the ids 1, 2 ... in this order."""
    return {
        topic_id(number): Topic(topic_id(number), name, count)
        for number, (name, count) in enumerate(partitions.items(), 1)
    }


def random_group(dice: random.Random, max_members: int = 70) -> GroupSpec:
    """A group in any state: just started, changed a bit since its last target, or with any other target so far."""
    counts = (1, 2, 3, 7, 12, 40)
    by_id = {}
    for number in range(dice.randint(1, 8)):
        id = dice.randbytes(16)
        by_id[id] = Topic(id, f"topic-{number}", dice.choice(counts))
    ids = list(by_id)
    size = min(max_members, dice.choice((1, 2, 3, 5, 9, 20, 70)))
    names = [f"member-{dice.getrandbits(32):x}-{number}" for number in range(size)]
    kinds = [frozenset(dice.sample(ids, dice.randint(1, len(ids)))) for _ in range(dice.choice((1, 2, 3, size)))]
    wants = {name: dice.choice(kinds) for name in names}
    if len(kinds) > 2 and dice.random() < 0.1:
        wants[names[0]] = frozenset()
    assigned: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    chance = dice.choice((0.0, 0.5, 0.9, 1.0))
    owners = dice.sample(names, dice.randint(1, len(names)))
    evenly, turn = dice.random() < 0.5, 0
    for id, topic in by_id.items():
        for partition in range(topic.partitions):
            turn += 1
            owner = owners[turn % len(owners)] if evenly else dice.choice(owners)
            if dice.random() < chance and (id in wants[owner] or dice.random() < 0.1):
                assigned[owner].setdefault(id, set()).add(partition)
    members = {
        name: MemberSpec(
            wants[name],
            {id: frozenset(partitions) for id, partitions in assigned[name].items()},
            f"instance-{dice.getrandbits(16):x}-{name}" if dice.random() < 0.3 else None,
        )
        for name in names
    }
    wanted = frozenset().union(*wants.values())
    return GroupSpec(members, {id: topic for id, topic in by_id.items() if id in wanted or dice.random() < 0.5})


def after(spec: GroupSpec, target: Target, members: Mapping[str, MemberSpec] | None = None) -> GroupSpec:
    """The group once `target` is its target, with other `members` if given."""
    return GroupSpec(
        {
            name: member._replace(assigned={id: frozenset(own) for id, own in target.get(name, {}).items()})
            for name, member in (spec.members if members is None else members).items()
        },
        spec.topics,
    )


def plain(target: Target) -> dict[str, dict[bytes, list[int]]]:
    """A target without empty entries, to compare."""
    return {
        member: {id: sorted(partitions) for id, partitions in topics.items() if partitions}
        for member, topics in target.items()
        if any(topics.values())
    }


def sizes(spec: GroupSpec, target: Target) -> dict[str, int]:
    return {member: sum(map(len, target.get(member, {}).values())) for member in spec.members}


def kept(spec: GroupSpec, target: Target) -> int:
    """How many partitions stay with their owner."""
    return sum(
        len(partitions & frozenset(target.get(name, {}).get(id, ())))
        for name, member in spec.members.items()
        for id, partitions in member.assigned.items()
    )


def check(spec: GroupSpec, target: Target) -> None:
    """Each partition that a member subscribes to has one owner, which subscribes to its topic."""
    owned: list[tuple[bytes, int]] = []
    for name, partitions_by_topic in target.items():
        assert partitions_by_topic.keys() <= spec.members[name].topic_ids
        for id, partitions in partitions_by_topic.items():
            owned += [(id, partition) for partition in partitions]
    wanted = frozenset[bytes]().union(*(member.topic_ids for member in spec.members.values()))
    assert sorted(owned) == sorted((id, partition) for id in wanted for partition in range(spec.topics[id].partitions))


def as_json(assignor: str, spec: GroupSpec) -> dict[str, Any]:
    """A group as the Java program of the interop tests reads it: members in the order of their ids."""
    return {
        "assignor": assignor,
        "topics": {id.hex(): topic.partitions for id, topic in spec.topics.items()},
        "ids": {id.hex(): _LONGS.unpack(id) for id in {*spec.topics, *_owned(spec)}},
        "members": [
            {
                "id": name,
                "instance": member.instance_id,
                "topics": sorted(id.hex() for id in member.topic_ids),
                "assigned": {id.hex(): sorted(partitions) for id, partitions in sorted(member.assigned.items())},
            }
            for name, member in sorted(spec.members.items())
        ],
    }


def from_json(asked: Mapping[str, Any]) -> GroupSpec:
    """The group of :func:`as_json`."""
    return GroupSpec(
        {
            member["id"]: MemberSpec(
                frozenset(map(bytes.fromhex, member["topics"])),
                {bytes.fromhex(id): frozenset(partitions) for id, partitions in member["assigned"].items()},
                member["instance"],
            )
            for member in asked["members"]
        },
        {bytes.fromhex(id): Topic(bytes.fromhex(id), id, count) for id, count in asked["topics"].items()},
    )


def target_from_json(answer: Mapping[str, Mapping[str, list[int]]]) -> dict[str, dict[bytes, list[int]]]:
    return {
        member: {bytes.fromhex(id): partitions for id, partitions in topics.items()}
        for member, topics in answer.items()
    }


def compare_with_kafka(assignor: str, spec: GroupSpec, target: Target, kafka: Target) -> None:
    """Check a target beside Kafka's for the same group: equal, but for what Kafka leaves to its hash tables.

    If all members subscribe to the same topics, Kafka's `uniform` takes topics in the order of a hash table: then each
    member has as many partitions as with Kafka, and as many stay.
    """
    check(spec, target)
    if assignor == "uniform" and spec.homogeneous:
        assert sizes(spec, target) == sizes(spec, kafka)
        assert kept(spec, target) == kept(spec, kafka)
    else:
        assert plain(target) == plain(kafka)


def _owned(spec: GroupSpec) -> set[bytes]:
    return {id for member in spec.members.values() for id in member.assigned}
