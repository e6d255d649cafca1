"""Which ``Host`` headers an HTTP server on a private address answers: protection against DNS rebinding. Pure.

A web page elsewhere can give its own name the address of this machine, after a browser has loaded it. The browser then
takes this server for a part of that page, whose scripts can read everything that is served here. They cannot change
the ``Host`` header, which still has the name of the page. A page that was loaded from an IP address cannot be
rebound, so addresses are always answered. See RFC 9110, section 7.2, and https://en.wikipedia.org/wiki/DNS_rebinding.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Final

#: A host with an optional port; an IPv6 address is in brackets.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.~-]+)?)\]|([^\s\[\]:/@?#\\]+))(?::\d{0,5})?", re.ASCII)


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
