"""ACL bindings: who may do what to which resource from where, and the filters that find them. Pure.

Sources: ``org.apache.kafka.common.acl.AclBinding``, ``AclBindingFilter``, ``...resource.ResourcePatternFilter``,
``org.apache.kafka.controller.AclControlManager``.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_protocol.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Matches every resource name, host or, after ``User:``, principal.
WILDCARD: Final = "*"
#: Every principal.
EVERYONE: Final = "User:*"


class AclBinding(NamedTuple):
    """One entry: `principal` is denied or allowed an operation on the resources that the pattern describes.

    Attributes:
        resource_type: of the resources.
        resource_name: their name, its beginning, or ``*`` for all.
        pattern_type: LITERAL or PREFIXED.
        principal: ``User:NAME``, or ``User:*`` for everyone.
        host: the address that the client connects from, or ``*``.
        operation: the operation, or ALL.
        permission: DENY or ALLOW.
    """

    resource_type: AclResourceType
    resource_name: str
    pattern_type: AclPatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType

    def __str__(self) -> str:
        kind = "" if self.pattern_type is AclPatternType.LITERAL else " (prefix)"
        resource = f"{self.resource_type.name} {self.resource_name}{kind}"
        return f"{self.permission.name} {self.principal} from {self.host}: {self.operation.name} on {resource}"


def read_binding(
    resource_type: int,
    resource_name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclBinding:
    """A new binding from the codes of a request.

    Raises:
        KafkaError: INVALID_REQUEST, with Kafka's reason.
    """
    if resource_type == AclResourceType.CLUSTER and resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not resource_name:
        raise _invalid("Invalid empty resource name")
    if resource_type not in _RESOURCES:
        raise _invalid(f"Invalid resourceType {_name(AclResourceType, resource_type)}")
    if pattern_type not in (AclPatternType.LITERAL, AclPatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {_name(AclPatternType, pattern_type)}")
    if operation not in _OPERATIONS:
        raise _invalid(f"Invalid operation {_name(AclOperation, operation)}")
    if permission not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        raise _invalid(f"Invalid permissionType {_name(AclPermissionType, permission)}")
    if ":" not in principal:
        raise _invalid(
            f"Could not parse principal from `{principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    return AclBinding(
        AclResourceType(resource_type),
        resource_name,
        AclPatternType(pattern_type),
        principal,
        host,
        AclOperation(operation),
        AclPermissionType(permission),
    )


_RESOURCES: Final = frozenset(AclResourceType) - {AclResourceType.ANY}
_OPERATIONS: Final = frozenset(AclOperation) - {AclOperation.ANY}


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _name(kind: type[IntEnum], code: int) -> str:
    """The name of a code, as Kafka writes it."""
    try:
        return kind(code).name
    except ValueError:
        return "UNKNOWN"


class AclFilter(NamedTuple):
    """Finds bindings. The names that are None, and the codes ANY, match all.

    Attributes:
        resource_type: of the resources.
        resource_name: their name; see `pattern_type`.
        pattern_type: ANY, LITERAL or PREFIXED compare the name as it is; MATCH finds what applies to a resource of the
            name.
        principal: its name.
        host: the address.
        operation: the operation; ALL matches only ALL.
        permission: DENY or ALLOW.
    """

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Whether the filter finds this binding."""
        return (
            self.resource_type in (AclResourceType.ANY, binding.resource_type)
            and self._matches_name(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (AclPermissionType.ANY, binding.permission)
        )

    def _matches_name(self, binding: AclBinding) -> bool:
        name = self.resource_name
        if self.pattern_type is not AclPatternType.MATCH:
            return self.pattern_type in (AclPatternType.ANY, binding.pattern_type) and name in (
                None,
                binding.resource_name,
            )
        if name is None:
            return True
        if binding.pattern_type is AclPatternType.LITERAL:
            return binding.resource_name in (name, WILDCARD)
        return name.startswith(binding.resource_name)


def read_filter(
    resource_type: int,
    resource_name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """A filter from the codes of a request.

    Raises:
        KafkaError: INVALID_REQUEST, with Kafka's reason.
    """
    try:
        resource, pattern = AclResourceType(resource_type), AclPatternType(pattern_type)
    except ValueError:
        raise _invalid("Unknown patternFilter.") from None
    try:
        return AclFilter(
            resource, resource_name, pattern, principal, host, AclOperation(operation), AclPermissionType(permission)
        )
    except ValueError:
        raise _invalid("Unknown entryFilter.") from None
