"""Share groups (KIP-932): their members, what describes them, and the offsets of their share partitions."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import alone, commit, make_topic, produce
from tests.interop.behaviour.common import describe as describe_classic
from tests.interop.behaviour.common import join as join_classic
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, Server, Step, ask, flat
from tests.interop.behaviour.scenarios.configs import SET
from tests.interop.behaviour.scenarios.consumer_groups import A, B, C
from tests.interop.behaviour.scenarios.consumer_groups import join as join_consumer
from tests.interop.behaviour.scenarios.consumer_groups import told as told_consumer
from tests.interop.behaviour.scenarios.group_configs import change, shown

_Steps = Step | list[Step]
RESET: Final = "share.auto.offset.reset"


def beat(member: str = A, epoch: int | str = 0, *, on: str = "a", group: str = "$group", **given: Any) -> Ask:
    """ShareGroupHeartbeat; null fields have not changed."""
    options = {name: given.pop(name) for name in ("until", "quiet", "save") if name in given}
    fields: dict[str, Any] = {"rack_id": None, "subscribed_topic_names": None, **given}
    return ask(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        on=on,
        **options,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        **fields,
    )


def join(member: str = A, topics: tuple[str, ...] = ("$topic",), **given: Any) -> Ask:
    """A heartbeat that joins."""
    return beat(member, 0, subscribed_topic_names=list(topics), **given)


def joined(member: str = A, topics: int = 1, **given: Any) -> Ask:
    """Join, and wait for an assignment of so many topics. The epoch is saved as `epoch`."""
    until: dict[str, Any] = {"assignment.topic_partitions.length": topics}
    return join(member, until=until, quiet=True, save={"epoch": "member_epoch"}, **given)


def told(*groups: str, operations: bool = False, **options: Any) -> Ask:
    """ShareGroupDescribe."""
    content: dict[str, Any] = {"group_ids": list(groups or ("$group",)), "include_authorized_operations": operations}
    return ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, on="z", **options, **content)


def from_the_beginning(group: str = "$group") -> list[Step]:
    """The group begins with the first record of a partition."""
    return [change((RESET, SET, "earliest"), name=group, quiet=True), shown(RESET, "earliest", name=group, quiet=True)]


def offsets(*topics: tuple[str, tuple[int, ...]], group: str = "$group", version: int = 1, **options: Any) -> Ask:
    """DescribeShareGroupOffsets; all topics by default."""
    wanted = [{"topic_name": name, "partitions": list(numbers)} for name, numbers in topics] or None
    groups = [{"group_id": group, "topics": wanted}]
    return ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=groups, **options)


def alter(*given: tuple[str, int, int], group: str = "$group", **options: Any) -> Ask:
    """AlterShareGroupOffsets: topic, partition, offset."""
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": number, "start_offset": offset}]}
        for name, number, offset in given
    ]
    return ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=topics, **options)


def forget(*topics: str, group: str = "$group", **options: Any) -> Ask:
    """DeleteShareGroupOffsets."""
    return ask(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        group_id=group,
        topics=[{"topic_name": name} for name in topics],
        **options,
    )


def _scenario(title: str, *steps: _Steps, server: Server = "plain") -> Scenario:
    return Scenario(f"Share groups: {title}", flat(*steps), server=server, texts=True)


def _member(title: str, *steps: _Steps) -> Scenario:
    """Member A has both partitions of $topic."""
    return _scenario(title, make_topic(partitions=2), joined(), *steps)


def _alone(title: str, *steps: _Steps) -> Scenario:
    """Member A has the only partition of $topic."""
    return _scenario(title, make_topic(), joined(), *steps)


def _left(title: str, *steps: _Steps) -> Scenario:
    """Member A had both partitions of $topic, and has left."""
    return _member(title, beat(epoch=-1, quiet=True), *steps)


#: Heartbeats that are refused, or not: what is wrong, and the fields.
_WRONG: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("an empty group id", {"group": ""}),
    ("a blank group id", {"group": " "}),
    ("an empty member id", {"member": ""}),
    ("a blank member id", {"member": " "}),
    ("the longest member id", {"member": "m" * 36}),
    ("a longer member id", {"member": "m" * 37}),
    ("an empty rack id", {"rack_id": ""}),
    ("no subscription, to join", {"subscribed_topic_names": None}),
    ("an empty subscription, to join", {"subscribed_topic_names": []}),
    ("epoch 1, of an unknown group", {"epoch": 1}),
    ("epoch -1, of an unknown group", {"epoch": -1}),
    ("epoch -2, of an unknown group", {"epoch": -2}),
    ("epoch -3, of an unknown group", {"epoch": -3}),
    ("an unknown topic, to join", {}),
)
INVALID: Final = tuple(
    _scenario(f"a heartbeat with {what}", beat(**{"subscribed_topic_names": ["$topic"], **given}))
    for what, given in _WRONG
)

MEMBERS: Final = (
    _member("one member", told(), told(operations=True)),
    _member("a heartbeat that changes nothing", beat(epoch="$epoch"), told()),
    _member("a heartbeat with another rack", beat(epoch="$epoch", rack_id="r"), told()),
    _member("a heartbeat with the same subscription", beat(epoch="$epoch", subscribed_topic_names=["$topic"]), told()),
    _member("a member unsubscribes", beat(epoch="$epoch", subscribed_topic_names=[]), told()),
    _member(
        "a member subscribes to an unknown topic",
        beat(epoch="$epoch", subscribed_topic_names=["$topic", "$topic-unknown"]),
        told(),
    ),
    _member("a member joins again", join(), told()),
    _member("an unknown member", beat(B, "$epoch"), beat(B, -1)),
    _member("a newer epoch", beat(epoch=99), told()),
    _member("an older epoch", beat(epoch=1), told()),
    _member("a member leaves", beat(epoch=-1), told(), beat(epoch="$epoch"), beat(epoch=-1)),
    _member("a negative epoch", beat(epoch=-2), beat(epoch=-3)),
    _alone("two members", join(B, on="b"), told(), beat(epoch="$epoch"), told()),
    _alone("two members, one leaves", join(B, on="b", quiet=True), beat(B, -1, on="b"), beat(epoch="$epoch"), told()),
    _alone("three members", join(B, on="b", quiet=True), join(C, on="c"), told()),
    _scenario(
        "group.share.max.size is reached",
        make_topic(),
        joined(),
        join(B, on="b", quiet=True),
        join(C, on="c"),
        join(),
        beat(epoch=-1, quiet=True),
        join(C, on="c"),
        told(),
        server="strict",
    ),
    _member("described with others", told("$group", "$group-b", "")),
    _scenario("described: none", told("")),
    _scenario("described: an unknown group", told()),
    _scenario("described: no groups", ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=[])),
    _scenario("described: a classic group", alone(), told()),
    _scenario("described: a group of the consumer protocol", make_topic(), join_consumer(quiet=True), told()),
)

_LISTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("all", {}),
    ("of its type", {"types_filter": ["share"]}),
    ("of its type, in capitals", {"types_filter": ["SHARE"]}),
    ("of another type", {"types_filter": ["consumer"]}),
    ("of its state", {"states_filter": ["Stable"]}),
    ("of another state", {"states_filter": ["Empty"]}),
)
OTHERS: Final = (
    _scenario("a heartbeat to a classic group", make_topic(), alone(), join(B, on="b")),
    _scenario("a heartbeat to a classic group, with an epoch", make_topic(), alone(), beat(B, 1, on="b")),
    _scenario(
        "a heartbeat to a group of the consumer protocol", make_topic(), join_consumer(quiet=True), join(B, on="b")
    ),
    _scenario("a heartbeat to a group that has only offsets", make_topic(), commit(quiet=True), join(B, on="b")),
    _member("a classic member", join_classic(on="b")),
    _member("a member of the consumer protocol", join_consumer(B, on="b")),
    _member("a classic member of an empty group", beat(epoch=-1, quiet=True), join_classic(on="b", quiet=False)),
    _member("a consumer of an empty group", beat(epoch=-1, quiet=True), join_consumer(B, on="b")),
    _member("DescribeGroups", describe_classic(version=6)),
    _member("ConsumerGroupDescribe", told_consumer()),
    _member("OffsetCommit", commit(), commit(A, 2, version=9)),
    _member(
        "OffsetFetch",
        ask(
            ApiKey.OFFSET_FETCH,
            9,
            groups=[
                {
                    "group_id": "$group",
                    "member_epoch": -1,
                    "member_id": None,
                    "topics": [{"name": "$topic", "partition_indexes": [0]}],
                }
            ],
        ),
    ),
    _member(
        "OffsetDelete",
        ask(
            ApiKey.OFFSET_DELETE,
            0,
            group_id="$group",
            topics=[{"name": "$topic", "partitions": [{"partition_index": 0}]}],
        ),
    ),
    *(
        _member(f"ListGroups, {what}", ask(ApiKey.LIST_GROUPS, 5, only={"groups.group_id": "$group"}, **given))
        for what, given in _LISTS
    ),
    _left("ListGroups, empty", ask(ApiKey.LIST_GROUPS, 5, only={"groups.group_id": "$group"})),
    _member("DeleteGroups with a member", ask(ApiKey.DELETE_GROUPS, 2, groups_names=["$group"]), told()),
    _left("DeleteGroups", ask(ApiKey.DELETE_GROUPS, 2, groups_names=["$group"]), told(), offsets()),
    _left("joined again", told(), join(), told()),
)

OFFSETS: Final = (
    *(
        _scenario(f"DescribeShareGroupOffsets v{version}: {what}", steps, offsets(*topics, version=version, **given))
        for version in (0, 1)
        for what, steps, topics, given in (
            ("an unknown group", [], (), {}),
            ("an empty group id", [], (), {"group": ""}),
            ("a topic of an unknown group", make_topic(), (("$topic", (0,)),), {}),
            ("a classic group", alone(), (), {}),
        )
    ),
    _scenario("DescribeShareGroupOffsets: no groups", ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[])),
    _member("DescribeShareGroupOffsets: nothing fetched", offsets()),
    _member("DescribeShareGroupOffsets: nothing fetched, named", offsets(("$topic", (0, 1)))),
    _member("DescribeShareGroupOffsets: an unknown topic", offsets(("$topic-unknown", (0,)))),
    _member("DescribeShareGroupOffsets: an unknown partition", offsets(("$topic", (0, 7)))),
    _member("DescribeShareGroupOffsets: no partitions", offsets(("$topic", ()))),
    _member("DescribeShareGroupOffsets: a topic without a state", make_topic("$topic-b"), offsets(("$topic-b", (0,)))),
    _member("AlterShareGroupOffsets: a member", alter(("$topic", 0, 1))),
    _scenario("AlterShareGroupOffsets: an empty group id", make_topic(), alter(("$topic", 0, 1), group="")),
    _scenario("AlterShareGroupOffsets: an unknown group", make_topic(), alter(("$topic", 0, 0)), told()),
    _scenario("AlterShareGroupOffsets: a classic group", make_topic(), alone(), alter(("$topic", 0, 0))),
    _left("AlterShareGroupOffsets: no topics", alter()),
    _left("AlterShareGroupOffsets: an unknown topic", alter(("$topic-unknown", 0, 1))),
    _left("AlterShareGroupOffsets: an unknown partition", alter(("$topic", 7, 1)), offsets()),
    _left("AlterShareGroupOffsets: a known and an unknown topic", alter(("$topic", 0, 0), ("$topic-unknown", 0, 1))),
    _left("AlterShareGroupOffsets: negative", alter(("$topic", 0, -1)), offsets()),
    _left("AlterShareGroupOffsets: more than negative", alter(("$topic", 0, -7)), offsets()),
    _left(
        "AlterShareGroupOffsets: one partition",
        produce("1", "2", "3"),
        alter(("$topic", 0, 2)),
        offsets(),
        offsets(("$topic", (0, 1))),
        told(),
    ),
    _left("AlterShareGroupOffsets: beyond the end", produce("1"), alter(("$topic", 0, 70)), offsets()),
    _left(
        "AlterShareGroupOffsets: a topic without a state",
        make_topic("$topic-b"),
        alter(("$topic-b", 0, 0)),
        offsets(),
    ),
    _member("DeleteShareGroupOffsets: a member", forget("$topic")),
    _scenario("DeleteShareGroupOffsets: an empty group id", make_topic(), forget("$topic", group="")),
    _scenario("DeleteShareGroupOffsets: an unknown group", make_topic(), forget("$topic")),
    _scenario("DeleteShareGroupOffsets: a classic group", make_topic(), alone(), forget("$topic")),
    _left("DeleteShareGroupOffsets: no topics", forget()),
    _left("DeleteShareGroupOffsets: an unknown topic", forget("$topic-unknown")),
    _left("DeleteShareGroupOffsets: a topic without a state", make_topic("$topic-b"), forget("$topic-b")),
    _left("DeleteShareGroupOffsets: a topic", forget("$topic"), offsets(), offsets(("$topic", (0,)))),
    _left("DeleteShareGroupOffsets: twice", forget("$topic", quiet=True), forget("$topic"), told()),
)

DIFFERENCES: Final = (
    Difference(
        "A member of a share group whose epoch grows receives its assignment",
        "The answer in which it changed may have been lost.",
        (("Share groups: two members*", "6 *.assignment"),),
    ),
    Difference(
        "DescribeShareGroupOffsets answers a topic without partitions",
        "Apache Kafka fails with UNKNOWN_SERVER_ERROR.",
        tuple(
            ("Share groups: DescribeShareGroupOffsets: no partitions", f"*.{field}")
            for field in ("topics", "error_code", "error_message")
        ),
    ),
    Difference(
        "AlterShareGroupOffsets refuses negative offsets",
        "Apache Kafka stores them: -7 as it is, with a lag that grows by 7.",
        (
            ("Share groups: AlterShareGroupOffsets: * negative", "*.error_code"),
            ("Share groups: AlterShareGroupOffsets: negative", "*.error_code"),
            ("Share groups: AlterShareGroupOffsets: more than negative", "*.start_offset"),
            ("Share groups: AlterShareGroupOffsets: more than negative", "*.lag"),
        ),
    ),
    Difference(
        "AlterShareGroupOffsets of a group begins a new group epoch",
        "Leaders that have read the old offsets write with an older epoch, and are fenced.",
        (("Share groups: AlterShareGroupOffsets: one partition", "9 *.*_epoch"),),
    ),
    Difference(
        "The lag of a share group is not negative",
        "Beyond the end of the log there is nothing to process.",
        (("Share groups: AlterShareGroupOffsets: beyond the end", "*.lag"),),
    ),
)

FAMILY: Final = Family("Share groups", (*INVALID, *MEMBERS, *OTHERS, *OFFSETS), DIFFERENCES)
