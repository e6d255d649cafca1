"""Groups that change their protocol while they have members: upgrade, members of both protocols, downgrade."""

from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import commit, describe, hear_join, heartbeat, leave, make_topic, sync
from tests.interop.behaviour.common import join as join_classic
from tests.interop.behaviour.language import (
    Ask,
    Assignment,
    Difference,
    Family,
    Hear,
    Scenario,
    Server,
    Step,
    Subscription,
    ask,
    flat,
)
from tests.interop.behaviour.scenarios.consumer_groups import beat, join, soon, told

#: Each scenario has a topic of its own, whose name is in the bytes of assignments.
_NUMBERS: Final = count(1)
_Steps = Step | list[Step]
M = "modern"


class Story:
    """The steps of a scenario about one topic."""

    def __init__(self, partitions: int = 4) -> None:
        self.partitions = partitions
        self.topic = f"migration-{next(_NUMBERS)}"
        self.steps: list[Step] = [
            *make_topic(self.topic, partitions),
            # The group's coordinator is ready.
            ask(
                ApiKey.FIND_COORDINATOR,
                4,
                key_type=0,
                coordinator_keys=["$group"],
                until={"coordinators.0.error_code": 0},
                quiet=True,
            ),
        ]

    def then(self, *steps: _Steps) -> "Story":
        self.steps += flat(*steps)
        return self

    def subscription(self, *owned: int, version: int = 1) -> Subscription:
        """A subscription to the topic; the partitions that the member owns are in version 1."""
        return Subscription((self.topic,), {self.topic: owned} if owned else {}, version)

    def assignment(self, *partitions: int, user_data: bytes | None = None) -> Assignment:
        return Assignment({self.topic: partitions}, user_data)

    def rejoin(self, name: str, *owned: int, quiet: bool = False, **options: Any) -> Ask:
        """JoinGroup of a member that has its id."""
        options = {"version": 9, "metadata": self.subscription(*owned), "save": {}, "on": name, **options}
        return join_classic(options.pop("member", f"${name}_id"), quiet=quiet, **options)

    def classic(self, *names: str, version: int = 1, instances: Mapping[str, str] | None = None) -> "Story":
        """A Stable classic group of members on connections with these names, which share the partitions evenly."""
        given = instances or {}
        metadata = self.subscription(version=version)
        for at, name in enumerate(names):
            instance = given.get(name)
            if at == 0:
                self.then(join_classic(on=name, metadata=metadata, instance=instance, quiet=True))
                share = {f"${name}_id": self.assignment(*range(self.partitions))}
                self.then(sync(f"${name}_id", 1, on=name, shares=share, quiet=True))
                continue
            others = names[:at]
            self.then(join_classic(on=name, metadata=metadata, instance=instance, later=True))
            self.then(describe(until={"groups.0.group_state": "PreparingRebalance"}, quiet=True))
            for other in others:
                options: dict[str, Any] = {"instance": given.get(other), "later": True, "version": 5}
                self.then(join_classic(f"${other}_id", on=other, metadata=metadata, **options))
            for each in (*others, name):
                self.then(hear_join(each, quiet=True))
            all_of_them = names[: at + 1]
            shares = {
                f"${each}_id": self.assignment(*range(number, self.partitions, len(all_of_them)))
                for number, each in enumerate(all_of_them)
            }
            for each in all_of_them:
                self.then(sync(f"${each}_id", at + 1, on=each, shares=shares if each == names[0] else {}, quiet=True))
        return self

    def join(self, **options: Any) -> Ask:
        """A member of the consumer protocol joins."""
        return join(M, (self.topic,), on="m", **options)

    def mixed(self) -> "Story":
        """A group of `a`, of the classic protocol, and one of the consumer protocol: epoch 2, two partitions each."""
        self.classic("a").then(
            self.join(quiet=True),
            self.rejoin("a", 0, 1, 2, 3, quiet=True),
            sync("$a_id", 1, version=5, quiet=True, **KIND),
            self.rejoin("a", 0, 1, quiet=True),
            sync("$a_id", 2, version=5, quiet=True, **KIND),
            beat(M, 2, on="m", topic_partitions=[], quiet=True),
        )
        return self

    def scenario(self, name: str, server: Server = "plain") -> Scenario:
        return Scenario(f"Migration: {name}", tuple(self.steps), server=server)


#: What SyncGroup has from version 5 on.
KIND: Final[dict[str, Any]] = {"protocol_type": "consumer", "protocol_name": "range"}


def synced(name: str, generation: int, **options: Any) -> Ask:
    return sync(f"${name}_id", generation, on=name, version=5, **{**KIND, **options})


def beats(name: str, generation: int, **options: Any) -> Ask:
    return heartbeat(f"${name}_id", generation, on=name, **options)


