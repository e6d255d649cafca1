"""Configuration of groups (KIP-848): DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, and its effect."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import make_topic
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, Step, ask, flat
from tests.interop.behaviour.scenarios.configs import APPEND, DELETE, SET
from tests.interop.behaviour.scenarios.consumer_groups import A, beat, join

GROUP: Final = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT, OFFLOAD = "consumer.assignment.interval.ms", "consumer.assignor.offload.enable"
KEYS: Final = (SESSION, HEARTBEAT, ASSIGNMENT, OFFLOAD)


def describe(*keys: str, name: str = "$group", version: int = 4, **options: Any) -> Ask:
    """DescribeConfigs of a group, all keys by default."""
    resource = {"resource_type": GROUP, "resource_name": name, "configuration_keys": list(keys) or None}
    return ask(ApiKey.DESCRIBE_CONFIGS, version, resources=[resource], **options)


def change(*changes: tuple[str, int, str | None], name: str = "$group", **options: Any) -> Ask:
    """IncrementalAlterConfigs of a group."""
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    resource = {"resource_type": GROUP, "resource_name": name, "configs": configs}
    return ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], **options)


def replace(name: str = "$group", **values: str | None) -> Ask:
    """AlterConfigs of a group."""
    configs = [{"name": key.replace("__", "."), "value": value} for key, value in values.items()]
    resource = {"resource_type": GROUP, "resource_name": name, "configs": configs}
    return ask(ApiKey.ALTER_CONFIGS, 2, resources=[resource])


def shown(key: str, value: str, **options: Any) -> Ask:
    """DescribeConfigs of one key, once it has this value."""
    return describe(key, until={"results.0.configs.0.value": value}, **options)


def _changed(title: str, *steps: Step) -> Scenario:
    return Scenario(f"Group configuration: {title}", flat(*steps))


SCENARIOS: Final = (
    *(_changed(f"described with v{version}", describe(*KEYS, version=version)) for version in (1, 3, 4)),
    _changed("an unknown key", describe("no.such.key")),
    _changed("with synonyms", describe(*KEYS, include_synonyms=True)),
    _changed("with documentation", describe(*KEYS, include_documentation=True)),
    _changed("of a group without a name", describe(name="")),
    *(
        _changed(
            f"{key} is set, then deleted",
            change((key, SET, value)),
            shown(key, value),
            describe(key, include_synonyms=True),
            change((key, DELETE, None)),
            shown(key, default),
        )
        for key, value, default in (
            (SESSION, "50000", "45000"),
            (HEARTBEAT, "6000", "5000"),
            (ASSIGNMENT, "2000", "0"),
        )
    ),
    _changed(
        "listed",
        change((SESSION, SET, "50000")),
        shown(SESSION, "50000"),
        ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP], only={"config_resources.resource_name": "$group"}),
    ),
    _changed(
        "listed after the last key was deleted",
        change((SESSION, SET, "50000")),
        shown(SESSION, "50000"),
        change((SESSION, DELETE, None)),
        shown(SESSION, "45000"),
        ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[GROUP], only={"config_resources.resource_name": "$group"}),
    ),
    _changed(
        "two keys", change((SESSION, SET, "50000"), (HEARTBEAT, SET, "7000")), shown(SESSION, "50000"), describe(*KEYS)
    ),
    _changed("one key twice", change((SESSION, SET, "50000"), (SESSION, SET, "51000")), describe(*KEYS)),
    _changed("only validated", change((SESSION, SET, "50000"), validate_only=True), describe(*KEYS)),
    *(
        _changed(f"{key}={value!r} is refused", change((key, how, value)), describe(*KEYS))
        for key, how, value in (
            (SESSION, SET, "44999"),
            (SESSION, SET, "60001"),
            (SESSION, SET, "0"),
            (SESSION, SET, "-1"),
            (SESSION, SET, "soon"),
            (SESSION, SET, ""),
            (SESSION, SET, None),
            (SESSION, APPEND, "1"),
            (HEARTBEAT, SET, "4999"),
            (HEARTBEAT, SET, "15001"),
            (ASSIGNMENT, SET, "15001"),
            (ASSIGNMENT, SET, "-1"),
            (OFFLOAD, SET, "perhaps"),
            ("no.such.key", SET, "1"),
            ("session.timeout.ms", SET, "1"),
        )
    ),
    _changed("an unknown operation", change((SESSION, 9, "50000")), describe(*KEYS)),
    _changed("an unknown key is deleted", change(("no.such.key", DELETE, None)), describe(*KEYS)),
    _changed("a key that is not set is deleted", change((SESSION, DELETE, None)), describe(*KEYS)),
    _changed("a group without a name is changed", change((SESSION, SET, "50000"), name="")),
    _changed(
        "AlterConfigs replaces all keys",
        change((SESSION, SET, "50000"), (HEARTBEAT, SET, "7000")),
        shown(SESSION, "50000"),
        replace(consumer__session__timeout__ms="51000"),
        shown(SESSION, "51000"),
        describe(*KEYS),
        replace(consumer__session__timeout__ms="1"),
        replace(consumer__session__timeout__ms=None),
        replace(),
        shown(SESSION, "45000"),
    ),
    _changed(
        "members get the group's heartbeat interval",
        *make_topic(),
        join(quiet=True, save={"epoch": "member_epoch"}),
        change((HEARTBEAT, SET, "9000")),
        beat(A, "$epoch", until={"heartbeat_interval_ms": 9000}),
        change((HEARTBEAT, DELETE, None)),
        beat(A, "$epoch", until={"heartbeat_interval_ms": 5000}),
    ),
)

DIFFERENCES: Final = (
    Difference(
        "An unknown operation on a group's key gets INVALID_REQUEST",
        "Kafka's controller fails with an exception, which the client sees as UNKNOWN_SERVER_ERROR.",
        (("Group configuration: an unknown operation", "*.error_code"),),
    ),
)

FAMILY: Final = Family("Configuration of groups", SCENARIOS, DIFFERENCES)
