"""The errors of the client. Each message says what happened, why if it is known, and what to do about it.

All are a :class:`~barnabas_protocol.errors.KafkaError`, so ``except KafkaError`` catches every error of a broker or of
the client, and ``error.retriable`` says whether trying again may help. Error codes that programs catch by name have a
class here; the others are raised as `KafkaError` with their code. Names are aiokafka's where aiokafka has one.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from barnabas_protocol.errors import ErrorCode, KafkaError

__all__ = [
    "AuthenticationFailedError",
    "BufferExhaustedError",
    "CommitFailedError",
    "ConsumerStoppedError",
    "CorruptRecordError",
    "DeliveryTimeoutError",
    "ErrorCode",
    "FencedInstanceIdError",
    "GroupAuthorizationFailedError",
    "GroupMaxSizeReachedError",
    "IllegalOperationError",
    "IllegalStateError",
    "InvalidRegularExpressionError",
    "InvalidTopicError",
    "KafkaConnectionError",
    "KafkaError",
    "KafkaTimeoutError",
    "LogTruncationError",
    "MessageSizeTooLargeError",
    "NoOffsetForPartitionError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceNumberError",
    "ProducerClosedError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RebalanceListenerError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "StaleMemberEpochError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "UnsupportedVersionError",
    "WakeupError",
    "error_for",
]


class _Named(KafkaError):
    """An error whose class has its code."""

    CODE: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str) -> None:
        super().__init__(self.CODE, message)


class KafkaConnectionError(_Named):
    """A connection could not be opened, or it ended before a response. The request may have been carried out."""

    CODE = ErrorCode.NETWORK_EXCEPTION


class KafkaTimeoutError(_Named):
    """An operation took longer than its timeout."""

    CODE = ErrorCode.REQUEST_TIMED_OUT


class BufferExhaustedError(KafkaTimeoutError):
    """The producer's `buffer_memory` stayed full for `max_block_ms`: the brokers are slower than the program."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record was not acknowledged within `delivery_timeout_ms`. It may have been written."""


class UnsupportedVersionError(_Named):
    """The broker is too old or too new for a request."""

    CODE = ErrorCode.UNSUPPORTED_VERSION


class IllegalStateError(_Named):
    """A call that is not valid now: not started, subscribe after assign, a partition that is not assigned."""


class IllegalOperationError(IllegalStateError):
    """A call that is never valid with these settings, such as a commit without a group."""


class ConsumerStoppedError(IllegalStateError):
    """The consumer was stopped, before or during the call."""


class ProducerClosedError(IllegalStateError):
    """The producer was stopped, before or during the call."""


class ProducerFencedError(_Named):
    """Another producer has taken over the transactional id, or the coordinator has aborted a transaction that took
    longer than `transaction_timeout_ms`. This producer cannot go on.

    Attributes:
        producer_epoch: of this producer, -1 if it is not known.
        current_epoch: of the producer that has taken over; None if the coordinator did not say.
    """

    CODE = ErrorCode.PRODUCER_FENCED

    def __init__(self, message: str, *, producer_epoch: int = -1, current_epoch: int | None = None) -> None:
        super().__init__(message)
        self.producer_epoch = producer_epoch
        self.current_epoch = current_epoch


class TransactionAbortableError(_Named):
    """The transaction has failed and can only be aborted; the producer can then begin another one (KIP-1050).

    The cause, `__cause__`, says why it has failed.
    """

    CODE = ErrorCode.TRANSACTION_ABORTABLE


class TransactionAbortedError(_Named):
    """A record or an offset was not sent, because its transaction was aborted before."""


class WakeupError(_Named):
    """`Consumer.wakeup()` was called: raised once, by the current poll or by the next one."""


class NoOffsetForPartitionError(_Named):
    """A partition has no committed offset, and `auto_offset_reset` is "none"."""


class OffsetOutOfRangeError(_Named):
    """A position is outside of its partition, and `auto_offset_reset` is "none"."""

    CODE = ErrorCode.OFFSET_OUT_OF_RANGE


