"""Decides what a principal may do, with the semantics of Kafka's StandardAuthorizer. Pure.

A binding that denies counts before all that allow. Without a binding for a resource, nothing is allowed, unless
``allow.everyone.if.no.acl.found`` is set. To be allowed READ, WRITE, DELETE or ALTER implies DESCRIBE, and to be
allowed ALTER_CONFIGS implies DESCRIBE_CONFIGS; to be denied them implies nothing.

The bindings are indexed by the resource, and those of a resource by the principal. A prefix is found by its length, so
that a decision costs as much as there are different lengths of prefixes, however many bindings there are. What was
decided is kept for each principal and host until the bindings change (:class:`Access`).

Source: Kafka's ``StandardAuthorizerData``, and for :meth:`Authorizer.decide_by_type` its interface ``Authorizer``.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from weakref import WeakValueDictionary

from barnabas_broker.security.bindings import EVERYONE, WILDCARD, AclBinding
from barnabas_broker.security.principals import Principal
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType

#: Decisions that are kept for a principal and a host: the names in requests are the clients' choice.
MOST_KNOWN: Final = 10_000
_IMPLIES: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}
#: What Kafka asks for to find out whether a principal may do everything.
_HARD_CODED: Final = "hardcode"

#: Called with the principal, its host, and the operation and resource that it was refused.
Refused = Callable[[Principal, str, AclOperation, AclResourceType, str], None]


def _ignore(principal: Principal, host: str, operation: AclOperation, resource: AclResourceType, name: str) -> None:
    """Do nothing with a refusal."""


#: The bindings of one resource pattern, by principal.
_Pattern = dict[str, set[AclBinding]]


class _Resources:
    """The bindings of one type of resource.

    Attributes:
        literal: by the resource's name.
        prefixed: by the beginning of the name.
        lengths: of the prefixes, each with the number of prefixes that have it.
        by_principal: all of them, by principal.
    """

    __slots__ = ("by_principal", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Pattern] = {}
        self.prefixed: dict[str, _Pattern] = {}
        self.lengths: dict[int, int] = {}
        self.by_principal: dict[str, set[AclBinding]] = {}

    def matching(self, name: str) -> Iterator[_Pattern]:
        """The patterns that apply to a resource of this name."""
        for literal in (name, WILDCARD):
            if literal in self.literal:
                yield self.literal[literal]
        for length in self.lengths:
            if length <= len(name):
                found = self.prefixed.get(name[:length])
                if found is not None:
                    yield found

    def add(self, binding: AclBinding) -> None:
        name, prefixed = binding.resource_name, binding.pattern_type is AclPatternType.PREFIXED
        patterns = self.prefixed if prefixed else self.literal
        if prefixed and name not in patterns:
            self.lengths[len(name)] = self.lengths.get(len(name), 0) + 1
        patterns.setdefault(name, {}).setdefault(binding.principal, set()).add(binding)
        self.by_principal.setdefault(binding.principal, set()).add(binding)

    def remove(self, binding: AclBinding) -> None:
        if binding not in self.by_principal.get(binding.principal, ()):
            return
        name, prefixed = binding.resource_name, binding.pattern_type is AclPatternType.PREFIXED
        patterns = self.prefixed if prefixed else self.literal
        _discard(self.by_principal, binding)
        _discard(patterns[name], binding)
        if not patterns[name]:
            del patterns[name]
            if prefixed:
                self.lengths[len(name)] -= 1
                if not self.lengths[len(name)]:
                    del self.lengths[len(name)]


def _discard(by_principal: dict[str, set[AclBinding]], binding: AclBinding) -> None:
    by_principal[binding.principal].remove(binding)
    if not by_principal[binding.principal]:
        del by_principal[binding.principal]


class Authorizer:
    """The bindings, and what they allow.

    Args:
        super_users: principals that may do everything, as ``User:NAME``.
        allow_everyone: whether everyone may use a resource that no binding applies to.
        refused: called for each refusal that is to be audited.

    Attributes:
        refused: see the argument.
    """

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_everyone: bool = False, refused: Refused = _ignore
    ) -> None:
        self.refused = refused
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._resources: dict[AclResourceType, _Resources] = {
            kind: _Resources() for kind in AclResourceType if kind is not AclResourceType.ANY
        }
        self._accesses: WeakValueDictionary[tuple[Principal, str], Access] = WeakValueDictionary()

    def change(self, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()) -> None:
        """Add and remove bindings. Those that exist already, or do not exist, change nothing."""
        for binding in removed:
            self._resources[binding.resource_type].remove(binding)
        for binding in added:
            self._resources[binding.resource_type].add(binding)
        for access in list(self._accesses.values()):
            access.forget()

    def access(self, principal: Principal, host: str) -> "Access":
        """The permissions of a principal from a host. The same for all of its connections."""
        known = self._accesses.get((principal, host))
        if known is None:
            known = self._accesses[principal, host] = Access(self, principal, host)
        return known

    def decide(self, principal: str, host: str, operation: AclOperation, resource: AclResourceType, name: str) -> bool:
        """Whether a principal may carry out an operation on a resource.

        Args:
            principal: as ``User:NAME``.
            host: its address, as Java writes it: see :func:`java_address`.
            operation: the operation.
            resource: the type of the resource.
            name: its name.
        """
        if principal in self._super_users:
            return True
        allowed = found = False
        implied_by = _IMPLIES.get(operation, (operation,))
        for pattern in self._resources[resource].matching(name):
            found = True
            for who in (principal, EVERYONE):
                for binding in pattern.get(who, ()):
                    if binding.host not in (WILDCARD, host):
                        continue
                    if binding.permission is AclPermissionType.DENY:
                        if binding.operation in (operation, AclOperation.ALL):
                            return False
                    elif binding.operation is AclOperation.ALL or binding.operation in implied_by:
                        allowed = True
        return allowed or (self._allow_everyone and not found)

    def decide_by_type(self, principal: str, host: str, operation: AclOperation, resource: AclResourceType) -> bool:
        """Whether a principal may carry out an operation on any resource of a type, whatever its name.

        As in Kafka, an operation that implies it does not count.
        """
        if self.decide(principal, host, operation, resource, _HARD_CODED):
            return True
        names: dict[tuple[AclPermissionType, AclPatternType], set[str]] = {
            (permission, pattern): set()
            for permission in (AclPermissionType.DENY, AclPermissionType.ALLOW)
            for pattern in (AclPatternType.LITERAL, AclPatternType.PREFIXED)
        }
        for who in (principal, EVERYONE):
            for binding in self._resources[resource].by_principal.get(who, ()):
                if binding.host in (WILDCARD, host) and binding.operation in (operation, AclOperation.ALL):
                    names[binding.permission, binding.pattern_type].add(binding.resource_name)
        denied = names[AclPermissionType.DENY, AclPatternType.LITERAL]
        allowed = names[AclPermissionType.ALLOW, AclPatternType.LITERAL]
        if WILDCARD in denied:
            return False
        if WILDCARD in allowed:
            return True
        prefixes = names[AclPermissionType.DENY, AclPatternType.PREFIXED]
        lengths = {len(prefix) for prefix in prefixes}
        return any(
            not any(name[:length] in prefixes for length in lengths if length <= len(name))
            for name in (allowed - denied) | names[AclPermissionType.ALLOW, AclPatternType.PREFIXED]
        )


class Access:
    """Cache of the permissions of one principal from one host: the answers are kept until the bindings change.

    Args:
        authorizer: decides.
        principal: the principal.
        host: its address, as Python writes it.

    Attributes:
        principal: the principal.
        readable: topics that it may read, as far as it was asked: Fetch looks here first, without a call.
        writable: topics that it may write to, for Produce.
        groups: groups that it may read, for the requests of their members.
    """

    __slots__ = (
        "__weakref__",
        "_authorizer",
        "_host",
        "_known",
        "_name",
        "_often",
        "groups",
        "principal",
        "readable",
        "writable",
    )

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self.principal = principal
        self._authorizer = authorizer
        self._name = str(principal)
        self._host = java_address(host)
        self._known: dict[tuple[AclOperation, AclResourceType, str | None], bool] = {}
        self.readable: set[str] = set()
        self.writable: set[str] = set()
        self.groups: set[str] = set()
        #: What is asked for by the requests that are sent most often.
        self._often: Final = {
            (AclOperation.READ, AclResourceType.TOPIC): self.readable,
            (AclOperation.WRITE, AclResourceType.TOPIC): self.writable,
            (AclOperation.READ, AclResourceType.GROUP): self.groups,
        }

    def allows(self, operation: AclOperation, resource: AclResourceType, name: str, *, audit: bool = True) -> bool:
        """Whether an operation on a resource is allowed.

        Args:
            operation: the operation.
            resource: the type of the resource.
            name: its name.
            audit: whether a refusal is an event for the audit log: the client asked for this resource.
        """
        authorizer = self._authorizer
        allowed = self._known.get((operation, resource, name))
        if allowed is None:
            allowed = authorizer.decide(self._name, self._host, operation, resource, name)
            self._keep(operation, resource, name, allowed)
            if allowed and (often := self._often.get((operation, resource))) is not None:
                often.add(name)
        if audit and not allowed:
            authorizer.refused(self.principal, self._host, operation, resource, name)
        return allowed

    def allows_any(self, operation: AclOperation, resource: AclResourceType) -> bool:
        """Whether an operation is allowed on any resource of a type, whatever its name."""
        allowed = self._known.get((operation, resource, None))
        if allowed is None:
            allowed = self._authorizer.decide_by_type(self._name, self._host, operation, resource)
            self._keep(operation, resource, None, allowed)
        return allowed

    def forget(self) -> None:
        """Forget the answers, because the bindings have changed."""
        self._known.clear()
        for often in self._often.values():
            often.clear()

    def _keep(self, operation: AclOperation, resource: AclResourceType, name: str | None, allowed: bool) -> None:
        if len(self._known) >= MOST_KNOWN:
            self.forget()
        self._known[operation, resource, name] = allowed


def java_address(host: str) -> str:
    """An address as Java writes it, and so as it stands in ACLs: IPv6 in eight groups, IPv4 in IPv6 as IPv4.

    Anything else stays as it is.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    packed = address.packed
    return ":".join(f"{int.from_bytes(packed[at : at + 2], 'big'):x}" for at in range(0, 16, 2))


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of ``super.users``: ``User:NAME``, separated by semicolons, because names may have commas.

    Raises:
        ValueError: what is expected instead.
    """
    users = [part.strip() for part in text.split(";")]
    for user in users:
        if user and not all(user.partition(":")[::2]):
            raise ValueError(f"must be principals as User:NAME, separated by semicolons, got {user}")
    return frozenset(user for user in users if user)
