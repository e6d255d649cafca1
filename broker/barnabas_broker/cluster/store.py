"""Where the cluster's events are kept: the port, and how an event is written."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from barnabas_broker.cluster import ClusterError, image
from barnabas_broker.cluster.image import Endpoints, Event, PartitionInfo
from barnabas_broker.config import PLAINTEXT


class StoreError(ClusterError):
    """Events that cannot be kept or read; the text says where and why."""


class StoreUnavailable(StoreError):
    """The store does not answer. Whether events were kept is not known; if they were, the watch brings them."""


class StoreFenced(StoreError):
    """This broker may not write: its registration, or its being the controller, is over."""


class Loaded(NamedTuple):
    """Everything that is kept: events that make the image out of an empty one.

    Attributes:
        sequence: the number of the last batch that they hold.
        events: in their order.
    """

    sequence: int
    events: Sequence[Event]


class Batch(NamedTuple):
    """Events that were kept together, in one step: the batch after `sequence` - 1."""

    sequence: int
    events: Sequence[Event]


class MetadataStore(Protocol):
    """Keeps batches of events, numbered without a gap. Several brokers may share one."""

    async def load(self) -> Loaded:
        """Every event that was kept.

        Raises:
            StoreError: what is there cannot be read.
        """

    async def append(self, events: Sequence[Event], expected: int, *, as_controller: bool = False) -> bool:
        """Keep events as the batch after `expected`; all of them, or none.

        Args:
            events: at least one.
            expected: the number of the batch that they were decided on.
            as_controller: only if this broker is the controller.

        Returns:
            Whether they are kept; if not, somebody else was first, and the watch brings it.

        Raises:
            StoreUnavailable: it is not known whether they are kept.
            StoreFenced: this broker may not write.
            StoreError: they are not kept.
        """

    async def newest(self) -> int:
        """The number of the last batch that is kept, whoever wrote it.

        Raises:
            StoreError: nobody knows at present.
        """

    def watch(self) -> AsyncIterator[Batch | Loaded]:
        """Batches after the last load, as they come, for ever, whatever happens to connections. This broker's own
        may be among them. What was missed for too long comes as everything (`Loaded`).

        Raises:
            StoreError: what is there cannot be read.
        """

    async def close(self) -> None:
        """Let go of what is held."""


_EVENTS: Final[dict[str, type[Any]]] = {
    cls.__name__: cls
    for cls in (
        image.BrokerRegistered,
        image.BrokerFenced,
        image.ControllerElected,
        image.PartitionChanged,
        image.TopicCreated,
        image.TopicDeleted,
        image.PartitionsAdded,
        image.TopicConfigured,
        image.BrokerConfigured,
        image.ProducerIdsAllocated,
    )
}


_TYPES: Final[dict[str, Any]] = {
    "node_id": int,
    "epoch": int,
    "index": int,
    "next_id": int,
    "name": str,
    "rack": str | None,
    "configs": dict,
}
_SOME_ID: Final = bytes(16)
#: What reading JSON that somebody else wrote may raise. Numbers may be infinite, brackets nested without end.
UNREADABLE: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)


def event_to_json(event: Event) -> str:
    """One line of JSON: the event's name under "event", its fields beside it."""
    fields: dict[str, Any] = {"event": type(event).__name__}
    for name in type(event).__slots__:
        value = getattr(event, name)
        if name == "partitions":
            value = [_partition_to_json(p) for p in value]
        elif name == "partition":
            value = _partition_to_json(value)
        elif name == "topic_id":
            value = value.hex()
        elif name in ("configs", "endpoints"):
            value = dict(value)
        fields[name] = value
    return json.dumps(fields, separators=(",", ":"))


def _partition_to_json(p: PartitionInfo) -> list[Any]:
    return [p.leader, p.leader_epoch, p.replicas, p.isr, p.partition_epoch, p.adding, p.removing]


def _partition_from_json(p: list[Any]) -> PartitionInfo:
    # A journal that a single broker wrote before there were several knows the first four only.
    partition_epoch, adding, removing = p[4:] or (0, (), ())
    info = PartitionInfo(p[0], p[1], tuple(p[2]), tuple(p[3]), partition_epoch, tuple(adding), tuple(removing))
    numbers = (info.leader, info.leader_epoch, partition_epoch, *info.replicas, *info.isr, *info.adding, *info.removing)
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError(f"a partition {p}")
    return info


def _check(fields: Mapping[str, Any]) -> None:
    """See that nobody stumbles over the fields of an event later on."""
    for name, value in fields.items():
        if not isinstance(value, _TYPES.get(name, object)):
            raise TypeError(f"{name} is {value!r}")
    configs = fields.get("configs", {})
    if not all(isinstance(value, str) for value in configs.values()):
        raise TypeError(f"configs are {configs}")
    if len(fields.get("topic_id", _SOME_ID)) != len(_SOME_ID):
        raise ValueError(f"topic id {fields['topic_id']!r}")


def endpoints_from_json(fields: dict[str, Any]) -> Endpoints:
    """A broker's addresses, out of the fields that tell of it.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, OverflowError: there are none.
    """
    told = fields["endpoints"]
    endpoints = {str(name): (str(host), int(port)) for name, (host, port) in told.items()}
    if not endpoints or not all(0 <= port <= 65535 for _, port in endpoints.values()):
        raise ValueError(f"endpoints {told}")
    return endpoints


def event_from_json(line: str) -> Event:
    """Read what :func:`event_to_json` wrote.

    Raises:
        StoreError: the line is no event.
    """
    try:
        fields = json.loads(line)
        cls = _EVENTS[fields.pop("event")]
        if "partitions" in fields:
            fields["partitions"] = tuple(_partition_from_json(p) for p in fields["partitions"])
        if "partition" in fields:
            fields["partition"] = _partition_from_json(fields["partition"])
        if "topic_id" in fields:
            fields["topic_id"] = bytes.fromhex(fields["topic_id"])
        if cls is image.BrokerRegistered:
            # A journal that was written before there were several listeners knows one address only.
            if "host" in fields:
                fields["endpoints"] = {PLAINTEXT: [fields.pop("host"), fields.pop("port")]}
            fields["endpoints"] = endpoints_from_json(fields)
        _check(fields)
        event: Event = cls(**fields)
        return event
    except UNREADABLE as error:
        raise StoreError(f"no event: {line[:80]!r} ({error})") from error
