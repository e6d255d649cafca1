"""The limits of connections of a configuration, at the start and when they are changed while the broker runs."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address

from barnabas_broker.cluster.image import BrokerConfigured, Event, Image
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import Config, ConfigError, ConfigSource
from barnabas_broker.config.keys import (
    INTER_BROKER_LISTENER_NAME,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
)
from barnabas_broker.logs import logger
from barnabas_broker.quotas.connections import ConnectionLimits, ListenerLimits, canonical
from barnabas_broker.resource_errors import most_descriptors

log = logger("broker")

_OVERRIDES = MAX_CONNECTIONS_PER_IP_OVERRIDES


class Limits:
    """Reads the limits of connections of a configuration.

    Names of hosts that were given before the start are looked up once. At run time only addresses can be set: a broker
    that waits for a name server serves no client meanwhile.

    Args:
        config: what was given before the start.
        listeners: the names of the listeners.

    Raises:
        ConfigError: a host of max.connections.per.ip.overrides does not exist.
    """

    def __init__(self, config: Config, listeners: Iterable[str]) -> None:
        self._listeners = list(listeners)
        self._resolved = _resolved(_OVERRIDES.read(config.given.get(_OVERRIDES.name, "")))

    def of(self, config: Config) -> ConnectionLimits:
        """The limits of `config`.

        Raises:
            ConfigError: a host is set at run time by its name, or every connection would be refused.
        """
        between = config[INTER_BROKER_LISTENER_NAME]
        text, source = config.explain(_OVERRIDES)
        at_run_time = source in (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        overrides = _addresses(text) if at_run_time else self._resolved
        if not config[MAX_CONNECTIONS_PER_IP] and not overrides:
            raise ConfigError(
                f"{MAX_CONNECTIONS_PER_IP.name}=0 refuses all connections. To do: set {_OVERRIDES.name} as well"
            )
        limits = {}
        for name in self._listeners:
            own = config.of_listener(name)
            limits[name] = ListenerLimits(own[MAX_CONNECTIONS], own[MAX_CONNECTION_CREATION_RATE])
        return ConnectionLimits(
            # The other half of the descriptors is for files: a broker that cannot open any loses partitions.
            connections=min(config[MAX_CONNECTIONS], max(most_descriptors() // 2, 1)),
            rate=config[MAX_CONNECTION_CREATION_RATE],
            per_ip=config[MAX_CONNECTIONS_PER_IP],
            overrides=overrides,
            listeners=limits,
            protected=between if between in self._listeners and len(self._listeners) > 1 else None,
        )


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """Hosts and their connections."""
    for part in filter(None, text.split(",")):
        host, _, count = part.strip().rpartition(":")
        yield host.strip().strip("[]"), int(count)


def _addresses(text: str) -> Mapping[str, int]:
    """The connections of addresses.

    Raises:
        ConfigError: a host is not an address.
    """
    overrides = {}
    for host, count in _parts(text):
        try:
            ip_address(host)
        except ValueError:
            raise ConfigError(f"{_OVERRIDES.name}: {host!r} is a name. To do: give its address") from None
        overrides[canonical(host)] = count
    return overrides


def _resolved(text: str) -> Mapping[str, int]:
    """The connections of addresses and hosts.

    Raises:
        ConfigError: a host does not exist.
    """
    overrides: dict[str, int] = {}
    for host, count in _parts(text):
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"{_OVERRIDES.name}: {host!r} is not found: {error}") from None
        overrides |= {canonical(str(address[0])): count for *_, address in found}
    return overrides


def follow_limits(
    cluster: ClusterMetadata, config: Config, node_id: int, limits: Limits, take: Callable[[ConnectionLimits], None]
) -> None:
    """Take the limits of connections, now and after each change at run time.

    Args:
        cluster: the cluster image.
        config: the broker's configuration, which has followed the image already.
        node_id: the broker's id.
        limits: reads the limits.
        take: called with them.
    """

    def change(image: Image, events: Sequence[Event]) -> None:
        if any(isinstance(event, BrokerConfigured) and event.name in ("", str(node_id)) for event in events):
            try:
                take(limits.of(config))
            except ConfigError as error:
                log.error("limits of connections not changed, the earlier ones stay", reason=str(error))

    cluster.feed(change)
