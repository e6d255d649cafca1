"""Changes of the ACLs, as Kafka's ``AclControlManager`` decides them. Pure."""

from collections.abc import Iterable

from barnabas_broker.cluster.acls import AclCreated, AclDeleted
from barnabas_broker.cluster.image import Image
from barnabas_broker.security.bindings import AclBinding


def create_acls(image: Image, bindings: Iterable[AclBinding]) -> list[AclCreated]:
    """Create bindings. Those that exist already stay as they are."""
    return [AclCreated(binding) for binding in dict.fromkeys(bindings) if binding not in image.acls]


def delete_acls(image: Image, bindings: Iterable[AclBinding]) -> list[AclDeleted]:
    """Delete bindings. Those that do not exist any more are left out."""
    return [AclDeleted(binding) for binding in dict.fromkeys(bindings) if binding in image.acls]
