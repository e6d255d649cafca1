"""Remembers which batches of idempotent producers were refused for now, so that a later one does not take their place.

A partition takes any sequence number of a producer that it does not know: its records may have been deleted (KIP-360).
If the first batch of a producer is refused while the leader changes, or too few replicas are in sync, and the second
one, which the client had sent or prepared before it got the answer, is not, then the log lacks the first one for good.
librdkafka reports it as acknowledged, without an offset, because a later one is. Apache Kafka takes the second one.

A refusal to one principal delays no other one: a client that invents the id of another one's producer has only
its own batches refused.

Pure.
"""

from collections.abc import Hashable
from typing import Final

from barnabas_broker.recent import Newest
from barnabas_broker.storage.producer_state import Producers
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records.batches import BatchHeader, read_header
from barnabas_protocol.wire import Buffer

#: Characters of the longest name of a topic: a client may ask for one of 32 KB that does not exist.
_LONGEST_NAME: Final = 249
#: Partitions of producers that are remembered.
MOST: Final = 10_000
#: Sequence numbers wrap after 2^31 - 1: what is less than half of them ahead is later.
_HALF: Final = 2**30
_MAX_SEQUENCE: Final = 2**31 - 1


class RefusedBatches:
    """The first sequence number that each producer could not write to each partition, of the latest `MOST`."""

    def __init__(self) -> None:
        #: By principal, topic (name or id), partition and producer id: epoch and sequence number.
        self._refused: Newest[tuple[Hashable, str | bytes, int, int], tuple[int, int]] = Newest(MOST)

    def __bool__(self) -> bool:
        return bool(self._refused)

    def add(self, principal: Hashable, topic: str | bytes, partition: int, records: Buffer | None) -> None:
        """A batch of this principal was refused with an error after which its client sends it again."""
        header = _header(records)
        if header is None or len(topic) > _LONGEST_NAME:
            return  # no topic has such a name
        key = principal, topic, partition, header.producer_id
        known = self._refused.get(key)
        # A later one that is refused as well changes nothing.
        if known is None or known[0] != header.producer_epoch or not _is_later(header.base_sequence, known[1]):
            self._refused[key] = header.producer_epoch, header.base_sequence

    def check(
        self, principal: Hashable, topic: str | bytes, partition: int, records: Buffer, producers: Producers
    ) -> None:
        """Check that the batch before this one was not refused to this principal, unless the partition knows the
        producer: it does not take a batch after a gap then.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER, after which clients begin again with a new epoch.
        """
        header = _header(records)
        if header is None:
            return
        key = principal, topic, partition, header.producer_id
        known = self._refused.get(key)
        if known is None:
            return
        epoch, sequence = known
        in_order = header.producer_epoch != epoch or not _is_later(header.base_sequence, sequence)
        if in_order or header.producer_id in producers.states:
            del self._refused[key]
            return
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence} (incoming seq. "
            f"number), while {sequence} was refused and has not been sent again",
        )


def _header(records: Buffer | None) -> BatchHeader | None:
    """The header of a batch of an idempotent producer; None if it is none, or is not valid."""
    try:
        header = None if records is None else read_header(records)
    except DecodeError:
        return None
    return header if header is not None and header.producer_id >= 0 else None


def _is_later(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) & _MAX_SEQUENCE < _HALF
