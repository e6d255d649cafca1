"""Where the cluster's events are kept: the port, and how an event is written."""

import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from barnabas_broker.cluster import image
from barnabas_broker.cluster.image import Event, PartitionInfo


class StoreError(Exception):
    """Events that cannot be kept or read; the text says where and why."""


class MetadataStore(Protocol):
    """Keeps events in their order."""

    def load(self) -> list[Event]:
        """Every event that was kept.

        Raises:
            StoreError: what is there cannot be read.
        """

    async def append(self, events: Sequence[Event]) -> None:
        """Keep events; all of them, or none.

        Raises:
            StoreError: they are not kept.
        """

    def close(self) -> None:
        """Let go of what is held."""


_EVENTS: Final[dict[str, type[Any]]] = {
    cls.__name__: cls
    for cls in (
        image.BrokerRegistered,
        image.TopicCreated,
        image.TopicDeleted,
        image.PartitionsAdded,
        image.TopicConfigured,
        image.BrokerConfigured,
        image.ProducerIdsAllocated,
    )
}


def event_to_json(event: Event) -> str:
    """One line of JSON: the event's name under "event", its fields beside it."""
    fields: dict[str, Any] = {"event": type(event).__name__}
    for name in type(event).__slots__:
        value = getattr(event, name)
        if name == "partitions":
            value = [[p.leader, p.leader_epoch, list(p.replicas), list(p.isr)] for p in value]
        elif name == "topic_id":
            value = value.hex()
        elif name == "configs":
            value = dict(value)
        fields[name] = value
    return json.dumps(fields, separators=(",", ":"))


def event_from_json(line: str) -> Event:
    """Read what :func:`event_to_json` wrote.

    Raises:
        StoreError: the line is no event.
    """
    try:
        fields = json.loads(line)
        cls = _EVENTS[fields.pop("event")]
        if "partitions" in fields:
            fields["partitions"] = tuple(
                PartitionInfo(p[0], p[1], tuple(p[2]), tuple(p[3])) for p in fields["partitions"]
            )
        if "topic_id" in fields:
            fields["topic_id"] = bytes.fromhex(fields["topic_id"])
        event: Event = cls(**fields)
        return event
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise StoreError(f"no event: {line[:80]!r} ({error})") from error
