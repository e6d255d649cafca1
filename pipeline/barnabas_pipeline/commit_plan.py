"""What the exactly-once sink keeps on disk: what was staged, what is to be written, what is written. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from pyspark.sql.datasource import WriterCommitMessage

from barnabas_client.structs import TopicPartition

_FORMAT: Final = 1
_MAX_SEQUENCE: Final = 0x7FFFFFFF


class Entry(NamedTuple):
    """A staged batch: where it goes, where in its file it is, and how many records it has."""

    file: str
    topic: str
    partition: int
    at: int
    size: int
    records: int

    @property
    def tp(self) -> TopicPartition:
        """Where it goes."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task staged, in a file of its own; None if that was nothing."""

    file: str | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Done:
    """What is written: all micro-batches up to `batch`. `following` are the next sequence numbers of its producer."""

    batch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    following: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """For its file."""
        partitions = [[*tp, sequence] for tp, sequence in sorted(self.following.items())]
        return _dump(self.batch, self.producer_id, self.producer_epoch, following=partitions)

    @classmethod
    def of_json(cls, text: bytes) -> Self:
        """Out of its file.

        Raises:
            ValueError: it is damaged.
        """
        told = _load(text)
        following = {TopicPartition(topic, number): sequence for topic, number, sequence in told["following"]}
        return cls(told["batch"], told["producer_id"], told["producer_epoch"], following)


@dataclass(frozen=True)
class Plan:
    """What a micro-batch writes.

    Attributes:
        batch: the id of the micro-batch.
        producer_id: with which all of it is sent; `producer_epoch` as well.
        entries: in the order in which they are sent.
        first: for each partition the sequence number of the first record.
        ends: for each partition where it ended before.
    """

    batch: int
    producer_id: int
    producer_epoch: int
    entries: Sequence[Entry]
    first: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    def by_partition(self) -> dict[TopicPartition, list[tuple[int, Entry]]]:
        """For each partition its batches, each with its base sequence."""
        following = dict(self.first)
        found: dict[TopicPartition, list[tuple[int, Entry]]] = {tp: [] for tp in following}
        for entry in self.entries:
            found[entry.tp].append((following[entry.tp], entry))
            following[entry.tp] = (following[entry.tp] + entry.records) & _MAX_SEQUENCE
        return found

    def done(self, before: Done) -> Done:
        """What is written after it."""
        following = dict(before.following) if before.producer_id == self.producer_id else {}
        following |= self.first
        for entry in self.entries:
            following[entry.tp] = (following[entry.tp] + entry.records) & _MAX_SEQUENCE
        return Done(self.batch, self.producer_id, self.producer_epoch, following)

    def to_json(self) -> bytes:
        """For its file."""
        partitions = [[*tp, self.first[tp], self.ends[tp]] for tp in sorted(self.first)]
        return _dump(
            self.batch,
            self.producer_id,
            self.producer_epoch,
            entries=[list(entry) for entry in self.entries],
            partitions=partitions,
        )

    @classmethod
    def of_json(cls, text: bytes) -> Self:
        """Out of its file.

        Raises:
            ValueError: it is damaged.
        """
        told = _load(text)
        partitions = {TopicPartition(topic, number): pair for topic, number, *pair in told["partitions"]}
        return cls(
            told["batch"],
            told["producer_id"],
            told["producer_epoch"],
            [Entry(*one) for one in told["entries"]],
            {tp: first for tp, (first, _) in partitions.items()},
            {tp: end for tp, (_, end) in partitions.items()},
        )


def _dump(batch: int, producer_id: int, producer_epoch: int, **rest: object) -> bytes:
    told = {
        "format": _FORMAT,
        "batch": batch,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        **rest,
    }
    return json.dumps(told).encode()


def _load(text: bytes) -> dict[str, Any]:
    told = json.loads(text)
    if not isinstance(told, dict) or told.get("format") != _FORMAT:
        raise ValueError(f"format {told.get('format') if isinstance(told, dict) else told!r}, not {_FORMAT}")
    return told
