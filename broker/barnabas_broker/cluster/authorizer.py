"""Opens the authorizer, which follows the ACLs of the cluster image."""

from collections.abc import Sequence

from barnabas_broker.cluster.acls import AclCreated, AclDeleted
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import Config, ConfigError
from barnabas_broker.config.keys import ALLOW_EVERYONE_IF_NO_ACL_FOUND, AUTHORIZER_CLASS_NAME, SUPER_USERS
from barnabas_broker.security.audit import Audit
from barnabas_broker.security.authorizer import Authorizer, parse_super_users


def open_authorizer(config: Config, cluster: ClusterMetadata, audit: Audit) -> Authorizer | None:
    """The authorizer; None if the configuration has none.

    Raises:
        ConfigError: super.users cannot be read.
    """
    if not config[AUTHORIZER_CLASS_NAME]:
        return None
    try:
        super_users = parse_super_users(config[SUPER_USERS])
    except ValueError as error:
        raise ConfigError(f"{SUPER_USERS.name}: {error}") from None
    authorizer = Authorizer(
        super_users, allow_everyone=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND], refused=audit.not_authorized
    )
    authorizer.change(added=cluster.image.acls)

    def change(image: Image, events: Sequence[Event]) -> None:
        changed = [event.binding for event in events if isinstance(event, AclCreated | AclDeleted)]
        if changed:
            authorizer.change(
                added=[binding for binding in changed if binding in image.acls],
                removed=[binding for binding in changed if binding not in image.acls],
            )

    cluster.subscribe(change)
    return authorizer
