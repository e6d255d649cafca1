"""Groups after the join phase: SyncGroup, Heartbeat, LeaveGroup, and the rules of classic groups about them."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import (
    CHANGED,
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
    when,
)
from tests.interop.behaviour.language import Difference, Family, Hear, Rule, Scenario, Server, ask, flat, spread

S, H, L = ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP


def _rule(rule: Rule, title: str, *steps: Any, server: Server = "plain") -> Scenario:
    return Scenario(f"{rule.value}: {title}", flat(*steps), rule, server)


def _leave_one(member: str, version: int) -> Any:
    """LeaveGroup of one member, in any version."""
    if version < 3:
        return ask(L, version, group_id="$group", member_id=member)
    return leave((member, None), version=version)


def _fetched(group: str = "$group", version: int = 8, **options: Any) -> Any:
    topics = [{"name": "$topic", "partition_indexes": [0]}]
    return ask(ApiKey.OFFSET_FETCH, version, groups=[{"group_id": group, "topics": topics}], **options)


def _loaded(group: str = "$group") -> Any:
    """Wait until the coordinator of a group has loaded its partition."""
    groups = [{"group_id": group, "topics": None}]
    return ask(ApiKey.OFFSET_FETCH, 8, groups=groups, until={"groups.0.error_code": 0}, quiet=True)


def _shard(group: str, partition: int) -> Scenario:
    """The end offset of a partition of __consumer_offsets, before and after a commit of a group that belongs there."""
    parts = [{"partition_index": partition, "timestamp": -1}]
    end = ask(
        ApiKey.LIST_OFFSETS,
        6,
        replica_id=-1,
        topics=[{"name": "__consumer_offsets", "partitions": parts}],
    )
    return _rule(
        Rule.COORDINATOR_PARTITION,
        f"{group!r} belongs to partition {partition}",
        make_topic(),
        _loaded(group),
        end,
        commit(group=group),
        end,
        server="sharded",
    )


SCENARIOS: Final = (
    *(
        Scenario(
            f"SyncGroup v{version}",
            flat(
                join(quiet=True),
                ask(
                    S,
                    version,
                    group_id="$group",
                    generation_id=1,
                    member_id="$a_id",
                    assignments=[{"member_id": "$a_id", "assignment": b"share"}],
                    **when(version >= 5, protocol_type="consumer", protocol_name="range"),
                ),
            ),
        )
        for version in range(6)
    ),
    Scenario("SyncGroup v5: neither protocol type nor name", flat(join(quiet=True), sync("$a_id", version=5))),
    *(
        Scenario(
            f"SyncGroup v5: another protocol {what}",
            flat(
                join(quiet=True),
                ask(
                    S,
                    5,
                    group_id="$group",
                    generation_id=1,
                    member_id="$a_id",
                    protocol_type="connect" if what == "type" else "consumer",
                    protocol_name="sticky" if what == "name" else "range",
                    assignments=[],
                ),
            ),
        )
        for what in ("type", "name")
    ),
    *(Scenario(f"SyncGroup v{version}: an unknown group", (sync("nobody", version=version),)) for version in spread(S)),
    Scenario("SyncGroup v3: an unknown member", flat(join(quiet=True), sync("nobody"))),
    Scenario("SyncGroup v3: another generation", flat(join(quiet=True), sync("$a_id", 9))),
    Scenario("SyncGroup v3: an empty group id", (sync("nobody", group=""),)),
    Scenario(
        "SyncGroup v3: a rebalance is being prepared",
        flat(pair(), settled(), join("$a_id", later=True), until_state("PreparingRebalance"), sync("$b_id", 2, on="b")),
    ),
    *(Scenario(f"Heartbeat v{version}", flat(alone(), heartbeat("$a_id", version=version))) for version in range(5)),
    *(
        Scenario(f"Heartbeat v{version}: an unknown group", (heartbeat("nobody", version=version),))
        for version in spread(H)
    ),
    Scenario("Heartbeat v3: an unknown member", flat(alone(), heartbeat("nobody"))),
    Scenario("Heartbeat v3: an empty group id", (heartbeat("nobody", group=""),)),
    Scenario("Heartbeat v3: an empty group", flat(alone(), leave(("$a_id", None), quiet=True), heartbeat("$a_id"))),
    *(
        Scenario(
            f"LeaveGroup v{version}", flat(alone(), _leave_one("$a_id", version), until_state("Empty"), describe())
        )
        for version in range(6)
    ),
    *(Scenario(f"LeaveGroup v{version}: an unknown group", (_leave_one("nobody", version),)) for version in range(6)),
    Scenario("LeaveGroup v3: an empty group id", (leave(("nobody", None), group=""),)),
    Scenario("LeaveGroup v3: no members", flat(alone(), leave())),
    Scenario(
        "LeaveGroup v3: a pending member",
        flat(join(version=4), leave(("$a_id", None)), join("$a_id", version=4, save={})),
    ),
    _rule(
        Rule.MISSING_LEADER,
        "a leader that has not rejoined is replaced",
        pair(rebalance=500),
        settled(),
        join("$b_id", on="b", rebalance=500, metadata=CHANGED, later=True),
        hear_join("b"),
    ),
    _rule(
        Rule.MISSING_LEADER,
        "no member has rejoined: the timer starts again",
        join(on="s", instance="s", rebalance=300, quiet=True),
        sync("$s_id", on="s", instance="s", shares={"$s_id": b"share"}, quiet=True),
        join(on="n", version=4, rebalance=300),
        join("$n_id", on="n", version=4, rebalance=300, later=True),
        until_state("PreparingRebalance"),
        leave(("$n_id", None), on="c"),
        Hear("n"),
        clock(900),
        describe(),
        join("$s_id", on="s", instance="s", rebalance=300),
    ),
    _rule(
        Rule.SYNC_PHASE,
        "a follower's sync waits for the leader's",
        pair(),
        sync("$b_id", 2, on="b", later=True),
        describe(),
        sync("$a_id", 2, shares={"$a_id": b"share a", "$b_id": b"share b"}),
        Hear("b"),
        describe(),
    ),
    _rule(
        Rule.SYNC_PHASE,
        "members that are missing in the assignment get nothing",
        pair(),
        sync("$a_id", 2, shares={"$a_id": b"share a", "nobody": b"lost"}),
        sync("$b_id", 2, on="b"),
    ),
    _rule(
        Rule.SYNC_IN_STABLE,
        "the stored assignment is returned",
        pair(),
        settled(),
        sync("$b_id", 2, on="b"),
        sync("$a_id", 2, shares={"$a_id": b"new", "$b_id": b"newer"}),
        sync("$b_id", 2, on="b"),
    ),
    _rule(
        Rule.SYNC_TIMEOUT,
        "a member that does not sync is removed, and the others rebalance",
        pair(rebalance=500),
        sync("$a_id", 2, shares={"$a_id": b"share a", "$b_id": b"share b"}),
        until_state("PreparingRebalance"),
        heartbeat("$a_id", 2),
        heartbeat("$b_id", 2, on="b"),
        describe(),
    ),
    _rule(
        Rule.SYNC_TIMEOUT,
        "no member syncs, and the group becomes empty",
        pair(rebalance=400),
        until_state("Empty"),
        describe(),
    ),
    _rule(
        Rule.HEARTBEATS,
        "heartbeats while a rebalance is prepared",
        pair(),
        settled(),
        join("$a_id", later=True),
        until_state("PreparingRebalance"),
        heartbeat("$b_id", 2, on="b"),
        heartbeat("$b_id", 1, on="b"),
        heartbeat("nobody", 2, on="b"),
    ),
    _rule(
        Rule.HEARTBEATS,
        "heartbeats while a rebalance completes",
        pair(),
        heartbeat("$a_id", 2),
        heartbeat("$b_id", 1, on="b"),
    ),
    _rule(Rule.HEARTBEATS, "heartbeats in Stable", pair(), settled(), heartbeat("$a_id", 2), heartbeat("$a_id", 3)),
    _rule(
        Rule.HEARTBEATS,
        "without heartbeats a member's session ends",
        alone(session=300),
        until_state("Empty"),
        heartbeat("$a_id"),
    ),
    *(
        _rule(
            Rule.COMMIT_OUTSIDE_OF_GROUPS,
            f"a commit outside of groups, v{version}",
            make_topic(),
            commit(version=version),
            _fetched(),
        )
        for version in (2, 7, 9)
    ),
    _rule(
        Rule.COMMIT_OUTSIDE_OF_GROUPS,
        "a commit outside of groups, while the group is empty",
        make_topic(),
        alone(),
        leave(("$a_id", None), quiet=True),
        commit(),
        _fetched(),
    ),
    _rule(
        Rule.COMMIT_OUTSIDE_OF_GROUPS,
        "a commit outside of groups, while the group has members",
        make_topic(),
        alone(),
        commit(),
        _fetched(),
    ),
    _rule(
        Rule.COMMIT_OUTSIDE_OF_GROUPS,
        "generation -1 with a member id, no group",
        make_topic(),
        commit("nobody"),
        _fetched(),
    ),
    _rule(
        Rule.COMMIT_OF_MEMBER,
        "a commit in Stable",
        make_topic(),
        pair(),
        settled(),
        commit("$b_id", 2, on="b"),
        _fetched(),
    ),
    _rule(
        Rule.COMMIT_OF_MEMBER,
        "a commit while a rebalance completes",
        make_topic(),
        pair(),
        commit("$a_id", 2),
        _fetched(),
    ),
    _rule(
        Rule.COMMIT_OF_MEMBER,
        "a commit while a rebalance is prepared",
        make_topic(),
        pair(),
        settled(),
        join("$a_id", later=True),
        until_state("PreparingRebalance"),
        commit("$b_id", 2, on="b"),
        _fetched(on="c"),
    ),
    _rule(
        Rule.COMMIT_OF_MEMBER, "a commit of another generation", make_topic(), alone(), commit("$a_id", 7), _fetched()
    ),
    _rule(Rule.COMMIT_OF_MEMBER, "an unknown member", make_topic(), alone(), commit("nobody", 1), _fetched()),
    *(
        _rule(
            Rule.COMMIT_OF_MEMBER,
            f"a commit with a generation, no group, v{version}",
            make_topic(),
            commit("x", 3, version=version),
        )
        for version in (2, 8, 9)
    ),
    *(
        _rule(
            Rule.UNKNOWN_GROUP,
            f"a group that does not exist, v{version}",
            ask(
                ApiKey.OFFSET_FETCH,
                version,
                group_id="$group",
                topics=[{"name": "$topic", "partition_indexes": [0, 1]}],
                **when(version >= 7, require_stable=True),
            ),
        )
        for version in (1, 4, 7)
    ),
    *(
        _rule(Rule.UNKNOWN_GROUP, f"a group that does not exist, v{version}", _fetched(version=version))
        for version in (8, 9)
    ),
    _rule(
        Rule.EMPTY_GROUP,
        "the generation rises when the last member leaves",
        alone(),
        leave(("$a_id", None)),
        describe(),
        join(),
    ),
    _rule(
        Rule.EMPTY_GROUP,
        "an empty group that is deleted is gone",
        alone(),
        leave(("$a_id", None)),
        ask(ApiKey.DELETE_GROUPS, 2, groups_names=["$group"]),
        describe(),
        heartbeat("$a_id"),
    ),
    _rule(
        Rule.OFFSET_EXPIRY,
        "offsets with a retention time of their own expire",
        make_topic(),
        _loaded(),
        ask(
            ApiKey.OFFSET_COMMIT,
            4,
            group_id="$group",
            retention_time_ms=1,
            topics=[
                {
                    "name": "$topic",
                    "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}],
                }
            ],
        ),
        _fetched(until={"groups.0.topics.0.partitions.0.committed_offset": -1}),
        describe(),
        server="expiring",
    ),
    *(
        _rule(
            Rule.LEAVE_ERRORS,
            f"each member that leaves has its own error, v{version}",
            join(on="s", instance="s", quiet=True),
            leave(("nobody", None), ("nobody", "s"), ("", "unknown"), ("$s_id", "s"), version=version),
        )
        for version in (3, 4, 5)
    ),
    _rule(
        Rule.LEAVE_ERRORS,
        "an instance without a member id is removed",
        join(on="s", instance="s", quiet=True),
        leave(("", "s")),
        describe(),
    ),
    *(
        _rule(
            Rule.LEAVE_ERRORS,
            f"before version 3 there is one error, v{version}",
            alone(),
            _leave_one("nobody", version),
        )
        for version in (0, 2)
    ),
    *(
        _rule(
            Rule.FULL_GROUP,
            f"a full group, v{version}",
            join(on="a", later=True),
            until_state("PreparingRebalance"),
            join(on="b", later=True),
            hear_join("a", quiet=True),
            hear_join("b", quiet=True),
            join(on="c", version=version, save={}),
            server="strict",
        )
        for version in (0, 3)
    ),
    _rule(
        Rule.FULL_GROUP,
        "a full group, a member that was given an id",
        join(on="a", later=True),
        until_state("PreparingRebalance"),
        join(on="b", later=True),
        hear_join("a", quiet=True),
        hear_join("b", quiet=True),
        join(on="c", version=9),
        join("$c_id", on="c", version=9, save={}),
        server="strict",
    ),
    _rule(
        Rule.FULL_GROUP,
        "in PreparingRebalance, waiting members count",
        join(on="a", later=True),
        until_state("PreparingRebalance"),
        join(on="b", later=True),
        describe(until={"groups.0.members.length": 2}, quiet=True),
        join(on="c", save={}),
        hear_join("a"),
        hear_join("b"),
        server="strict",
    ),
    *(
        _rule(
            Rule.NO_PROTOCOL,
            f"the protocol's name where there is none, v{version}",
            join("nobody", version=version, save={}),
        )
        for version in (0, 6, 7, 9)
    ),
    *(_shard(group, partition) for group, partition in (("test-group", 12), ("polygenelubricants", 0), ("😀", 49))),
)

DIFFERENCES: Final[tuple[Difference, ...]] = ()

FAMILY: Final = Family("Groups: sync, heartbeat, leave", SCENARIOS, DIFFERENCES)
