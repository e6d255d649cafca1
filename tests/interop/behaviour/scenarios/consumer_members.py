"""Members of groups of the consumer protocol (KIP-848): their epochs, how they reconcile, and what else they may do."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import (
    alone,
    commit,
    describe,
    heartbeat,
    leave,
    make_topic,
    sync,
    until_state,
)
from tests.interop.behaviour.common import join as join_classic
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, Server, Step, ask, flat
from tests.interop.behaviour.scenarios.consumer_groups import VERSIONS, A, B, C, beat, join, soon, told

_Steps = Step | list[Step]


def own(*partitions: int) -> list[dict[str, Any]]:
    """The partitions of $topic that a member reports."""
    return [{"topic_id": "$topic_id", "partitions": list(partitions)}]


def listed(**content: Any) -> Ask:
    """ListGroups, of which only $group is compared."""
    return ask(ApiKey.LIST_GROUPS, 5, only={"groups.group_id": "$group"}, on="z", **content)


def fetch(member: str | None = None, epoch: int = -1, *, version: int = 9, **topic: Any) -> Ask:
    """OffsetFetch of partition 0."""
    named: dict[str, Any] = {"topic_id": "$topic_id"} if version >= 10 else {"name": "$topic"}
    topics = [{**named, **topic, "partition_indexes": [0]}]
    group = {"group_id": "$group", "member_id": member, "member_epoch": epoch, "topics": topics}
    return ask(ApiKey.OFFSET_FETCH, version, groups=[group])


def commit_by_id(member: str = A, epoch: int = 2, *, topic_id: Any = "$topic_id", offset: int = 5) -> Ask:
    """OffsetCommit 10 of partition 0."""
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "why"}
    topics = [{"topic_id": topic_id, "partitions": [part]}]
    fields: dict[str, Any] = {"group_id": "$group", "member_id": member, "generation_id_or_member_epoch": epoch}
    return ask(ApiKey.OFFSET_COMMIT, 10, topics=topics, **fields)


def delete(*groups: str) -> Ask:
    """DeleteGroups."""
    return ask(ApiKey.DELETE_GROUPS, 2, groups_names=list(groups or ("$group",)))


def known_topic() -> list[Step]:
    """$topic with four partitions, of which the group coordinator knows. Apache Kafka's may learn of it last."""
    known: dict[str, Any] = {"assignment.topic_partitions.length": 1}
    return [*make_topic(partitions=4), join(C, group="$group-known", on="known", until=known, quiet=True)]


def _alone(title: str, *steps: _Steps, server: Server = "plain", version: int = 1, **given: Any) -> Scenario:
    """Member A is in epoch 2 and owns partitions 0 to 3."""
    return Scenario(title, flat(known_topic(), join(version=version, quiet=True, **given), *steps), None, server)


def _two(title: str, *steps: _Steps, **given: Any) -> Scenario:
    """Member A is in epoch 2 and owns partitions 0 to 3; B has joined since, in epoch 3."""
    return _alone(title, join(B, on="b", quiet=True), *steps, **given)


def _static(title: str, *steps: _Steps) -> Scenario:
    """Static member A with the instance id "i" is in epoch 2 and owns partitions 0 to 3."""
    return _alone(f"Static members: {title}", *steps, instance_id="i")


#: A full heartbeat, as clients send it after an error.
FULL: Final[dict[str, Any]] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["$topic"]}
#: A has revoked what B gets.
SHARED: Final = (beat(A, 2), beat(A, 2, topic_partitions=own(0, 1)), beat(B, 3, on="b"))

