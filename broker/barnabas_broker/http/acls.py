"""The ACLs as JSON: what principals may do."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from barnabas_broker.config.keys import ALLOW_EVERYONE_IF_NO_ACL_FOUND, AUTHORIZER_CLASS_NAME, SUPER_USERS
from barnabas_broker.http.shapes import MOST_ACLS, acl_row
from barnabas_broker.http.text import listing
from barnabas_broker.http.view import View
from barnabas_broker.security.authorizer import parse_super_users
from barnabas_protocol.acls import AclPatternType

#: Why ACLs are not shown.
HIDDEN: Final = (
    "ACLs are not shown, because this port is open to other machines, or a listener has TLS or logins. To do: open "
    "them with barnabas console as a user who may describe the cluster, or start the broker with --http-show-records "
    "if everyone who can reach the port may read them and all topics"
)


def all_acls(view: View) -> Iterator[str]:
    """``/acls``: the ACLs of the cluster, and who needs none. Without an authorizer there are none."""
    authorizer = bool(view.config[AUTHORIZER_CLASS_NAME])
    shown = authorizer and view.shows_records
    acls = view.cluster.image.acls if shown else {}
    super_users = sorted(parse_super_users(view.config[SUPER_USERS]))
    head: dict[str, Any] = {
        "authorizer": authorizer,
        "super_users": super_users if shown else None,
        "allow_everyone": view.config[ALLOW_EVERYONE_IF_NO_ACL_FOUND] if shown else None,
        "reason": HIDDEN if authorizer and not shown else None,
        "count": len(acls),
    }
    # Another change of the ACLs makes another mapping: this one stays what it is.
    rows = (
        acl_row(
            each.permission.name,
            each.principal,
            each.host,
            each.operation.name,
            each.resource_type.name,
            each.resource_name,
            prefixed=each.pattern_type is AclPatternType.PREFIXED,
        )
        for each in islice(acls, MOST_ACLS)
    )
    return listing(head, "acls", rows)
