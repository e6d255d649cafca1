"""Ports of the transaction coordinator, beside those of all coordinators."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from barnabas_broker.storage.names import TopicPartition
from barnabas_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

#: The node id of a partition's leader, by the cluster image; -1 while there is none, None if it does not exist.
Leader = Callable[[TopicPartition], int | None]
#: Writes markers to partitions that this broker leads, as WriteTxnMarkers does for other coordinators.
WriteMarkers = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]


class TxnEventsLog(Protocol):
    """The partitions of ``__transaction_events``. Its appends are not confirmed."""

    def append(self, batch: bytearray) -> None:
        """Append a batch to any partition that this broker leads, or drop it if that fails."""