EPOCHS: Final = (
    *(
        _alone(f"Member epochs v{version}: {what}", beat(A, epoch, version=version, **given), told(), version=version)
        for version in VERSIONS
        for what, epoch, given in (
            ("the current one", 2, {}),
            ("the current one, with all partitions", 2, {"topic_partitions": own(0, 1, 2, 3)}),
            ("the current one, with all fields", 2, {**FULL, "topic_partitions": own(0, 1, 2, 3)}),
            ("the current one, with other partitions", 2, {"topic_partitions": own(7)}),
            ("an older one", 1, {"topic_partitions": []}),
            ("a newer one", 3, {}),
        )
    ),
    _alone("Member epochs: joins again", join(), told()),
    _alone("Member epochs: another rack", beat(A, 2, rack_id="r"), told()),
    _alone("Member epochs: joins again with another subscription", join(topics=("$topic", "$topic-b")), told()),
    *(
        _two(f"Member epochs: {what} of a member that has revoked", *SHARED[:2], beat(A, 2, topic_partitions=owned))
        for what, owned in (
            ("the one before, with its partitions,", own(0, 1)),
            ("the one before, with fewer partitions,", own(0)),
            ("the one before, with no partitions,", []),
            ("the one before, with more partitions,", own(0, 1, 2)),
            ("the one before, without a list of partitions,", None),
        )
    ),
    _two("Member epochs: the one before, with all fields", *SHARED[:2], beat(A, 2, **FULL, topic_partitions=own(0, 1))),
    _two("Member epochs: a member that revokes joins again", beat(A, 2), join(), told(), beat(B, 3, on="b")),
)

LIVES: Final = (
    *(
        _two(
            f"Two members: one revokes, then the other gets, described with v{version}",
            told(version=version),
            beat(A, 2),
            told(version=version),
            beat(A, 2, topic_partitions=own(0, 1, 2)),
            beat(B, 3, on="b"),
            beat(A, 2, topic_partitions=own(0, 1)),
            told(version=version),
            beat(B, 3, on="b"),
            told(version=version),
            beat(B, 3, on="b", topic_partitions=own(2, 3)),
        )
        for version in VERSIONS
    ),
    _two("Two members: one leaves", *SHARED, beat(A, -1), told(), beat(B, 3, on="b"), told()),
    _two("Two members: one leaves before it has revoked", beat(A, 2), beat(A, -1), told(), beat(B, 3, on="b"), told()),
    _two("Two members: one leaves before it has got anything", beat(B, -1, on="b"), told(), beat(A, 2), told()),
    _two("Two members: both leave", *SHARED, beat(A, -1), beat(B, -1, on="b"), told(), listed()),
    _alone(
        "Two members: one does not revoke within its rebalance timeout",
        join(B, on="b", quiet=True),
        beat(A, 2, quiet=True),
        ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            1,
            on="z",
            group_ids=["$group"],
            include_authorized_operations=False,
            until={"groups.0.group_epoch": 4},
        ),
        beat(A, 2),
        beat(B, 3, on="b"),
        rebalance_timeout_ms=300,
    ),
    _alone("A member changes its subscription", beat(subscribed_topic_names=[]), beat(topic_partitions=[]), told()),
    _alone(
        "A member subscribes to a second topic",
        make_topic("$topic-b", save="other_id"),
        beat(subscribed_topic_names=["$topic", "$topic-b"]),
        told(),
    ),
    _alone("A member names a topic twice", beat(subscribed_topic_names=["$topic", "$topic"]), told()),
    _alone("A member changes nothing", beat(**FULL, topic_partitions=own(0, 1, 2, 3)), told()),
    _alone("A member leaves", beat(A, -1), told(), beat(A, 2), beat(A, -1), join(), told()),
    _alone("A member leaves: of version 0", beat(A, -1, version=0), beat(A, 2, version=0)),
    _alone("A member without an instance id leaves for a while", beat(A, -2), told()),
    _alone("An assignor: range", join(server_assignor="range"), told()),
    _alone("An assignor: changed", beat(server_assignor="range"), told(), beat(server_assignor="uniform"), told()),
    _alone("An assignor: the default one", beat(server_assignor="uniform"), told()),
    _two(
        "An assignor: of two members, one after the other",
        beat(A, 2, server_assignor="range"),
        told(),
        beat(B, 3, on="b", server_assignor="range"),
        told(),
        server_assignor="uniform",
    ),
    _alone("An assignor: unknown, from a member", beat(server_assignor="best"), told()),
    _alone("A pattern: invalid, from a member", beat(subscribed_topic_regex="(?=a)"), told()),
    _alone("A pattern: empty, from a member", beat(subscribed_topic_regex=""), told()),
    Scenario(
        "A pattern: of the first member",
        flat(
            known_topic(),
            join(subscribed_topic_names=None, subscribed_topic_regex="$topic"),
            beat(A, 1, subscribed_topic_regex="$topic", until={"member_epoch": 2}, quiet=True),
            told(),
            beat(B, 3, on="b"),
            beat(A, 2, subscribed_topic_regex="", quiet=True),
            told(),
        ),
    ),
    Scenario(
        "A pattern: that matches nothing",
        flat(join(subscribed_topic_names=None, subscribed_topic_regex="$topic"), beat(A, 1), told()),
    ),
    *(
        _alone(
            f"A full group: {what}",
            join(B, on="b", quiet=True),
            *steps,
            told(),
            server="strict",
        )
        for what, steps in (
            ("a third member", (join(C, on="c"),)),
            ("a member joins again", (join(B, on="b"),)),
            ("an unknown member's heartbeat", (beat(C, 2, on="c"),)),
            ("an unknown member leaves", (beat(C, -1, on="c"),)),
            ("a third member, after one has left", (beat(B, -1, on="b"), join(C, on="c"))),
        )
    ),
)

