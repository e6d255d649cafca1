"""A broker as JSON: its requests, its process, its log directory, and its place in the cluster."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas_broker.http.process import LoopLag, cpu_seconds, resident_bytes
from barnabas_broker.http.text import PIECE
from barnabas_broker.http.view import View
from barnabas_broker.metrics import ApiMetrics, Histogram
from barnabas_protocol.errors import ErrorCode


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
