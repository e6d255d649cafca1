"""The state of the exactly-once sink on disk: staged batches, the plan of a micro-batch, what is written. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from pyspark.sql.datasource import WriterCommitMessage

from barnabas_client.structs import TopicPartition

_FORMAT: Final = 1
_MAX_SEQUENCE: Final = 0x7FFFFFFF


class StagedBatch(NamedTuple):
    """A staged record batch: its partition, its place and size in its file, and its number of records."""

    file: str
    topic: str
    partition: int
    at: int
    size: int
    records: int

    @property
    def tp(self) -> TopicPartition:
        """The partition that it goes to."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class StagedFile(WriterCommitMessage):
    """A task's commit message: the file that it staged, None if it had no rows, and the batches in it."""

    file: str | None
    batches: tuple[StagedBatch, ...]


@dataclass(frozen=True)
class CommitState:
    """The newest micro-batch that is written, and where the next one continues.

    Attributes:
        batch: the id of the last micro-batch that is written; -1 if there is none.
        producer_id: the producer id of the query.
        producer_epoch: its epoch.
        following: for each partition the next sequence number.
    """

    batch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    following: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Encode it for its file."""
        partitions = [[*tp, sequence] for tp, sequence in sorted(self.following.items())]
        return _dump(self.batch, self.producer_id, self.producer_epoch, following=partitions)

    @classmethod
    def of_json(cls, text: bytes) -> Self:
        """Decode the content of its file.

        Raises:
            ValueError, TypeError, KeyError: it is damaged.
        """
        data = _load(text)
        following = {TopicPartition(topic, number): sequence for topic, number, sequence in data["following"]}
        return cls(data["batch"], data["producer_id"], data["producer_epoch"], following)


@dataclass(frozen=True)
class CommitPlan:
    """The batches that a micro-batch writes.

    Attributes:
        batch: the id of the micro-batch.
        producer_id: the producer id of all batches.
        producer_epoch: its epoch.
        batches: the staged batches, in the order in which they are sent.
        first: for each partition the sequence number of the first record.
        ends: for each partition the offset at which it ended before.
    """

    batch: int
    producer_id: int
    producer_epoch: int
    batches: Sequence[StagedBatch]
    first: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    def by_partition(self) -> dict[TopicPartition, list[tuple[int, StagedBatch]]]:
        """Return the batches of each partition, each with its base sequence."""
        following = dict(self.first)
        found: dict[TopicPartition, list[tuple[int, StagedBatch]]] = {tp: [] for tp in following}
        for entry in self.batches:
            found[entry.tp].append((following[entry.tp], entry))
            following[entry.tp] = (following[entry.tp] + entry.records) & _MAX_SEQUENCE
        return found

    def done(self, before: CommitState) -> CommitState:
        """Return the state after this micro-batch is written."""
        following = dict(before.following) if before.producer_id == self.producer_id else {}
        following |= self.first
        for entry in self.batches:
            following[entry.tp] = (following[entry.tp] + entry.records) & _MAX_SEQUENCE
        return CommitState(self.batch, self.producer_id, self.producer_epoch, following)

    def to_json(self) -> bytes:
        """Encode it for its file."""
        partitions = [[*tp, self.first[tp], self.ends[tp]] for tp in sorted(self.first)]
        return _dump(
            self.batch,
            self.producer_id,
            self.producer_epoch,
            entries=[list(entry) for entry in self.batches],
            partitions=partitions,
        )

    @classmethod
    def of_json(cls, text: bytes) -> Self:
        """Decode the content of its file.

        Raises:
            ValueError, TypeError, KeyError: it is damaged.
        """
        data = _load(text)
        partitions = {TopicPartition(topic, number): pair for topic, number, *pair in data["partitions"]}
        return cls(
            data["batch"],
            data["producer_id"],
            data["producer_epoch"],
            [StagedBatch(*one) for one in data["entries"]],
            {tp: first for tp, (first, _) in partitions.items()},
            {tp: end for tp, (_, end) in partitions.items()},
        )


def _dump(batch: int, producer_id: int, producer_epoch: int, **rest: object) -> bytes:
    data = {
        "format": _FORMAT,
        "batch": batch,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        **rest,
    }
    return json.dumps(data).encode()


def _load(text: bytes) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise ValueError(f"format {data.get('format') if isinstance(data, dict) else data!r}, not {_FORMAT}")
    return data
