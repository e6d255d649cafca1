"""Records of a share group: from a ShareFetch response to what the program acknowledges. Pure.

A response has whole record batches, and says which offsets in them are acquired for this member. :func:`acquired_rows`
returns the records of these offsets, and the offsets that have none: those of control records, and of records that
were compacted. They are acknowledged as gaps, in ranges.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, Self

from barnabas_client.consumer.fetched import cut, unpack
from barnabas_client.errors import IllegalStateError
from barnabas_client.shares.session import Acknowledgement, Run
from barnabas_client.structs import ConsumerRecord, Headers, K, TopicPartition, V
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.messages.share_fetch import AcquiredRecords
from barnabas_protocol.wire import Buffer

_LAST_OFFSET: Final = 2**63 - 1


class Holder(Protocol):
    """Takes the acknowledgements of records that were fetched together."""

    #: Seconds that a lock lasts.
    lock: float
    #: The time of the event loop when the locks expire.
    until: float

    def hand_over(self, offset: int, kind: Acknowledgement) -> Awaitable[None] | None:
        """Acknowledge the record at an offset. A renewal returns what to wait for.

        Raises:
            IllegalStateError: acknowledgement is implicit, or the consumer was stopped.
            KafkaError: a renewal comes too late: the share session has ended.
        """

    def say(self, run: Run) -> None:
        """Acknowledge offsets for the program. If the share session has ended, the acknowledgement is lost."""


class AcquiredRecord(Generic[K, V]):
    """The fields of a record of a share group.

    Args:
        row: the record with its key and value deserialized.
        delivery_count: how often it was delivered.
    """

    __slots__ = (
        "delivery_count",
        "headers",
        "key",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V
    headers: Headers
    delivery_count: int

    def __init__(self, row: ConsumerRecord[K, V], delivery_count: int) -> None:
        self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type = row[:5]
        self.key, self.value, self.headers = row.key, row.value, row.headers
        self.delivery_count = delivery_count

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(self.topic, self.partition)

    @property
    def consumer_record(self) -> ConsumerRecord[K, V]:
        """The same record as a :class:`~barnabas.ConsumerRecord`."""
        return ConsumerRecord(
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
        )

    def __repr__(self) -> str:
        return (
            f"ShareRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, key={self.key!r}, "
            f"value={self.value!r}, delivery_count={self.delivery_count})"
        )


class ShareRecord(AcquiredRecord[K, V]):
    """A record of a share group: a :class:`~barnabas.ConsumerRecord` that can be acknowledged.

    With ``share_acknowledgement_mode="explicit"``, call one of :meth:`accept`, :meth:`release` and :meth:`reject` for
    each record, in any order and from any task. They return at once: the consumer sends acknowledgements in the
    background, many in one request. :meth:`ShareConsumer.commit() <barnabas.ShareConsumer.commit>` waits until the
    broker has them. A copy that was pickled, such as one in a worker process, cannot be acknowledged.

    Args:
        row: the record with its key and value deserialized.
        delivery_count: how often it was delivered.
        holder: takes its acknowledgement; None for a copy.

    Attributes:
        topic: the name of its topic.
        partition: the number of its partition.
        offset: its offset in the partition.
        timestamp: milliseconds since 1970.
        timestamp_type: 0 if the producer set the timestamp, 1 if the broker did.
        key: what `key_deserializer` returned, or the key's bytes; None if the record has no key.
        value: what `value_deserializer` returned, or the value's bytes; None if the value is null.
        headers: names with values, in order; a name may occur several times.
        delivery_count: how often the record was delivered, this time included.
    """

    __slots__ = ("_holder",)

    def __init__(self, row: ConsumerRecord[K, V], delivery_count: int, holder: Holder | None) -> None:
        super().__init__(row, delivery_count)
        self._holder = holder

    def __reduce__(self) -> tuple[type[Self], tuple[ConsumerRecord[K, V], int, None]]:
        return type(self), (self.consumer_record, self.delivery_count, None)

    @property
    def acknowledged(self) -> bool:
        """Whether it was accepted, released or rejected; a renewal does not count."""
        return self._holder is None

    async def accept(self) -> None:
        """The record was processed: it is not delivered again.

        Raises:
            IllegalStateError: acknowledgement is implicit, the record was acknowledged before, or the consumer was
                stopped.
        """
        self._hand_over(Acknowledgement.ACCEPT)

    async def release(self) -> None:
        """The record could not be processed now: it is delivered again, to any member, until its delivery count has
        reached the limit of the group.

        Raises:
            IllegalStateError: see :meth:`accept`.
        """
        self._hand_over(Acknowledgement.RELEASE)

    async def reject(self) -> None:
        """The record cannot be processed at all: it is not delivered again, but goes to the dead letter topic if the
        group has one.

        Raises:
            IllegalStateError: see :meth:`accept`.
        """
        self._hand_over(Acknowledgement.REJECT)

    async def renew(self) -> None:
        """Processing takes longer: begin the time of the lock anew (KIP-1222), and wait until the broker has done so.

        Raises:
            IllegalStateError: see :meth:`accept`.
            KafkaError: the lock has expired, so that another member may have the record; or the broker is too old.
        """
        waiting = self._hand_over(Acknowledgement.RENEW)
        if waiting is not None:
            await waiting

    def _hand_over(self, kind: Acknowledgement) -> Awaitable[None] | None:
        if self._holder is None:
            raise IllegalStateError(
                f"the record at offset {self.offset} of {self.topic_partition} was acknowledged before, or is a copy "
                "of one. To do: acknowledge each record once"
            )
        waiting = self._holder.hand_over(self.offset, kind)
        if kind is not Acknowledgement.RENEW:
            self._holder = None
        return waiting


#: Handles a record of a share group. The result is ignored.
ShareHandler = Callable[[ShareRecord[K, V]], object]


class AcquiredRow(NamedTuple):
    """A record that is acquired, before its key and value are deserialized."""

    record: ConsumerRecord[Any, Any]
    delivery_count: int


class Part(NamedTuple):
    """Rows of a response, the offsets without records among them, and the error that ended the decoding."""

    rows: list[AcquiredRow]
    runs: list[Run]
    error: KafkaError | None = None


def are_valid(acquired: Sequence[AcquiredRecords]) -> bool:
    """Whether ranges of acquired offsets are in order, do not overlap, and have delivery counts."""
    end = -1
    for run in acquired:
        if not end < run.first_offset <= run.last_offset < _LAST_OFFSET or run.delivery_count < 1:
            return False
        end = run.last_offset
    return True


def acquired_rows(
    tp: TopicPartition, records: Buffer, acquired: Sequence[AcquiredRecords], *, check_crcs: bool
) -> Iterator[Part]:
    """Decode the records that are acquired, in parts.

    If records cannot be decoded, the offsets from there on are released: the last part has the error.

    Args:
        tp: the partition.
        records: batches.
        acquired: ranges of offsets; they are valid, see :func:`are_valid`.
        check_crcs: verify the checksum of each batch.
    """
    coming = iter(acquired)
    run = next(coming, None)
    at = 0 if run is None else run.first_offset  # no record of the run was seen from here on
    for chunk in cut(tp, records, 0):
        for unpacked in unpack(tp, chunk, 0, check_crcs=check_crcs):
            rows: list[AcquiredRow] = []
            gaps: list[Run] = []
            for record in unpacked.records:
                while run is not None and record.offset > run.last_offset:
                    if at <= run.last_offset:
                        gaps.append(Run(at, run.last_offset, Acknowledgement.GAP))
                    run = next(coming, None)
                    at = 0 if run is None else run.first_offset
                if run is None or record.offset < at:
                    continue
                if at < record.offset:
                    gaps.append(Run(at, record.offset - 1, Acknowledgement.GAP))
                rows.append(AcquiredRow(record, run.delivery_count))
                at = record.offset + 1
            yield Part(rows, gaps)
            if unpacked.error is not None:
                yield Part([], list(_rest(run, at, coming, Acknowledgement.RELEASE)), unpacked.error)
                return
    yield Part([], list(_rest(run, at, coming, Acknowledgement.GAP)))


def _rest(
    run: AcquiredRecords | None, at: int, coming: Iterator[AcquiredRecords], kind: Acknowledgement
) -> Iterator[Run]:
    while run is not None:
        if at <= run.last_offset:
            yield Run(at, run.last_offset, kind)
        run = next(coming, None)
        at = 0 if run is None else run.first_offset
