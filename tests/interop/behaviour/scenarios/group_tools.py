"""Requests of tools about groups: DescribeGroups, ListGroups, DeleteGroups."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import alone, commit, describe, join, leave, make_topic, pair, settled, until_state
from tests.interop.behaviour.language import Difference, Family, Scenario, Step, ask, flat, spread

D, L, X = ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS


def _list(version: int = 5, **content: Any) -> Step:
    return ask(L, version, only={"groups.group_id": "$group"}, on="z", **content)


def _listed(title: str, version: int = 5, *before: Any, **content: Any) -> Scenario:
    return Scenario(f"ListGroups v{version}: {title}", flat(*(before or alone()), _list(version, **content)))


SCENARIOS: Final = (
    *(
        Scenario(f"DescribeGroups v{version}: stable", flat(pair(), settled(), describe(version=version)))
        for version in range(7)
    ),
    *(Scenario(f"DescribeGroups v{version}: an unknown group", (describe(version=version),)) for version in range(7)),
    *(
        Scenario(
            f"DescribeGroups v{version}: an empty group id",
            flat(make_topic(), commit(group="", quiet=True), describe("", version=version)),
        )
        for version in (0, 6)
    ),
    Scenario("DescribeGroups v5: empty", flat(alone(), leave(("$a_id", None), quiet=True), describe())),
    Scenario("DescribeGroups v5: completing a rebalance", flat(pair(), describe())),
    Scenario(
        "DescribeGroups v5: preparing a rebalance",
        flat(pair(), settled(), join("$a_id", later=True), until_state("PreparingRebalance"), describe()),
    ),
    Scenario("DescribeGroups v5: static members", flat(join(on="s", instance="s", quiet=True), describe())),
    Scenario("DescribeGroups v5: only offsets", flat(make_topic(), commit(), describe())),
    *(
        Scenario(
            f"DescribeGroups v{version}: operations that are allowed",
            flat(alone(), describe(version=version, include_authorized_operations=True)),
        )
        for version in (3, 6)
    ),
    Scenario(
        "DescribeGroups v5: several",
        flat(alone(), ask(D, 5, groups=["$group", "$group-b"])),
    ),
    Scenario("DescribeGroups v5: the same twice", flat(alone(), ask(D, 5, groups=["$group", "$group"]))),
    Scenario("DescribeGroups v5: none", (ask(D, 5, groups=[]),)),
    *(_listed("one", version) for version in range(6)),
    _listed("its state", states_filter=["Stable"]),
    _listed("its state, in another case", states_filter=["sTaBlE"]),
    _listed("another state", states_filter=["Empty"]),
    _listed("an invalid state", states_filter=["Asleep"]),
    _listed("its type", types_filter=["classic"]),
    _listed("its type, in another case", types_filter=["CLASSIC"]),
    _listed("another type", types_filter=["consumer"]),
    _listed("an invalid type", types_filter=["strange"]),
    _listed("only offsets", 5, make_topic(), commit()),
    _listed("empty", 5, alone(), leave(("$a_id", None), quiet=True)),
    *(
        Scenario(
            f"DeleteGroups v{version}: empty, then gone",
            flat(
                alone(),
                leave(("$a_id", None), quiet=True),
                ask(X, version, groups_names=["$group"]),
                ask(X, version, groups_names=["$group"]),
                describe(),
                _list(),
            ),
        )
        for version in spread(X)
    ),
    *(Scenario(f"DeleteGroups v{v}: with members", flat(alone(), ask(X, v, groups_names=["$group"]))) for v in (2, 3)),
    Scenario("DeleteGroups v3: an unknown group", (ask(X, 3, groups_names=["$group"]),)),
    Scenario("DeleteGroups v2: with a pending member", flat(join(version=4), ask(X, 2, groups_names=["$group"]))),
    Scenario(
        "DeleteGroups v2: its offsets go too",
        flat(
            make_topic(),
            commit(),
            ask(X, 2, groups_names=["$group"]),
            ask(ApiKey.OFFSET_FETCH, 7, group_id="$group", topics=None),
        ),
    ),
    Scenario(
        "DeleteGroups v2: an empty group id",
        flat(make_topic(), commit(group="", quiet=True), ask(X, 2, groups_names=[""])),
    ),
    Scenario(
        "DeleteGroups v2: one with members and one unknown",
        flat(alone(), ask(X, 2, groups_names=["$group", "$group-b"])),
    ),
    Scenario("DeleteGroups v2: none", (ask(X, 2, groups_names=[]),)),
)

DIFFERENCES: Final = (
    Difference(
        "A group that DescribeGroups names more than once is described once",
        "A small request could make the broker build a response of gigabytes.",
        (("DescribeGroups v5: the same twice", "*"),),
    ),
)

FAMILY: Final = Family("Group tools", SCENARIOS, DIFFERENCES)
