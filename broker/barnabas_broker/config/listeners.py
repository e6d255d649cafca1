"""Listeners: the named addresses of a broker, so that each client gets the address that it can reach (KIP-103).

``listeners`` says where to listen, ``advertised.listeners`` the address that clients of a listener get, and
``inter.broker.listener.name`` the listener that brokers use among themselves. ``listener.security.protocol.map`` says
what they speak; a key of TLS may be given for one listener, as ``listener.name.NAME.KEY``.
"""

import re
from typing import Final, NamedTuple

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS: Final = (SSL, "SASL_SSL")
PROTOCOLS: Final = (PLAINTEXT, SSL, *SASL_PROTOCOLS)
#: What keys of a single listener begin with.
PREFIX: Final = "listener.name."
_ADDRESS: Final = re.compile(r"(?:([\w.-]+)://)?\[?([^\[\]/,\s]*)\]?:([0-9]{1,5})", re.ASCII)


class Listener(NamedTuple):
    """An address with a name; the name is "" where the configuration leaves it out."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}" if self.name else f"{host}:{self.port}"


def prefix_of(name: str) -> str:
    """The beginning of the keys of the listener `name`."""
    return f"{PREFIX}{name.lower()}."


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _addresses(text: str, form: str) -> tuple[Listener, ...]:
    found = []
    for part in _parts(text):
        match = _ADDRESS.fullmatch(part)
        if match is None or int(match[3]) > 65535:
            raise ValueError(f"must be {form}, separated by commas")
        found.append(Listener((match[1] or "").upper(), match[2], int(match[3])))
    names = [each.name for each in found]
    if len(set(names)) != len(names):
        raise ValueError("each name must be there only once")
    return tuple(found)


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Read ``listeners``: NAME://HOST:PORT, separated by commas; no host stands for all addresses.

    Raises:
        ValueError: what is expected instead.
    """
    found = _addresses(text, "NAME://HOST:PORT")
    if not all(each.name for each in found):
        raise ValueError("must be NAME://HOST:PORT, separated by commas")
    return tuple(Listener(each.name, each.host or "0.0.0.0", each.port) for each in found)


def parse_advertised(text: str) -> tuple[Listener, ...]:
    """Read ``advertised.listeners``: [NAME://]HOST:PORT, separated by commas.

    Raises:
        ValueError: what is expected instead.
    """
    found = _addresses(text, "[NAME://]HOST:PORT")
    if not all(each.host for each in found):
        raise ValueError("must be [NAME://]HOST:PORT, separated by commas")
    return found


def parse_protocols(text: str) -> tuple[str, ...]:
    """Read ``listener.security.protocol.map``: NAME:PROTOCOL, separated by commas.

    Raises:
        ValueError: what is expected instead.
    """
    found = _parts(text.upper())
    for part in found:
        name, _, protocol = part.partition(":")
        if not name or protocol not in PROTOCOLS:
            raise ValueError(f"must be NAME:PROTOCOL, separated by commas, with a protocol of {', '.join(PROTOCOLS)}")
    return tuple(found)
