"""Authorized operations as bit fields: what a client may do to a resource (KIP-430). Nothing is restricted yet, so a
client may do everything that Kafka knows for the resource."""

from typing import Final

from barnabas_broker.security import acls
from barnabas_broker.security.acls import AclOperation

#: The field's value when the client did not ask for it.
NOT_ASKED: Final = -(2**31)


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


TOPIC: Final = _bits(
    acls.READ,
    acls.WRITE,
    acls.CREATE,
    acls.DELETE,
    acls.ALTER,
    acls.DESCRIBE,
    acls.DESCRIBE_CONFIGS,
    acls.ALTER_CONFIGS,
)
GROUP: Final = _bits(acls.READ, acls.DELETE, acls.DESCRIBE, acls.DESCRIBE_CONFIGS, acls.ALTER_CONFIGS)
CLUSTER: Final = _bits(
    acls.CREATE,
    acls.CLUSTER_ACTION,
    acls.DESCRIBE_CONFIGS,
    acls.ALTER_CONFIGS,
    acls.IDEMPOTENT_WRITE,
    acls.ALTER,
    acls.DESCRIBE,
)
