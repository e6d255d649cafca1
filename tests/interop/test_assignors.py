"""Our assignors return the same assignments as Kafka's classes, in the same order, for hundreds of random groups.

No broker is needed. Members' subscriptions are encoded as in JoinGroup, so that Kafka decodes our user data, too. A
failure names its seed, which generates the same group again.
"""

import base64
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_client.assignors import (
    Assignments,
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    PartitionCounts,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from barnabas_client.assignors.user_data import Claim, decode_claim, decode_generation, encode_claim, encode_generation
from barnabas_client.membership.member_data import decode_subscription, encode_subscription
from barnabas_client.structs import TopicPartition
from tests.interop.kafka_server import run_tool

SOURCE: Final = Path(__file__).with_name("java") / "Assignors.java"
GROUPS: Final = 400  # for each assignor
RACKS: Final = ("east", "west", "north")

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("needs_jars")]


@dataclass(frozen=True)
class Group:
    """The input of an assignor."""

    partitions: PartitionCounts
    members: Mapping[str, MemberSubscription]

    def asked(self, assignor: Assignor) -> dict[str, object]:
        """Return the input of the Java program."""
        topics = {
            topic: [sorted(racks) for racks in self.partitions.racks.get(topic, [frozenset()] * count)]
            for topic, count in self.partitions.items()
        }
        members = [
            {"id": member, "instance": one.instance_id, "subscription": _base64(encode_subscription(one))}
            for member, one in self.members.items()
        ]
        return {"assignor": type(assignor).__name__, "topics": topics, "members": members}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kafka_says(asked: list[dict[str, object]]) -> list[Any]:
    # A JVM runs a single source file as it is.
    done = run_tool(str(SOURCE), timeout=100, stdin="".join(json.dumps(one) + "\n" for one in asked))
    assert done.returncode == 0, done.stderr[-2000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(asked)
    return results


def a_group(seed: int, sticky: bool) -> Group:
    """Generate a group that Kafka can assign; barnabas_client.assignors.sticky documents the differences."""
    dice = random.Random(seed)
    topics = {
        f"topic-{dice.choice('abcdef')}{number}": dice.choice((1, 3, 7, 12, 60)) for number in range(dice.randint(1, 6))
    }
    names = [*topics, "missing"]
    everyone = dice.sample(names, dice.randint(1, len(names)))
    equal = dice.random() < 0.5
    rackless = dice.random() < 0.4
    racks = {
        topic: [frozenset(dice.sample(RACKS, dice.randint(1, 3))) for _ in range(count)]
        for topic, count in topics.items()
        if not rackless
    }
    members = {}
    for number in range(dice.choice((1, 2, 3, 4, 6, 9, 14, 30, 90))):
        wants = everyone if equal else dice.sample(names, dice.randint(1, len(names)))
        members[f"consumer-{number}-{dice.getrandbits(64):x}"] = MemberSubscription(
            tuple(dice.sample(wants, len(wants))),
            instance_id=f"instance-{dice.getrandbits(16)}-{number}" if dice.random() < 0.3 else None,
            rack=None if rackless or dice.random() < 0.2 else dice.choice((*RACKS, *RACKS, "south", "")),
        )
    claimed = _with_claims(dice, topics, members, sticky)
    # The leader gets the subscriptions from the coordinator in this form.
    decoded = {id: decode_subscription(encode_subscription(one), one.instance_id) for id, one in claimed.items()}
    return Group(PartitionCounts(topics, racks), decoded)


def _with_claims(
    dice: random.Random, topics: Mapping[str, int], members: Mapping[str, MemberSubscription], sticky: bool
) -> dict[str, MemberSubscription]:
    newest = dice.choice((-1, 0, 7))
    generations = {member: newest if dice.random() < 0.8 else dice.randint(-1, max(newest, 0)) for member in members}
    claimed: dict[str, list[TopicPartition]] = {member: [] for member in members}
    chance, twice = dice.choice((0.0, 0.5, 0.9, 1.0)), dice.choice((0.0, 0.0, 0.1, 0.3))
    greedy = dice.sample(list(members), dice.randint(1, len(members)))
    for topic, count in topics.items():
        for number in range(count):
            while dice.random() < chance:
                member = dice.choice(greedy)
                # Kafka assigns a topic to a member of an older generation that no longer subscribes to it.
                if topic in members[member].topics or generations[member] == max(generations.values()):
                    claimed[member].append(TopicPartition(topic, number))
                if dice.random() >= twice:
                    break
    result = {}
    for member, subscription in members.items():
        once = list(dict.fromkeys(claimed[member]))
        partitions, generation = tuple(dice.sample(once, len(once))), generations[member]
        if sticky:
            data = encode_claim(partitions, generation) if partitions or dice.random() < 0.5 else None
            if data is not None and generation == -1 and dice.random() < 0.5:
                data = data[:-4]  # the format of old members
            beside = generation if dice.random() < 0.8 else -1
            result[member] = subscription._replace(user_data=data, generation=beside)
        else:
            beside = dice.choice((True, True, False))
            result[member] = subscription._replace(
                owned=partitions,
                generation=generation if beside else -1,
                user_data=encode_generation(-1 if beside else generation),
            )
    return result


def groups(sticky: bool) -> Iterator[tuple[int, Group]]:
    start = random.SystemRandom().getrandbits(32)
    print(f"seeds from {start}")
    for seed in range(start, start + GROUPS):
        yield seed, a_group(seed, sticky)


def plain(shares: Assignments) -> dict[str, list[list[object]]]:
    return {member: [[topic, number] for topic, number in share] for member, share in shares.items()}


@pytest.mark.parametrize(
    "assignor",
    [RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor()],
    ids=lambda assignor: assignor.name,
)
def test_assignments_equal_kafkas(assignor: Assignor) -> None:
    asked = list(groups(sticky=isinstance(assignor, StickyAssignor)))
    answers = kafka_says([group.asked(assignor) for _, group in asked])
    for (seed, group), expected in zip(asked, answers, strict=True):
        got = plain(assignor.assign(group.partitions, group.members))
        if isinstance(assignor, RangeAssignor):
            # Without racks, Kafka orders the topics of an assignment as its hash table does.
            expected = {member: sorted(share) for member, share in expected.items()}
        assert got == expected, f"seed {seed}: {group}"


def test_each_side_decodes_the_user_data_of_the_other() -> None:
    assigned = [TopicPartition("b", 2), TopicPartition("a", 0), TopicPartition("b", 1)]
    pairs = [[topic, number] for topic, number in assigned]
    asked: list[dict[str, object]] = [
        {"assignor": name, "assigned": pairs, "generation": 5}
        for name in ("StickyAssignor", "CooperativeStickyAssignor")
    ]
    sticky, cooperative = (base64.b64decode(answer["user_data"]) for answer in kafka_says(asked))
    claim = decode_claim(sticky)
    assert Claim(sorted(claim.partitions), claim.generation) == Claim(sorted(assigned), 5)
    assert decode_generation(cooperative) == 5
    assert cooperative == encode_generation(5)
