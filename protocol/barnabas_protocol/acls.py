"""The names of ACLs: operations, permissions, patterns and types of resources, with Kafka's codes.

Sources: ``AclOperation.java``, ``AclPermissionType.java``, ``PatternType.java`` and ``ResourceType.java`` of Kafka.
"""

from enum import IntEnum
from typing import Final

#: The name of the one resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"


class AclOperation(IntEnum):
    """Operation of a client on a resource. ANY is for filters, ALL for ACLs."""

    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    """Whether an ACL denies or allows. ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class AclPatternType(IntEnum):
    """How the name of an ACL's resource applies. ANY and MATCH are for filters.

    MATCH finds all ACLs that apply to a name.
    """

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclResourceType(IntEnum):
    """The type of a resource. ANY is for filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7
