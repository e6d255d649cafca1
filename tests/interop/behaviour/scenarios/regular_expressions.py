"""Regular expressions of consumer groups: what they match and when, and how members and epochs change with them."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import clock, make_topic
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, Step, ask, flat
from tests.interop.behaviour.scenarios.acls import DESCRIBE, GROUP, READ, TOPIC, acl, grant
from tests.interop.behaviour.scenarios.consumer_groups import A, B, C, beat, join, soon, told

_Steps = Step | list[Step]


def known(name: str = "$topic", partitions: int = 4, *, save: str = "topic_id") -> list[Step]:
    """A topic of which the group coordinator knows. Apache Kafka's may learn of it last."""
    known: dict[str, Any] = {"assignment.topic_partitions.length": 1}
    return [
        *make_topic(name, partitions, save=save),
        join(C, (name,), group=f"$group-{save}", on="known", until=known, quiet=True),
    ]


def known_b(partitions: int = 2) -> list[Step]:
    return known("$topic-b", partitions, save="b_id")


def own(*partitions: int, b: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """The partitions of $topic and of $topic-b that a member reports."""
    topics = {"$topic_id": partitions, "$b_id": b}
    return [{"topic_id": topic_id, "partitions": list(each)} for topic_id, each in topics.items() if each]


def subscribe(regex: str = "$topic", member: str = A, *, epoch: int = 2, on: str = "a", **given: Any) -> list[Step]:
    """Join with an expression, and wait for the epoch that has what it matches."""
    return [
        join(member, on=on, quiet=True, subscribed_topic_names=None, subscribed_topic_regex=regex, **given),
        beat(member, epoch - 1, on=on, until={"member_epoch": epoch}, quiet=True, **_static(given)),
    ]


def _static(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name == "instance_id"}


def reaches(epoch: int, member: str = A, *, before: int | None = None, **given: Any) -> Ask:
    """Heartbeats until the member has an epoch; the response that says so."""
    return beat(member, epoch - 1 if before is None else before, until={"member_epoch": epoch}, **given)


def _matched(title: str, *steps: _Steps, **given: Any) -> Scenario:
    """Member A has joined with the name of $topic as its expression: it owns partitions 0 to 3, in epoch 2."""
    return Scenario(f"An expression {title}", flat(known(), subscribe(**given), *steps))


def _delete(name: str) -> Ask:
    return ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": name, "topic_id": bytes(16)}], timeout_ms=30_000, quiet=True)


MATCHES: Final = (
    Scenario(
        "An expression that matches nothing, until a topic is created",
        flat(
            join(subscribed_topic_names=None, subscribed_topic_regex="$topic.*"),
            beat(A, 1),
            told(),
            make_topic("$topic-b", 2, save="b_id"),
            reaches(2),
            told(),
        ),
    ),
    _matched(
        "that matches a topic that is created later",
        make_topic("$topic-b", 2, save="b_id"),
        reaches(3),
        told(),
        regex="$topic.*",
    ),
    Scenario(
        "An expression that matches a topic that is deleted",
        flat(
            known(),
            known_b(),
            subscribe("$topic.*"),
            told(),
            _delete("$topic-b"),
            beat(A, 2, until={"assignment.topic_partitions.length": 1}),
            told(),
            reaches(3, topic_partitions=own(0, 1, 2, 3)),
            told(),
        ),
    ),
    Scenario(
        "An expression whose only topic is deleted",
        flat(
            known(),
            subscribe(),
            _delete("$topic"),
            beat(A, 2, until={"assignment.topic_partitions.length": 0}),
            reaches(3, topic_partitions=[]),
            told(),
        ),
    ),
    Scenario(
        "An expression that is a blank",
        flat(known(), join(subscribed_topic_names=None, subscribed_topic_regex=" "), beat(A, 1), told()),
    ),
    Scenario(
        "An expression whose topic gets more partitions",
        flat(
            known(),
            subscribe(),
            ask(
                ApiKey.CREATE_PARTITIONS,
                3,
                topics=[{"name": "$topic", "count": 6, "assignments": None}],
                timeout_ms=30_000,
                validate_only=False,
                quiet=True,
            ),
            reaches(3),
            told(),
        ),
    ),
    Scenario(
        "An expression that matches an internal topic",
        flat(known(), subscribe("__consumer_offsets|$topic"), told()),
    ),
    *(
        Scenario(f"An expression {regex!r} beside the topic's name", flat(known(), subscribe(f"x|{regex}"), told()))
        for regex in ("$topic", "(?i:${topic})", "${topic}.*", ".*${topic}", "[t-t]opic-.*${topic}?|${topic}")
    ),
    *(
        Scenario(
            f"An expression {title}, beside others",
            flat(
                known(),
                join(quiet=True),
                join(B, on="b", subscribed_topic_names=None, subscribed_topic_regex=regex),
                beat(A, 2, subscribed_topic_regex=regex),
                told(),
            ),
        )
        for title, regex in (
            ("with an open group", "("),
            ("with an open class", "["),
            ("that repeats nothing", "*"),
            ("with a look-ahead", "(?=a)"),
            ("with a back reference", "(a)\\1"),
            ("with an unknown class", "\\p{Nope}"),
            ("with a count that is too large", "a{1001}"),
        )
    ),
)

CHANGES: Final = (
    _matched(
        "that is changed",
        known_b(),
        beat(A, 2, subscribed_topic_regex="$topic-b"),
        reaches(3, topic_partitions=[]),
        told(),
    ),
    _matched(
        "that is changed to one that matches nothing",
        beat(A, 2, subscribed_topic_regex="$topic-none"),
        reaches(3, topic_partitions=[]),
        told(),
    ),
    _matched(
        "that is changed to one that matches the same",
        beat(A, 2, subscribed_topic_regex="$topic|x"),
        beat(A, 2, topic_partitions=[], until={"assignment.topic_partitions.length": 1}),
        told(),
    ),
    _matched("that is sent again", beat(A, 2, subscribed_topic_regex="$topic"), told()),
    _matched(
        "of a member that joins again",
        join(subscribed_topic_names=None, subscribed_topic_regex="$topic"),
        told(),
    ),
    _matched(
        "that is dropped",
        beat(A, 2, subscribed_topic_regex=""),
        told(),
        beat(A, 2, topic_partitions=[]),
        told(),
        beat(A, 3),
        told(),
    ),
    _matched(
        "that is dropped while another member subscribes to the topic by name",
        join(B, on="b"),
        beat(A, 2),
        reaches(3, topic_partitions=own(0, 1)),
        reaches(3, B, before=3, on="b"),
        told(),
        beat(A, 3, subscribed_topic_regex="", topic_partitions=own(0, 1)),
        told(),
        beat(A, 3, topic_partitions=[]),
        told(),
        beat(B, 3, on="b"),
        told(),
    ),
    _matched(
        "that is changed to one that matches nothing, while another member subscribes to the topic by name",
        join(B, on="b"),
        beat(A, 2),
        reaches(3, topic_partitions=own(0, 1)),
        reaches(3, B, before=3, on="b"),
        beat(A, 3, subscribed_topic_regex="$topic-none", topic_partitions=own(0, 1)),
        # Barnabas may have resolved the expression meanwhile.
        beat(A, 3, topic_partitions=[], quiet=True),
        clock(1000),
        beat(B, 3, on="b"),
        told(),
    ),
    Scenario(
        "An expression that matches nothing is dropped",
        flat(
            known(),
            join(subscribed_topic_names=None, subscribed_topic_regex="$topic-none"),
            beat(A, 1),
            beat(A, 1, subscribed_topic_regex=""),
            told(),
            beat(A, 1),
        ),
    ),
    _matched(
        "is replaced by the topic's name",
        beat(A, 2, subscribed_topic_names=["$topic"], subscribed_topic_regex=""),
        told(),
    ),
    _matched(
        "is replaced by another topic's name",
        known_b(),
        beat(A, 2, subscribed_topic_names=["$topic-b"], subscribed_topic_regex=""),
        told(),
        reaches(3, topic_partitions=[]),
        told(),
    ),
    Scenario(
        "An expression replaces the topic's name",
        flat(
            known(),
            join(quiet=True),
            beat(A, 2, subscribed_topic_names=[], subscribed_topic_regex="$topic"),
            reaches(4, before=2, topic_partitions=[]),
            told(),
        ),
    ),
    Scenario(
        "An expression beside a name",
        flat(
            known(),
            known_b(),
            join(topics=("$topic-b",), subscribed_topic_regex="$topic"),
            reaches(3),
            told(),
            beat(A, 3, subscribed_topic_names=[]),
            told(),
            beat(A, 3, topic_partitions=own(0, 1, 2, 3)),
            told(),
        ),
    ),
    Scenario(
        "An expression beside a name, and is dropped",
        flat(
            known(),
            known_b(),
            join(topics=("$topic-b",), subscribed_topic_regex="$topic", quiet=True),
            reaches(3, quiet=True),
            beat(A, 3, subscribed_topic_regex=""),
            told(),
            beat(A, 3, topic_partitions=own(b=(0, 1))),
            told(),
        ),
    ),
    Scenario(
        "An expression that matches a topic that is named, too",
        flat(
            known(),
            join(subscribed_topic_regex="$topic"),
            reaches(3),
            told(),
            beat(A, 3, subscribed_topic_regex=""),
            told(),
        ),
    ),
    _matched(
        "that matches a topic whose offsets are deleted",
        ask(
            ApiKey.OFFSET_DELETE,
            0,
            group_id="$group",
            topics=[{"name": "$topic", "partitions": [{"partition_index": 0}]}],
        ),
    ),
)

MEMBERS: Final = (
    _matched(
        "of two members",
        join(B, on="b", subscribed_topic_names=None, subscribed_topic_regex="$topic"),
        told(),
        beat(A, 2),
        beat(A, 2, topic_partitions=own(0, 1)),
        beat(B, 3, on="b"),
        told(),
        beat(A, -1),
        told(),
        beat(B, 3, on="b"),
        told(),
        beat(B, -1, on="b"),
        told(),
    ),
    _matched(
        "of each of two members",
        known_b(),
        join(B, on="b", subscribed_topic_names=None, subscribed_topic_regex="$topic-b"),
        beat(A, 2),
        reaches(3, B, on="b"),
        beat(A, 2),
        told(),
        beat(A, 3, subscribed_topic_regex="$topic-b"),
        told(),
        beat(A, 3, topic_partitions=[]),
        beat(B, 3, on="b", topic_partitions=own(b=(0, 1))),
        told(),
    ),
    _matched(
        "of a member that leaves while another one with it joins",
        beat(A, -1),
        told(),
        join(B, on="b", subscribed_topic_names=None, subscribed_topic_regex="$topic"),
        reaches(4, B, on="b"),
        told(),
    ),
    _matched(
        "of a static member that comes back",
        beat(A, -2, instance_id="i"),
        told(),
        join(B, instance_id="i", subscribed_topic_names=None, subscribed_topic_regex="$topic"),
        told(),
        instance_id="i",
    ),
    _matched(
        "of a static member that comes back with another one",
        beat(A, -2, instance_id="i"),
        join(B, instance_id="i", subscribed_topic_names=None, subscribed_topic_regex="$topic-none"),
        reaches(3, B, before=2, instance_id="i", topic_partitions=[]),
        told(),
        instance_id="i",
    ),
    _matched(
        "of a static member that comes back with a name",
        beat(A, -2, instance_id="i"),
        join(B, instance_id="i", subscribed_topic_regex=""),
        told(),
        instance_id="i",
    ),
)

_MAY: Final = (acl(GROUP, "$group", READ), acl(TOPIC, "$topic", DESCRIBE), acl(TOPIC, "$topic-b", DESCRIBE))

AUTHORIZED: Final = (
    Scenario(
        "An expression matches the topics that its member may describe",
        flat(
            known(),
            known_b(),
            known("$topic-c", 1, save="c_id"),
            grant(*_MAY),
            subscribe("$topic.*", on="allowed"),
            told(),
        ),
        server="secured",
    ),
    Scenario(
        "An expression matches nothing that its member may describe",
        flat(
            known(),
            grant(_MAY[0]),
            join(on="allowed", subscribed_topic_names=None, subscribed_topic_regex="$topic.*"),
            beat(A, 1, on="allowed"),
            told(),
        ),
        server="secured",
    ),
)

SCENARIOS: Final = (*MATCHES, *CHANGES, *MEMBERS, *AUTHORIZED)

_STARVED: Final = (
    "An expression that is changed to one that matches nothing, while another member subscribes to the topic by name"
)

DIFFERENCES: Final = (
    Difference(
        "Topics of an expression that is replaced by one without matches go to the group's other members",
        "In Kafka their partitions belong to no member until the next epoch.",
        tuple((_STARVED, f"1{step} CONSUMER_GROUP_*") for step in (4, 5)),
    ),
    soon(
        "An expression that is dropped while another member subscribes to the topic by name",
        "An expression that is changed to one that matches nothing, while another *",
        "An expression of two members",
        "An expression of each of two members",
    ),
)

FAMILY: Final = Family("Regular expressions of consumer groups", SCENARIOS, DIFFERENCES)
