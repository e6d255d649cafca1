"""Topics as JSON: their partitions with offsets, sizes, leaders and replicas, and their configuration."""

from collections.abc import Iterator
from typing import Any

from barnabas_broker.cluster.image import Image, PartitionInfo, TopicInfo
from barnabas_broker.config import TOPIC_KEYS, ConfigSource, TopicConfig, show
from barnabas_broker.http.shapes import partition_row, topic_row
from barnabas_broker.http.text import PIECE, listing
from barnabas_broker.http.view import View
from barnabas_broker.storage import Log
from barnabas_protocol.internal_topics import INTERNAL_TOPICS


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
