"""TLS of an HTTP server: its certificate, and the authority whose client certificates are a login."""

import ssl
from dataclasses import dataclass


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
