"""Rows of the page's JSON that a broker and the console of a cluster make alike. Pure."""

from collections.abc import Sequence
from typing import Any, Final

#: ACLs that a page shows.
MOST_ACLS: Final = 10_000


def partition_row(
    number: int,
    leader: int,
    leader_epoch: int,
    replicas: Sequence[int],
    isr: Sequence[int],
    *,
    start: int | None = None,
    stable: int | None = None,
    end: int | None = None,
    size: int | None = None,
) -> dict[str, Any]:
    """A partition; its offsets and its size in bytes are None where they are not known."""
    return {
        "partition": number,
        "leader": leader,
        "leader_epoch": leader_epoch,
        "replicas": list(replicas),
        "isr": list(isr),
        "start": start,
        "stable": stable,
        "end": end,
        "size": size,
    }


def topic_row(
    name: str, partitions: Sequence[dict[str, Any]], *, internal: bool, configs: int | None
) -> dict[str, Any]:
    """A topic in one row.

    Args:
        name: of the topic.
        partitions: its rows of :func:`partition_row`.
        internal: whether it belongs to the brokers.
        configs: the number of its own configuration values; None if it is not known.
    """
    known = [each for each in partitions if each["end"] is not None and each["start"] is not None]
    sizes = [each["size"] for each in partitions if each["size"] is not None]
    return {
        "topic": name,
        "internal": internal,
        "partitions": len(partitions),
        "known": len(known),
        "replicas": max((len(each["replicas"]) for each in partitions), default=0),
        "under_replicated": sum(len(each["isr"]) < len(each["replicas"]) for each in partitions),
        "offline": sum(each["leader"] < 0 for each in partitions),
        "records": sum(each["end"] - each["start"] for each in known) if known else None,
        "end": sum(each["end"] for each in known) if known else None,
        "size": sum(sizes) if sizes else None,
        "configs": configs,
    }


def acl_row(
    permission: str, principal: str, host: str, operation: str, resource_type: str, resource: str, *, prefixed: bool
) -> dict[str, Any]:
    """An ACL: a principal is allowed or denied an operation on a resource, or on all whose names begin so."""
    return {
        "permission": permission,
        "principal": principal,
        "host": host,
        "operation": operation,
        "resource_type": resource_type,
        "resource": resource,
        "prefixed": prefixed,
    }
