"""The limits of connections: how many there may be, from one address and on a listener, and how fast they may come.
Pure.

What Kafka does with a connection over a limit (``kafka.network.ConnectionQuotas``):

- over ``max.connection.creation.rate``, of the broker or the listener: it waits, and the listener accepts nothing
  meanwhile, for one sample at most;
- over ``max.connections.per.ip``: it is closed;
- over the quota ``connection_creation_rate`` of its address: it is closed after the wait, so that a client that
  connects again at once gains nothing.

Deviation: over ``max.connections`` Kafka accepts nothing until another connection is closed; here it is closed, so that
a client does not wait for what may never come. The listener between brokers has no part in the limit of the broker:
if it is full, another listener's connection is closed for one of a broker.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from barnabas_broker.quotas.bounded_map import Kept
from barnabas_broker.quotas.entities import IP, QuotaEntity, QuotaKey
from barnabas_broker.quotas.rates import Rate, Window

#: No limit: Kafka's ``Integer.MAX_VALUE``.
UNLIMITED: Final = 2**31 - 1
#: All listeners together.
ALL: Final = ""
#: Addresses whose rate is measured at a time. Beyond that, the one that connected least recently is forgotten, but none
#: that is over its quota; if all are, further addresses are measured together.
MOST: Final = 20_000


class Admitted(NamedTuple):
    """A connection may be served, after `wait` seconds in which its listener accepts nothing."""

    wait: float = 0.0


class RefusedSocket(NamedTuple):
    """A connection is closed after `wait` seconds.

    Attributes:
        reason: the limit.
        wait: seconds until it is closed.
        full: the listener that has no place left, or :data:`ALL`; None if it is over another limit.
    """

    reason: str
    wait: float = 0.0
    full: str | None = None


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """The limits of one listener.

    Attributes:
        connections: that may be open.
        rate: that may be created in a second.
    """

    connections: int = UNLIMITED
    rate: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a broker.

    Attributes:
        connections: that may be open, on all listeners together.
        rate: that may be created in a second.
        per_ip: that may be open from one address.
        overrides: the same for single addresses.
        listeners: the limits of single listeners, by name.
        protected: the listener that has no part in the limits of the broker; None for none.
        key: the configuration key of `connections`.
    """

    connections: int = UNLIMITED
    rate: int = UNLIMITED
    per_ip: int = UNLIMITED
    overrides: Mapping[str, int] = field(default_factory=dict)
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected: str | None = None
    key: str = "max.connections"


def canonical(address: str) -> str:
    """An address as it is compared: in its short form, that of IPv4 if it is one in IPv6. Names stay as they are."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


class ConnectionQuotas:
    """Counts connections, and decides on new ones.

    Args:
        limits: the limits.
        window: how rates are measured.

    Attributes:
        limits: the limits.
        total: connections that are open, or wait.
        delayed: how often a connection had to wait for a rate.
    """

    def __init__(self, limits: ConnectionLimits, window: Window) -> None:
        self.limits = limits
        self.total = 0
        self.delayed = 0
        self._window = window
        self._by_address: dict[str, int] = {}
        self._by_listener: dict[str, int] = {}
        self._created = Rate()
        self._created_on: dict[str, Rate] = {}
        #: The quotas of addresses; "" for all others.
        self._rates: dict[str, float] = {}
        self._created_from: Kept[str, Rate] = Kept(MOST)
        self._created_from_others = Rate()

    def set(self, entity: QuotaEntity, key: str, limit: float | None) -> None:
        """A quota was set; with None, it was removed. Those of users and clients are not for connections."""
        names = dict(entity)
        if IP not in names or key != QuotaKey.CONNECTION_CREATION_RATE:
            return
        address = canonical(names[IP] or "")
        if limit is None:
            self._rates.pop(address, None)
        else:
            self._rates[address] = limit
        if not self._rates:
            self._created_from.clear()

    def open(self, listener: str, address: str, now: float) -> Admitted | RefusedSocket:
        """Decide on a connection. One that is admitted counts until :meth:`close`."""
        limits = self.limits
        own = limits.listeners.get(listener, ListenerLimits())
        protected = listener == limits.protected
        if not protected and self.total >= limits.connections:
            return RefusedSocket(f"{limits.key}={limits.connections}", full=ALL)
        if self._by_listener.get(listener, 0) >= own.connections:
            return RefusedSocket(f"listener.name.{listener.lower()}.max.connections={own.connections}", full=listener)
        most = limits.overrides.get(canonical(address), limits.per_ip) if limits.overrides else limits.per_ip
        if self._by_address.get(address, 0) >= most:
            return RefusedSocket(f"max.connections.per.ip={most}")
        if self._rates and (wait := self._from(canonical(address), now)) > 0:
            self.delayed += 1
            return RefusedSocket("the quota connection_creation_rate of its address", wait)
        wait = 0.0
        if own.rate < UNLIMITED:
            wait = self._record(self._created_on.setdefault(listener, Rate()), own.rate, now)
        if not protected and limits.rate < UNLIMITED:
            wait = max(wait, self._record(self._created, limits.rate, now))
        self.delayed += wait > 0
        self.total += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        self._by_listener[listener] = self._by_listener.get(listener, 0) + 1
        return Admitted(wait)

    def close(self, listener: str, address: str) -> None:
        """A connection that was admitted is closed."""
        self.total -= 1
        for counts, key in ((self._by_address, address), (self._by_listener, listener)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    @property
    def exceeded(self) -> bool:
        """Whether a connection of another listener has to be closed, because one of a broker was admitted."""
        return self.limits.protected is not None and self.total > self.limits.connections

    def tick(self, now: float) -> None:
        """Forget addresses whose connections no longer count. To be called about once a second."""
        self._created_from.forget(now, lambda rate: rate.idle(self._window, now))

    def _from(self, address: str, now: float) -> float:
        """Count a connection from an address; the seconds that it has to wait, and then it does not count."""
        limit = self._rates.get(address) or self._rates.get("", math.inf)
        if limit >= UNLIMITED:
            return 0.0
        rate = self._created_from.use(address, now, Rate) or self._created_from_others
        wait = self._record(rate, limit, now)
        if wait > 0:
            rate.record(self._window, -1, now)
            self._created_from.hold(address, now + wait)
        return wait

    def _record(self, rate: Rate, limit: float, now: float) -> float:
        rate.record(self._window, 1, now)
        return min(rate.wait(self._window, limit, now), self._window.seconds) if limit > 0 else self._window.seconds
