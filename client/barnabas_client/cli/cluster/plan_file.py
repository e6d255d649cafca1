"""Plans as JSON, in the format of kafka-reassign-partitions (``ReassignPartitionsCommand.java``). Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas_client.cli.cluster.placement import Placement
from barnabas_client.structs import TopicPartition

_KEYS: Final = ("topic", "partition", "replicas")


def as_data(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """Convert a plan to JSON data."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": partitions}


def parse(text: str) -> Placement:
    """Read a plan.

    Raises:
        ValueError: it is not valid; the message says where.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("version") != 1 or not isinstance(data.get("partitions"), list):
        raise ValueError('give {"version": 1, "partitions": [...]}')
    plan: Placement = {}
    for at, one in enumerate(data["partitions"]):
        tp, replicas = _partition(f"partitions[{at}]", one)
        if tp in plan:
            raise ValueError(f"partitions[{at}]: {tp} is there twice")
        plan[tp] = replicas
    return plan


def _partition(where: str, one: Any) -> tuple[TopicPartition, tuple[int, ...]]:
    topic, number, replicas = (one.get(key) if isinstance(one, dict) else None for key in _KEYS)
    if not (isinstance(topic, str) and isinstance(number, int) and _is_id(number) and isinstance(replicas, list)):
        raise ValueError(f'{where}: give {{"topic": "...", "partition": 0, "replicas": [1, 2]}}')
    if not replicas or not all(_is_id(node) for node in replicas) or len(set(replicas)) < len(replicas):
        raise ValueError(f"{where}: replicas is {replicas!r}: give node ids, each once")
    if any(directory != "any" for directory in one.get("log_dirs") or ()):
        raise ValueError(f"{where}: log_dirs is not supported: leave it out")
    return TopicPartition(topic, number), tuple(replicas)


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
