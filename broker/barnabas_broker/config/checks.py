"""Checks of keys that depend on each other: the listeners, their protocols, and the addresses that are advertised."""

from collections.abc import Sequence
from typing import Final

from barnabas_broker.config.keys import ConfigError
from barnabas_broker.config.listeners import PLAINTEXT, PROTOCOLS, Listener

_ANYWHERE: Final = ("0.0.0.0", "::", "")


def check_protocols(listeners: Sequence[Listener], protocols: tuple[str, ...]) -> None:
    """Check that all listeners speak PLAINTEXT, as names do that are not mapped and are not the name of a protocol.

    Raises:
        ConfigError: a listener speaks another protocol.
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
    """The advertised address of each listener.

    Args:
        listeners: at least one, with the ports in use.
        given: ``advertised.listeners``. An address without a name is the first listener's; port 0 means its own port.
        hostname: the host of listeners that listen on all addresses and are not in `given`.

    Raises:
        ConfigError: an address is given twice, or for a listener that does not exist.
    """
    advertised = {each.name: Listener(each.name, _reachable(each.host, hostname), each.port) for each in listeners}
    ports = {each.name: each.port for each in listeners}
    seen = set()
    for each in given:
        name = each.name or listeners[0].name
        if name not in advertised:
            raise ConfigError(f"advertised.listeners: {each} is no listener; listeners has {', '.join(advertised)}")
        if name in seen:
            raise ConfigError(f"advertised.listeners: there are two addresses for {name}")
        seen.add(name)
        advertised[name] = Listener(name, each.host, each.port or ports[name])
    return tuple(advertised.values())


def _reachable(host: str, hostname: str) -> str:
    return hostname if host in _ANYWHERE else host


def check_inter_broker(name: str, listeners: Sequence[Listener]) -> None:
    """Check that the listener that brokers use among themselves exists.

    Raises:
        ConfigError: no listener has this name.
    """
    names = [each.name for each in listeners]
    if name not in names:
        raise ConfigError(f"inter.broker.listener.name={name!r}: must be one of listeners: {', '.join(names)}")
