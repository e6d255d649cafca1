"""Transactions that keep ``read_committed`` consumers of a group from going on. Pure."""

from dataclasses import dataclass
from typing import Any, Final

from barnabas_explain.members import Partition
from barnabas_explain.words import ms
from barnabas_protocol.counts import counted

#: A transaction that has been open for less than this is still at work.
_LONG_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A partition in which an open transaction keeps ``read_committed`` consumers of a group from going on.

    Attributes:
        partition: the partition.
        offset: where the transaction begins, and where the group stands: the last stable offset.
        records: the number of records from there on.
        producer_id: of the transaction; None if the leader does not say.
        transactional_id: of the transaction; None if no coordinator knows it.
        open_ms: for how many milliseconds it has been open; None if its coordinator does not say.
    """

    partition: Partition
    offset: int
    records: int
    producer_id: int | None
    transactional_id: str | None
    open_ms: int | None = None

    @property
    def is_long(self) -> bool:
        """Whether the transaction has been open for so long that it is probably not at work any more."""
        return (self.open_ms or 0) > _LONG_MS

    @property
    def text(self) -> str:
        """The transaction that consumers wait for, in one line."""
        topic, number = self.partition
        producer = "" if self.producer_id is None else f" of producer id {self.producer_id}"
        name = "" if self.transactional_id is None else f" ({self.transactional_id})"
        age = "" if self.open_ms is None else f", open for {ms(self.open_ms)}"
        return (
            f"{topic}-{number}: read_committed consumers wait at offset {self.offset} for an open transaction"
            f"{producer}{name}{age}; {counted(self.records, 'record')} behind it"
        )

    def as_data(self) -> dict[str, Any]:
        """Convert to JSON data."""
        topic, number = self.partition
        return {
            "topic": topic,
            "partition": number,
            "last_stable_offset": self.offset,
            "records": self.records,
            "producer_id": self.producer_id,
            "transactional_id": self.transactional_id,
            "open_for_ms": self.open_ms,
        }
