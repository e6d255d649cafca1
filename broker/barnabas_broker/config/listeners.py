"""Listeners: the addresses of a broker, by name, so that each client is told the one that it can reach (KIP-103).

``listeners`` says where to listen, ``advertised.listeners`` what those are told who come in by a listener, and
``inter.broker.listener.name`` by which listener brokers reach each other. All of them speak PLAINTEXT.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas_broker.config.config import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ANYWHERE: Final = ("0.0.0.0", "::", "")
_ADDRESS: Final = re.compile(r"(?:([\w.-]+)://)?\[?([^\[\]/,\s]*)\]?:([0-9]{1,5})", re.ASCII)


class Listener(NamedTuple):
    """An address with a name; the name is "" where the configuration leaves it out."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}" if self.name else f"{host}:{self.port}"


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
        if not name or protocol not in _PROTOCOLS:
            raise ValueError(f"must be NAME:PROTOCOL, separated by commas, with a protocol of {', '.join(_PROTOCOLS)}")
    return tuple(found)


def check_protocols(listeners: Sequence[Listener], protocols: tuple[str, ...]) -> None:
    """See that all listeners speak PLAINTEXT, as names do that nobody maps, other than those of a protocol.

    Raises:
        ConfigError: one is to speak something else.
    """
    mapped = {name: name for name in _PROTOCOLS}
    mapped |= {name: protocol for name, _, protocol in (entry.partition(":") for entry in protocols)}
    for each in listeners:
        protocol = mapped.get(each.name, PLAINTEXT)
        if protocol != PLAINTEXT:
            raise ConfigError(
                f"listeners: {each} is to speak {protocol} (listener.security.protocol.map), which is not served: "
                "map it to PLAINTEXT, or leave it out"
            )


def advertise(listeners: Sequence[Listener], given: tuple[Listener, ...], hostname: str) -> tuple[Listener, ...]:
    """What is told of each listener.

    Args:
        listeners: with the ports that they have; at least one.
        given: ``advertised.listeners``. An address without a name is the first listener's, port 0 its own port.
        hostname: for listeners that listen everywhere, and of which nothing is given.

    Raises:
        ConfigError: something is given of a listener that is none.
    """
    told = {each.name: Listener(each.name, _reachable(each.host, hostname), each.port) for each in listeners}
    ports = {each.name: each.port for each in listeners}
    seen = set()
    for each in given:
        name = each.name or listeners[0].name
        if name not in told:
            raise ConfigError(f"advertised.listeners: {each} is no listener; listeners has {', '.join(told)}")
        if name in seen:
            raise ConfigError(f"advertised.listeners: there are two addresses for {name}")
        seen.add(name)
        told[name] = Listener(name, each.host, each.port or ports[name])
    return tuple(told.values())


def _reachable(host: str, hostname: str) -> str:
    return hostname if host in _ANYWHERE else host


def check_inter_broker(name: str, listeners: Sequence[Listener]) -> None:
    """See that there is the listener by which brokers reach each other.

    Raises:
        ConfigError: there is none of this name.
    """
    names = [each.name for each in listeners]
    if name not in names:
        raise ConfigError(f"inter.broker.listener.name={name!r}: must be one of listeners: {', '.join(names)}")
