"""Transactions that keep ``read_committed`` consumers of a group from going on. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas_explain.members import Partition, by_topic
from barnabas_explain.words import Told, ms, partitions
from barnabas_protocol.counts import counted

#: A transaction that has been open for less than this is still at work.
_LONG_MS: Final = 10_000
#: One that has got no record for so long, or for this part of its timeout, is probably not at work any more.
_IDLE_MS: Final = 60_000
_IDLE: Final = 0.5
#: A record may be so much older than its transaction: it waited in its client.
_EARLIER_MS: Final = 10_000
#: One that gets records, and has been open for this part of its timeout, will probably be aborted.
_NEARLY: Final = 0.9
#: What to do about a transaction that gets no records any more.
END_TRANSACTION: Final = (
    "Look whether its producer still runs. If it does, it probably commits at intervals (the checkpoints of Flink), and"
    " needs no change. If it is gone, start it again: with the same transactional.id it ends the transaction at once."
    " Otherwise it is aborted after its transaction.timeout.ms{timeout}. Members that are not read_committed do not"
    " wait."
)
#: What to do about one that will probably be aborted while its producer works.
_COMMIT_SOONER: Final = (
    "It is aborted after its transaction.timeout.ms{timeout}: let its producer commit more often, or raise that."
    " Members that are not read_committed do not wait."
)


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
        timeout_ms: of its producer's transactions, in milliseconds; None if its coordinator does not say.
        idle_ms: for how many milliseconds it has got no record in this partition; None if that is not known.
    """

    partition: Partition
    offset: int
    records: int
    producer_id: int | None
    transactional_id: str | None
    open_ms: int | None = None
    timeout_ms: int | None = None
    idle_ms: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the transaction has got no record for so long that it is probably not at work any more."""
        open_ms, timeout_ms = self.open_ms or 0, self.timeout_ms
        if self.idle_ms is None:
            return open_ms > (0 if timeout_ms is None else timeout_ms * _IDLE)
        return self.idle_ms > (_IDLE_MS if timeout_ms is None else min(_IDLE_MS, timeout_ms * _IDLE))

    @property
    def is_long(self) -> bool:
        """Whether the transaction has been open for longer than one that is at work."""
        open_ms = self.open_ms or 0
        nearly = self.timeout_ms is not None and open_ms > self.timeout_ms * _NEARLY
        return open_ms > _LONG_MS and (self.is_idle or nearly)

    @property
    def is_at_work(self) -> bool:
        """Whether the transaction gets records, and members wait longer for its end than they usually do."""
        return (self.open_ms or 0) > _LONG_MS and not self.is_long

    @property
    def text(self) -> str:
        """The transaction that consumers wait for, in one line."""
        topic, number = self.partition
        return (
            f"{topic}-{number}: read_committed consumers wait at offset {self.offset} for {self.transaction};"
            f" {counted(self.records, 'record')} behind it"
        )

    @property
    def transaction(self) -> str:
        """The transaction and its age, in words."""
        producer = "" if self.producer_id is None else f" of producer id {self.producer_id}"
        name = "" if self.transactional_id is None else f" ({self.transactional_id})"
        age = "" if self.open_ms is None else f", open for {ms(self.open_ms)}"
        return f"an open transaction{producer}{name}{age}"

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


def idle_ms(last_timestamp: int | None, open_ms: int | None, now_ms: int) -> int | None:
    """For how many milliseconds a transaction has got no record, from the time of its last one.

    Args:
        last_timestamp: of that record, in ms since 1970.
        open_ms: for how many milliseconds the transaction has been open.
        now_ms: the time, in ms since 1970.

    Returns:
        None if that is not known: a record that is older than its transaction has the time of something else. Clients
        give records their times a bit before that.
    """
    if last_timestamp is None or open_ms is None or last_timestamp < now_ms - open_ms - _EARLIER_MS:
        return None
    return max(now_ms - last_timestamp, 0)


def of_work(waits: Iterable[Waiting]) -> list[str]:
    """Name the transactions at work for whose ends members wait: one sentence for each."""
    found: dict[object, list[Waiting]] = {}
    for each in waits:
        found.setdefault(each.partition if each.producer_id is None else each.producer_id, []).append(each)
    return list(map(_of_work, found.values()))


def _of_work(waits: Sequence[Waiting]) -> str:
    where = partitions(by_topic(each.partition for each in waits))
    records = sum(each.records for each in waits)
    idle = [each.idle_ms for each in waits if each.idle_ms is not None]
    last = f"It got its last record {ms(min(idle))} ago: it" if idle else "It"
    return (
        f"{where}: {counted(records, 'record')} {'comes' if records == 1 else 'come'} to read_committed members when"
        f" {waits[0].transaction}, ends. {last} is probably at work, and needs no change. If records come too late: let"
        " its producer commit more often (a shorter checkpoint interval)."
    )


def long_waits(waits: Iterable[Waiting]) -> list[Told]:
    """Name the transactions that are not at work any more, or that will be aborted: one sentence for each."""
    found: dict[object, list[Waiting]] = {}
    for each in waits:
        if each.is_long:
            found.setdefault(each.partition if each.producer_id is None else each.producer_id, []).append(each)
    return list(map(_told, found.values()))


def _told(waits: Sequence[Waiting]) -> Told:
    """The sentence about a transaction that keeps consumers of these partitions waiting."""
    first = waits[0]
    timeout = "" if first.timeout_ms is None else f" of {ms(first.timeout_ms)}"
    idle = [each.idle_ms for each in waits if each.is_idle and each.idle_ms is not None]
    age = f", without a record for {ms(min(idle))}" if idle else ""
    remedy = END_TRANSACTION if any(each.is_idle for each in waits) else _COMMIT_SOONER
    remedy = remedy.format(timeout=timeout)
    if len(waits) == 1:
        text = f"{first.text.replace(first.transaction, f'{first.transaction}{age}')}."
        return Told(text, remedy)
    where = partitions(by_topic(each.partition for each in waits))
    records = counted(sum(each.records for each in waits), "record")
    return Told(f"{where}: read_committed consumers wait for {first.transaction}{age}; {records} behind it.", remedy)