def _upgrades() -> tuple[Scenario, ...]:
    found = []
    story = Story(6).classic("a", "b")
    found.append(
        story.then(
            story.join(),
            told(),
            beats("a", 2),
            beats("b", 2),
            story.rejoin("a", 0, 2, 4),
            synced("a", 2),
            synced("b", 2),
            story.rejoin("b", 1, 3, 5),
            synced("b", 2),
            synced("b", 3),
            told(),
            beats("a", 2),
            story.rejoin("a", 0, 2),
            synced("a", 3),
            beats("a", 3),
            beat(M, 3, on="m", topic_partitions=[]),
            beats("b", 2),
            story.rejoin("b", 1, 3),
            synced("b", 3),
            beat(M, 3, on="m"),
            told(),
        ).scenario("two members are upgraded, and reconciled as cooperative ones")
    )
    story = Story(6).classic("a", "b", version=0)
    found.append(
        story.then(
            story.join(),
            beats("a", 2),
            story.rejoin("a"),
            synced("a", 3),
            beat(M, 3, on="m", topic_partitions=[]),
            story.rejoin("b"),
            synced("b", 3),
            beat(M, 3, on="m"),
            told(),
        ).scenario("two members are upgraded, and reconciled as eager ones")
    )
    story = Story().classic("a")
    story.then(join_classic(on="b", metadata=story.subscription(), later=True))
    story.then(describe(until={"groups.0.group_state": "PreparingRebalance"}, quiet=True))
    found.append(
        story.then(story.join(), hear_join("b"), beats("a", 1)).scenario("a deferred JoinGroup is interrupted")
    )
    # One partition, which `a` keeps: which of two members gets more depends on their member ids.
    story = Story(1).classic("a")
    story.then(
        join_classic(on="b", metadata=story.subscription(), later=True),
        describe(until={"groups.0.group_state": "PreparingRebalance"}, quiet=True),
        story.rejoin("a", version=5, later=True),
        hear_join("a", quiet=True),
        hear_join("b", quiet=True),
        sync("$b_id", 2, on="b", later=True),
        describe(until={"groups.0.group_state": "CompletingRebalance"}, quiet=True),
        story.join(),
    )
    found.append(
        story.then(Hear("b"), beats("a", 2), beats("b", 2), told()).scenario("a deferred SyncGroup is interrupted")
    )
    for name, user_data in (("data of its own", b"x"), ("empty data", b"")):
        story = Story().classic("a")
        share = {"$a_id": story.assignment(0, 1, 2, 3, user_data=user_data)}
        story.then(
            join_classic("$a_id", on="a", version=5, metadata=story.subscription(), quiet=True),
            sync("$a_id", 2, on="a", shares=share, quiet=True),
        )
        found.append(story.then(story.join(), beats("a", 2), told()).scenario(f"a leader that gives {name} to members"))
    for name, sent in (("malformed", b"\x00\x00\x00"), ("empty", b"")):
        story = Story()
        story.then(
            join_classic(on="a", metadata=story.subscription(), quiet=True),
            sync("$a_id", 1, on="a", shares={"$a_id": sent}, quiet=True),
        )
        found.append(story.then(story.join(quiet=not sent), beats("a", 1)).scenario(f"an assignment that is {name}"))
    story = Story()
    story.then(join_classic(on="a", kind="connect", metadata=b"", quiet=True))
    found.append(story.then(story.join(), told()).scenario("a group of another protocol type"))
    story = Story().classic("a")
    found.append(
        story.then(story.join(instance_id="i"), beats("a", 1), told()).scenario("is disabled", server="strict")
    )
    story = Story().classic("a", "b", instances={"a": "i", "b": "j"})
    found.append(
        story.then(
            story.join(instance_id="i"),
            heartbeat("$a_id", 2, on="a", instance="i"),
            heartbeat("$b_id", 2, on="b", instance="j"),
            told(),
        ).scenario("a static member takes its own place")
    )
    return tuple(found)


