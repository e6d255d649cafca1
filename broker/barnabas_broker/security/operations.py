"""Authorized operations as bit fields: what a client may do to a resource (KIP-430).

Source: ``org.apache.kafka.security.authorizer.AclEntry.supportedOperations``.
"""

from typing import Final

from barnabas_broker.security import acls
from barnabas_broker.security.authorizer import Access
from barnabas_protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType

#: The field's value when the client did not ask for it.
NOT_ASKED: Final = -(2**31)
#: The operations that Kafka knows for each type of resource.
SUPPORTED: Final = {
    AclResourceType.TOPIC: (
        acls.READ,
        acls.WRITE,
        acls.CREATE,
        acls.DELETE,
        acls.ALTER,
        acls.DESCRIBE,
        acls.DESCRIBE_CONFIGS,
        acls.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (acls.READ, acls.DELETE, acls.DESCRIBE, acls.DESCRIBE_CONFIGS, acls.ALTER_CONFIGS),
    AclResourceType.CLUSTER: (
        acls.CREATE,
        acls.CLUSTER_ACTION,
        acls.DESCRIBE_CONFIGS,
        acls.ALTER_CONFIGS,
        acls.IDEMPOTENT_WRITE,
        acls.ALTER,
        acls.DESCRIBE,
    ),
}


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


#: Everything that Kafka knows for a resource of the type.
TOPIC: Final = _bits(*SUPPORTED[AclResourceType.TOPIC])
GROUP: Final = _bits(*SUPPORTED[AclResourceType.GROUP])
CLUSTER: Final = _bits(*SUPPORTED[AclResourceType.CLUSTER])
_ALL: Final = {AclResourceType.TOPIC: TOPIC, AclResourceType.GROUP: GROUP, AclResourceType.CLUSTER: CLUSTER}


def authorized(access: Access | None, resource: AclResourceType, name: str = CLUSTER_NAME) -> int:
    """The operations that a client may carry out on a resource.

    Args:
        access: what the client may do; None for everything.
        resource: the type of the resource.
        name: its name.
    """
    if access is None:
        return _ALL[resource]
    return _bits(*(each for each in SUPPORTED[resource] if access.allows(each, resource, name, audit=False)))


def authorized_on_cluster(access: Access | None) -> int:
    """The same for the cluster: without DESCRIBE none are shown, as in Kafka."""
    if access is not None and not access.allows(acls.DESCRIBE, acls.CLUSTER, CLUSTER_NAME):
        return 0
    return authorized(access, acls.CLUSTER)
