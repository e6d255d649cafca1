"""SASL: the exchange by which a client proves who it is; PLAIN, and the users of the configuration.

Pure. An exchange is a generator: it yields the broker's answers, receives the client's messages, and returns who the
client is. It begins with an empty answer, before the first message. SCRAM is in :mod:`barnabas_broker.security.scram`.

With PLAIN (RFC 4616) the client sends name and password, so use it over TLS. Its users and passwords are in the
configuration, as in Kafka: ``listener.name.NAME.plain.sasl.jaas.config`` with a ``PlainLoginModule``.

An unknown user and a wrong password are the same to the client, in the answer and in the time that it takes.
"""

import hashlib
import hmac
from collections.abc import Generator, Mapping
from typing import Final, NamedTuple

from barnabas_protocol.jaas import parse_jaas

#: The class that Kafka's configurations name for PLAIN.
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_WRONG: Final = "Authentication failed: Invalid username or password"
#: What the options of users begin with.
_USER: Final = "user_"


class AuthenticationFailed(Exception):
    """A client could not prove who it is. The text is for the client, and has no secret.

    Args:
        message: Kafka's words.
        user: whom the client said to be; "" if it is not known.
        reason: what the log says in place of the message; without secrets as well.
    """

    def __init__(self, message: str, user: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.user = user
        self.reason = reason or message


class Authenticated(NamedTuple):
    """A client that has proved who it is.

    Attributes:
        user: who it is.
        answer: the broker's last message.
        expires_ms: when what it has proved this with ends, in ms since 1970; None for never.
    """

    user: str
    answer: bytes = b""
    expires_ms: int | None = None


#: Yields the broker's messages, receives the client's, returns who the client is; raises :exc:`AuthenticationFailed`.
Exchange = Generator[bytes, bytes, Authenticated]


class Credentials(NamedTuple):
    """By what a broker logs in to another one."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism!r}, {self.user!r})"


class PlainUsers:
    """The users of PLAIN and their passwords.

    Args:
        passwords: by user.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {user: _digest(password) for user, password in passwords.items()}

    def __repr__(self) -> str:
        return f"PlainUsers({len(self._digests)})"

    def __contains__(self, user: object) -> bool:
        return user in self._digests

    @classmethod
    def of_jaas(cls, text: str) -> "PlainUsers":
        """The users of a JAAS configuration: its options ``user_NAME="PASSWORD"``.

        Raises:
            ValueError: it is for another module, or has no users.
        """
        login = parse_jaas(text)
        if login.module != PLAIN_MODULE:
            raise ValueError(f"must be for {PLAIN_MODULE}")
        users = {name.removeprefix(_USER): value for name, value in login.options.items() if name.startswith(_USER)}
        if not users or not all(users) or not all(users.values()):
            raise ValueError('must have users, each as user_NAME="PASSWORD"')
        return cls(users)

    def authenticate(self, message: bytes) -> str:
        """Check the one message of the exchange: an authorization id, a name and a password, separated by zero bytes.

        Returns:
            The user.

        Raises:
            AuthenticationFailed: the message is not valid, or the password is wrong.
        """
        try:
            parts = message.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("Authentication failed: Invalid SASL/PLAIN response: not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed(
                f"Authentication failed: Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        acting_as, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified", user)
        # For a user who does not exist, the same is done.
        right = hmac.compare_digest(self._digests.get(user, _NO_USER), _digest(password))
        if not right:
            raise AuthenticationFailed(_WRONG, user)
        if acting_as not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username", user
            )
        return user


def plain(users: PlainUsers) -> Exchange:
    """The exchange of PLAIN: one message with everything."""
    return Authenticated(users.authenticate((yield b"")))


def _digest(password: str) -> bytes:
    """Passwords of any length are compared in the same time."""
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()


#: What no password has as its digest.
_NO_USER: Final = bytes(32)
