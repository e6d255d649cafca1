"""The coordinator's assignors, topic hashes and regular expressions beside those of Kafka's classes, for random input.

No broker is needed: a JVM runs Kafka's classes. Kafka gets the members in the order of their ids, which is ours. A
failure names its seed, which generates the same group again. Some groups with Kafka's answers are kept as data, for
tests that need no Java: ``python -m tests.interop.test_server_assignors`` writes them.
"""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final

import pytest

from barnabas_broker.groups.consumer.assignment import Assignor, Topic
from barnabas_broker.groups.consumer.assignors import RangeAssignor, UniformAssignor
from barnabas_broker.groups.consumer.metadata_hash import group_hash, topic_hash
from barnabas_broker.regexes import InvalidRegexError, Regex
from tests.broker.groups.consumer.groups import as_json, compare_with_kafka, random_group, target_from_json
from tests.broker.groups.consumer.regexes import ACCEPTED_HERE, NAMES, OTHER_WORDS, REGEXES, TOO_LARGE, random_regex
from tests.broker.groups.consumer.topic_hashes import HASHES, some_topics
from tests.interop.kafka_server import run_tool

SOURCE: Final = Path(__file__).with_name("java") / "ServerAssignors.java"
KEPT: Final = Path(__file__).parents[1] / "broker" / "groups" / "consumer" / "kafka_assignments.json"
GROUPS: Final = 5_000  # for each assignor
ASSIGNORS: Final[tuple[Assignor, ...]] = (UniformAssignor(), RangeAssignor())

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("needs_jars")]


def kafka_says(asked: Sequence[Mapping[str, object]]) -> list[Any]:
    # A JVM runs a single source file as it is.
    done = run_tool(str(SOURCE), timeout=250, stdin="".join(json.dumps(one) + "\n" for one in asked))
    assert done.returncode == 0, done.stderr[-2000:]
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(asked)
    return results


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
def test_targets_are_kafkas(assignor: Assignor) -> None:
    start = random.SystemRandom().getrandbits(32)
    groups = [random_group(random.Random(seed)) for seed in range(start, start + GROUPS)]
    answers = kafka_says([as_json(assignor.name, spec) for spec in groups])
    for seed, (spec, answer) in enumerate(zip(groups, answers, strict=True), start):
        print(f"seed {seed}")
        compare_with_kafka(assignor.name, spec, assignor.assign(spec), target_from_json(answer))


def hashes_of(topics: Sequence[Topic]) -> dict[str, Any]:
    longs = Struct(">qq")
    return {
        "hashes": [
            {
                "name": topic.name,
                "id": longs.unpack(topic.topic_id),
                "racks": topic.racks or [[]] * topic.partitions,
            }
            for topic in topics
        ]
    }


def test_topic_hashes_are_kafkas() -> None:
    dice = random.Random(11)
    cases: list[list[Topic]] = [some_topics(), []]
    for _ in range(300):
        topics = []
        for number in range(dice.randint(1, 5)):
            name = "".join(dice.choices("abyz.-_019é\U0001f600\ufb00", k=dice.randint(1, 249))) + str(number)
            racks = [
                tuple(dice.choices(("a", "b", "", "é", "rack-\U0001f600"), k=dice.randint(0, 4))) for _ in range(5)
            ]
            partitions = dice.randint(0, 40)
            topics.append(
                Topic(dice.randbytes(16), name, partitions, tuple(dice.choice(racks) for _ in range(partitions)))
            )
        cases.append(topics)
    answers = kafka_says([hashes_of(topics) for topics in cases])
    for topics, answer in zip(cases, answers, strict=True):
        ours = {topic.name: topic_hash(topic) for topic in topics}
        assert ours == answer["topics"]
        assert group_hash(ours) == answer["group"]
    assert answers[0] == HASHES


def test_regular_expressions_match_as_kafkas() -> None:
    answers = kafka_says([{"regex": regex, "names": NAMES} for regex in REGEXES])
    for regex, answer in zip(REGEXES, answers, strict=True):
        if regex in OTHER_WORDS:
            assert matches(regex)["matches"] is answer["matches"] is None
        elif regex in TOO_LARGE:
            assert matches(regex)["matches"] is None
        elif regex in ACCEPTED_HERE:
            assert answer["matches"] is None
        else:
            assert matches(regex) == answer


def test_random_regular_expressions_match_as_kafkas() -> None:
    start = random.SystemRandom().getrandbits(32)
    asked = []
    for seed in range(start, start + 5_000):
        dice = random.Random(seed)
        names = ["".join(dice.choices("abB1-._", k=dice.randint(1, 6))) for _ in range(20)]
        asked.append({"regex": random_regex(dice, 3), "names": names})
    for seed, (one, answer) in enumerate(zip(asked, kafka_says(asked), strict=True), start):
        ours = matches(str(one["regex"]), one["names"])
        if "more than" not in ours.get("error", ""):
            assert ours["matches"] == answer["matches"], f"seed {seed}: {one}"


def matches(regex: str, names: Sequence[str] = NAMES) -> dict[str, Any]:
    """What the Java program says of a regular expression."""
    try:
        compiled = Regex(regex)
    except InvalidRegexError as error:
        return {"matches": None, "error": f"SubscribedTopicRegex {error}"}
    return {"matches": [name for name in names if compiled.matches(name)]}


def write_kept() -> None:
    """Write the groups that are kept as data."""
    asked = [
        as_json(assignor.name, random_group(random.Random(seed), max_members=9))
        for assignor in ASSIGNORS
        for seed in range(30)
    ]
    lines = [
        json.dumps([one, answer], separators=(",", ":")) for one, answer in zip(asked, kafka_says(asked), strict=True)
    ]
    KEPT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    write_kept()
