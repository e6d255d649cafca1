"""Kafka's ACL operations and resource types, and what a request must be authorized for.

Sources: ``org.apache.kafka.common.acl.AclOperation``, ``org.apache.kafka.common.resource.ResourceType``.
"""

from typing import NamedTuple

from barnabas_protocol.acls import AclOperation, AclResourceType


class Permission(NamedTuple):
    """An operation on the resource that a request names; of type CLUSTER there is one, :data:`CLUSTER_NAME`."""

    operation: AclOperation
    resource: AclResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.resource.name}"


class Requirement(NamedTuple):
    """Requirement that Kafka checks before it carries out a request, or a part of it.

    Attributes:
        any_of: one of these permissions is enough.
        when: the condition under which Kafka checks it, "" for always.
    """

    any_of: tuple[Permission, ...]
    when: str = ""


def requires(*any_of: tuple[AclOperation, AclResourceType], when: str = "") -> Requirement:
    """State a requirement in the row of an API.

    Args:
        any_of: one of these permissions is enough.
        when: the condition under which it is checked, "" for always.
    """
    return Requirement(tuple(Permission(*each) for each in any_of), when)


#: Short names for the rows of the handlers.
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
IDEMPOTENT_WRITE = AclOperation.IDEMPOTENT_WRITE
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = AclResourceType.CLUSTER, AclResourceType.TRANSACTIONAL_ID
