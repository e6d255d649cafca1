"""Offsets of many partitions: how they are written, how much of them a micro-batch takes, how ranges are split. Pure.

An offset as Spark keeps it in a checkpoint is ``{"topic": {"0": 23, "1": -1}}``, as that of Spark's own connector is.
One more entry, ``"#ids"``, which can be no topic, holds the ids of the topics (KIP-516): by them a topic that was
deleted and created again is known for another one even when it has grown beyond the old offset. Sources:
``JsonUtils.scala``, ``KafkaMicroBatchStream.scala``, ``KafkaOffsetRangeCalculator.scala``.
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
class Offset:
    """Where a query stands: for each partition the offset of the next record, and the topics' ids in hexadecimal, of
    those that have one."""

    positions: Positions
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it: the same text for the same offset."""
        told: dict[str, Any] = dict(positions_to_json(self.positions))
        topics = sorted(topic for topic in told if topic in self.ids)
        if topics:
            told[_IDS] = {topic: self.ids[topic] for topic in topics}
        return told

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Self:
        """Out of a checkpoint, or out of a query's progress (that of Spark's own connector too).

        Raises:
            ValueError: it is none of ours.
        """
        ids = told.get(_IDS, {})
        if not isinstance(ids, dict):
            raise ValueError(f"an offset with {_IDS} {ids!r}: the checkpoint is of another source, or damaged")
        return cls(positions_of_json({topic: rest for topic, rest in told.items() if topic != _IDS}, "offset"), ids)


def positions_to_json(positions: Positions) -> dict[str, dict[str, int]]:
    """``{"topic": {"0": 23}}``, in order."""
    told: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(positions):
        told.setdefault(topic, {})[str(partition)] = positions[TopicPartition(topic, partition)]
    return told


def positions_of_json(told: object, what: str) -> dict[TopicPartition, int]:
    """The other way round.

    Args:
        told: what came out of JSON.
        what: the option it is the value of, for the error.

    Raises:
        ValueError: it is not of that shape.
    """
    positions: dict[TopicPartition, int] = {}
    if not isinstance(told, dict):
        raise _bad_positions(what, told)
    for topic, partitions in told.items():
        if not isinstance(partitions, dict):
            raise _bad_positions(what, told)
        for partition, offset in partitions.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise _bad_positions(what, told)
            positions[TopicPartition(topic, int(partition))] = offset
    return positions


def parse_positions(text: str, what: str) -> dict[TopicPartition, int]:
    """:func:`positions_of_json` of a text.

    Raises:
        ValueError: it is no JSON, or not of that shape.
    """
    return positions_of_json(parse_json(text, what), what)


def parse_partitions(text: str, what: str) -> list[TopicPartition]:
    """``{"topicA": [0, 1], "topicB": [2, 4]}``, the value of the option `assign`.

    Raises:
        ValueError: it is not of that shape.
    """
    told = parse_json(text, what)
    bad = ValueError(f'option \'{what}\' is {text!r}: give JSON such as {{"topicA": [0, 1], "topicB": [2, 4]}}')
    if not isinstance(told, dict):
        raise bad
    found: list[TopicPartition] = []
    for topic, partitions in told.items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise bad
        found.extend(TopicPartition(topic, one) for one in partitions)
    return sorted(set(found))


def parse_json(text: str, what: str) -> object:
    """JSON in an option.

    Raises:
        ValueError: it is none.
    """
    try:
        told: object = json.loads(text)
    except ValueError as error:
        raise ValueError(f"option '{what}' is {text!r}: it is no JSON ({error})") from error
    return told


def _bad_positions(what: str, told: object) -> ValueError:
    return ValueError(
        f'option \'{what}\' is {json.dumps(told)}: give JSON such as {{"topicA": {{"0": 23, "1": -2}}, "topicB": '
        f'{{"0": -1}}}}'
    )


# How much of it.


def limited(start: Positions, end: Positions, limit: int) -> dict[TopicPartition, int]:
    """`end`, brought nearer to `start` so that no more than about `limit` records lie between.

    Each partition gets its share by what it has to be read, and at least one record, so that small ones do not starve.

    Args:
        start: has all partitions of `end`.
        end: where records end now.
        limit: records in all.
    """
    sizes = {tp: end[tp] - start[tp] for tp in end if end[tp] > start[tp]}
    total = sum(sizes.values())
    nearer = dict(end)
    for tp, size in sizes.items():
        share = limit * size / total
        nearer[tp] = min(end[tp], start[tp] + (math.ceil(share) if share < 1 else math.floor(share)))
    return nearer


def behind(start: Positions, end: Positions) -> int:
    """Offsets between `start` and `end`, in all partitions of both."""
    return sum(max(end[tp] - start[tp], 0) for tp in end if tp in start)


# Who reads what.


class Range(NamedTuple):
    """Offsets of a partition, from `start` up to, not including, `end`. After compaction not all of them have
    records."""

    tp: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.end - self.start

    def split(self, parts: int) -> list["Range"]:
        """Cut into so many ranges, in order."""
        cuts = [self.start + self.size * part // parts for part in range(parts + 1)]
        return [Range(self.tp, start, end) for start, end in pairwise(cuts) if end > start]


def split_ranges(
    ranges: Iterable[Range], min_partitions: int | None, max_records: int | None = None
) -> Sequence[Range]:
    """The ranges that Spark's tasks read, none of them empty.

    Args:
        ranges: one for each partition.
        min_partitions: if there are fewer ranges, large ones are split by their share of the whole; the number that
        comes
            out is about this.
        max_records: no range spans more offsets than this.
    """
    found = [one for one in ranges if one.size > 0]
    if max_records is not None:
        found = [part for one in found for part in one.split(-(-one.size // max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(one.size for one in found)
    small = [one for one in found if _parts(one.size, total, min_partitions) == 1]
    # What stays whole does not count for those that are split, or they would be split into too few.
    rest = total - sum(one.size for one in small)
    wanted = max(min_partitions - len(small), 1)
    return [part for one in found for part in ([one] if one in small else one.split(_parts(one.size, rest, wanted)))]


def _parts(size: int, total: int, wanted: int) -> int:
    return max(math.floor(size / total * wanted + 0.5), 1)
