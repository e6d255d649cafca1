"""Topics, brokers, transactions and ACLs of any cluster as JSON, in the shapes of the broker's endpoint. Pure.

What no API of Kafka tells is None, and `notes` say why something is missing that this client could have asked for: a
page never shows a zero for what is not known.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas_broker.http.json_rows import MOST_ACLS, acl_row, partition_row, topic_row
from barnabas_client.admin.acls import AclBinding
from barnabas_client.admin.types import (
    BrokerLogDirs,
    ClusterDescription,
    ConfigEntry,
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
)
from barnabas_client.network.metadata import TopicInfo
from barnabas_client.structs import TopicPartition
from barnabas_protocol.acls import AclPatternType

#: Open transactions, blocked partitions, and partitions of a transaction that are shown.
MOST_OPEN: Final = 1_000
MOST_BLOCKED: Final = 1_000
_MOST_PARTITIONS: Final = 200
#: States of transactions that are not over.
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")

Offsets = Mapping[TopicPartition, int]


class Known(NamedTuple):
    """Offsets and sizes of partitions, as their brokers report them.

    Attributes:
        starts: the log start offsets; without those that are not known, as in the other two.
        stables: the last stable offsets.
        ends: the high watermarks.
        sizes: of the leader's replica, in bytes.
    """

    starts: Offsets
    stables: Offsets
    ends: Offsets
    sizes: Mapping[TopicPartition, int]


def sizes_of(topics: Iterable[TopicInfo], log_dirs: Iterable[BrokerLogDirs]) -> dict[TopicPartition, int]:
    """The size of each partition: that of its leader's replica."""
    leaders = {
        TopicPartition(topic.name, number): each.leader for topic in topics for number, each in topic.partitions.items()
    }
    return {
        tp: size
        for broker in log_dirs
        for directory in broker.log_dirs
        for tp, size in directory.sizes.items()
        if leaders.get(tp) == broker.node_id
    }


def topics(described: Sequence[TopicInfo], known: Known, *, time_ms: int, notes: Sequence[str] = ()) -> dict[str, Any]:
    """``/topics``: a summary of every topic."""
    rows = [topic_row(each.name, _partitions(each, known), internal=each.internal, configs=None) for each in described]
    return {"cluster": True, "time": time_ms, "node_id": None, "notes": list(notes), "topics": rows}