class LogTruncationError(OffsetOutOfRangeError):
    """Records that were read are no longer in the partition, and `auto_offset_reset` is "none" (KIP-320).

    A new leader does not have them, after an unclean leader election or the loss of a disk. What the program derived
    from records at and after `offset` may have to be undone; `seek(offset)` continues with the first new record.

    Attributes:
        topic_partition: the partition.
        position: of the consumer.
        offset: from here on the partition has other records than before; None if the leader does not know.
        leader_epoch: of that offset, -1 if the leader does not know.
    """

    def __init__(
        self, message: str, topic_partition: tuple[str, int], position: int, offset: int | None, leader_epoch: int
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.position = position
        self.offset = offset
        self.leader_epoch = leader_epoch


class RecordTooLargeError(_Named):
    """A record is larger than one fetch response, or than the producer's `max_request_size`."""

    CODE = ErrorCode.RECORD_LIST_TOO_LARGE


class MessageSizeTooLargeError(_Named):
    """The broker refused a batch as larger than the topic's `max.message.bytes`."""

    CODE = ErrorCode.MESSAGE_TOO_LARGE


class CorruptRecordError(_Named):
    """A record batch does not match its checksum, or cannot be decoded."""

    CODE = ErrorCode.CORRUPT_MESSAGE


class RecordDeserializationError(_Named):
    """A deserializer raised an exception, which is the cause.

    Attributes:
        topic_partition: the partition of the record.
        offset: its offset.
    """

    CODE = ErrorCode.INVALID_RECORD

    def __init__(self, topic_partition: tuple[str, int], offset: int, error: Exception) -> None:
        super().__init__(
            f"the deserializer raised {type(error).__name__} for the record at offset {offset} of "
            f"{topic_partition[0]}-{topic_partition[1]}: {error}. "
            f"To do: repair the deserializer, or seek() to offset {offset + 1} to leave this record out"
        )
        self.topic_partition = topic_partition
        self.offset = offset


class RebalanceListenerError(_Named):
    """The program's rebalance listener raised an exception, which is the cause. The rebalance continued."""


class CommitFailedError(_Named):
    """Offsets were not committed, and cannot be: this consumer is not a member of its group's current generation, or a
    topic was deleted and created again."""

    CODE = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgressError(_Named):
    """Offsets were not committed, because the group is rebalancing. Poll, so that it can end, and commit again."""

    CODE = ErrorCode.REBALANCE_IN_PROGRESS

    @property
    def retriable(self) -> bool:
        """True: the commit may succeed after the rebalance."""
        return True


class StaleMemberEpochError(_Named):
    """Offsets were not committed, because the member epoch has changed (KIP-848). The next heartbeat brings the new
    one; commit again after it."""

    CODE = ErrorCode.STALE_MEMBER_EPOCH

    @property
    def retriable(self) -> bool:
        """True: the commit may succeed with the new epoch."""
        return True


class UnreleasedInstanceIdError(_Named):
    """Another member of the group holds this `group_instance_id`: it runs, or ended without leaving (KIP-848)."""

    CODE = ErrorCode.UNRELEASED_INSTANCE_ID


class UnsupportedAssignorError(_Named):
    """The broker does not have the `group_remote_assignor`."""

    CODE = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(_Named):
    """The broker refused the pattern of the subscription, which is a regular expression of RE2."""

    CODE = ErrorCode.INVALID_REGULAR_EXPRESSION


class GroupMaxSizeReachedError(_Named):
    """The group has as many members as the broker allows."""

    CODE = ErrorCode.GROUP_MAX_SIZE_REACHED


class FencedInstanceIdError(_Named):
    """Another consumer uses the same `group_instance_id`."""

    CODE = ErrorCode.FENCED_INSTANCE_ID


class GroupAuthorizationFailedError(_Named):
    """This client is not allowed to use the group."""

    CODE = ErrorCode.GROUP_AUTHORIZATION_FAILED


class AuthenticationFailedError(_Named):
    """The broker does not accept the user and the password, or the mechanism."""

    CODE = ErrorCode.SASL_AUTHENTICATION_FAILED


class TopicAuthorizationFailedError(_Named):
    """This client is not allowed to use the topic."""

    CODE = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TopicAlreadyExistsError(_Named):
    """A topic with this name exists."""

    CODE = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidTopicError(_Named):
    """The topic name is not valid."""

    CODE = ErrorCode.INVALID_TOPIC_EXCEPTION


class UnknownTopicOrPartitionError(_Named):
    """The topic or the partition does not exist, or the broker does not lead it."""

    CODE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OutOfOrderSequenceNumberError(_Named):
    """The broker does not have all earlier records of an idempotent producer; acknowledged ones may be lost."""

    CODE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _by_code(classes: Iterable[type[_Named]]) -> dict[ErrorCode, type[_Named]]:
    return {cls.CODE: cls for cls in classes}


_CLASSES: Final = _by_code(
    (
        KafkaConnectionError,
        KafkaTimeoutError,
        UnsupportedVersionError,
        OffsetOutOfRangeError,
        RecordTooLargeError,
        MessageSizeTooLargeError,
        CorruptRecordError,
        FencedInstanceIdError,
        StaleMemberEpochError,
        UnreleasedInstanceIdError,
        UnsupportedAssignorError,
        InvalidRegularExpressionError,
        GroupMaxSizeReachedError,
        AuthenticationFailedError,
        GroupAuthorizationFailedError,
        TopicAuthorizationFailedError,
        TopicAlreadyExistsError,
        InvalidTopicError,
        UnknownTopicOrPartitionError,
        OutOfOrderSequenceNumberError,
        RebalanceInProgressError,
        ProducerFencedError,
        TransactionAbortableError,
    )
)

_REMEDIES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic, or check its name",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records or batches, or raise the topic's max.message.bytes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant this client access to the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "grant this client access to the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "grant this client access to the cluster",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
    ErrorCode.INVALID_GROUP_ID: "use a group_id that is not empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: "choose session_timeout_ms within the broker's group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
    ErrorCode.OFFSET_OUT_OF_RANGE: "choose an offset from the start to the end of the partition",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "shorten the metadata of the offset, or raise the broker's "
    "offset.metadata.max.bytes",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "give all members of the group at least one common "
    "partition_assignment_strategy",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "run fewer members, or raise the broker's group.max.size, or "
    "group.consumer.max.size with group_protocol='consumer'",
    ErrorCode.FENCED_INSTANCE_ID: "give each running consumer a group_instance_id of its own",
    ErrorCode.UNRELEASED_INSTANCE_ID: "stop the other consumer with this group_instance_id, or, if it has crashed, try "
    "again when its session has expired (the broker's group.consumer.session.timeout.ms)",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "choose a group_remote_assignor of the broker's group.consumer.assignors, such as "
    "'uniform' or 'range'",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "give a pattern that RE2 accepts (no lookaround, no backreferences), or "
    "re.compile(pattern), which the client matches",
    ErrorCode.NOT_ENOUGH_REPLICAS: "wait for replicas to come back, or lower min.insync.replicas",
    ErrorCode.INVALID_REPLICATION_FACTOR: "ask for no more replicas than there are brokers",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "use another compression_type, or a newer broker",
    ErrorCode.CORRUPT_MESSAGE: "retry; if the error remains, the data is damaged in transit or on the broker's disk",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant this client access to the transactional id",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "choose transaction_timeout_ms up to the broker's "
    "transaction.max.timeout.ms",
    ErrorCode.PRODUCER_FENCED: "run one producer with a transactional id at a time",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "check its name; ids that were not used for long are forgotten",
    ErrorCode.TOPIC_ALREADY_EXISTS: "use it as it is, or delete it first",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "check the topic: it may have lost records, or been deleted "
    "and created again",
}


def error_for(code: int, what: str, detail: str | None = None, *, remedy: str | None = None) -> KafkaError:
    """Create the exception for an error code of a broker.

    Args:
        code: the error code; a code that this client does not know becomes UNKNOWN_SERVER_ERROR.
        what: what was attempted, such as ``"commit to group 'g'"``.
        detail: the broker's error message, if it sent one.
        remedy: what to do about it; None for what usually helps.
    """
    known = ErrorCode.of(code)
    message = f"{what}: {known.name}"
    if known == ErrorCode.UNKNOWN_SERVER_ERROR and code != known:
        message += f" (code {code})"
    if detail:
        message += f", {detail.rstrip('.')}"
    remedy = remedy or _REMEDIES.get(known)
    if remedy is not None:
        message += f". To do: {remedy}"
    cls = _CLASSES.get(known)
    return KafkaError(known, message) if cls is None else cls(message)
