"""The audit log: who has logged in, what was refused to whom, and who has changed what.

Its lines come from the logger ``barnabas_broker.audit``. The row of an API names the changes (:class:`Change`) that it
makes (``Route.changes``), and its handler writes each when it is made (``RequestContext.changed``).

What a client may repeat without end is folded (:mod:`barnabas_broker.log_throttle`): the first line of a kind is
written at once, and how often it was repeated after a while. These are refusals, logins, wrong tokens over HTTP, and
offsets that are set outside of a group's membership, which some consumers do with every commit. Each other change is a
line, up to :data:`MOST_CHANGES` of a client within a minute; the others are counted.

No line has a password, a key or a token: the lines are made of the names below, and of configuration keys that have no
secrets.
"""

from collections.abc import Callable
from enum import StrEnum
from itertools import chain, count
from typing import Final, NamedTuple

from barnabas_broker.log_throttle import Repeated
from barnabas_broker.logs import logger
from barnabas_broker.security.principals import Principal
from barnabas_protocol.acls import AclOperation, AclResourceType
from barnabas_protocol.printable import printable

log = logger("audit")

#: Changes of one client that are written within :data:`~barnabas_broker.log_throttle.WINDOW`; others are only counted.
MOST_CHANGES: Final = 1_000
#: Characters of a name that are written.
LONGEST_NAME: Final = 249


class Change(StrEnum):
    """A change that a client has asked for, and that was made: the event of its line."""

    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
    PARTITIONS_ADDED = "partitions added"
    RECORDS_DELETED = "records deleted"
    TOPIC_CONFIGURED = "topic configured"
    GROUP_CONFIGURED = "group configured"
    CLIENT_METRICS_CONFIGURED = "client metrics configured"
    BROKER_CONFIGURED = "broker configured"
    REPLICAS_REASSIGNED = "replicas reassigned"
    REASSIGNMENT_CANCELLED = "reassignment cancelled"
    LEADER_ELECTED = "leader elected"
    GROUP_DELETED = "group deleted"
    OFFSETS_SET = "offsets set"
    OFFSETS_DELETED = "offsets deleted"
    TRANSACTION_COMMITTED = "transaction committed"
    TRANSACTION_ABORTED = "transaction aborted"
    USER_SET = "user credential set"
    USER_DELETED = "user credential deleted"
    ACL_CREATED = "ACL created"
    ACL_DELETED = "ACL deleted"
    QUOTA_SET = "quota set"
    QUOTA_REMOVED = "quota removed"


class Client(NamedTuple):
    """A principal, and the address that it connects from; without a principal, if it has not logged in."""

    principal: Principal | None
    host: str


class Refused(NamedTuple):
    """An operation that a client was refused."""

    operation: str
    resource: str
    name: str

    @property
    def pairs(self) -> dict[str, str]:
        """The pairs of its line."""
        return {"operation": self.operation, "resource": self.resource, "name": printable(self.name)}


class LoggedIn(NamedTuple):
    """A client has logged in: with a mechanism of SASL, or with a certificate."""

    listener: str
    mechanism: str

    @property
    def pairs(self) -> dict[str, str]:
        """The pairs of its line."""
        return {"listener": self.listener, "mechanism": self.mechanism}


class LoginFailed(NamedTuple):
    """A login has failed. The user is "" if the client has not named one."""

    listener: str
    reason: str
    user: str

    @property
    def pairs(self) -> dict[str, str]:
        """The pairs of its line."""
        user = {"user": printable(self.user)} if self.user else {}
        return {"listener": self.listener, "reason": self.reason, **user}


class WrongToken(NamedTuple):
    """A request over HTTP had a wrong token."""

    server: str = "HTTP"

    @property
    def pairs(self) -> dict[str, str]:
        """The pairs of its line."""
        return {}


class OffsetsSet(NamedTuple):
    """Offsets of a group were committed by a client that is not a member of it, as a reset does."""

    group: str
    client_id: str

    @property
    def pairs(self) -> dict[str, str]:
        """The pairs of its line."""
        return {"group": printable(self.group), "client_id": self.client_id}


class Changed(NamedTuple):
    """A change. Each has a number of its own: two that are alike are two lines."""

    number: int

    @property
    def pairs(self) -> dict[str, str]:
        """The pairs of a line that it would have if it were repeated; it is not."""
        return {}


#: What is folded.
Said = Refused | LoggedIn | LoginFailed | WrongToken | OffsetsSet | Changed
_EVENTS: Final[dict[type[Said], str]] = {
    Refused: "not authorized",
    LoggedIn: "authenticated",
    LoginFailed: "authentication failed",
    WrongToken: "wrong token",
    OffsetsSet: Change.OFFSETS_SET,
    Changed: "changes",
}
#: The others are warnings.
_USUAL: Final = (LoggedIn, OffsetsSet, Changed)


class Audit:
    """Writes the audit log.

    Args:
        now: a monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._repeated: Repeated[Client, Said] = Repeated()
        self._changes: Repeated[Client, Said] = Repeated(MOST_CHANGES)
        self._numbers = count()

    def not_authorized(
        self, principal: Principal, host: str, operation: AclOperation, resource: AclResourceType, name: str
    ) -> None:
        """A client was refused an operation on a resource."""
        self._fold(Client(principal, host), Refused(operation.name, resource.name, name[:LONGEST_NAME]))

    def logged_in(self, principal: Principal, host: str, listener: str, mechanism: str) -> None:
        """A client has logged in."""
        self._fold(Client(principal, host), LoggedIn(listener, mechanism))

    def login_failed(self, host: str, listener: str, reason: str, user: str) -> None:
        """A login has failed; `user` is "" if the client has not named one."""
        self._fold(Client(None, host), LoginFailed(listener, reason, user[:LONGEST_NAME]))

    def wrong_token(self, host: str) -> None:
        """A request over HTTP had a wrong token."""
        self._fold(Client(None, host), WrongToken())

    def offsets_set(self, principal: Principal, host: str, client_id: str, group: str) -> None:
        """A client has committed offsets of a group that it is not a member of."""
        self._fold(Client(principal, host), OffsetsSet(group[:LONGEST_NAME], client_id[:LONGEST_NAME]))

    def changed(self, principal: Principal, host: str, change: Change, /, **pairs: object) -> None:
        """A client has changed something.

        Args:
            principal: the client.
            host: its address.
            change: what was done.
            pairs: to what, then by whom and from where.
        """
        if self._changes.add(Client(principal, host), Changed(next(self._numbers)), self._now()):
            log.info(change.value, **pairs)

    def tick(self) -> None:
        """Write how often lines were repeated whose time is over. To be called about once a second."""
        self._write_ended(self._now())

    def close(self) -> None:
        """Write what is counted."""
        self._write_ended(float("inf"))

    def _fold(self, client: Client, said: Said) -> None:
        if self._repeated.add(client, said, self._now()):
            _write(client, said)

    def _write_ended(self, now: float) -> None:
        for client, said, times in chain(self._repeated.ended(now), self._changes.ended(now)):
            if isinstance(said, type):
                _line(said)(_EVENTS[said], **_by(client), others=times)
            else:
                _write(client, said, repeated=times)


def _write(client: Client, said: Said, **more: int) -> None:
    _line(type(said))(_EVENTS[type(said)], **_by(client), **said.pairs, **more)


def _line(kind: type[Said]) -> Callable[..., object]:
    return log.info if issubclass(kind, _USUAL) else log.warning


def _by(client: Client) -> dict[str, str]:
    who = {} if client.principal is None else {"principal": str(client.principal)}
    return {**who, "host": client.host}
