"""Ports of the group coordinator, beside those of all coordinators."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from barnabas_broker.coordinators.leader import DistantLog, Leader
from barnabas_broker.coordinators.ports import CoordinatorLog
from barnabas_broker.shares.records import ShareKey
from barnabas_broker.storage.retention import Removal
from barnabas_explain.members import Partition
from barnabas_protocol.wire import Buffer


class OffsetsLog(CoordinatorLog, Protocol):
    """The partitions of ``__consumer_offsets``, which transactions write to."""

    def verify(
        self, partition: int, producer_id: int, producer_epoch: int, transactional_id: str, *, bumps_epoch: bool
    ) -> Any:
        """Verification for :meth:`append` of a batch of a transaction, unless the transaction is open in the log.

        A marker that is appended before the batch makes it void.

        Args:
            partition: of ``__consumer_offsets``.
            producer_id: of the transaction.
            producer_epoch: of the transaction.
            transactional_id: of the request.
            bumps_epoch: each transaction of the producer has an epoch of its own (transaction version 2).

        Returns:
            The verification, for which the coordinator of the transaction has to be asked; None if it is open here.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, NOT_LEADER_OR_FOLLOWER, or INVALID_PRODUCER_ID_MAPPING: the open
                transaction has another transactional id.
        """

    def not_verified(self, partition: int, producer_id: int, verification: Any) -> None:
        """The coordinator of the transaction has refused: forget the verification."""


class EventsLog(Protocol):
    """The partitions of ``__group_events``. Its appends are not confirmed."""

    def append(self, partition: int, batch: bytearray) -> None:
        """Append a batch, or drop it if that fails."""


class ShareStates(Protocol):
    """The states of share partitions, which the share coordinator keeps on this broker or another one."""

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Create the state of a share partition, or start it again at another offset.

        Args:
            key: the share partition.
            state_epoch: at least that of the state, if there is one.
            start_offset: -1 if ``share.auto.offset.reset`` decides.

        Raises:
            KafkaError: the state is not created.
        """

    async def delete(self, key: ShareKey) -> None:
        """Delete the state of a share partition, if there is one.

        Raises:
            KafkaError: the state is not deleted.
        """


class ReadLogs(Protocol):
    """The logs of the partitions that groups read, as far as this broker has a replica that is in sync: it leads the
    partition, or follows its leader. Of other logs some things are known that their leaders have reported."""

    def leader(self, topic: str, partition: int) -> Leader | None:
        """The leader of a partition; None if there is no such partition."""

    def is_distant(self, topic: str, partition: int) -> bool:
        """Whether this broker has no replica of a partition that is in sync."""

    def learn(self, reported: Mapping[Partition, DistantLog]) -> None:
        """Take over what is reported of distant logs, now and while the mapping grows, in place of what was reported
        before."""

    def readable(self, topic: str, partition: int) -> tuple[int, int] | None:
        """The first offset of a log and its last stable offset; None if they are not known."""

    def end(self, topic: str, partition: int) -> int | None:
        """The end of a log; None without a replica that is in sync."""

    def removal(self, topic: str, partition: int) -> Removal | None:
        """The removal of the segments before the first offset of a log; None without a replica that is in sync, or if
        none has expired here since the start of this broker."""

    def has_records(self, topic: str, partition: int, offset: int) -> bool | None:
        """Whether a ``read_committed`` consumer gets a record from `offset` on; None if that is not known now.

        Markers of transactions and records of aborted ones do not count: consumers do not get them.
        """

    def since(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The first offset of a batch with a record of this time, in ms since 1970, or a later one; None if there is
        none, or if that is not known."""

    def codecs(self, topic: str, partition: int, offset: int) -> tuple[str, tuple[str, ...], int] | None:
        """The codec of the batch that holds an offset, or of one of those soon after it if it is the first with that
        codec; those of the last batches before; and the first offset of the batch. None if that is not known now."""

    def aborted_between(self, topic: str, partition: int, start: int, end: int) -> tuple[int, str | None] | None:
        """The number of transactions that were aborted by markers from `start` to before `end`, and the transactional
        id of the last one, if it is known; None if no transaction of the log was aborted, or if that is not known."""

    def aborted(self, topic: str, partition: int, offset: int) -> tuple[int, int, tuple[str, ...]] | None:
        """The number of records from `offset` on of which a ``read_committed`` consumer gets none, the offset after
        them, and the transactional ids that are known; None if it gets one, if there is none, or if that is not known
        now."""


class OtherBrokers(Protocol):
    """The other brokers of the cluster."""

    def all(self) -> Collection[int]:
        """Their node ids."""

    def advertised(self, node_id: int, listener: str) -> str | None:
        """HOST:PORT that a broker advertises to the clients of a listener, or of its first one if it has none of that
        name; None if there is no such broker."""

    def ask(self, node_id: int, message: bytes, done: Callable[[Buffer | None], None]) -> None:
        """Send a message to the group coordinator of a broker.

        Args:
            node_id: of the broker.
            message: its bytes.
            done: called once, later, with the answer; with None if there is none in time.
        """
