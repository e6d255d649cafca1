"""The stored form of an event: one line of JSON. Old forms stay readable."""

import json
from collections.abc import Mapping
from typing import Any, Final

from barnabas_broker.cluster import image, users
from barnabas_broker.cluster.acls import (
    ACL_EVENTS,
    AclCreated,
    AclDeleted,
    acl_event_from_fields,
    acl_event_to_fields,
)
from barnabas_broker.cluster.image import Endpoints, Event, LastKnown, PartitionInfo
from barnabas_broker.cluster.quotas import (
    QUOTA_EVENTS,
    ClientQuotaRemoved,
    ClientQuotaSet,
    quota_event_from_fields,
    quota_event_to_fields,
)
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.config import PLAINTEXT

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
        image.GroupConfigured,
        image.ClientMetricsConfigured,
        image.ProducerIdsAllocated,
    )
}


#: Events whose fields have a form of their own.
_OF_USERS: Final = (users.ScramCredentialSet, users.ScramCredentialDeleted, users.ScramSecretSet)
_NAMES_OF_USERS: Final = frozenset(each.__name__ for each in _OF_USERS)
_TYPES: Final[dict[str, Any]] = {
    "node_id": int,
    "epoch": int,
    "index": int,
    "next_id": int,
    "name": str,
    "rack": str | None,
    "directory": str,
    "stopped": bool,
    "configs": dict,
}
_SOME_ID: Final = bytes(16)
#: Errors of reading untrusted JSON: it may hold infinite numbers, or brackets nested without end.
UNREADABLE: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)


def event_to_json(event: Event) -> str:
    """One line of JSON: the event's name under "event", its fields beside it."""
    fields: dict[str, Any] = {"event": type(event).__name__}
    if isinstance(event, _OF_USERS):
        return json.dumps(fields | users.fields_to_json(event), separators=(",", ":"))
    if isinstance(event, AclCreated | AclDeleted):
        return json.dumps(fields | acl_event_to_fields(event), separators=(",", ":"))
    if isinstance(event, ClientQuotaSet | ClientQuotaRemoved):
        return json.dumps(fields | quota_event_to_fields(event), separators=(",", ":"))
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
    fields = [p.leader, p.leader_epoch, p.replicas, p.isr, p.partition_epoch, p.adding, p.removing]
    return [*fields, p.elr, p.last_known] if p.elr or p.last_known else fields


def _partition_from_json(p: list[Any]) -> PartitionInfo:
    # Single brokers once wrote only the first four fields; most partitions have no eligible or last known replicas.
    partition_epoch, adding, removing = p[4:7] or (0, (), ())
    elr, last_known = p[7:] or ((), ())
    info = PartitionInfo(
        p[0],
        p[1],
        tuple(p[2]),
        tuple(p[3]),
        partition_epoch,
        tuple(adding),
        tuple(removing),
        tuple(elr),
        tuple(LastKnown(*each) for each in last_known),
    )
    numbers = [info.leader, info.leader_epoch, partition_epoch, *info.replicas, *info.isr, *info.adding, *info.removing]
    numbers += info.elr
    for each in info.last_known:
        numbers += each.node_id, each.epoch, each.end
    if not all(isinstance(number, int) for number in numbers) or not all(
        isinstance(each.directory, str) and isinstance(each.damaged, bool) for each in info.last_known
    ):
        raise TypeError(f"partition {p}")
    return info


def _check(fields: Mapping[str, Any]) -> None:
    """Check the types of an event's fields."""
    for name, value in fields.items():
        if not isinstance(value, _TYPES.get(name, object)):
            raise TypeError(f"{name} is {value!r}")
    configs = fields.get("configs", {})
    if not all(isinstance(value, str) for value in configs.values()):
        raise TypeError(f"configs are {configs}")
    if len(fields.get("topic_id", _SOME_ID)) != len(_SOME_ID):
        raise ValueError(f"topic id {fields['topic_id']!r}")


def endpoints_from_json(fields: dict[str, Any]) -> Endpoints:
    """Read a broker's endpoints.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, OverflowError: they are missing or not valid.
    """
    given = fields["endpoints"]
    endpoints = {str(name): (str(host), int(port)) for name, (host, port) in given.items()}
    if not endpoints or not all(0 <= port <= 65535 for _, port in endpoints.values()):
        raise ValueError(f"endpoints {given}")
    return endpoints


def intact_from_json(fields: Mapping[str, Any]) -> tuple[int, int]:
    """Read the range of broker epochs since which nothing was lost; earlier versions do not write one.

    Raises:
        ValueError, TypeError: it is not valid.
    """
    first, last = fields.get("intact", image.NOT_INTACT)
    if not isinstance(first, int) or not isinstance(last, int):
        raise TypeError(f"intact is {fields['intact']!r}")
    return first, last


def event_from_json(line: str) -> Event:
    """Read what :func:`event_to_json` wrote.

    Raises:
        StoreError: the line is not an event.
    """
    try:
        fields = json.loads(line)
        name = fields.pop("event")
        if name in _NAMES_OF_USERS:
            return users.event_from_fields(name, fields)
        if name in ACL_EVENTS:
            return acl_event_from_fields(name, fields)
        if name in QUOTA_EVENTS:
            return quota_event_from_fields(name, fields)
        cls = _EVENTS[name]
        if "partitions" in fields:
            fields["partitions"] = tuple(_partition_from_json(p) for p in fields["partitions"])
        if "partition" in fields:
            fields["partition"] = _partition_from_json(fields["partition"])
        if "topic_id" in fields:
            fields["topic_id"] = bytes.fromhex(fields["topic_id"])
        if "intact" in fields:
            fields["intact"] = intact_from_json(fields)
        if cls is image.BrokerRegistered:
            # Before there were several listeners a broker had one address.
            if "host" in fields:
                fields["endpoints"] = {PLAINTEXT: [fields.pop("host"), fields.pop("port")]}
            fields["endpoints"] = endpoints_from_json(fields)
        _check(fields)
        event: Event = cls(**fields)
        return event
    except UNREADABLE as error:
        # Of an event of a user, the text may have a key.
        start = "" if "Scram" in line[:80] else f" {line[:80]!r}"
        raise StoreError(f"not an event:{start} ({error})") from error
