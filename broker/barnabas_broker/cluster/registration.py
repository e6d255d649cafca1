"""Registrations of brokers in etcd, attached to their leases."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from barnabas_broker.cluster.event_json import UNREADABLE, endpoints_from_json, intact_from_json
from barnabas_broker.cluster.image import NOT_INTACT, BrokerInfo, Endpoints
from barnabas_broker.cluster.kv import KeyChange, KeyEntry

#: The most replicas that a registration names: about 60 KB. If more have lost records, all replicas of the broker
#: count as such.
MOST_LOST: Final = 2000


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of a broker, or of the controller.

    Attributes:
        node_id: of the broker.
        endpoints: its advertised addresses.
        rack: its rack, if configured.
        incarnation: a unique name of the process.
        directory: the id of its data directory, which it has locked.
        leaving: the broker shuts down and must not get partitions.
        intact: the broker epochs since which the directory has lost nothing, see :class:`.BrokerInfo`.
        lost: the replicas that have lost records nevertheless, by topic id and partition.
        epoch: the broker epoch: the create revision of the key; -1 before. Not part of the JSON.
    """

    node_id: int
    endpoints: Endpoints
    rack: str | None
    incarnation: str
    directory: str
    leaving: bool = False
    intact: tuple[int, int] = NOT_INTACT
    lost: tuple[tuple[bytes, int], ...] = ()
    epoch: int = -1

    @property
    def info(self) -> BrokerInfo:
        """The broker as it is in the image."""
        return BrokerInfo(self.node_id, self.endpoints, self.rack, self.epoch, self.directory, self.intact)

    def to_json(self) -> bytes:
        """The value of the registration's key."""
        fields = asdict(self)
        del fields["epoch"]
        by_topic: dict[str, list[int]] = {}
        for topic_id, partition in self.lost:
            by_topic.setdefault(topic_id.hex(), []).append(partition)
        fields["lost"] = by_topic
        return json.dumps(fields, separators=(",", ":")).encode()


def read_registration(entry: KeyEntry | KeyChange) -> BrokerRegistration | None:
    """Parse a registration; None if the key was deleted or its value is not one."""
    if entry.value is None:
        return None
    try:
        fields = json.loads(entry.value)
        found = BrokerRegistration(
            int(fields["node_id"]),
            endpoints_from_json(fields),
            None if fields["rack"] is None else str(fields["rack"]),
            str(fields["incarnation"]),
            str(fields["directory"]),
            bool(fields["leaving"]),
            intact_from_json(fields),
            _lost_from_json(fields),
        )
    except UNREADABLE:
        return None
    return replace(found, epoch=entry.created)


def _lost_from_json(fields: Mapping[str, Any]) -> tuple[tuple[bytes, int], ...]:
    """Read the replicas that have lost records; earlier versions do not write any.

    Raises:
        ValueError, TypeError: they are not valid.
    """
    return tuple(
        (bytes.fromhex(topic_id), int(partition))
        for topic_id, partitions in dict(fields.get("lost", {})).items()
        for partition in partitions
    )


class LiveBrokers:
    """The registered brokers and the controller, from the keys below a prefix: ``broker/ID`` and ``controller``.

    Args:
        prefix: of the keys.
    """

    def __init__(self, prefix: str) -> None:
        self.controller_key = f"{prefix}controller"
        self.broker_prefix = f"{prefix}broker/"
        self.brokers: dict[str, BrokerRegistration] = {}
        self.controller: BrokerRegistration | None = None

    def broker_key(self, node_id: int) -> str:
        """The key of a broker's registration."""
        return f"{self.broker_prefix}{node_id}"

    def listed(self, entries: Iterable[KeyEntry]) -> None:
        """Apply a list of all keys."""
        self.brokers.clear()
        self.controller = None
        self.changed(entries)

    def changed(self, entries: Iterable[KeyEntry | KeyChange]) -> None:
        """Apply changed keys."""
        for entry in entries:
            found = read_registration(entry)
            if entry.key == self.controller_key:
                self.controller = found
            elif found is None:
                self.brokers.pop(entry.key, None)
            elif entry.key == self.broker_key(found.node_id):
                self.brokers[entry.key] = found

    def available(self) -> dict[int, BrokerInfo]:
        """The brokers that may have partitions, by node id: those that are not shutting down."""
        return {each.node_id: each.info for each in self.brokers.values() if not each.leaving}

    def lost(self) -> dict[int, frozenset[tuple[bytes, int]]]:
        """The replicas that have lost records, by node id: topic id and partition of each."""
        return {each.node_id: frozenset(each.lost) for each in self.brokers.values() if each.lost}

    def leaving(self) -> set[int]:
        """The node ids of the registered brokers that are shutting down."""
        return {each.node_id for each in self.brokers.values() if each.leaving}
