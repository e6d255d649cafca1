"""The ACLs in the cluster image: the events that change them, and their stored form. Pure.

Kafka's records for the same are ``AccessControlEntryRecord`` and ``RemoveAccessControlEntryRecord``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas_broker.security.bindings import AclBinding
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType

#: The bindings, each once, in the order in which they were created.
Acls = Mapping[AclBinding, None]


@dataclass(frozen=True, slots=True)
class AclCreated:
    """A binding was created."""

    binding: AclBinding


@dataclass(frozen=True, slots=True)
class AclDeleted:
    """A binding was deleted."""

    binding: AclBinding


AclEvent = AclCreated | AclDeleted
ACL_EVENTS: Final[Mapping[str, type[AclCreated | AclDeleted]]] = {
    each.__name__: each for each in (AclCreated, AclDeleted)
}


def acl_difference(old: Acls, new: Acls) -> Iterator[AclEvent]:
    """Events that turn `old` into `new`."""
    yield from (AclDeleted(binding) for binding in old if binding not in new)
    yield from (AclCreated(binding) for binding in new if binding not in old)


# The stored form


def acl_event_to_fields(event: AclEvent) -> dict[str, Any]:
    """The fields of an event: names in place of codes."""
    binding = event.binding
    return {
        "resource_type": binding.resource_type.name,
        "resource_name": binding.resource_name,
        "pattern_type": binding.pattern_type.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission.name,
    }


def acl_event_from_fields(name: str, fields: Mapping[str, Any]) -> AclEvent:
    """Read what :func:`acl_event_to_fields` wrote.

    Args:
        name: of the event, one of :data:`ACL_EVENTS`.
        fields: of the event.

    Raises:
        ValueError, KeyError, TypeError: the fields are not those of the event.
    """
    binding = AclBinding(
        AclResourceType[fields["resource_type"]],
        fields["resource_name"],
        AclPatternType[fields["pattern_type"]],
        fields["principal"],
        fields["host"],
        AclOperation[fields["operation"]],
        AclPermissionType[fields["permission"]],
    )
    if not all(isinstance(each, str) for each in (binding.resource_name, binding.principal, binding.host)):
        raise TypeError(f"a name of {binding} is not text")
    if binding.resource_type is AclResourceType.ANY or binding.pattern_type in (
        AclPatternType.ANY,
        AclPatternType.MATCH,
    ):
        raise ValueError(f"{binding} is for no resource")
    if binding.operation is AclOperation.ANY or binding.permission is AclPermissionType.ANY:
        raise ValueError(f"{binding} is a filter")
    return ACL_EVENTS[name](binding)