def one_topic(
    described: TopicInfo,
    known: Known,
    configs: Iterable[ConfigEntry],
    *,
    time_ms: int,
    shows_records: bool,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """``/topics/{topic}``: a topic with its configuration and partitions."""
    return {
        "cluster": True,
        "topic": described.name,
        "topic_id": described.id.hex() if any(described.id) else None,
        "internal": described.internal,
        "time": time_ms,
        "node_id": None,
        "shows_records": shows_records,
        "configs": [
            {"name": each.name, "value": each.value, "source": each.source.name, "default": each.is_default}
            for each in sorted(configs, key=lambda each: each.name)
        ],
        "notes": list(notes),
        "partitions": _partitions(described, known),
    }


def _partitions(topic: TopicInfo, known: Known) -> list[dict[str, Any]]:
    rows = []
    for number, info in sorted(topic.partitions.items()):
        tp = TopicPartition(topic.name, number)
        rows.append(
            partition_row(
                number,
                info.leader,
                info.leader_epoch,
                info.replicas,
                info.isr,
                start=known.starts.get(tp),
                stable=known.stables.get(tp),
                end=known.ends.get(tp),
                size=known.sizes.get(tp),
            )
        )
    return rows


def brokers(
    cluster: ClusterDescription,
    described: Iterable[TopicInfo],
    log_dirs: Iterable[BrokerLogDirs],
    reasons: Mapping[int, str],
    *,
    time_ms: int,
) -> dict[str, Any]:
    """``/brokers``: the brokers of the cluster, with their log directories.

    Args:
        cluster: its brokers.
        described: its topics.
        log_dirs: of the brokers that answered.
        reasons: why the log directories of a broker are not known, by node id.
        time_ms: the time of day, in ms since 1970.
    """
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    behind: dict[int, int] = {}
    for topic in described:
        for info in topic.partitions.values():
            leads[info.leader] = leads.get(info.leader, 0) + 1
            for node in info.replicas:
                replicas[node] = replicas.get(node, 0) + 1
                if node not in info.isr:
                    behind[node] = behind.get(node, 0) + 1
    known = {each.node_id: each.log_dirs for each in log_dirs if each.error is None}
    live = {each.node_id: each for each in cluster.brokers}
    rows = []
    for node_id in sorted(live.keys() | replicas.keys()):
        broker = live.get(node_id)
        rows.append(
            {
                "node_id": node_id,
                "live": broker is not None,
                "address": None if broker is None else f"{broker.host}:{broker.port}",
                "rack": None if broker is None else broker.rack,
                "controller": node_id == cluster.controller_id,
                "leads": leads.get(node_id, 0),
                "replicas": replicas.get(node_id, 0),
                "not_in_sync": behind.get(node_id, 0),
                "reason": reasons.get(node_id),
                "log_directories": [
                    {
                        "path": each.path,
                        "failure": None if each.error is None else str(each.error),
                        "replicas": len(each.sizes),
                        "size": sum(each.sizes.values()),
                        # Brokers before Kafka 3.3 do not tell (KIP-827).
                        "disk_bytes": each.total_bytes if each.total_bytes >= 0 else None,
                        "disk_free_bytes": each.usable_bytes if each.usable_bytes >= 0 else None,
                    }
                    for each in known[node_id]
                ]
                if node_id in known
                else None,
            }
        )
    return {
        "cluster": True,
        "time": time_ms,
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "offline": leads.get(-1, 0),
        "brokers": rows,
    }


def transactions(
    listed: Sequence[TransactionListing],
    described: Iterable[TransactionDescription],
    blocked: Mapping[TopicPartition, tuple[int, int]],
    producers: Mapping[TopicPartition, PartitionProducers],
    *,
    time_ms: int,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """``/transactions``: the open transactions, the oldest first, and the partitions whose records wait for them.

    Args:
        listed: all transactional ids.
        described: those that are open.
        blocked: the last stable offset and the end of each partition in which these differ.
        producers: of such partitions.
        time_ms: the time of day, in ms since 1970.
        notes: why something is not known.
    """
    known = [each for each in described if each.error is None and each.state in OPEN_STATES]
    known.sort(key=lambda each: each.start_time_ms or 0)
    by_producer = {each.producer_id: each.transactional_id for each in listed}
    return {
        "cluster": True,
        "time": time_ms,
        "node_id": None,
        "notes": list(notes),
        "transactional_ids": len(listed),
        "loading": False,
        "open_count": len(known),
        "open": [
            {
                "transactional_id": each.transactional_id,
                "state": each.state,
                "client": None,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "start_ms": each.start_time_ms,
                "updated_ms": None,
                "timeout_ms": each.timeout_ms,
                "partition_count": len(each.partitions),
                "partitions": _by_topic(sorted(each.partitions)[:_MOST_PARTITIONS]),
            }
            for each in known[:MOST_OPEN]
        ],
        "blocked": [
            _blocked(tp, stable, end, producers.get(tp), by_producer)
            for tp, (stable, end) in sorted(blocked.items())[:MOST_BLOCKED]
        ],
    }


def _blocked(
    tp: TopicPartition, stable: int, end: int, producers: PartitionProducers | None, by_producer: Mapping[int, str]
) -> dict[str, Any]:
    remembered = () if producers is None or producers.error is not None else producers.producers
    waiting = [each for each in remembered if each.transaction_start_offset is not None]
    first = next((each for each in waiting if each.transaction_start_offset == stable), None)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "stable": stable,
        "end": end,
        "records": end - stable,
        "open": len(waiting),
        "producer": None
        if first is None
        else {
            "producer_id": first.producer_id,
            "transactional_id": by_producer.get(first.producer_id),
            "last_write_ms": first.last_timestamp_ms,
        },
        # Without its producers it is not known what a partition waits for.
        "producers_known": producers is not None and producers.error is None,
    }


def acls(found: Sequence[AclBinding], *, authorizer: bool, reason: str | None = None) -> dict[str, Any]:
    """``/acls``: the ACLs of the cluster.

    Args:
        found: all of them.
        authorizer: whether the brokers have an authorizer; without one there are no ACLs.
        reason: why ACLs are not known; None if they are.
    """
    return {
        "cluster": True,
        "authorizer": authorizer,
        # No API tells them.
        "super_users": None,
        "allow_everyone": None,
        "reason": reason,
        "count": len(found),
        "acls": [
            acl_row(
                each.permission_type.name,
                each.principal,
                each.host,
                each.operation.name,
                each.resource_type.name,
                each.resource_name,
                prefixed=each.pattern_type is AclPatternType.PREFIXED,
            )
            for each in found[:MOST_ACLS]
        ],
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found
