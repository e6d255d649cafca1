"""ACL bindings and filters, as Kafka reads them."""

from typing import Any

import pytest

from barnabas_broker.security.bindings import AclBinding, AclFilter, read_binding, read_filter
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.errors import ErrorCode, KafkaError

CODES: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "orders",
    "pattern_type": 3,
    "principal": "User:ada",
    "host": "*",
    "operation": 3,
    "permission": 3,
}
BINDING = AclBinding(
    AclResourceType.TOPIC, "orders", AclPatternType.LITERAL, "User:ada", "*", AclOperation.READ, AclPermissionType.ALLOW
)


def test_a_binding_of_a_request() -> None:
    assert read_binding(**CODES) == BINDING
    assert str(BINDING) == "ALLOW User:ada from *: READ on TOPIC orders"
    prefixed = BINDING._replace(pattern_type=AclPatternType.PREFIXED)
    assert str(prefixed) == "ALLOW User:ada from *: READ on TOPIC orders (prefix)"
    cluster = read_binding(**CODES | {"resource_type": 4, "resource_name": "kafka-cluster", "operation": 2})
    assert cluster.operation is AclOperation.ALL


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 2}, "Invalid patternType MATCH"),
        ({"pattern_type": 1}, "Invalid patternType ANY"),
        ({"pattern_type": -1}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 77}, "Invalid operation UNKNOWN"),
        ({"permission": 1}, "Invalid permissionType ANY"),
        ({"permission": 0}, "Invalid permissionType UNKNOWN"),
        ({"principal": "ada"}, "Could not parse principal from `ada`"),
    ],
)
def test_bindings_that_are_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        read_binding(**CODES | change)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


ANY: dict[str, Any] = {
    "resource_type": 1,
    "resource_name": None,
    "pattern_type": 1,
    "principal": None,
    "host": None,
    "operation": 1,
    "permission": 1,
}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, True),
        ({"resource_type": 2}, True),
        ({"resource_type": 3}, False),
        ({"resource_name": "orders"}, True),
        ({"resource_name": "orders", "pattern_type": 3}, True),
        ({"resource_name": "orders", "pattern_type": 4}, False),
        ({"resource_name": "ord"}, False),
        ({"resource_name": "orders", "pattern_type": 2}, True),
        ({"pattern_type": 2}, True),
        ({"resource_name": "others", "pattern_type": 2}, False),
        ({"principal": "User:ada"}, True),
        ({"principal": "User:*"}, False),
        ({"host": "*"}, True),
        ({"host": "10.0.0.7"}, False),
        ({"operation": 3}, True),
        ({"operation": 2}, False),
        ({"permission": 3}, True),
        ({"permission": 2}, False),
    ],
)
def test_filters(change: dict[str, Any], found: bool) -> None:
    assert read_filter(**ANY | change).matches(BINDING) is found


def test_a_match_finds_all_that_applies_to_a_resource() -> None:
    applies = AclFilter(resource_name="orders", pattern_type=AclPatternType.MATCH)
    prefix = BINDING._replace(pattern_type=AclPatternType.PREFIXED)
    assert applies.matches(BINDING._replace(resource_name="*"))
    assert applies.matches(prefix._replace(resource_name="ord"))
    assert applies.matches(prefix)
    assert not applies.matches(prefix._replace(resource_name="orders-2"))
    assert not applies.matches(prefix._replace(resource_name="*"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"resource_type": 0}, "Unknown patternFilter"),
        ({"pattern_type": 9}, "Unknown patternFilter"),
        ({"operation": 0}, "Unknown entryFilter"),
        ({"permission": 8}, "Unknown entryFilter"),
    ],
)
def test_filters_that_are_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        read_filter(**ANY | change)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
