"""TLS and logins of a test's broker: an authority of its own, certificates, users, and the settings of clients."""

import re
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

from barnabas_broker.security.trial import AUTHORITY, BROKER, CLIENT, issue

Security = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

#: What the types of confluent-kafka accept.
LibrdkafkaSettings = dict[str, str | int | float | bool]

_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Secured:
    """How clients of a broker connect: with TLS, with a login, with both or with neither.

    Args:
        security: what the broker's listener speaks.
        users: passwords by user.
        acls: what each user may do; None for no ACLs, so that everyone may do everything.

    Raises:
        ValueError: there is no such protocol, users are missing or not expected, or a name is not valid.
    """

    def __init__(
        self, security: Security, users: Mapping[str, str], acls: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        if security not in get_args(Security):
            raise ValueError(f"security is {security!r}: give one of {', '.join(get_args(Security))}")
        self.security = security
        self.users = dict(users)
        if self.logs_in and not users:
            raise ValueError(f'security is {security!r}: give users, such as {{"ada": "secret"}}')
        if users and not self.logs_in:
            raise ValueError(f'users are given, and security is {security!r}: give security="SASL_SSL"')
        for user, password in users.items():
            if not _NAME.fullmatch(user) or not password:
                raise ValueError(f"users: {user!r} must be of letters, digits and . _ -, and have a password")

        if isinstance(acls, Mapping) and any(isinstance(texts, str) for texts in acls.values()):
            raise ValueError('acls: give a list for each user, such as {"ada": ["read topic orders"]}')
        self.acls = {user: list(texts) for user, texts in acls.items()} if acls is not None else None
        for user in self.acls or ():
            if user not in self.users:
                raise ValueError(f"acls are given for {user!r}: give a password in users as well")

    def __repr__(self) -> str:
        return f"Secured({self.security!r}, {sorted(self.users)})"

    @property
    def logs_in(self) -> bool:
        """Whether clients log in."""
        return self.security.startswith("SASL_")

    @property
    def encrypted(self) -> bool:
        """Whether the listener speaks TLS."""
        return self.security.endswith("SSL")

    def keys(self, host: str, folder: Path) -> dict[str, str]:
        """The broker's keys; the files are made if they do not exist."""
        keys: dict[str, str] = {}
        if self.encrypted:
            if not (folder / AUTHORITY).exists():
                issue(folder, (host, "localhost", "127.0.0.1"), wanted_by="a broker with TLS")
            keys["ssl.keystore.location"] = str(folder / BROKER)
            keys["ssl.truststore.location"] = str(folder / AUTHORITY)
        if self.logs_in:
            users = " ".join(f"user_{user}={_quoted(password)}" for user, password in self.users.items())
            keys["sasl.enabled.mechanisms"] = ",".join(get_args(Mechanism))
            keys["plain.sasl.jaas.config"] = f"{_PLAIN_MODULE} required {users};"
        if self.acls is not None:
            keys["authorizer.class.name"] = _AUTHORIZER
        return keys

    def librdkafka(self, folder: Path, user: str | None, mechanism: Mechanism) -> LibrdkafkaSettings:
        """How to connect, for confluent-kafka."""
        settings: LibrdkafkaSettings = {"security.protocol": self.security}
        if self.encrypted:
            settings["ssl.ca.location"] = str(folder / AUTHORITY)
        if self.security == "SSL":
            settings["ssl.certificate.location"] = settings["ssl.key.location"] = str(folder / CLIENT)
        if self.logs_in:
            name = self._known(user)
            settings["sasl.mechanism"] = mechanism
            settings["sasl.username"], settings["sasl.password"] = name, self.users[name]
        return settings

    def python(self, folder: Path, user: str | None, mechanism: Mechanism) -> dict[str, Any]:
        """How to connect, for aiokafka, kafka-python and this project's client."""
        settings: dict[str, Any] = {"security_protocol": self.security}
        if self.encrypted:
            context = settings["ssl_context"] = ssl.create_default_context(cafile=folder / AUTHORITY)
            if self.security == "SSL":
                context.load_cert_chain(folder / CLIENT)
        if self.logs_in:
            name = self._known(user)
            settings["sasl_mechanism"] = mechanism
            settings["sasl_plain_username"], settings["sasl_plain_password"] = name, self.users[name]
        return settings

    def _known(self, user: str | None) -> str:
        name = next(iter(self.users)) if user is None else user
        if name not in self.users:
            raise ValueError(f"the broker has no user {name!r}, only {', '.join(self.users)}")
        return name


def _quoted(password: str) -> str:
    # As barnabas_protocol.jaas does: a test that starts a process need not import the protocol.
    escaped = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