def _mixed() -> tuple[Scenario, ...]:
    found = [
        Story()
        .mixed()
        .then(told(), beats("a", 2), synced("a", 2), beat(M, 2, on="m"))
        .scenario("both protocols, stable")
    ]

    def of(name: str, *steps: _Steps) -> None:
        found.append(Story().mixed().then(*steps).scenario(f"a mixed group: {name}"))

    of("another generation", beats("a", 1), beats("a", 3), synced("a", 1), synced("a", 3))
    of("unknown members", heartbeat("x", 2), sync("x", 2, version=5, **KIND))
    of("classic requests of the other member", heartbeat(M, 2), sync(M, 2, version=5, **KIND))
    of("SyncGroup of another protocol", synced("a", 2, protocol_name="other"), synced("a", 2, protocol_type="other"))
    of("an instance id", heartbeat("$a_id", 2, instance="i"), sync("$a_id", 2, version=5, instance="i", **KIND))
    of("JoinGroup without an id", join_classic(on="b", version=4), join_classic(on="b", version=9), told())
    of("JoinGroup v3 without an id", join_classic(on="b", version=3), told())
    of("JoinGroup with an id of its own", join_classic("b", on="b", version=9), told())
    of("JoinGroup of other protocols", join_classic("b", on="b", version=9, protocols=("other",)))
    of("JoinGroup of another protocol type", join_classic("b", on="b", version=9, kind="connect"))
    of("JoinGroup with a malformed subscription", join_classic("b", on="b", version=9, metadata=b"\x00\x00\x00"))
    of(
        "a static member joins and comes back",
        join_classic(on="b", version=9, instance="i"),
        sync("$b_id", 3, on="b", version=5, instance="i", **KIND),
        join_classic(on="c", version=9, instance="i"),
        heartbeat("$b_id", 3, on="b", instance="i"),
        join_classic("$b_id", on="b", version=9, instance="i"),
        join_classic("x", on="b", version=9, instance="k"),
        told(),
    )
    story = Story().mixed()
    story.then(
        *(commit("$a_id", 2, version=version, topic=story.topic) for version in (2, 8, 9)),
        *(commit("$a_id", 1, version=9, topic=story.topic, partition=partition) for partition in (0, 2)),
        *(commit("$a_id", epoch, version=9, topic=story.topic) for epoch in (-1, 3)),
        commit(M, 2, version=8, topic=story.topic),
        *(_fetch("$a_id", epoch) for epoch in (1, 2, 3)),
    )
    found.append(story.scenario("a mixed group: commits and fetches"))
    of("a member of the classic protocol leaves", leave(("$a_id", None)), told(), beats("a", 2))
    of("LeaveGroup v2", ask(ApiKey.LEAVE_GROUP, 2, group_id="$group", member_id="$a_id"), told())
    of("LeaveGroup of unknown members", leave(("x", None), ("", "i"), ("x", "i")), told())
    of("the other member of the consumer protocol leaves by LeaveGroup", leave((M, None)), beats("a", 2), describe())
    of("both leave by one LeaveGroup", leave(("$a_id", None), (M, None)), told(), describe())
    of("a heartbeat of the consumer protocol with the id of the other", beat("$a_id", 2, on="a"), told())
    of("the consumer protocol joins with the id of the other", join("$a_id", ("wanted",), on="a"), told())
    of("DescribeGroups", *(describe(version=version) for version in (5, 6)))
    return tuple(found)


def _fetch(member: str, epoch: int) -> Ask:
    group = {"group_id": "$group", "member_id": member, "member_epoch": epoch, "topics": None}
    return ask(ApiKey.OFFSET_FETCH, 9, groups=[group])


def _downgrades() -> tuple[Scenario, ...]:
    found = []
    story = Story().mixed()
    found.append(
        story.then(
            beat(M, -1, on="m"),
            describe(),
            told(),
            beats("a", 2),
            story.rejoin("a", 0, 1, version=5),
            sync("$a_id", 3, on="a", shares={"$a_id": story.assignment(0, 1, 2, 3)}),
            describe(),
            beats("a", 3),
        ).scenario("the last member of the consumer protocol leaves")
    )
    story = Story().classic("a", "b", instances={"a": "i", "b": "j"})
    found.append(
        story.then(
            story.join(instance_id="i", quiet=True),
            join_classic(on="c", version=9, instance="i", metadata=story.subscription()),
            describe(),
            sync("$c_id", 2, on="c", version=5, instance="i", **KIND),
            heartbeat("$c_id", 2, on="c", instance="i"),
            heartbeat("$b_id", 2, on="b", instance="j"),
        ).scenario("a static member comes back with the classic protocol")
    )
    story = Story().classic("a", "b", instances={"a": "i", "b": "j"})
    found.append(
        story.then(
            story.join(instance_id="i", quiet=True),
            join_classic(on="c", version=9, instance="i"),
            describe(),
            sync("$c_id", 3, on="c", version=5, instance="i", **KIND),
            heartbeat("$b_id", 2, on="b", instance="j"),
            heartbeat("$b_id", 3, on="b", instance="j"),
        ).scenario("a static member comes back with the classic protocol and another subscription")
    )
    story = Story().mixed()
    found.append(
        story.then(
            beat(M, -1, on="m", quiet=True),
            beat(M, 2, on="m"),
            beat(M, 2, on="m", topic_partitions=[]),
            beat(M, -1, on="m"),
            describe(),
            story.join(),
            told(),
        ).scenario("a member of the consumer protocol comes back after the downgrade")
    )
    story = Story().mixed()
    found.append(story.then(beat(M, -2, on="m", instance_id="i"), told()).scenario("a dynamic member cannot be away"))
    return tuple(found)


DIFFERENCES: Final = (
    Difference(
        "A group that a static member downgrades always rebalances",
        "In Kafka no member leads such a group until its next rebalance, so that none notices when a topic grows.",
        (
            ("Migration: a static member comes back with the classic protocol", "* DESCRIBE_GROUPS *"),
            ("Migration: a static member comes back with the classic protocol", "* SYNC_GROUP *"),
            ("Migration: a static member comes back with the classic protocol", "* HEARTBEAT *"),
        ),
    ),
    soon(
        "Migration: two members are upgraded, and reconciled as *",
        "Migration: a deferred JoinGroup is interrupted",
        "Migration: a leader that gives empty data to members",
    ),
)

SCENARIOS: Final = (*_upgrades(), *_mixed(), *_downgrades())

FAMILY: Final = Family("Migration between the protocols of consumer groups", SCENARIOS, DIFFERENCES)
