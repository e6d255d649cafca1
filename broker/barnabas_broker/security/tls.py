"""TLS contexts from PEM files: of a listener, and of this broker as a client of others.

A :class:`TlsContexts` belongs to one listener. It reads its files at the start and when :meth:`~TlsContexts.reload` is
called; what cannot be used is refused, and the contexts before stay. A connection keeps the context that it began with.

Only TLS 1.2 and 1.3, without compression and renegotiation. A trusted certificate need not be a root, as in Java.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas_broker.errors import BrokerError
from barnabas_broker.security.names import subject
from barnabas_broker.security.pem import PemError, certificates, decode, private_key
from barnabas_broker.security.principals import ANONYMOUS, NoRuleApplies, Principal, PrincipalRules

_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsError(BrokerError):
    """TLS cannot be set up; the text names the key, what is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class Store:
    """A place of PEM text: a file, or text that was given itself.

    Attributes:
        key: the configuration key with the file.
        location: the file; "" for none.
        text: the text; "" for none.
    """

    key: str
    location: str
    text: str

    def __repr__(self) -> str:
        return f"Store({self.key!r}, {self.location!r})"

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return bool(self.location or self.text)

    @property
    def place(self) -> str:
        """What messages call it."""
        return f"{self.key}={self.location}" if self.location else self.key

    def read(self) -> str:
        """The text.

        Raises:
            TlsError: the file cannot be read, or is not PEM.
        """
        if not self.location:
            return self.text
        try:
            return decode(Path(self.location).read_bytes(), self.location)
        except OSError as error:
            raise TlsError(f"{self.place}: it cannot be read: {error.strerror}") from error
        except PemError as error:
            raise TlsError(f"{self.place}: {error}") from error


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The keys of TLS, as they are for one listener.

    Attributes:
        listener: its name.
        chain: the certificate and its chain.
        key: the private key; in a file it is beside the certificate.
        password: that of the key; "" for none.
        trust: trusted certificates.
        client_auth: ``none``, ``requested`` or ``required``.
        versions: of TLS, at least one.
        check_names: whether the certificates of other brokers must be for their host names.
        rules: how the subject of a client's certificate becomes a principal.
    """

    listener: str
    chain: Store
    key: Store
    password: str
    trust: Store
    client_auth: str
    versions: tuple[str, ...]
    check_names: bool
    rules: PrincipalRules

    def __repr__(self) -> str:
        return f"TlsSettings({self.listener!r})"


class HandshakeFailed(ssl.SSLError):
    """A handshake failed here, not at the peer.

    Args:
        error: why.
        alert: the bytes that say so to the peer.
    """

    def __init__(self, error: ssl.SSLError, alert: bytes) -> None:
        super().__init__(*error.args)
        self.error = error
        self.alert = alert


class _Connection(ssl.SSLObject):
    """A connection whose failed handshake can be explained to the peer: uvloop drops the alert that OpenSSL wrote.

    Without an alert, a client whose certificate is refused sees a closed connection, and tries again for ever.
    """

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            raise HandshakeFailed(error, self.outgoing.read()) from error


class _Context(ssl.SSLContext):
    sslobject_class = _Connection

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **named: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **named)
        assert isinstance(made, _Connection)
        made.outgoing = outgoing
        return made


class TlsContexts:
    """The contexts of a listener: for those that connect to it, and for this broker when it connects to others.

    Args:
        settings: the keys.

    Attributes:
        settings: the keys.
        server: the context of connections that are accepted.
        client: the context of connections to the same listener of other brokers.

    Raises:
        TlsError: a file or a key cannot be used.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.server, self.client = _contexts(settings)

    def reload(self) -> None:
        """Read the files again. Open connections keep what they have.

        Raises:
            TlsError: a file cannot be used; all stays as it is.
        """
        self.server, self.client = _contexts(self.settings)

    def principal(self, connection: ssl.SSLObject) -> Principal:
        """The principal of a connection whose handshake is complete.

        Raises:
            NoRuleApplies: the client's certificate has a name to which none of the rules applies.
        """
        certificate = connection.getpeercert(binary_form=True)
        if certificate is None or self.settings.client_auth == "none":
            return ANONYMOUS
        try:
            return Principal("User", self.settings.rules.apply(subject(certificate)))
        except NoRuleApplies:
            raise
        except ValueError as error:
            raise NoRuleApplies(str(error)) from error


def _contexts(settings: TlsSettings) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = _prepare(_Context(ssl.PROTOCOL_TLS_SERVER), settings)
    client = _prepare(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings)
    client.check_hostname = settings.check_names
    if settings.client_auth != "none" and not settings.trust.given:
        raise TlsError(
            f"ssl.client.auth={settings.client_auth} for the listener {settings.listener}: no certificates are "
            f"trusted. To do: give {settings.trust.key}"
        )
    server.verify_mode = _VERIFY[settings.client_auth]
    if settings.trust.given:
        try:
            trusted = certificates(settings.trust.read())
            for context in (server, client):
                context.load_verify_locations(cadata=trusted)
        except (PemError, ssl.SSLError) as error:
            raise TlsError(f"{settings.trust.place}: {_reason(error)}. To do: give PEM with certificates") from error
    else:
        client.load_default_certs()
    return server, client


def _prepare(context: ssl.SSLContext, settings: TlsSettings) -> ssl.SSLContext:
    """Give a context the versions, the certificate and the key."""
    versions = [_VERSIONS[name] for name in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not settings.chain.given:
        raise TlsError(
            f"the listener {settings.listener} speaks TLS and has no certificate. To do: give {settings.chain.key}, a "
            "PEM file with key and certificates"
        )
    # A file has both, and is read once, so that they fit while it is being replaced.
    chain = settings.chain.read()
    key = settings.key.read() if settings.key.given else chain
    try:
        with _file(private_key(key) + certificates(chain)) as path:
            # A function, because OpenSSL would otherwise ask for a password at the terminal.
            context.load_cert_chain(path, password=lambda: settings.password)
    except (PemError, ssl.SSLError, OSError, ValueError) as error:
        where = " and ".join(dict.fromkeys(each.place for each in (settings.chain, settings.key) if each.given))
        raise TlsError(f"{where}: {_reason(error)}. To do: {_remedy(error)}") from error
    return context


@contextmanager
def _file(text: str) -> Iterator[str]:
    """The path of a file with `text` for as long as the context: in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("barnabas-tls")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w", prefix="barnabas-", encoding="utf-8") as file:  # only its owner can read it
        file.write(text)
        file.flush()
        yield file.name


def _reason(error: Exception) -> str:
    if not isinstance(error, ssl.SSLError):
        return str(error)
    # Without a reason, OpenSSL could not decrypt or decode the key.
    return error.reason.replace("_", " ").lower() if error.reason else "the key cannot be read"


def _remedy(error: Exception) -> str:
    if isinstance(error, PemError):
        return "give PEM with the key and its certificates"
    if "mismatch" in _reason(error):
        return "give the key of the first certificate"
    return "check the key, and ssl.key.password if it is encrypted"
