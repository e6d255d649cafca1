"""Conditions of a broker: what is not possible now, why, and what to do about it.

Each part of the broker knows its own conditions; :class:`Conditions` collects them. ``/readyz``, the metric
``barnabas_condition`` and DescribeCluster, which `barnabas cluster status` reads, show the same list.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple


class ConditionName(Enum):
    """The name of a condition in metrics and JSON."""

    #: The broker shuts down.
    STOPPING = "stopping"
    #: There is no space or no descriptor for writes.
    DISK_FULL = "disk_full"
    #: A write or an fsync failed: nothing is written before a restart.
    DISK_OFFLINE = "disk_offline"
    #: Logs of this broker have lost records, or cannot read them.
    RECORDS_LOST = "records_lost"
    #: etcd lacks metadata that this broker has applied.
    METADATA_LOST = "metadata_lost"
    #: etcd does not answer.
    METADATA_UNREACHABLE = "metadata_unreachable"
    #: etcd refuses changes: it is out of space, its members differ, or it does not know this broker's user.
    METADATA_READ_ONLY = "metadata_read_only"
    #: etcd answers, but slowly.
    METADATA_SLOW = "metadata_slow"
    #: The broker is not registered in the cluster.
    NOT_REGISTERED = "not_registered"
    #: The broker is registered, but its lease may have expired, or the cluster has not added it yet.
    LEASE_NOT_RENEWED = "lease_not_renewed"
    #: Partitions of ``__consumer_offsets`` are being loaded.
    OFFSETS_NOT_LOADED = "offsets_not_loaded"


class Condition(NamedTuple):
    """Something that a broker cannot do now.

    Attributes:
        name: its kind.
        text: what is not possible, why, and what to do.
        ready: whether the broker is ready nevertheless: other brokers have the same condition, so that it would not
            help if a load balancer sent clients to them.
    """

    name: ConditionName
    text: str
    ready: bool = False


#: The conditions of a part of the broker, as they are now.
Source = Callable[[], Iterable[Condition]]


class Conditions:
    """The conditions of a broker.

    Attributes:
        stopping: the broker shuts down. What its parts cannot do then follows from that.
    """

    def __init__(self) -> None:
        self.stopping = False
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        """Ask another part."""
        self._sources.append(source)

    def now(self) -> list[Condition]:
        """All conditions, those of the parts that were added first at the beginning."""
        if self.stopping:
            return [Condition(ConditionName.STOPPING, "the broker is shutting down")]
        return [each for source in self._sources for each in source()]