STATIC: Final = (
    _static("leaves for a while", beat(A, -2, instance_id="i"), told(), beat(A, 2, instance_id="i")),
    *(
        _static(
            f"comes back with {what}",
            beat(A, -2, instance_id="i"),
            join(member, instance_id="i"),
            told(),
            beat(A, 2, instance_id="i"),
            beat(member, 2, instance_id="i"),
        )
        for what, member in (("its member id", A), ("another member id", B))
    ),
    _static("its instance id is used by another member", join(B, instance_id="i"), told(), beat(A, 2, instance_id="i")),
    _static("joins again with another instance id", join(A, instance_id="j"), told(), join(B, instance_id="i")),
    _static("joins again without its instance id", join(A), told()),
    _static("a heartbeat without its instance id", beat(A, 2), told()),
    *(
        _static(f"{what}, with epoch {epoch}", beat(member, epoch, instance_id=instance), told())
        for epoch in (2, -1, -2)
        for what, member, instance in (
            ("another member with its instance id", B, "i"),
            ("its member id with an unknown instance id", A, "j"),
        )
    ),
    _static("leaves for good", beat(A, -1, instance_id="i"), told(), beat(A, 2, instance_id="i")),
    _static("leaves for good without its instance id", beat(A, -1), told()),
    _static("leaves for a while, then for good", beat(A, -2, instance_id="i"), beat(A, -1, instance_id="i"), told()),
    _static("leaves for a while twice", beat(A, -2, instance_id="i"), beat(A, -2, instance_id="i"), told()),
    _static(
        "leaves for a while, and another member joins",
        beat(A, -2, instance_id="i"),
        join(B, on="b"),
        told(),
        join(C, instance_id="i"),
        told(),
        beat(C, 2, instance_id="i", topic_partitions=own(0, 1)),
        beat(B, 3, on="b"),
    ),
    _static(
        "leaves for a while when it has to revoke",
        join(B, on="b", quiet=True),
        beat(A, 2, instance_id="i"),
        beat(A, -2, instance_id="i"),
        told(),
        beat(B, 3, on="b"),
        join(C, instance_id="i"),
        told(),
    ),
    _static(
        "comes back with another subscription",
        beat(A, -2, instance_id="i"),
        join(B, topics=(), instance_id="i"),
        told(),
    ),
)

