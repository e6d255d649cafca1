"""All scenarios, by family; a family is a module of `scenarios` and has a golden file of the same name."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.interop.behaviour.language import Family
from tests.interop.behaviour.runner import Transcript

GOLDEN: Final = Path(__file__).with_name("golden")
NAMES: Final = (
    "handshake",
    "metadata",
    "topics",
    "configs",
    "produce",
    "fetch",
    "offsets",
    "groups_joining",
    "groups_living",
    "consumer_groups",
    "consumer_members",
    "regular_expressions",
    "migration",
    "share_groups",
    "share_records",
    "group_configs",
    "telemetry",
    "commits",
    "transactions",
    "transactional_records",
    "transactional_offsets",
    "group_tools",
    "cluster_tools",
    "security",
    "users",
    "quotas",
    "acls",
    "authorization",
    "logins",
)


@cache
def families() -> dict[str, Family]:
    """Return all families by name."""
    found: dict[str, Family] = {}
    # A recording of several families finds the answers of a scenario by its name.
    others: set[str] = set()
    for name in NAMES:
        family = import_module(f"tests.interop.behaviour.scenarios.{name}").FAMILY
        assert isinstance(family, Family)
        names = [scenario.name for scenario in family.scenarios]
        twice = {one for one in names if names.count(one) > 1 or one in others}
        assert not twice, f"{name}: {twice} twice"
        others.update(names)
        found[name] = family
    return found


@cache
def golden(name: str) -> dict[str, Transcript]:
    """Return the recorded responses of Apache Kafka to the scenarios of a family."""
    recorded: Mapping[str, Transcript] = json.loads((GOLDEN / f"{name}.json").read_text())
    return dict(recorded)
