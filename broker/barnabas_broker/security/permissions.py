"""ACLs as people write them: ``read topic orders``. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from barnabas_broker.security.bindings import AclBinding, read_binding
from barnabas_protocol.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.errors import KafkaError


def read_acls(acls: Mapping[str, Iterable[str]]) -> list[AclBinding]:
    """The bindings of the ACLs of users.

    Raises:
        ValueError: an ACL cannot be read.
    """
    return [binding for user, texts in acls.items() for text in texts for binding in _read(user, text)]


def _read(user: str, text: str) -> Iterator[AclBinding]:
    words = text.split()
    permission = AclPermissionType.ALLOW
    if words[:1] == ["deny"]:
        permission = AclPermissionType.DENY
        del words[0]
    if words[1:] == ["cluster"]:
        words.append(CLUSTER_NAME)
    if len(words) != 3:
        raise ValueError(f"acls: {text!r} must be an operation, a type of resource and a name: 'read topic orders'")
    operation, kind, name = words
    pattern = AclPatternType.LITERAL
    if name.endswith("*") and name != "*":
        name, pattern = name[:-1], AclPatternType.PREFIXED
    try:
        yield read_binding(
            AclResourceType[_name(kind)], name, pattern, f"User:{user}", "*", AclOperation[_name(operation)], permission
        )
    except KeyError as error:
        raise ValueError(f"acls: {text!r}: there is no {error}, as in 'read topic orders'") from None
    except KafkaError as error:
        raise ValueError(f"acls: {text!r}: {error.message}") from None


def _name(word: str) -> str:
    """The name of an operation or type of resource in Kafka's source."""
    return word.upper().replace("-", "_")
