"""Checks of keys that depend on each other: the listeners, their protocols, and the addresses that are advertised."""

from collections.abc import Sequence
from typing import Final

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.config.listeners import PLAINTEXT, PROTOCOLS, Listener

_ANYWHERE: Final = ("0.0.0.0", "::", "")


def check_protocols(listeners: Sequence[Listener], protocols: tuple[str, ...]) -> None:
    """See that all listeners speak PLAINTEXT, as names do that nobody maps, other than those of a protocol.

    Raises:
        ConfigError: one is to speak something else.
    """
    mapped = {name: name for name in PROTOCOLS}
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
