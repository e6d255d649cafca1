"""From the bytes of a Fetch response to records for the program. Pure.

For a partition, a response holds record batches one after the other. :func:`cut` reads only their headers and makes a
:class:`Chunk` of each, so that a response of a megabyte costs next to nothing when it arrives. :func:`unpack` decodes
one chunk, in parts, when the program is about to receive its records: check sums, decompression, decoding and
deserializing are spread over the polls, and batches that a seek drops are never decoded.

Control batches are left out, and, for ``read_committed``, batches of aborted transactions: a response names these by
producer id and first offset, and each ends at its ABORT marker (KIP-98). Source: Kafka's ``CompletedFetch.java``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from barnabas_client.errors import CorruptRecordError, RecordDeserializationError, RecordTooLargeError
from barnabas_client.structs import AnyRecord, ConsumerRecord, TopicPartition
from barnabas_protocol.errors import DecodeError, KafkaError
from barnabas_protocol.messages.fetch import AbortedTransaction
from barnabas_protocol.records import (
    BatchHeader,
    ControlType,
    check_crc,
    control_record_type,
    decode_records,
    iter_batches,
    iter_rows,
)
from barnabas_protocol.wire import Buffer

#: Records that are decoded at a time. A record without content takes 7 bytes in a batch and some 200 in memory.
MOST_RECORDS: Final = 2_000


class Chunk(NamedTuple):
    """One batch as fetched.

    Attributes:
        end: the offset after it.
        batch: its bytes; None if it has no records for the program.
        leader_epoch: of the leader that wrote it.
        error: to raise instead, when the program gets here.
    """

    end: int
    batch: memoryview | None
    leader_epoch: int = -1
    error: KafkaError | None = None

    @property
    def size(self) -> int:
        """Bytes that it keeps in memory."""
        return 0 if self.batch is None else len(self.batch)


def cut(
    tp: TopicPartition, records: Buffer, offset: int, aborted: Iterable[AbortedTransaction] | None = None
) -> list[Chunk]:
    """Cut the record batches of a Fetch response into chunks.

    Args:
        tp: the partition.
        records: batches; the last one may be incomplete.
        offset: the fetch offset; batches that end before it are left out.
        aborted: the aborted transactions among the batches, for ``read_committed``; None to keep their records.
    """
    chunks: list[Chunk] = []
    filter_aborted = None if aborted is None else _Aborted(aborted)
    end, whole = offset, False
    try:
        for header, batch in iter_batches(records, partial_ok=True):
            whole = True
            if header.next_offset <= end:
                continue
            end = header.next_offset
            hidden = header.is_control if filter_aborted is None else filter_aborted.hides(header, batch)
            if hidden or header.count == 0:
                chunks.append(Chunk(end, None, leader_epoch=header.leader_epoch))
            else:
                chunks.append(Chunk(end, batch, header.leader_epoch))
    except DecodeError as error:
        chunks.append(Chunk(end, None, error=corrupt(tp, end, error)))
    if not chunks and not whole and len(records):
        chunks.append(Chunk(end, None, error=_too_large(tp, end, len(records))))
    return chunks


class _Aborted:
    """Tracks which transactions are aborted at the batch that was reached."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(((one.first_offset, one.producer_id) for one in aborted), reverse=True)
        self._producers: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a batch is a control batch or belongs to an aborted transaction. Batches must come in order.

        An ABORT marker ends the transaction of its producer, also if it is the first batch: a consumer has skipped the
        records before it, and its next Fetch begins there.
        """
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._producers.add(self._coming.pop()[1])
        if not header.is_control:
            return header.is_transactional and header.producer_id in self._producers
        if header.producer_id in self._producers:
            records = decode_records(batch)
            if records and control_record_type(records[0]) is ControlType.ABORT:
                self._producers.discard(header.producer_id)
        return True


class Unpacked(NamedTuple):
    """Records of a chunk, the offset after them, and the error that prevents the rest from being decoded, if there is
    one. Instead of records there may be one Arrow record batch, see :class:`Tables`."""

    records: list[AnyRecord] | list[Any]
    end: int
    error: KafkaError | None = None


class Tables(Protocol):
    """Decodes chunks to Arrow record batches: :mod:`barnabas_client.consumer.tables`, which needs the extra `arrow`."""

    def __call__(
        self, tp: TopicPartition, chunks: Sequence[Chunk], position: int, *, check_crcs: bool
    ) -> Iterator[Unpacked]:
        """Decode chunks of one leader epoch from `position` on; an error ends the parts."""


def unpack(
    tp: TopicPartition,
    chunk: Chunk,
    position: int,
    *,
    check_crcs: bool = True,
    key_deserializer: Callable[..., Any] | None = None,
    value_deserializer: Callable[..., Any] | None = None,
    most: int = MOST_RECORDS,
) -> Iterator[Unpacked]:
    """Decode the records of a chunk from `position` on, in parts of up to `most` records; an error ends the parts.

    A part may have no records: those before `position` are decoded and left out.
    """
    if chunk.error is not None or chunk.batch is None:
        yield Unpacked([], chunk.end, chunk.error)
        return
    try:
        if check_crcs:
            check_crc(chunk.batch)
        before: list[ConsumerRecord[Any, Any]] | None = None
        for rows in iter_rows(chunk.batch, tp.topic, tp.partition, ConsumerRecord, chunk=most):
            if before is not None:
                end = before[-1].offset + 1
                part = _part(tp, before, position, end, key_deserializer, value_deserializer)
                yield part
                if part.error is not None:
                    return
                position = max(position, end)
            before = rows
    except DecodeError as error:
        yield Unpacked([], position, corrupt(tp, position, error))
        return
    yield _part(tp, before or [], position, chunk.end, key_deserializer, value_deserializer)


def _part(
    tp: TopicPartition,
    rows: list[ConsumerRecord[Any, Any]],
    position: int,
    end: int,
    key_deserializer: Callable[..., Any] | None,
    value_deserializer: Callable[..., Any] | None,
) -> Unpacked:
    if rows and rows[0].offset < position:
        rows = [row for row in rows if row.offset >= position]
    if key_deserializer is None and value_deserializer is None:
        return Unpacked(rows, end)
    records: list[AnyRecord] = []
    for row in rows:
        topic, partition, offset, timestamp, kind, key, value, headers = row
        try:
            made_key = key if key is None or key_deserializer is None else key_deserializer(key)
            made_value = value if value is None or value_deserializer is None else value_deserializer(value)
        except Exception as error:
            # The program's own code: the error carries partition and offset, so that the program can seek over the
            # record.
            failure = RecordDeserializationError(tp, offset, error)
            failure.__cause__ = error
            return Unpacked(records, offset, failure)
        records.append(ConsumerRecord(topic, partition, offset, timestamp, kind, made_key, made_value, headers))
    return Unpacked(records, end)


def corrupt(tp: TopicPartition, offset: int, error: DecodeError) -> KafkaError:
    """The error of records that cannot be decoded."""
    failure = CorruptRecordError(
        f"records of {tp} at offset {offset} cannot be decoded: {error}. To do: poll again; if the error stays, the "
        "data is damaged: seek() over it"
    )
    failure.__cause__ = error
    return failure


def _too_large(tp: TopicPartition, offset: int, size: int) -> KafkaError:
    return RecordTooLargeError(
        f"the batch of {tp} at offset {offset} does not fit into one fetch, which returned {size} bytes of it. To do: "
        f"raise max_partition_fetch_bytes and fetch_max_bytes, or seek() over it"
    )
