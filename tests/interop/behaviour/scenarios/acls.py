"""ACLs: creating, describing and deleting them, and what their patterns, hosts and permissions mean."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import make_topic
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, Step, ask, flat

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
DENY, ALLOW = 2, 3


def acl(resource: int, name: str, operation: int, **more: Any) -> dict[str, Any]:
    """A binding of CreateAcls, by default for the user `allowed`."""
    return {
        "resource_type": resource,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:allowed",
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
        **more,
    }


def find(**more: Any) -> dict[str, Any]:
    """A filter; by default it finds everything."""
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **more,
    }


def grant(*bindings: dict[str, Any]) -> list[Step]:
    """Create bindings as root, and wait until the broker counts them."""
    seen = [
        ask(
            ApiKey.DESCRIBE_ACLS,
            3,
            on="root",
            **find(
                resource_type_filter=each["resource_type"],
                resource_name_filter=each["resource_name"],
                pattern_type_filter=each["resource_pattern_type"],
                principal_filter=each["principal"],
                operation=each["operation"],
                permission_type=each["permission_type"],
            ),
            until={"resources.length": 1},
            quiet=True,
        )
        for each in bindings
    ]
    return [ask(ApiKey.CREATE_ACLS, 3, on="root", creations=list(bindings), quiet=True), *seen]


def ends(topic: str, on: str) -> Ask:
    """ListOffsets, which needs DESCRIBE."""
    partition = {"partition_index": 0, "timestamp": -1}
    return ask(ApiKey.LIST_OFFSETS, 6, on=on, replica_id=-1, topics=[{"name": topic, "partitions": [partition]}])


def _describe(version: int = 3, **more: Any) -> Ask:
    return ask(ApiKey.DESCRIBE_ACLS, version, on="root", **find(**more))


_NAME: Final = "$topic"
_MADE: Final = (
    acl(TOPIC, _NAME, READ),
    acl(TOPIC, _NAME, WRITE, host="10.0.0.7"),
    acl(TOPIC, _NAME, ALL, principal="User:*", permission_type=DENY, resource_pattern_type=PREFIXED),
)

_REFUSED: Final[dict[str, dict[str, Any]]] = {
    "any resource": {"resource_type": 1},
    "a resource of an unknown type": {"resource_type": 99},
    "a cluster of another name": {"resource_type": CLUSTER},
    "an empty name": {"resource_name": ""},
    "a pattern that matches": {"resource_pattern_type": MATCH},
    "any operation": {"operation": 1},
    "an unknown operation": {"operation": 99},
    "any permission": {"permission_type": 1},
    "a principal without a type": {"principal": "somebody"},
}

SCENARIOS: Final = (
    *(
        Scenario(
            f"CreateAcls, DescribeAcls and DeleteAcls v{v}",
            flat(
                ask(ApiKey.CREATE_ACLS, v, on="root", creations=[_MADE[0], _MADE[1], _MADE[0]]),
                ask(ApiKey.CREATE_ACLS, v, on="root", creations=[_MADE[0]]),
                grant(*_MADE),
                _describe(v, resource_name_filter=_NAME, operation=READ),
                _describe(v, resource_name_filter=_NAME, host_filter="10.0.0.7"),
                _describe(v, resource_name_filter=_NAME, permission_type=DENY),
                _describe(v, resource_name_filter=_NAME, principal_filter="User:nobody"),
                _describe(v, resource_name_filter=_NAME, pattern_type_filter=LITERAL, host_filter="*"),
                ask(
                    ApiKey.DELETE_ACLS,
                    v,
                    on="root",
                    filters=[
                        find(resource_name_filter=_NAME, operation=READ),
                        find(resource_name_filter=_NAME, host_filter="10.0.0.7"),
                        find(resource_name_filter=_NAME, operation=READ),
                        find(resource_name_filter="$topic-other"),
                    ],
                ),
                ask(
                    ApiKey.DESCRIBE_ACLS,
                    3,
                    on="root",
                    **find(resource_name_filter=_NAME),
                    until={"resources.length": 1, "resources.0.acls.length": 1},
                ),
            ),
            server="secured",
        )
        for v in (1, 2, 3)
    ),
    *(
        Scenario(
            f"CreateAcls v3 refuses {what}",
            (ask(ApiKey.CREATE_ACLS, 3, on="root", creations=[acl(TOPIC, _NAME, READ) | change]),),
            server="secured",
        )
        for what, change in _REFUSED.items()
    ),
    *(
        Scenario(
            f"DeleteAcls v3 with a filter of {what}",
            (ask(ApiKey.DELETE_ACLS, 3, on="root", filters=[find(resource_name_filter=_NAME, **change)]),),
            server="secured",
        )
        for what, change in {
            "an unknown type": {"resource_type_filter": 99},
            "an unknown operation": {"operation": 99},
        }.items()
    ),
    Scenario(
        "DescribeAcls v3 finds what applies to a resource",
        flat(
            grant(*_MADE, acl(TOPIC, "$topic-longer", READ)),
            _describe(resource_name_filter="$topic-longer", pattern_type_filter=MATCH, resource_type_filter=TOPIC),
            _describe(resource_name_filter=_NAME, pattern_type_filter=MATCH, resource_type_filter=GROUP),
        ),
        server="secured",
    ),
    Scenario(
        "ACLs are refused to those who may not see or change the cluster",
        (
            ask(ApiKey.DESCRIBE_ACLS, 3, on="denied", **find()),
            ask(ApiKey.CREATE_ACLS, 3, on="denied", creations=[_MADE[0]]),
            ask(ApiKey.DELETE_ACLS, 3, on="denied", filters=[find(resource_name_filter=_NAME)]),
        ),
        server="secured",
    ),
    Scenario(
        "A prefix, a denial, and a host",
        flat(
            make_topic("$topic-a"),
            make_topic("$topic-b"),
            make_topic("$topic-c"),
            grant(
                acl(TOPIC, "$topic", DESCRIBE, resource_pattern_type=PREFIXED),
                acl(TOPIC, "$topic-b", DESCRIBE, permission_type=DENY),
                acl(TOPIC, "$topic-c", DESCRIBE, permission_type=DENY, host="10.0.0.7"),
                acl(TOPIC, "$topic-c", READ, permission_type=DENY),
            ),
            *(ends(f"$topic-{each}", "allowed") for each in "abc"),
        ),
        server="secured",
    ),
    *(
        Scenario(
            f"Operation {operation} implies DESCRIBE, or does not",
            flat(make_topic(), grant(acl(TOPIC, "$topic", operation)), ends("$topic", "allowed")),
            server="secured",
        )
        for operation in (ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        "An ACL for ANY resource, pattern, operation or permission is INVALID_REQUEST",
        "Apache Kafka answers UNKNOWN_SERVER_ERROR, as if it had failed itself.",
        (
            ("CreateAcls v3 refuses any *", "*.error_code"),
            ("CreateAcls v3 refuses a pattern that matches", "*.error_code"),
        ),
    ),
)

FAMILY: Final = Family("ACLs", SCENARIOS, DIFFERENCES)