OFFSETS: Final = (
    *(
        _alone(f"OffsetCommit v{version}: of a member with epoch {epoch}", commit(A, epoch, version=version), fetch())
        for version in (2, 7, 8, 9)
        for epoch in (2, 1, 3, 0, -1)
    ),
    *(
        _alone(f"OffsetCommit v{version}: {what}", commit(member, epoch, version=version), fetch())
        for version in (8, 9)
        for what, member, epoch in (
            ("of an unknown member", B, 2),
            ("without a member", "", -1),
            ("without a member id, with an epoch", "", 2),
        )
    ),
    *(
        _alone(f"OffsetCommit v10: of a member with epoch {epoch}", commit_by_id(A, epoch), fetch())
        for epoch in (2, 1, 3)
    ),
    _alone("OffsetCommit v10: an unknown topic id", commit_by_id(topic_id=bytes(range(16)))),
    _alone("OffsetCommit v9: with an instance id", commit(A, 2, version=9, instance="i"), fetch()),
    _alone(
        "OffsetCommit v9: in an empty group",
        beat(A, -1, quiet=True),
        commit(A, 2, version=9),
        commit("", -1, version=9),
        commit("", -1, version=7),
        fetch(),
    ),
    _two(
        "OffsetCommit v9: with the epoch before, of partitions that are owned and are not",
        *(step for step in (beat(A, 2, quiet=True), beat(A, 2, topic_partitions=own(0, 1), quiet=True))),
        commit(A, 2, partition=0, version=9),
        commit(A, 2, partition=2, version=9),
        commit(A, 3, partition=2, version=9),
        commit(B, 2, partition=2, version=9),
        commit(A, 1, partition=0, version=9),
    ),
    _two(
        "OffsetCommit v9: of partitions that are being revoked",
        beat(A, 2, quiet=True),
        commit(A, 2, partition=2, version=9),
    ),
    *(
        _alone(
            f"OffsetFetch v{version}: {what}",
            commit(A, 2, version=9, quiet=True),
            fetch(member, epoch, version=version),
        )
        for version in (9, 10)
        for what, member, epoch in (
            ("of a member with its epoch", A, 2),
            ("of a member with an older epoch", A, 1),
            ("of a member with a newer epoch", A, 3),
            ("of a member without an epoch", A, -1),
            ("of an unknown member", B, 2),
            ("without a member", None, -1),
            ("with an empty member id", "", -1),
            ("without a member id, with an epoch", None, 2),
        )
    ),
    _alone("OffsetFetch v10: an unknown topic id", fetch(A, 2, version=10, topic_id=bytes(range(16)))),
    *(
        _alone(
            f"OffsetDelete v0: of a topic that {what}",
            *before,
            commit("", -1, version=7) if before else commit(A, 2, version=9),
            ask(
                ApiKey.OFFSET_DELETE,
                0,
                group_id="$group",
                topics=[{"name": "$topic", "partitions": [{"partition_index": 0}]}],
            ),
            fetch(),
        )
        for what, before in (("a member subscribes to", ()), ("no member subscribes to", (beat(A, -1, quiet=True),)))
    ),
)

TOOLS: Final = (
    *(
        _alone(f"ListGroups v5: {what}", listed(**content))
        for what, content in (
            ("a consumer group", {}),
            ("a consumer group by its type", {"types_filter": ["consumer"]}),
            ("a consumer group by its type, in another case", {"types_filter": ["CONSUMER"]}),
            ("a consumer group by the other type", {"types_filter": ["classic"]}),
            ("a consumer group by its state", {"states_filter": ["Stable"]}),
            ("a consumer group by another state", {"states_filter": ["Empty"]}),
            ("a consumer group by type and state", {"types_filter": ["consumer"], "states_filter": ["stable"]}),
        )
    ),
    _two("ListGroups v5: a consumer group that reconciles", listed(states_filter=["Reconciling"])),
    _alone("ListGroups v5: an empty consumer group", beat(A, -1, quiet=True), listed(states_filter=["Empty"])),
    _alone("DeleteGroups v2: a consumer group with members", delete(), told()),
    _alone(
        "DeleteGroups v2: an empty consumer group",
        commit(A, 2, version=9, quiet=True),
        beat(A, -1, quiet=True),
        delete(),
        delete(),
        told(),
        fetch(),
        join(),
    ),
    *(_alone(f"DescribeGroups v{version}: a consumer group", describe(version=version)) for version in (0, 5, 6)),
    _alone("DescribeGroups v6: an empty consumer group", beat(A, -1, quiet=True), describe(version=6)),
    _alone("ConsumerGroupDescribe v1: operations that are allowed, of a consumer group", told(operations=True)),
)

