"""JoinGroup, and the rules of classic groups about it that are easy to get wrong."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import (
    CHANGED,
    LONG,
    alone,
    clock,
    commit,
    describe,
    hear_join,
    heartbeat,
    join,
    leave,
    make_topic,
    pair,
    settled,
    sync,
    until_state,
)
from tests.interop.behaviour.language import (
    Assignment,
    Difference,
    Family,
    Hear,
    Rule,
    Scenario,
    Server,
    Step,
    Subscription,
    flat,
    spread,
)

J: Final = ApiKey.JOIN_GROUP
#: The subscription of a member that owns two partitions.
_OWNER: Final = Subscription(("wanted",), {"wanted": (0, 1)}, version=1)


def _rule(rule: Rule, title: str, *steps: Any, server: Server = "plain") -> Scenario:
    return Scenario(f"{rule.value}: {title}", flat(*steps), rule, server)


def _static_pair() -> list[Step]:
    """Static members s (which leads) and t, stable in generation 2."""
    return [
        join(on="s", instance="s", quiet=True),
        sync("$s_id", on="s", instance="s", shares={"$s_id": b"share"}, quiet=True),
        join(on="t", instance="t", later=True),
        until_state("PreparingRebalance"),
        join("$s_id", on="s", instance="s", later=True),
        hear_join("s", quiet=True),
        hear_join("t", quiet=True),
        sync("$s_id", 2, on="s", instance="s", shares={"$s_id": b"share s", "$t_id": b"share t"}, quiet=True),
        sync("$t_id", 2, on="t", instance="t", quiet=True),
    ]


def _leader_and_static(session: int = LONG, rebalance: int = LONG) -> list[Step]:
    """A dynamic leader a and a static member s, stable in generation 2."""
    times: dict[str, Any] = {"session": session, "rebalance": rebalance}
    return [
        *alone(**times),
        join(on="s", instance="s", later=True, **times),
        until_state("PreparingRebalance"),
        join("$a_id", later=True, **times),
        hear_join("a", quiet=True),
        hear_join("s", quiet=True),
        sync("$a_id", 2, shares={"$a_id": b"share a", "$s_id": b"share s"}, quiet=True),
        sync("$s_id", 2, on="s", instance="s", quiet=True),
    ]


def _instance(what: str) -> Scenario:
    """Scenario of one API: the instance id is checked before the member id."""

    def asked(member: str, instance: str) -> Step:
        options: dict[str, Any] = {"on": "c", "instance": instance}
        if what == "JoinGroup":
            return join(member, save={}, **options)
        if what == "SyncGroup":
            return sync(member, 2, **options)
        if what == "Heartbeat":
            return heartbeat(member, 2, **options)
        if what == "OffsetCommit":
            return commit(member, 2, **options)
        return leave((member, instance), on="c")

    return _rule(
        Rule.INSTANCE_ID_FIRST,
        f"the instance is checked first, {what}",
        make_topic() if what == "OffsetCommit" else (),
        _leader_and_static(),
        asked("nobody", "unknown"),
        asked("nobody", "s"),
        asked("$a_id", "unknown"),
        asked("$a_id", "s"),
        describe(),
    )


SCENARIOS: Final = (
    *(Scenario(f"JoinGroup v{version}: a first member", (join(version=version, save={}),)) for version in range(10)),
    *(
        Scenario(
            f"JoinGroup v{version}: a first member, asked for its id",
            (join(version=version), join("$a_id", version=version)),
        )
        for version in (4, 5, 7, 9)
    ),
    *(
        Scenario(f"JoinGroup v{version}: a first member, static", (join(version=version, instance="one"),))
        for version in (5, 7, 9)
    ),
    *(Scenario(f"JoinGroup v{version}: no protocols", (join(version=version, protocols=()),)) for version in (0, 5, 9)),
    *(Scenario(f"JoinGroup v{version}: no protocol type", (join(version=version, kind=""),)) for version in (0, 5, 9)),
    *(
        Scenario(f"JoinGroup v{version}: an empty group id", (join(version=version, group="", save={}),))
        for version in (0, 5, 9)
    ),
    # Kafka lists the group only after a later write of some group to the same partition.
    _rule(
        Rule.MEMBER_ID_FIRST,
        "an unknown dynamic member gets an id first",
        join(version=4),
        clock(100),
        describe(),
        join("$a_id", version=4),
    ),
    _rule(Rule.MEMBER_ID_FIRST, "no client id", join(version=4, client_id=None), join("$a_id", version=4)),
    _rule(Rule.MEMBER_ID_FIRST, "not below version 4", join(version=3)),
    _rule(Rule.MEMBER_ID_FIRST, "not for static members", join(version=5, instance="one")),
    _rule(
        Rule.MEMBER_ID_FIRST,
        "the id is valid for the session timeout",
        alone(),
        join(on="p", version=4, session=400),
        join("$a_id", later=True),
        hear_join("a"),
        join("$p_id", on="p", version=4, save={}),
    ),
    _rule(
        Rule.PENDING_MEMBERS,
        "pending members hold back join completion",
        alone(),
        join(on="p", version=4),
        join("$a_id", later=True),
        until_state("PreparingRebalance"),
        describe(),
        join("$p_id", on="p", version=4, later=True),
        hear_join("a"),
        hear_join("p"),
    ),
    _rule(
        Rule.PENDING_MEMBERS,
        "pending members do not count towards group.max.size",
        join(on="a", version=4),
        join(on="b", version=4),
        join(on="c", version=4),
        server="strict",
    ),
    _rule(Rule.UNKNOWN_MEMBERS, "a member id on an unknown group", join("somebody", save={})),
    _rule(
        Rule.UNKNOWN_MEMBERS,
        "a member id and an instance on an unknown group",
        join("somebody", instance="one", save={}),
    ),
    _rule(Rule.UNKNOWN_MEMBERS, "a member id that the group does not know", alone(), join("somebody", on="b", save={})),
    _rule(
        Rule.FENCING,
        "a static member without id fences its deferred JoinGroup",
        _leader_and_static(),
        join("$s_id", on="s", instance="s", metadata=CHANGED, later=True),
        until_state("PreparingRebalance"),
        join(on="new", instance="s", later=True),
        Hear("s"),
        join("$a_id", later=True),
        hear_join("a"),
        hear_join("new"),
    ),
    _rule(
        Rule.FENCING,
        "a static member without id fences its deferred SyncGroup",
        alone(),
        join(on="s", instance="s", later=True),
        until_state("PreparingRebalance"),
        join("$a_id", later=True),
        hear_join("a"),
        hear_join("s"),
        sync("$s_id", 2, on="s", instance="s", later=True),
        join(on="new", instance="s", later=True),
        Hear("s"),
        join("$a_id", later=True),
        hear_join("a"),
        hear_join("new"),
    ),
    *(
        _rule(
            Rule.STATIC_REJOIN,
            f"no rebalance in Stable with the same protocol, v{version}",
            _leader_and_static(),
            join(on="new", version=version, instance="s"),
            describe(),
            sync("$new_id", 2, on="new", instance="s"),
            heartbeat("$s_id", 2, on="s", instance="s"),
        )
        for version in (5, 7, 9)
    ),
    _rule(
        Rule.STATIC_REJOIN,
        "a rebalance in CompletingRebalance",
        alone(),
        join(on="s", instance="s", later=True),
        until_state("PreparingRebalance"),
        join("$a_id", later=True),
        hear_join("a"),
        hear_join("s"),
        join(on="new", instance="s", later=True),
        until_state("PreparingRebalance"),
        heartbeat("$a_id", 2),
    ),
    _rule(
        Rule.STATIC_REJOIN,
        "a rebalance when another protocol is selected",
        join(on="s", instance="s", protocols=("range", "sticky"), quiet=True),
        sync("$s_id", on="s", instance="s", shares={"$s_id": b"share"}, quiet=True),
        join(on="new", instance="s", protocols=("sticky", "range")),
    ),
    *(
        _rule(
            Rule.STATIC_LEADER_REJOIN,
            f"a static leader rejoins, v{version}",
            _static_pair(),
            join(on="new", version=version, instance="s"),
            describe(),
        )
        for version in (5, 8, 9)
    ),
    _rule(
        Rule.STATIC_REJOIN,
        "restarts before it has revoked",
        join(on="s", version=9, instance="s", metadata=_OWNER, protocols=("cooperative-sticky",), quiet=True),
        sync("$s_id", on="s", instance="s", shares={"$s_id": Assignment({"wanted": (0,)})}, quiet=True),
        join(on="new", version=9, instance="s", protocols=("cooperative-sticky",)),
        describe(),
    ),
    *(_instance(what) for what in ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "LeaveGroup")),
    _rule(
        Rule.INITIAL_DELAY,
        "the first rebalance waits for more members",
        join(on="a", later=True),
        until_state("PreparingRebalance"),
        join(on="b", later=True),
        hear_join("a"),
        hear_join("b"),
        server="strict",
    ),
    _rule(
        Rule.INITIAL_DELAY,
        "it waits even if all members have left",
        join(version=4),
        join("$a_id", version=4, later=True),
        until_state("PreparingRebalance"),
        leave(("$a_id", None), on="b"),
        describe(),
        Hear("a"),
        until_state("Empty"),
        join(on="c", version=3),
        server="strict",
    ),
    _rule(
        Rule.REBALANCE_TIMEOUT,
        "the rebalance timeout is the largest of all members'",
        alone(rebalance=300),
        join(on="b", later=True),
        until_state("PreparingRebalance"),
        join("$a_id", rebalance=300, later=True),
        hear_join("a", quiet=True),
        hear_join("b", quiet=True),
        settled(),
        join("$a_id", rebalance=300, metadata=CHANGED, later=True),
        until_state("PreparingRebalance"),
        clock(800),
        heartbeat("$b_id", 2, on="b"),
    ),
    _rule(
        Rule.REBALANCE_TIMEOUT,
        "version 0 uses the session timeout",
        join(version=0, session=400, rebalance=-1, quiet=True),
        join(on="b", version=0, session=400, rebalance=-1),
    ),
    _rule(
        Rule.END_OF_JOIN_PHASE,
        "dynamic members are removed, static ones stay",
        _leader_and_static(rebalance=500),
        join("$a_id", rebalance=500, metadata=CHANGED, later=True),
        hear_join("a"),
        describe(),
    ),
    _rule(
        Rule.END_OF_JOIN_PHASE,
        "a dynamic member that has not rejoined is unknown",
        pair(rebalance=500),
        settled(),
        join("$a_id", rebalance=500, metadata=CHANGED, later=True),
        hear_join("a"),
        heartbeat("$b_id", 3, on="b"),
    ),
    _rule(
        Rule.DEFERRED_JOIN,
        "a member with a deferred JoinGroup does not expire",
        alone(session=400),
        join(on="b", session=LONG, later=True),
        until_state("PreparingRebalance"),
        join("$a_id", session=400, later=True),
        hear_join("a", quiet=True),
        hear_join("b", quiet=True),
        settled(),
        join("$a_id", session=400, metadata=CHANGED, later=True),
        until_state("PreparingRebalance"),
        clock(900),
        join("$b_id", on="b", session=LONG, later=True),
        hear_join("a"),
        hear_join("b"),
    ),
    *(
        _rule(
            Rule.SESSION_TIMEOUT,
            f"a session timeout of {session} ms, v{version}",
            join(version=version, session=session, save={}),
        )
        for version in spread(J)
        for session in (99, 1_800_001)
    ),
    _rule(Rule.SESSION_TIMEOUT, "the shortest session timeout allowed", join(session=100)),
    _rule(Rule.SESSION_TIMEOUT, "the longest session timeout allowed", join(session=1_800_000)),
    _rule(
        Rule.SESSION_TIMEOUT, "an invalid session timeout of a known member", alone(), join("$a_id", session=5, save={})
    ),
    _rule(
        Rule.JOIN_IN_COMPLETING,
        "equal protocols get the current generation",
        pair(),
        join("$a_id"),
        join("$b_id", on="b"),
        describe(),
    ),
    _rule(
        Rule.JOIN_IN_COMPLETING,
        "changed protocols start a rebalance, and deferred SyncGroups are answered",
        pair(),
        sync("$b_id", 2, on="b", later=True),
        join("$a_id", metadata=CHANGED, later=True),
        Hear("b"),
        until_state("PreparingRebalance"),
        describe(),
    ),
    _rule(
        Rule.JOIN_IN_STABLE,
        "a rejoining leader starts a rebalance",
        pair(),
        settled(),
        join("$a_id", later=True),
        until_state("PreparingRebalance"),
        heartbeat("$b_id", 2, on="b"),
    ),
    _rule(
        Rule.JOIN_IN_STABLE,
        "an unchanged follower gets the current generation",
        pair(),
        settled(),
        join("$b_id", on="b"),
        describe(),
    ),
    _rule(
        Rule.JOIN_IN_STABLE,
        "a changed follower starts a rebalance",
        pair(),
        settled(),
        join("$b_id", on="b", metadata=CHANGED, later=True),
        until_state("PreparingRebalance"),
        heartbeat("$a_id", 2),
    ),
    *(
        _rule(
            Rule.MEMBER_LIST,
            f"only the leader's answer carries members, v{version}",
            alone(),
            join(on="b", version=version, later=True),
            until_state("PreparingRebalance"),
            join("$a_id", version=version, later=True),
            hear_join("a"),
            hear_join("b"),
        )
        for version in (0, 2)
    ),
    _rule(
        Rule.MEMBER_LIST,
        "only the leader's answer carries members, v9",
        alone(),
        join(on="b", version=9),
        join("$b_id", on="b", version=9, later=True),
        until_state("PreparingRebalance"),
        join("$a_id", version=9, later=True),
        hear_join("a"),
        hear_join("b"),
    ),
    _rule(
        Rule.PROTOCOL_SELECTION,
        "each member votes for its first protocol that all support",
        alone(protocols=("own", "range", "sticky")),
        join(on="b", protocols=("sticky", "range"), later=True),
        until_state("PreparingRebalance"),
        join(on="c", protocols=("sticky", "range"), later=True),
        describe(until={"groups.0.members.length": 3}, quiet=True),
        join("$a_id", protocols=("own", "range", "sticky"), later=True),
        hear_join("a"),
        hear_join("b"),
        hear_join("c"),
    ),
    _rule(Rule.PROTOCOL_SELECTION, "no protocol in common", alone(), join(on="b", protocols=("sticky",), save={})),
    _rule(Rule.PROTOCOL_SELECTION, "another protocol type", alone(), join(on="b", kind="connect", save={})),
    _rule(
        Rule.PROTOCOL_SELECTION, "a lone member may change its protocols", alone(), join("$a_id", protocols=("sticky",))
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        "A static member that restarts before it has revoked partitions causes a rebalance",
        "With a cooperative assignor, others get partitions when their owner has revoked them and has joined again."
        " In Kafka a static member that restarts before that joins without a rebalance (KIP-345 with KIP-429): these"
        " partitions have no owner until the next one.",
        (
            ("Static member rejoins (KIP-345): restarts before it has revoked", "* JOIN_GROUP *"),
            ("Static member rejoins (KIP-345): restarts before it has revoked", "* DESCRIBE_GROUPS *"),
        ),
    ),
)

FAMILY: Final = Family("Groups: joining", SCENARIOS, DIFFERENCES)
