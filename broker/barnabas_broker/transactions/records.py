"""Records of ``__transaction_state``: keys and values to and from bytes, as Kafka's own tools read them. Pure.

Values are written in version 1, which transactions of version 2 need (KIP-890), as Kafka does with
``transaction.version`` 1 and up. Source: Kafka's ``TransactionLog``.
"""

from struct import Struct
from struct import error as struct_error
from typing import Final

from barnabas_broker.coordinators.replay import PartitionReplay, Report
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.transaction import NO_PARTITIONS, STATUS, Metadata, Transaction, TransactionState
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.coordinator_records import (
    CorruptRecord,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import BatchHeader, Record

#: The record type: the version of the key's schema.
TRANSACTION_KEY: Final = 0
_VERSION: Final = 1
_INT16: Final = Struct(">h")
_STATES: Final = {number: state for state, number in STATUS.items()}
_NEVER_STORED: Final = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id's record.

    Raises:
        EncodeError: the id is longer than a record allows.
    """
    return _INT16.pack(TRANSACTION_KEY) + encode(TransactionLogKey(transactional_id=transactional_id), TRANSACTION_KEY)


def transaction_value(metadata: Metadata) -> bytes:
    """The value of a transactional id's record."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=STATUS[metadata.state],
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.version,
    )
    return _INT16.pack(_VERSION) + encode(value, _VERSION)


def read_transaction_key(key: bytes | None) -> str | None:
    """Read a key: the transactional id; None for a record of a type that is not known here.

    Raises:
        CorruptRecord: the key cannot be read.
    """
    if key is None or len(key) < 2:
        raise CorruptRecord(f"key {key!r}")
    if _INT16.unpack_from(key)[0] != TRANSACTION_KEY:
        return None
    try:
        return decode(TransactionLogKey, TRANSACTION_KEY, key[2:]).transactional_id
    except DecodeError as error:
        raise CorruptRecord(f"transaction key {key!r}") from error


def read_transaction_value(value: bytes) -> Metadata:
    """Read a value.

    Raises:
        CorruptRecord: it is not such a value, or of an unknown version.
    """
    try:
        read = decode(TransactionLogValue, int(_INT16.unpack_from(value)[0]), value[2:])
    except (struct_error, DecodeError) as error:
        raise CorruptRecord(f"transaction value: {error}") from error
    state = _STATES.get(read.transaction_status)
    if state is None or state in _NEVER_STORED or read.producer_id < 0 or read.producer_epoch < 0:
        raise CorruptRecord(
            f"transaction value: status {read.transaction_status}, producer id {read.producer_id}, "
            f"epoch {read.producer_epoch}"
        )
    return Metadata(
        state=state,
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in read.transaction_partitions or ()
            for partition in topic.partition_ids
        )
        or NO_PARTITIONS,
        start_ms=read.transaction_start_timestamp_ms,
        updated_ms=read.transaction_last_update_timestamp_ms,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        version=read.client_transaction_version,
    )


class TransactionReplay(PartitionReplay):
    """The transactional ids of the records replayed so far.

    Attributes:
        transactions: the machine of each transactional id.
    """

    def __init__(self, report: Report, start: int) -> None:
        super().__init__(report, start)
        self.transactions: dict[str, Transaction] = {}

    def apply(self, header: BatchHeader, record: Record) -> None:
        """Replay a record."""
        if header.is_control:
            return
        transactional_id = read_transaction_key(record.key)
        if transactional_id is None:
            return
        metadata = None if record.value is None else read_transaction_value(record.value)
        known = self.transactions.get(transactional_id)
        if known is not None:
            known.apply(metadata)
            if known.gone:
                del self.transactions[transactional_id]
        elif metadata is not None:
            self.transactions[transactional_id] = Transaction(transactional_id, metadata)
