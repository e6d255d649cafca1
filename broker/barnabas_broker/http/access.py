"""Decides which requests an HTTP server answers. Pure, but for the files that are read at the start.

On a loopback address all clients may read what is served, as programs of this machine are trusted. On any other address
a client shows a token, or a certificate (:class:`~barnabas_broker.http.port.HttpTls`), unless the operator says that
everyone may:

- A program sends ``Authorization: Bearer TOKEN`` (RFC 6750).
- A browser gets a form for the token, and then a cookie that scripts cannot read and that other sites cannot send. It
  holds no token, but a value that is derived from it, so it ends with the token. Its name is derived, too: cookies are
  shared by all ports of a host, and two brokers may have different tokens.

Tokens are compared in constant time. Without a login, ``/healthz`` and ``/readyz`` answer with the status only, because
the probes of containers have no token.

``Host`` headers are a protection against DNS rebinding. A web page elsewhere can give its own name the address of this
machine, after a browser has loaded it. The browser then takes this server for a part of that page, whose scripts can
read everything that is served here. They cannot change the ``Host`` header, which still has the name of the page. A
page that was loaded from an IP address cannot be rebound, so addresses are always answered. See RFC 9110, section 7.2,
and https://en.wikipedia.org/wiki/DNS_rebinding.
"""

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

#: Minimum characters of a token: no one shall find it by trying.
SHORTEST: Final = 16
#: Maximum bytes of a token file.
_LONGEST: Final = 4096
_SCHEME: Final = "bearer "
#: A host with an optional port; an IPv6 address is in brackets.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.~-]+)?)\]|([^\s\[\]:/@?#\\]+))(?::\d{0,5})?", re.ASCII)


class HttpLogin:
    """Decides which requests are answered.

    Args:
        token: that programs and browsers show; None if there is none.
        certificates: whether a client certificate that is trusted is enough.

    Attributes:
        required: whether requests need one of them; otherwise all are answered.
        cookie: the name of the cookie that a browser gets.
        session: its value.
    """

    def __init__(self, token: str | None = None, *, certificates: bool = False) -> None:
        self.required = token is not None or certificates
        self.has_token = token is not None
        key = (token or "").encode()
        self._token = key
        self.cookie = f"barnabas_{hmac.digest(key, b'name of the cookie', 'sha256').hex()[:8]}"
        self.session = hmac.digest(key, b"value of the cookie", "sha256").hex()
        self._certificates = certificates

    def __repr__(self) -> str:
        return f"Login(required={self.required})"

    def knows(self, token: str) -> bool:
        """Whether this is the token."""
        # The digests have one length, so that the time does not depend on that of the token.
        given = hmac.digest(b"", token.encode("utf-8", "replace"), "sha256")
        return self.has_token and hmac.compare_digest(given, hmac.digest(b"", self._token, "sha256"))

    def lets_in(self, authorization: Sequence[str], cookies: Mapping[str, str], *, certificate: bool) -> bool:
        """Whether a request is answered.

        Args:
            authorization: its ``Authorization`` headers.
            cookies: its cookies.
            certificate: whether its connection has a client certificate that is trusted.
        """
        if not self.required or (certificate and self._certificates):
            return True
        if len(authorization) == 1 and authorization[0].lower().startswith(_SCHEME):
            return self.knows(authorization[0][len(_SCHEME) :].strip())
        session = cookies.get(self.cookie, "").encode("utf-8", "replace")
        return self.has_token and hmac.compare_digest(session, self.session.encode())


def read_token(file: str) -> str:
    """The token in a file: its first line.

    Raises:
        ValueError: the file cannot be read, or its token is too short or cannot be sent in a header.
    """
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(_LONGEST + 1).decode("ascii")
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file}: a token has ASCII characters only") from None
    token = text.partition("\n")[0].strip()
    if len(text) > _LONGEST or not token.isprintable() or " " in token:
        raise ValueError(f"{file}: the first line must be a token without spaces, in at most {_LONGEST} bytes")
    if len(token) < SHORTEST:
        raise ValueError(
            f"{file}: the token has {len(token)} characters, at least {SHORTEST} are needed. "
            f"To do: openssl rand -hex 32 > {file}"
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_to_all(host: str, given: HttpLogin, *, insecure: bool, remedies: str) -> bool:
    """Whether everyone on the network can read what is served, because the operator says so.

    Args:
        host: the address to listen on.
        given: the login.
        insecure: whether the operator says so.
        remedies: the flags and keys that give a login, for the error's text.

    Raises:
        ValueError: there is no login, and the operator does not say so; or there is one, and the operator says so.
    """
    if insecure and given.required:
        raise ValueError("it is said to be insecure, but a login is configured. To do: give one of them")
    if given.required or is_loopback(host):
        return False
    if not insecure:
        raise ValueError(
            f"the address {host} is open to other machines, and there is no login. To do: {remedies} if everyone who "
            "can reach it may read it"
        )
    return True


class AllowedHosts:
    """The names that a server answers to: loopback names, all IP addresses, and those that are given.

    Args:
        names: names without a port: of the address that the server listens on, of the machine, of the operator.
        flag: the flag of the program that allows another name, for the error's text; None if it has none.
    """

    def __init__(self, names: Iterable[str], flag: str | None) -> None:
        self._flag = flag
        self._names = frozenset(map(_normal, names)) - {""}

    def refusal(self, given: Sequence[str]) -> str | None:
        """Why a request is refused; None if it is not.

        Args:
            given: its ``Host`` headers. Without one it does not come from a browser.
        """
        if not given:
            return None
        if len(given) > 1:
            return "the request has several Host headers"
        found = _HOST.fullmatch(given[0])
        if found is None:
            return "the Host header is not a host name or an address"
        address, name = found.groups()
        if address is not None or _is_address(name):
            return None
        name = _normal(name)
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return None
        name = name[:253]
        return (
            f"requests for the host {name} are not answered, as a protection against DNS rebinding. "
            "To do: use an IP address" + (f", or start this program with {self._flag} {name}" if self._flag else "")
        )


def _normal(name: str) -> str:
    """A name without what does not make a difference: case, and the dot of the root."""
    return name.strip().lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
