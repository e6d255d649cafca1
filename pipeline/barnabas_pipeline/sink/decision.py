"""Decision about a micro-batch that is written in transactions: the record on disk, and its continuation. Pure.

:mod:`barnabas_pipeline.sink.transactional` describes the protocol.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, Self

from pyspark.sql.datasource import WriterCommitMessage

from barnabas_client.structs import PreparedTransaction
from barnabas_pipeline.sink.records import SinkRecord

_FORMAT: Final = 1
_DIGEST_BYTES: Final = 16


class DifferentRowsError(Exception):
    """The repeat of a micro-batch that is partly written has other rows, so it cannot be completed."""


class RowDigest:
    """A digest of the rows of a task, whatever their order: the shuffle before a task has none.

    It is the sum of a hash of each record. Topic, partition column, key, value and headers count; the partition that
    the partitioner chooses does not.
    """

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0

    def add(self, record: SinkRecord) -> None:
        """Count a record."""
        parts: list[bytes | None] = [
            record.topic.encode(),
            b"" if record.partition is None else b"%d" % record.partition,
        ]
        parts += [record.key, record.value]
        for name, value in record.headers:
            parts += [name.encode(), value]
        lengths = b",".join(b"-" if part is None else b"%d" % len(part) for part in parts)
        found = blake2b(lengths, digest_size=_DIGEST_BYTES)
        for part in parts:
            found.update(part or b"")
        self._count += 1
        self._sum = (self._sum + int.from_bytes(found.digest())) & ((1 << 8 * _DIGEST_BYTES) - 1)

    def __str__(self) -> str:
        return f"{self._count}:{self._sum:0{2 * _DIGEST_BYTES}x}"


@dataclass(frozen=True)
class TaskOutcome(WriterCommitMessage):
    """A task's commit message.

    Attributes:
        query: the id of the query.
        task: the number of the task's partition.
        digest: of its rows: see :class:`RowDigest`.
        prepared: the transaction with its rows; None if this attempt wrote nothing, because there are no rows, or
            because an earlier attempt of the same micro-batch is decided.
        committed: the digest of the rows that are committed for this task and micro-batch, if the task looked.
    """

    query: str
    task: int
    digest: str
    prepared: PreparedTransaction | None = None
    committed: str | None = None


class DecidedTask(NamedTuple):
    """A transaction that is to be committed, and the digest of its rows."""

    prepared: PreparedTransaction
    digest: str


@dataclass(frozen=True)
class Decision:
    """The decision to commit a micro-batch. It never changes to an abort.

    Attributes:
        query: the id of the query.
        batch: the id of the micro-batch.
        revision: how often lost transactions were replaced.
        tasks: the transactions, by task.
    """

    query: str
    batch: int
    revision: int
    tasks: Mapping[int, DecidedTask] = field(default_factory=dict)

    @classmethod
    def first(cls, outcomes: Collection[TaskOutcome], batch: int) -> Self | None:
        """Return the decision about what the tasks have prepared; None if that is nothing.

        Raises:
            DifferentRowsError: the rows of a task are committed although there is no decision, and they are others.
        """
        for one in outcomes:
            if one.committed is not None and one.committed != one.digest:
                raise DifferentRowsError(
                    f"micro-batch {batch} is partly committed, the record of its decision is gone, and the repeat has "
                    f"other rows in task {one.task}"
                )
        tasks = {one.task: DecidedTask(one.prepared, one.digest) for one in outcomes if one.prepared is not None}
        return cls(next(iter(outcomes)).query, batch, 0, tasks) if tasks else None

    def continued(self, outcomes: Collection[TaskOutcome]) -> "Decision":
        """Return the decision with the transactions that tasks of a repeat wrote in place of lost ones.

        Args:
            outcomes: of the tasks of the repeat.

        Raises:
            DifferentRowsError: a transaction was lost, and the rows of the repeat are not those of the decision. They
                may then be distributed otherwise, and written twice or not at all.
        """
        again = {one.task: one.prepared for one in outcomes if one.prepared is not None}
        if not again:
            return self
        rows = {one.task: one for one in outcomes}
        different = [
            task for task in sorted(self.tasks.keys() | rows.keys()) if not _same(rows.get(task), self.tasks.get(task))
        ]
        if different:
            names = ", ".join(
                repr(self.tasks[task].prepared.transactional_id) for task in sorted(again.keys() & self.tasks.keys())
            )
            raise DifferentRowsError(
                f"micro-batch {self.batch} is partly committed, the transactions of {names or 'some tasks'} were "
                f"aborted before they could be, and the repeat has other rows in task {different[0]}"
            )
        replaced = {task: DecidedTask(one, self.tasks[task].digest) for task, one in again.items()}
        return Decision(self.query, self.batch, self.revision + 1, {**self.tasks, **replaced})

    def to_json(self) -> bytes:
        """Encode it for its file."""
        tasks = [[task, *one.prepared, one.digest] for task, one in sorted(self.tasks.items())]
        data = {
            "format": _FORMAT,
            "query": self.query,
            "batch": self.batch,
            "revision": self.revision,
            "tasks": tasks,
        }
        return json.dumps(data).encode()

    @classmethod
    def of_json(cls, text: bytes) -> Self:
        """Decode the content of its file.

        Raises:
            ValueError, TypeError, KeyError: it is damaged.
        """
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise ValueError(f"not of format {_FORMAT}")
        tasks = {task: DecidedTask(PreparedTransaction(*prepared), digest) for task, *prepared, digest in data["tasks"]}
        return cls(data["query"], data["batch"], data["revision"], tasks)


def _same(repeat: TaskOutcome | None, decided: DecidedTask | None) -> bool:
    """Whether a task has the same rows as before; a task without rows has no transaction."""
    digest = str(RowDigest()) if repeat is None else repeat.digest
    if repeat is not None and repeat.committed is not None:
        return digest == repeat.committed
    return digest == (str(RowDigest()) if decided is None else decided.digest)


def file_name(decision: Decision) -> str:
    """Return the name of the file of a decision."""
    return f"decided-{decision.batch}-{decision.revision}"


def newest(names: Iterable[str]) -> str | None:
    """Return the name of the file with the newest decision, None if there is none."""
    return max((name for name in names if _place(name)), key=_place, default=None)


def older(names: Iterable[str], than: str) -> list[str]:
    """Return the names of the files with older decisions."""
    return [name for name in names if () < _place(name) < _place(than)]


def _place(name: str) -> tuple[int, ...]:
    """Return micro-batch and revision; nothing for another file."""
    kind, *numbers = name.split("-")
    if kind != "decided" or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return ()
    return tuple(map(int, numbers))
