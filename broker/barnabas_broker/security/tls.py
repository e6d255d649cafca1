"""TLS contexts from PEM files: of a listener, and of this broker as a client of others.

A :class:`TlsContexts` belongs to one listener. It reads its files at the start and when :meth:`~TlsContexts.reload` or
:meth:`~TlsContexts.change` is called; what cannot be used is refused, and the contexts before stay. A connection keeps
the context that it began with.

Only TLS 1.2 and 1.3, without compression and renegotiation. A trusted certificate need not be a root, as in Java.
"""

import os
import ssl
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas_broker.errors import BrokerError
from barnabas_broker.security.pem import LARGEST, PemError, certificates, decode, first_certificate, private_key
from barnabas_broker.security.principals import ANONYMOUS, NoRuleApplies, Principal, PrincipalRules
from barnabas_broker.security.x509_names import alternative_names, subject
from barnabas_protocol.printable import printable

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
        """Its name in messages."""
        return f"{self.key}={self.location}" if self.location else self.key

    def check_file(self) -> None:
        """Check that reading the file ends: a client may have named it.

        Raises:
            TlsError: it cannot be read, is not a file, or is too large.
        """
        if not self.location:
            return
        try:
            found = os.stat(self.location)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a path"
            raise TlsError(f"{self.place}: it cannot be read: {reason}") from error
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise TlsError(f"{self.place}: it must be a file of at most {LARGEST} bytes")

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
        certificate: this broker's certificate (DER).

    Raises:
        TlsError: a file or a key cannot be used.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.server, self.client, self.certificate = _contexts(settings)

    def reload(self) -> None:
        """Read the files again. Open connections keep what they have.

        Raises:
            TlsError: a file cannot be used; all stays as it is.
        """
        self.server, self.client, self.certificate = _contexts(self.settings)

    def check(self, settings: TlsSettings, *, between_brokers: bool) -> "TlsContexts":
        """Check other settings, which clients that trust this listener now must trust as well.

        As in Kafka, the certificate must be for the same name and for all alternative names, a trust store cannot be
        added, and brokers with the present settings must be able to connect to one with the others, and the reverse.

        Args:
            settings: the other settings.
            between_brokers: whether brokers connect to this listener.

        Returns:
            The contexts of the other settings.

        Raises:
            TlsError: they cannot take the place of the present ones.
        """
        for store in (settings.chain, settings.key, settings.trust):
            store.check_file()
        other = TlsContexts(settings)
        where = f"the listener {settings.listener}"
        if settings.trust.given and not self.settings.trust.given:
            raise TlsError(f"{where} has no trust store, and none can be added while it is open")
        try:
            before, after = subject(self.certificate), subject(other.certificate)
            lost = alternative_names(self.certificate) - alternative_names(other.certificate)
        except ValueError as error:
            raise TlsError(f"{settings.chain.place}: {error}") from error
        if before.lower() != after.lower():
            raise TlsError(
                f"the certificate of {where} is for {printable(before)}, and the new one for {printable(after)}. To "
                "do: give one for the same name, or restart"
            )
        if lost:
            raise TlsError(
                f"the new certificate of {where} lacks {len(lost)} of the alternative names of the present one. To do: "
                "give one with all of them, or restart"
            )
        if between_brokers and settings.trust.given:
            for client, server in ((self, other), (other, self)):
                try:
                    _shake_hands(client.client, server.server)
                except ssl.SSLError as error:
                    raise TlsError(
                        f"brokers with the present and with the new certificates of {where} could not connect to each "
                        f"other: {_why(error)}. To do: give a trust store that has the authorities of both first"
                    ) from error
        return other

    def change(self, other: "TlsContexts") -> None:
        """Take the place of these contexts by `other` ones. Open connections keep what they have."""
        self.settings, self.certificate = other.settings, other.certificate
        self.server, self.client = other.server, other.client

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


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """A handshake in memory, without the check of host names.

    Raises:
        ssl.SSLError: it fails.
    """
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    checks, client.check_hostname = client.check_hostname, False
    try:
        ends = [client.wrap_bio(here, there), server.wrap_bio(there, here, server_side=True)]
    finally:
        client.check_hostname = checks
    # Each turn brings one flight of messages; TLS 1.2 has four of them.
    for _ in range(5):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()


def _contexts(settings: TlsSettings) -> tuple[ssl.SSLContext, ssl.SSLContext, bytes]:
    # A file is read once, so that both contexts have the same.
    chain = settings.chain.read() if settings.chain.given else ""
    server = _prepare(_Context(ssl.PROTOCOL_TLS_SERVER), settings, chain)
    client = _prepare(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings, chain)
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
    return server, client, first_certificate(chain)


def _prepare(context: ssl.SSLContext, settings: TlsSettings, chain: str) -> ssl.SSLContext:
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


def _why(error: ssl.SSLError) -> str:
    """Why a handshake failed here."""
    inner = error.error if isinstance(error, HandshakeFailed) else error
    return inner.verify_message if isinstance(inner, ssl.SSLCertVerificationError) else _reason(inner)


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
