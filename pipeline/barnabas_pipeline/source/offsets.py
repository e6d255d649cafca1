"""Offsets of many partitions: their JSON, the end of a micro-batch, and the ranges that tasks read. Pure.

Spark stores an offset in a checkpoint as ``{"topic": {"0": 23, "1": -1}}``, the format of its own Kafka connector. One
more entry, ``"#ids"``, which is not a valid topic name, holds the ids of the topics (KIP-516): they reveal that a topic
was deleted and created again, even if it has grown beyond the old offset. Sources: ``JsonUtils.scala``,
``KafkaMicroBatchStream.scala``, ``KafkaOffsetRangeCalculator.scala``.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

from barnabas_client.structs import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
_IDS: Final = "#ids"

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """A position of a query.

    Attributes:
        positions: for each partition the offset of the next record.
        ids: the ids of topics in hexadecimal, of those that have one.
    """

    positions: Positions
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Convert it to the JSON of a checkpoint; equal offsets give equal JSON."""
        data: dict[str, Any] = dict(positions_to_json(self.positions))
        topics = sorted(topic for topic in data if topic in self.ids)
        if topics:
            data[_IDS] = {topic: self.ids[topic] for topic in topics}
        return data

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the JSON of a checkpoint or of a query's progress, also that of Spark's own connector.

        Raises:
            ValueError: it is another source's.
        """
        ids = data.get(_IDS, {})
        if not isinstance(ids, dict):
            raise ValueError(f"an offset with {_IDS} {ids!r}: the checkpoint is another source's, or damaged")
        return cls(positions_of_json({topic: rest for topic, rest in data.items() if topic != _IDS}, "offset"), ids)


def positions_to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """Convert positions to ``{"topic": {"0": 23}}``, sorted."""
    data: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(positions):
        data.setdefault(topic, {})[str(partition)] = positions[TopicPartition(topic, partition)]
    return data


def positions_of_json(data: object, what: str) -> dict[TopicPartition, int]:
    """Convert ``{"topic": {"0": 23}}`` to positions.

    Args:
        data: parsed JSON.
        what: the name of the option, for the error.

    Raises:
        ValueError: the JSON has another shape.
    """
    positions: dict[TopicPartition, int] = {}
    if not isinstance(data, dict):
        raise _bad_positions(what, data)
    for topic, partitions in data.items():
        if not isinstance(partitions, dict):
            raise _bad_positions(what, data)
        for partition, offset in partitions.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise _bad_positions(what, data)
            positions[TopicPartition(topic, int(partition))] = offset
    return positions


def parse_positions(text: str, what: str) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 23}}``.

    Raises:
        ValueError: the text is not JSON, or has another shape.
    """
    return positions_of_json(parse_json(text, what), what)


def parse_partitions(text: str, what: str) -> list[TopicPartition]:
    """Parse ``{"topicA": [0, 1], "topicB": [2, 4]}``, the value of the option `assign`.

    Raises:
        ValueError: the text is not JSON, or has another shape.
    """
    data = parse_json(text, what)
    bad = ValueError(f'option \'{what}\' is {text!r}: give JSON such as {{"topicA": [0, 1], "topicB": [2, 4]}}')
    if not isinstance(data, dict):
        raise bad
    found: list[TopicPartition] = []
    for topic, partitions in data.items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise bad
        found.extend(TopicPartition(topic, one) for one in partitions)
    return sorted(set(found))


def parse_json(text: str, what: str) -> object:
    """Parse JSON in an option.

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        data: object = json.loads(text)
    except ValueError as error:
        raise ValueError(f"option '{what}' is {text!r}: not JSON ({error})") from error
    return data


def _bad_positions(what: str, data: object) -> ValueError:
    return ValueError(
        f'option \'{what}\' is {json.dumps(data)}: give JSON such as {{"topicA": {{"0": 23, "1": -2}}, "topicB": '
        f'{{"0": -1}}}}'
    )


def limited(start: Positions, end: Positions, limit: int) -> dict[TopicPartition, int]:
    """Reduce `end` so that about `limit` offsets lie between `start` and it.

    Each partition gets a part in proportion to what is unread, and at least one offset: small ones do not starve.

    Args:
        start: the offsets to start at; has all partitions of `end`.
        end: the offsets at which records end now.
        limit: the number of offsets of all partitions.
    """
    sizes = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(sizes.values())
    nearer = dict(end)
    for tp, size in sizes.items():
        part = limit * size / total
        nearer[tp] = min(end[tp], start[tp] + (math.ceil(part) if part < 1 else math.floor(part)))
    return nearer


def behind(start: Positions, end: Positions) -> int:
    """Count the offsets between `start` and `end`, in the partitions that both have."""
    return sum(max(end[tp] - start[tp], 0) for tp in end if tp in start)


class OffsetRange(NamedTuple):
    """Offsets of a partition from `start` up to `end`, exclusive. After compaction not all of them have records."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start

    def split(self, parts: int) -> list["OffsetRange"]:
        """Split into up to `parts` ranges, in order."""
        cuts = [self.start + self.size * part // parts for part in range(parts + 1)]
        return [OffsetRange(self.tp, start, end) for start, end in pairwise(cuts) if end > start]


def split_ranges(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> Sequence[OffsetRange]:
    """Return the ranges that Spark's tasks read; empty ones are left out.

    Args:
        ranges: one for each partition.
        min_partitions: if there are fewer ranges, large ones are split in proportion, into about this many in total.
        max_records: the maximum of offsets in a range.
    """
    found = [one for one in ranges if one.size > 0]
    if max_records is not None:
        found = [part for one in found for part in one.split(-(-one.size // max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(one.size for one in found)
    small = [one for one in found if _parts(one.size, total, min_partitions) == 1]
    # Ranges that stay whole are not counted, or the others would be split into too few.
    rest = total - sum(one.size for one in small)
    wanted = max(min_partitions - len(small), 1)
    return [part for one in found for part in ([one] if one in small else one.split(_parts(one.size, rest, wanted)))]


def _parts(size: int, total: int, wanted: int) -> int:
    return max(math.floor(size / total * wanted + 0.5), 1)
