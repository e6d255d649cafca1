"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe, and what other APIs say."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import LONG, alone, commit, heartbeat, make_topic
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, Server, Step, ask, flat

#: Member ids, which clients generate from version 1 on.
A, B, C = "member-a", "member-b", "member-c"
VERSIONS = (0, 1)
_Steps = Step | list[Step]


def beat(
    member: str = A, epoch: int | str = 2, *, version: int = 1, on: str = "a", group: str = "$group", **given: Any
) -> Ask:
    """ConsumerGroupHeartbeat; null fields have not changed."""
    options = {name: given.pop(name) for name in ("until", "quiet", "save") if name in given}
    content: dict[str, Any] = {
        "rebalance_timeout_ms": -1,
        **dict.fromkeys(("instance_id", "rack_id", "server_assignor", "topic_partitions", "subscribed_topic_names")),
        **({"subscribed_topic_regex": None} if version else {}),
        **given,
    }
    fields = {"group_id": group, "member_id": member, "member_epoch": epoch, **content}
    return ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, on=on, **options, **fields)


def join(member: str = A, topics: tuple[str, ...] = ("$topic",), **given: Any) -> Ask:
    """A heartbeat that joins."""
    fields = {"rebalance_timeout_ms": LONG, "subscribed_topic_names": list(topics), "topic_partitions": []}
    return beat(member, 0, **{**fields, **given})


def soon(*scenarios: str) -> Difference:
    """Members that wait, in these scenarios, heartbeat sooner than Kafka's."""
    return Difference(
        "Members that wait for partitions are asked to heartbeat soon",
        "They get what others have revoked with their next heartbeat, which in Kafka is up to an interval later.",
        tuple((each, "*.heartbeat_interval_ms") for each in scenarios),
    )


def told(*groups: str, version: int = 1, operations: bool = False, **options: Any) -> Ask:
    """ConsumerGroupDescribe."""
    content: dict[str, Any] = {"group_ids": list(groups or ("$group",)), "include_authorized_operations": operations}
    return ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, on="z", **options, **content)


def _heartbeat(title: str, *steps: _Steps, server: Server = "plain") -> Scenario:
    return Scenario(f"ConsumerGroupHeartbeat {title}", flat(*steps), server=server)


def _each(title: str, *steps: _Steps, **given: Any) -> tuple[Scenario, ...]:
    """The last step is a heartbeat with these fields, in both versions."""
    return tuple(_heartbeat(f"v{version}: {title}", *steps, join(version=version, **given)) for version in VERSIONS)


INVALID: Final = (
    *_each("an empty group id", group=""),
    *_each("a blank group id", group=" "),
    *_each("an empty member id", member="", save={"a_id": "member_id"}),
    *_each("an empty instance id", instance_id=""),
    *_each("an empty rack id", rack_id=""),
    *_each("no rebalance timeout", rebalance_timeout_ms=-1),
    *_each("a rebalance timeout of zero", rebalance_timeout_ms=0),
    *_each("a negative rebalance timeout", rebalance_timeout_ms=-5),
    *_each("no list of partitions", topic_partitions=None),
    *_each("partitions of a member that joins", topic_partitions=[{"topic_id": bytes(16), "partitions": [0]}]),
    *_each("no subscription", subscribed_topic_names=None),
    *_each("an empty subscription", topics=()),
    *_each("an unknown topic", topics=("$topic-unknown",)),
    *_each("an unknown assignor", server_assignor="best"),
    *_each("an empty assignor", server_assignor=""),
    _heartbeat("v1: an invalid pattern", join(topics=(), subscribed_topic_regex="(?=a)")),
    _heartbeat("v1: an empty pattern and no names", join(subscribed_topic_names=None, subscribed_topic_regex="")),
    *(
        _heartbeat(f"v{version}: epoch {epoch}, {what} member id", beat(member, epoch, version=version))
        for version in VERSIONS
        for epoch in (1, -1, -2, -3)
        for what, member in (("an empty", ""), ("an unknown", A))
    ),
    *(
        _heartbeat(f"v1: epoch {epoch}, an unknown instance id", beat(A, epoch, instance_id="i"))
        for epoch in (1, -1, -2)
    ),
)

OTHERS: Final = (
    *(
        Scenario(f"ConsumerGroupDescribe v{version}: {title}", flat(*steps, told(version=version)))
        for version in VERSIONS
        for title, steps in (
            ("an unknown group", []),
            ("a classic group", alone()),
            ("only offsets", [*make_topic(), commit(quiet=True)]),
        )
    ),
    Scenario("ConsumerGroupDescribe v1: an empty group id", (told(""),)),
    Scenario("ConsumerGroupDescribe v1: several", flat(alone(), told("$group", "$group-b"))),
    Scenario(
        "ConsumerGroupDescribe v1: none",
        (ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[], include_authorized_operations=False),),
    ),
    Scenario("ConsumerGroupDescribe v1: operations that are allowed", flat(alone(), told(operations=True))),
    Scenario(
        "Both protocols: a member of the consumer protocol in a classic group",
        flat(make_topic(), alone(), join(B, on="b"), heartbeat("$a_id")),
        server="strict",
    ),
    Scenario(
        "Both protocols: a heartbeat of an unknown member to a classic group",
        flat(alone(), *(beat(B, epoch) for epoch in (1, -1))),
        server="strict",
    ),
)

SCENARIOS: Final = (*INVALID, *OTHERS)

FAMILY: Final = Family("Groups of the consumer protocol", SCENARIOS)
