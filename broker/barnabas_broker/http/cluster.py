"""The cluster as JSON: brokers, topics and ACLs.

A broker has its requests, its process, its log directory, and its place in the cluster; a topic its configuration, and
partitions with offsets, sizes, leaders and replicas.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from barnabas_broker.cluster.image import Image, PartitionInfo, TopicInfo
from barnabas_broker.config import TOPIC_KEYS, ConfigSource, TopicConfig, show
from barnabas_broker.config.keys import ALLOW_EVERYONE_IF_NO_ACL_FOUND, AUTHORIZER_CLASS_NAME, SUPER_USERS
from barnabas_broker.http.json_rows import MOST_ACLS, acl_row, partition_row, topic_row
from barnabas_broker.http.process import LoopLag, cpu_seconds, resident_bytes
from barnabas_broker.http.text import PIECE, listing
from barnabas_broker.http.view import View
from barnabas_broker.metrics import ApiMetrics, Histogram
from barnabas_broker.security.authorizer import parse_super_users
from barnabas_broker.storage import Log
from barnabas_protocol.acls import AclPatternType
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import INTERNAL_TOPICS

#: Why ACLs are not shown.
HIDDEN: Final = (
    "ACLs are not shown, because this port is open to other machines, or a listener has TLS or logins. To do: open "
    "them with barnabas console as a user who may describe the cluster, or start the broker with --http-show-records "
    "if everyone who can reach the port may read them and all topics"
)


def one_broker(view: View, lag: LoopLag, disk: tuple[int, int] | None) -> Iterator[str]:
    """``/broker``: this broker, in pieces: the event loop gets a turn between slices of its partitions.

    Counters count from its start; a reader who asks twice has the rates.

    Args:
        view: the broker's parts.
        lag: of the event loop.
        disk: bytes of the disk of the log directory, in all and free; None if they are not known.
    """
    image, traffic, directory = view.cluster.image, view.server.traffic, view.directory
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for topic in image.topics.values():
        for number, info in enumerate(topic.partitions, 1):
            leads[info.leader] += 1
            replicas.update(info.replicas)
            if number % PIECE == 0:
                yield ""
        yield ""
    size = damaged = 0
    for number, each in enumerate(list(directory.logs.values()), 1):
        size += each.size
        damaged += sum(bad.records for bad in each.damage)
        if number % PIECE == 0:
            yield ""
    made = {
        "node_id": view.node_id,
        "version": view.version,
        "time": view.wall_ms(),
        "clock": time.monotonic(),
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "brokers": [
            {
                "node_id": each.node_id,
                "address": each.address,
                "rack": each.rack,
                "leads": leads[each.node_id],
                "replicas": replicas[each.node_id],
            }
            for each in image.brokers.values()
        ],
        "membership": view.member(),
        "obstacles": view.obstacles(),
        "conditions": [
            {"condition": each.name.value, "text": each.text, "ready": each.ready} for each in view.conditions.now()
        ],
        "requests": [_api(each) for each in view.requests],
        "connections": {
            "open": view.server.connections,
            "accepted": traffic.accepted,
            "refused": traffic.refused,
            "dropped": traffic.dropped,
        },
        "bytes_in": traffic.bytes_in,
        "bytes_out": traffic.bytes_out,
        "resident_bytes": resident_bytes(),
        "cpu_seconds": cpu_seconds(),
        "loop_lag": histogram(lag.lag),
        "log_directory": {
            "path": str(directory.path.absolute()),
            "failure": directory.failure,
            "shortage": directory.shortage,
            "partitions": len(directory.logs),
            "size": size,
            "disk_bytes": None if disk is None else disk[0],
            "disk_free_bytes": None if disk is None else disk[1],
            "damaged_records": damaged,
            "strays": len(directory.strays),
        },
    }
    yield json.dumps(made)


def disk_of(path: Path) -> tuple[int, int] | None:
    """Bytes of the disk that a directory is on, in all and free; None if the system does not say. May take long."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return usage.total, usage.free


def _api(each: ApiMetrics) -> dict[str, Any]:
    errors = {ErrorCode.of(code).name: count for code, count in each.errors.items()}
    return {"api": each.name, "errors": errors, "latency": histogram(each.latency)}


def histogram(counted: Histogram) -> dict[str, Any]:
    """Observations: the upper `bounds` of buckets in seconds, `counts` with one more for all above, and the `total`."""
    return {"bounds": list(counted.bounds), "counts": list(counted.counts), "total": round(counted.total, 6)}


def all_topics(view: View) -> Iterator[str]:
    """``/topics``: a summary of every topic. Offsets and sizes are those of the partitions that this broker leads."""
    image = view.cluster.image
    return listing({"time": view.wall_ms(), "node_id": view.node_id}, "topics", _rows(view, image))


def _rows(view: View, image: Image) -> Iterator[dict[str, Any] | None]:
    for name, topic in image.topics.items():
        rows = []
        for number, info in enumerate(topic.partitions):
            rows.append(_partition(number, info, view.log(name, number)))
            if number % PIECE == PIECE - 1:
                yield None
        yield topic_row(name, rows, internal=name in INTERNAL_TOPICS, configs=len(topic.configs))


def one_topic(view: View, topic: TopicInfo) -> Iterator[str]:
    """``/topics/{topic}``: a topic with its configuration and partitions."""
    config = TopicConfig(view.config, topic.configs, TOPIC_KEYS)
    configs = []
    for key in TOPIC_KEYS.values():
        value, source = config.explain(key)
        shown = None if key.secret else show(value)
        default = source is ConfigSource.DEFAULT_CONFIG
        configs.append({"name": key.name, "value": shown, "source": source.name, "default": default})
    head = {
        "topic": topic.name,
        "topic_id": topic.topic_id.hex(),
        "internal": topic.name in INTERNAL_TOPICS,
        "time": view.wall_ms(),
        "node_id": view.node_id,
        "shows_records": view.shows_records,
        "configs": configs,
    }
    partitions = (
        _partition(number, info, view.log(topic.name, number)) for number, info in enumerate(topic.partitions)
    )
    return listing(head, "partitions", partitions)


def _partition(number: int, info: PartitionInfo, log: Log | None) -> dict[str, Any]:
    """A partition; its offsets and its size are null if another broker leads it."""
    row = partition_row(number, info.leader, info.leader_epoch, info.replicas, info.isr)
    if log is not None:
        row["start"], row["stable"], row["end"] = log.log_start_offset, log.last_stable_offset, log.high_watermark
        row["size"] = log.size
    return row


def all_acls(view: View) -> Iterator[str]:
    """``/acls``: the ACLs of the cluster, and who needs none. Without an authorizer there are none."""
    authorizer = bool(view.config[AUTHORIZER_CLASS_NAME])
    shown = authorizer and view.shows_records
    acls = view.cluster.image.acls if shown else {}
    super_users = sorted(parse_super_users(view.config[SUPER_USERS]))
    head: dict[str, Any] = {
        "authorizer": authorizer,
        "super_users": super_users if shown else None,
        "allow_everyone": view.config[ALLOW_EVERYONE_IF_NO_ACL_FOUND] if shown else None,
        "reason": HIDDEN if authorizer and not shown else None,
        "count": len(acls),
    }
    # Another change of the ACLs makes another mapping: this one stays what it is.
    rows = (
        acl_row(
            each.permission.name,
            each.principal,
            each.host,
            each.operation.name,
            each.resource_type.name,
            each.resource_name,
            prefixed=each.pattern_type is AclPatternType.PREFIXED,
        )
        for each in islice(acls, MOST_ACLS)
    )
    return listing(head, "acls", rows)
