"""Kafka's ACL operations and resource types, and what a request must be authorized for. Nothing is enforced yet.

Sources: ``org.apache.kafka.common.acl.AclOperation``, ``org.apache.kafka.common.resource.ResourceType``.
"""

from enum import IntEnum
from typing import NamedTuple


class AclOperation(IntEnum):
    """An operation on a resource, with Kafka's code."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """A type of resource, with Kafka's code."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Permission(NamedTuple):
    """An operation on the resource that a request names; of type CLUSTER there is one, ``kafka-cluster``."""

    operation: AclOperation
    resource: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.resource.name}"


class Requirement(NamedTuple):
    """What Kafka checks before it carries out a request, or a part of it.

    Attributes:
        any_of: one of these permissions is enough.
        when: the condition under which Kafka checks it, "" for always.
    """

    any_of: tuple[Permission, ...]
    when: str = ""


def requires(*any_of: tuple[AclOperation, ResourceType], when: str = "") -> Requirement:
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
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
