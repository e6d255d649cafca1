"""Which of the resources in a list a client may use: the one way for requests and responses that name many.

Each distinct name is decided on once, and audited once if it is refused, some names per step.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Final, TypeVar

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.security import acls
from barnabas_broker.steps import Steps, release
from barnabas_protocol.acls import AclOperation, AclResourceType

T = TypeVar("T")

#: Names of a list that are looked at in one step. A decision takes up to 20 us, and an audited refusal up to 100.
_PER_STEP: Final = 20

_NONE: Final[Set[str]] = frozenset()


def split(
    context: RequestContext,
    names: Iterable[str | None],
    operation: AclOperation,
    resource: AclResourceType = acls.TOPIC,
    *,
    unless: AclOperation | None = None,
    audit: bool = True,
) -> Steps[Set[str]]:
    """Find the names of resources on which the client may not carry out an operation.

    Args:
        context: the request.
        names: of the resources; None is left out: it stands for a resource that is not known.
        operation: the operation.
        resource: the type of the resources.
        unless: an operation that allows all of it where the client may carry it out on the cluster.
        audit: whether a refusal is an event for the audit log: the client asked for this resource.
    """
    access = context.access
    if access is None or (unless is not None and context.allows_on_cluster(unless, audit=False)):
        return _NONE
    known: set[str] = set()
    refused: set[str] = set()
    for number, name in enumerate(names, 1):
        if name is not None and name not in known:
            known.add(name)
            if not access.allows(operation, resource, name, audit=audit):
                refused.add(name)
        if not number % _PER_STEP:
            yield
    yield from release(known)
    return refused


def take_out(
    context: RequestContext,
    items: list[T],
    name_of: Callable[[T], str | None],
    operation: AclOperation,
    resource: AclResourceType = acls.TOPIC,
    *,
    audit: bool = True,
) -> Steps[list[T]]:
    """Remove the items of a list on whose resource an operation is not allowed, and return them.

    Args:
        context: the request.
        items: of the request or the response.
        name_of: the name of an item's resource; None for one that is not known, which stays.
        operation: the operation.
        resource: the type of the resources.
        audit: see :func:`split`.
    """
    refused = yield from split(context, map(name_of, items), operation, resource, audit=audit)
    if not refused:
        return []
    allowed: list[T] = []
    taken_out: list[T] = []
    for number, item in enumerate(items, 1):
        (taken_out if name_of(item) in refused else allowed).append(item)
        if not number % _PER_STEP:
            yield
    items[:] = allowed
    return taken_out


def topic_of(names: Mapping[bytes, str] | None) -> Callable[[Any], str | None]:
    """How to find the name of a topic in a request.

    Args:
        names: by topic id, if the request has ids; a topic of an unknown id has no name.
    """
    return _named if names is None else lambda topic: names.get(topic.topic_id)


def _named(topic: Any) -> str | None:
    name: str | None = topic.name
    return name
