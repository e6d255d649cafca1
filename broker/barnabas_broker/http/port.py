"""The port for the page, metrics and health: bound at the start, its TLS, and who may use it."""

import socket
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas_broker.config import Config, ConfigError
from barnabas_broker.config.keys import (
    HTTP_MAX_CONNECTIONS,
    HTTP_SSL_CAFILE,
    HTTP_SSL_CERTFILE,
    HTTP_SSL_KEYFILE,
    HTTP_TOKEN_FILE,
)
from barnabas_broker.http.access import AllowedHosts, HttpLogin, open_to_all, read_token
from barnabas_broker.http.view import View
from barnabas_broker.logs import logger
from barnabas_broker.optional import require
from barnabas_broker.security.audit import Audit
from barnabas_broker.sockets import bind

log = logger("broker")


class HttpTlsError(Exception):
    """A file cannot be used; the text says which and why."""


@dataclass(frozen=True, slots=True)
class HttpTls:
    """Files in PEM.

    Attributes:
        certificate: the certificate of the server, and its chain.
        key: its key; "" if it is in the file of the certificate.
        authority: who signs the certificates of clients; "" if they need none.
        context: the context of connections.
    """

    certificate: str
    key: str
    authority: str
    context: ssl.SSLContext

    @classmethod
    def of(cls, certificate: str, key: str = "", authority: str = "") -> "HttpTls":
        """Read the files.

        Raises:
            HttpTlsError: a file cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        made = cls(certificate, key, authority, context)
        made.reload()
        if authority:
            # Not required: the probes of containers have none. What else they ask is refused.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            try:
                context.load_verify_locations(authority)
            except (OSError, ssl.SSLError) as error:
                raise HttpTlsError(f"{authority}: {_reason(error)}") from error
        return made

    def reload(self) -> None:
        """Read the certificate and its key again, for new connections.

        Raises:
            HttpTlsError: they cannot be used; the earlier ones stay.
        """
        try:
            # A file with an encrypted key would ask for its password at the terminal.
            self.context.load_cert_chain(self.certificate, self.key or None, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise HttpTlsError(f"{self.certificate}: {_reason(error)}") from error


def _reason(error: OSError | ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason.replace("_", " ").lower() if error.reason else "it is not PEM, or its key is encrypted"
    return error.strerror or str(error)


class HttpPort(NamedTuple):
    """A bound socket for HTTP, and who may use it; see :func:`bind_http`.

    Attributes:
        listener: the socket.
        endpoint_class: an :class:`~barnabas_broker.http.endpoint.Endpoint`, which needs aiohttp.
        hosts: the names that requests may be for.
        login: what requests need.
        tls: the certificate; None for plain HTTP.
        most: connections at a time.
    """

    listener: socket.socket
    endpoint_class: Any
    hosts: AllowedHosts
    login: HttpLogin
    tls: HttpTls | None
    most: int

    @property
    def port(self) -> int:
        """The port in use."""
        port: int = self.listener.getsockname()[1]
        return port

    def endpoint(self, view: View, audit: Audit) -> Any:
        """The endpoint, which answers requests once it is started."""
        return self.endpoint_class(view, self.listener, self.hosts, self.login, self.tls, audit.wrong_token, self.most)

    def reload_certificate(self) -> None:
        """Read the certificate again. One that cannot be used is logged, and the earlier one stays."""
        if self.tls is not None:
            try:
                self.tls.reload()
            except HttpTlsError as error:
                log.error("certificate of HTTP not reloaded, the earlier one stays", reason=str(error))
            else:
                log.info("certificate of HTTP reloaded")


def bind_http(
    stack: AsyncExitStack, config: Config, host: str, port: int, allowed: Sequence[str], *, insecure: bool
) -> HttpPort:
    """Bind the socket for the page, metrics and health.

    Args:
        stack: closes it.
        config: its keys.
        host: the address to listen on.
        port: the port; 0 picks a free one.
        allowed: host names that requests may be for, beside `host` and this machine's name.
        insecure: whether everyone may read it.

    Raises:
        ConfigError: the address is not a loopback address, and there is no login; or a file cannot be used.
        BrokerError: aiohttp is not installed, or the address does not exist or is in use.
    """
    module = require("barnabas_broker.http.endpoint", wanted_by="--http-port", extra="http")
    certificate, authority = config[HTTP_SSL_CERTFILE], config[HTTP_SSL_CAFILE]
    if authority and not certificate:
        raise ConfigError("http.ssl.cafile needs http.ssl.certfile: clients show a certificate over TLS only")
    try:
        tls = HttpTls.of(certificate, config[HTTP_SSL_KEYFILE], authority) if certificate else None
        token = read_token(config[HTTP_TOKEN_FILE]) if config[HTTP_TOKEN_FILE] else None
        login = HttpLogin(token, certificates=bool(authority))
        remedies = "give --http-token-file FILE, or http.ssl.certfile and http.ssl.cafile, or --http-insecure"
        exposed = open_to_all(host, login, insecure=insecure, remedies=remedies)
    except HttpTlsError as error:
        raise ConfigError(f"http.ssl: {error}") from error
    except ValueError as error:
        raise ConfigError(f"HTTP: {error}") from None
    listener = stack.enter_context(closing(bind(host, port)))
    if exposed:
        log.warning("HTTP has no login: everyone who can reach it may read it", host=host, port=port)
    hosts = AllowedHosts([host, socket.gethostname(), *allowed], "--http-allow-host")
    return HttpPort(listener, module.Endpoint, hosts, login, tls, config[HTTP_MAX_CONNECTIONS])