CLASSIC: Final = (
    *(
        _alone(
            f"Classic requests to a consumer group: JoinGroup v{version}",
            join_classic(on="b", version=version),
            told(),
            server="strict",
        )
        for version in (3, 4, 9)
    ),
    _alone(
        "Classic requests to a consumer group: JoinGroup with its member id",
        join_classic(A, version=5, save={}),
        told(),
        server="strict",
    ),
    _alone(
        "Classic requests to a consumer group: JoinGroup of another protocol type",
        join_classic(on="b", kind="connect"),
        told(),
    ),
    _alone("Classic requests to a consumer group: SyncGroup", sync(A, 2), sync(B, 2)),
    _alone("Classic requests to a consumer group: Heartbeat", heartbeat(A, 2), heartbeat(B, 2)),
    _alone("Classic requests to a consumer group: LeaveGroup", leave((A, None)), leave((B, None)), told()),
    _static("LeaveGroup with the instance id", leave(("", "i")), told()),
    _static("LeaveGroup with an unknown instance id", leave(("", "j")), told()),
    _alone(
        "Classic requests to an empty consumer group",
        beat(A, -1, quiet=True),
        commit(quiet=True),
        heartbeat(A, 2),
        sync(A, 2),
        leave((A, None)),
        join_classic(on="b"),
        sync("$b_id", 1, on="b", shares={"$b_id": b"share"}),
        describe(),
        listed(),
        told(),
        fetch(),
    ),
    Scenario(
        "Requests of the consumer protocol to a classic group: empty",
        flat(
            make_topic(),
            alone(),
            commit("$a_id", 1, quiet=True),
            leave(("$a_id", None), quiet=True),
            until_state("Empty"),
            beat(B, 2, on="b"),
            beat(B, -1, on="b"),
            join(B, on="b"),
            told(),
            listed(),
            fetch(),
        ),
        server="strict",
    ),
    Scenario(
        "Requests of the consumer protocol to a classic group: only offsets",
        flat(make_topic(), commit(quiet=True), join(B, on="b"), told(), fetch()),
        server="strict",
    ),
)

SCENARIOS: Final = (*EPOCHS, *LIVES, *STATIC, *OFFSETS, *TOOLS, *CLASSIC)

DIFFERENCES: Final = (
    Difference(
        "A static member that joins again with another instance id is refused",
        "Kafka's coordinator keeps the member under both instance ids, so that no other member can use the first one.",
        (
            ("Static members: joins again with another instance id", "*.error_code"),
            ("Static members: joins again with another instance id", "*.member_id"),
            ("Static members: joins again with another instance id", "*.member_epoch"),
            ("Static members: joins again with another instance id", "*.heartbeat_interval_ms"),
            ("Static members: joins again with another instance id", "*.assignment"),
            ("Static members: joins again with another instance id", "*.instance_id"),
        ),
    ),
    Difference(
        "OffsetFetch with a member epoch and without a member id gets UNKNOWN_MEMBER_ID",
        "Kafka's coordinator fails with an exception, which the client sees as UNKNOWN_SERVER_ERROR.",
        (("OffsetFetch v*: without a member id, with an epoch", "*.error_code"),),
    ),
    Difference(
        "A member that reports partitions which it does not own gets its assignment",
        "It only does if a disk has lost the record of what it was given. Kafka leaves it with partitions that another "
        "member gets, too.",
        (("Member epochs v*: the current one, with other partitions", "*.assignment"),),
    ),
    soon(
        "Two members: one revokes, then the other gets, described with v*",
        "Static members: leaves for a while, and another member joins",
        "A full group: a member joins again",
        "A full group: a third member, after one has left",
        "An assignor: of two members, one after the other",
    ),
)

FAMILY: Final = Family("Members of the consumer protocol", SCENARIOS, DIFFERENCES)
