"""The users of SCRAM in the cluster image, and the events that change them. Pure.

Kafka's records for the same are ``UserScramCredentialRecord`` and ``RemoveUserScramCredentialRecord``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from barnabas_broker.security.scram import ScramCredential
from barnabas_protocol.scram import ScramMechanism

#: A user and a mechanism.
UserKey = tuple[str, ScramMechanism]
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ScramCredentialSet:
    """A user has a credential for a mechanism, in place of the one before."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential


@dataclass(frozen=True, slots=True)
class ScramCredentialDeleted:
    """A user has no credential for a mechanism any more."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class ScramSecretSet:
    """The secret of which the salts of users are made who do not exist. It comes with the first user, and stays."""

    secret: bytes

    def __repr__(self) -> str:
        return "ScramSecretSet()"


UserEvent = ScramCredentialSet | ScramCredentialDeleted | ScramSecretSet


class Users(NamedTuple):
    """The users of SCRAM.

    Attributes:
        credentials: by user and mechanism.
        secret: see :class:`ScramSecretSet`; b"" as long as there was no user.
    """

    credentials: Mapping[UserKey, ScramCredential] = _NONE
    secret: bytes = b""

    def __repr__(self) -> str:
        return f"Users({len(self.credentials)})"

    def of(self, mechanism: ScramMechanism) -> dict[str, ScramCredential]:
        """The credentials for a mechanism, by user."""
        return {user: each for (user, which), each in self.credentials.items() if which is mechanism}

    def apply_all(self, events: Iterable[UserEvent]) -> "Users":
        """The users after `events`. The credentials are copied once."""
        credentials, secret = dict(self.credentials), self.secret
        for event in events:
            match event:
                case ScramSecretSet():
                    secret = event.secret
                case ScramCredentialSet():
                    credentials[event.user, event.mechanism] = event.credential
                case ScramCredentialDeleted():
                    credentials.pop((event.user, event.mechanism), None)
        return Users(MappingProxyType(credentials), secret)

    def events_from(self, old: "Users") -> Iterator[UserEvent]:
        """Events that turn `old` into these users."""
        if self.secret and self.secret != old.secret:
            yield ScramSecretSet(self.secret)
        for key in old.credentials:
            if key not in self.credentials:
                yield ScramCredentialDeleted(*key)
        for key, credential in self.credentials.items():
            if old.credentials.get(key) != credential:
                yield ScramCredentialSet(*key, credential)


# The stored form


def fields_to_json(event: UserEvent) -> dict[str, Any]:
    """The fields of an event."""
    match event:
        case ScramSecretSet():
            return {"secret": event.secret.hex()}
        case ScramCredentialDeleted():
            return {"user": event.user, "mechanism": event.mechanism.title}
        case ScramCredentialSet():
            salt, stored_key, server_key, iterations = event.credential
            return {
                "user": event.user,
                "mechanism": event.mechanism.title,
                "salt": salt.hex(),
                "stored_key": stored_key.hex(),
                "server_key": server_key.hex(),
                "iterations": iterations,
            }


def event_from_fields(name: str, fields: Mapping[str, Any]) -> UserEvent:
    """Read what :func:`fields_to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError: the fields are not those of the event; the text has no secret.
    """
    if name == ScramSecretSet.__name__:
        return ScramSecretSet(_bytes(fields, "secret"))
    user, mechanism = fields["user"], ScramMechanism.of(fields["mechanism"])
    if not isinstance(user, str) or not user:
        raise TypeError("user is not a name")
    if name == ScramCredentialDeleted.__name__:
        return ScramCredentialDeleted(user, mechanism)
    salt, stored_key, server_key = (_bytes(fields, each) for each in ("salt", "stored_key", "server_key"))
    iterations = fields["iterations"]
    if type(iterations) is not int or len(stored_key) != mechanism.size or len(server_key) != mechanism.size:
        raise ValueError(f"the credential of {user!r} is damaged")
    return ScramCredentialSet(user, mechanism, ScramCredential(salt, stored_key, server_key, iterations))


def _bytes(fields: Mapping[str, Any], name: str) -> bytes:
    try:
        return bytes.fromhex(fields[name])
    except ValueError:
        raise ValueError(f"{name} is damaged") from None
