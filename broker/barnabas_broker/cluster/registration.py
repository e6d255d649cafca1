"""What a broker writes about itself where all can see it, bound to its lease."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from barnabas_broker.cluster.image import BrokerInfo, Endpoints
from barnabas_broker.cluster.kv import Change, Entry
from barnabas_broker.cluster.store import UNREADABLE, endpoints_from_json


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker that lives, or the controller.

    Attributes:
        node_id: its id.
        endpoints: where clients and brokers reach it.
        rack: where it stands, if it says so.
        incarnation: a name that no other process has.
        directory: which data directory it has locked.
        leaving: whether it is shutting down, and wants no partitions any more.
        epoch: the revision that made the registration; -1 until it is made. It is not part of what is written.
    """

    node_id: int
    endpoints: Endpoints
    rack: str | None
    incarnation: str
    directory: str
    leaving: bool = False
    epoch: int = -1

    @property
    def info(self) -> BrokerInfo:
        """The broker as the image knows it."""
        return BrokerInfo(self.node_id, self.endpoints, self.rack, self.epoch)

    def to_json(self) -> bytes:
        """What is written."""
        fields = asdict(self)
        del fields["epoch"]
        return json.dumps(fields, separators=(",", ":")).encode()


def read_registration(entry: Entry | Change) -> Registration | None:
    """Read what a broker wrote; None if it is gone, or nothing that a broker writes."""
    if entry.value is None:
        return None
    try:
        fields = json.loads(entry.value)
        found = Registration(
            int(fields["node_id"]),
            endpoints_from_json(fields),
            None if fields["rack"] is None else str(fields["rack"]),
            str(fields["incarnation"]),
            str(fields["directory"]),
            bool(fields["leaving"]),
        )
    except UNREADABLE:
        return None
    return replace(found, epoch=entry.created)


class Living:
    """Who lives, as the keys below a prefix tell: ``broker/ID`` and ``controller``.

    Args:
        prefix: of the keys.
    """

    def __init__(self, prefix: str) -> None:
        self.controller_key = f"{prefix}controller"
        self.broker_prefix = f"{prefix}broker/"
        self.brokers: dict[str, Registration] = {}
        self.controller: Registration | None = None

    def broker_key(self, node_id: int) -> str:
        """Where a broker registers."""
        return f"{self.broker_prefix}{node_id}"

    def listed(self, entries: Iterable[Entry]) -> None:
        """Take note of all keys there are."""
        self.brokers.clear()
        self.controller = None
        self.changed(entries)

    def changed(self, entries: Iterable[Entry | Change]) -> None:
        """Take note of keys that changed."""
        for entry in entries:
            found = read_registration(entry)
            if entry.key == self.controller_key:
                self.controller = found
            elif found is None:
                self.brokers.pop(entry.key, None)
            elif entry.key == self.broker_key(found.node_id):
                self.brokers[entry.key] = found

    def members(self) -> dict[int, BrokerInfo]:
        """The brokers that are there to have partitions, by node id."""
        return {each.node_id: each.info for each in self.brokers.values() if not each.leaving}
