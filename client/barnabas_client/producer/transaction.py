"""The transactions of a producer: the state machine. Pure.

A producer with a transactional id has one :class:`TransactionMachine`. Each method takes `now` and returns
:data:`Effect` objects; :mod:`barnabas_client.producer.transaction_manager` carries them out. There is at most one
request to a coordinator at a time, chosen by :meth:`TransactionMachine._wanted` from what is still to be done, so a
transaction continues after any answer, any lost connection and any move of a coordinator in the same way: it asks
again, with back-off, until it has an answer.

**Two versions.** In the classic protocol (KIP-98) a partition is added with AddPartitionsToTxn before anything is sent
to it, and the epoch stays. If the cluster has ``transaction.version`` 2 (KIP-890), the leader adds the partition when
it gets the first batch, and EndTxn returns a new epoch, so that a late batch can never join the next transaction.

**Errors** (KIP-1050). Those that a retry may cure are retried. After an *abortable* error the transaction can only be
aborted, and the producer then goes on. After a *fatal* one the producer can do nothing more: another producer has the
transactional id, or this one may not use it. If acknowledgements are missing when a classic transaction is aborted, the
producer gets a new epoch (KIP-360), because the next sequence number is not known.

Sources: ``TransactionManager.java``; KIP-98, KIP-360, KIP-447, KIP-588, KIP-890, KIP-1050.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas_client.errors import (
    CommitFailedError,
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    error_for,
)
from barnabas_client.network.metadata import NO_ID
from barnabas_client.structs import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTransaction, TopicPartition
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas_protocol.schema import Request, Response

#: The name of the finalized feature (KIP-890).
FEATURE: Final = "transaction.version"
#: The newest versions that mean a classic transaction.
_CLASSIC_END_TXN: Final = 4
_CLASSIC_OFFSET_COMMIT: Final = 4
#: The newest version that names topics; newer ones have their ids (KIP-1319).
_OFFSETS_BY_NAME: Final = 5
#: Newer versions are those between brokers.
_CLIENTS_ADD_PARTITIONS: Final = 3

_TRANSACTION_KEY: Final = 1
_GROUP_KEY: Final = 0

_MOVED: Final = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
_FENCED: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
#: The coordinator has forgotten the transactional id with its producer id: a new one is needed, and nothing to end.
_FORGOTTEN: Final = frozenset((ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID))
#: Fatal, whether a coordinator or a leader answers it.
_FATAL: Final = frozenset(
    (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    )
)
_NOT_A_MEMBER: Final = frozenset(
    (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: The caller's name for something that it waits for.
Ticket = Any


class TransactionState(Enum):
    """Where a transactional producer stands."""

    #: Has no producer id, and asks for none. Goes to INITIALIZING.
    UNINITIALIZED = "uninitialized"
    #: Asks for a producer id, or for a new epoch after an abort. Goes to READY, or FATAL_ERROR.
    INITIALIZING = "initializing"
    #: Has a producer id, and no transaction. Goes to IN_TRANSACTION, or FATAL_ERROR.
    READY = "ready"
    #: Takes records and offsets. Goes to COMMITTING, ABORTING, PREPARED, ABORTABLE_ERROR, or FATAL_ERROR.
    IN_TRANSACTION = "in a transaction"
    #: Its transaction is complete, and ended elsewhere: the producer does nothing more. Goes to FATAL_ERROR.
    PREPARED = "prepared"
    #: Waits for acknowledgements, then for EndTxn. Goes to READY, ABORTABLE_ERROR, or FATAL_ERROR.
    COMMITTING = "committing"
    #: Waits for batches in flight, then for EndTxn. Goes to READY, INITIALIZING for a new epoch, or FATAL_ERROR.
    ABORTING = "aborting"
    #: The transaction can only be aborted. Goes to ABORTING, or FATAL_ERROR.
    ABORTABLE_ERROR = "in a transaction that must be aborted"
    #: The producer can do nothing more.
    FATAL_ERROR = "failed"


_S = TransactionState
_TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.UNINITIALIZED: frozenset((_S.INITIALIZING, _S.FATAL_ERROR)),
    _S.INITIALIZING: frozenset((_S.READY, _S.FATAL_ERROR)),
    _S.READY: frozenset((_S.IN_TRANSACTION, _S.FATAL_ERROR)),
    _S.IN_TRANSACTION: frozenset((_S.COMMITTING, _S.ABORTING, _S.PREPARED, _S.ABORTABLE_ERROR, _S.FATAL_ERROR)),
    _S.PREPARED: frozenset((_S.FATAL_ERROR,)),
    _S.COMMITTING: frozenset((_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR)),
    _S.ABORTING: frozenset((_S.READY, _S.INITIALIZING, _S.FATAL_ERROR)),
    _S.ABORTABLE_ERROR: frozenset((_S.ABORTING, _S.FATAL_ERROR)),
    _S.FATAL_ERROR: frozenset(),
}


class CoordinatorAddress(NamedTuple):
    """A coordinator, as FindCoordinator names it."""

    node_id: int
    host: str
    port: int


class Ask(NamedTuple):
    """Send a request; the answer goes to `answered`, or why there is none to `unanswered`.

    Attributes:
        request: in its newest form.
        answer: the class of the response.
        coordinator: where to send it; None for any broker.
        at_most: the newest version to use.
    """

    request: Request
    answer: type[Response]
    coordinator: CoordinatorAddress | None
    at_most: int | None = None


class Resolve(NamedTuple):
    """End the call that waits with a ticket: its work is done."""

    ticket: Ticket


class Reject(NamedTuple):
    """End the call that waits with a ticket: its work has failed."""

    ticket: Ticket
    error: KafkaError


class UseEpoch(NamedTuple):
    """Batches carry this producer id and epoch from now on, with sequence numbers from 0."""

    producer_id: int
    producer_epoch: int


class SendBatches(NamedTuple):
    """Batches of more partitions may be sent."""


class DropBatches(NamedTuple):
    """Drop the batches that are not in flight.

    Attributes:
        error: for their records.
        maybe_written: also those that a broker may have written.
    """

    error: KafkaError
    maybe_written: bool


Effect = Ask | Resolve | Reject | UseEpoch | SendBatches | DropBatches


@dataclass(slots=True)
class _OffsetCommit:
    """Offsets that are to be committed in the transaction. Those that are committed leave `left`.

    `topic_ids` has the ids of all topics, or is empty: then a request names them.
    """

    ticket: Ticket
    group: ConsumerGroupMetadata
    left: dict[TopicPartition, OffsetAndMetadata]
    topic_ids: Mapping[str, bytes]


class TransactionMachine:
    """The transactions of one producer, one after the other.

    Args:
        transactional_id: its name.
        timeout_ms: after which the coordinator aborts a transaction.
        backoff: of all retries.
        concurrent: of retries while the previous transaction's markers are being written, which takes milliseconds.
        features: the request for the features of the coordinator; it names this client and its version.

    Attributes:
        state: see :class:`TransactionState`.
        producer_id: -1 before there is one.
        producer_epoch: of the producer id.
        implicit: whether leaders add partitions themselves: ``transaction.version`` is 2.
        error: why the state is ABORTABLE_ERROR or FATAL_ERROR.
    """

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        backoff: Backoff,
        concurrent: Backoff,
        features: ApiVersionsRequest,
    ) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.state = TransactionState.UNINITIALIZED
        self.producer_id = -1
        self.producer_epoch = -1
        self.implicit = False
        self.error: KafkaError | None = None
        self._backoff = backoff
        self._concurrent = concurrent
        self._features = features
        self._coordinator: CoordinatorAddress | None = None
        self._group_coordinators: dict[str, CoordinatorAddress] = {}
        self._asked: Ask | None = None
        self._retry_at = 0.0
        #: The last refusal that is retried.
        self.last_error: KafkaError | None = None
        self._now = 0.0
        #: Whether `implicit` is known from the coordinator.
        self._has_version = False
        self._effects: list[Effect] = []
        #: Of the caller that waits for READY: of `initialize`, `commit` or `abort`.
        self._ticket: Ticket = None
        self._awaited = False
        #: The call that leads to READY, and the one that did while its caller had stopped waiting.
        self._call: str | None = None
        self._unheard: str | None = None
        #: Why the producer is fenced, while the coordinator is asked for the details.
        self._fence: KafkaError | None = None
        # The transaction.
        self._began = 0.0
        self._added: set[TopicPartition] = set()
        self._new: dict[TopicPartition, None] = {}
        self._groups: set[str] = set()
        self._offsets: deque[_OffsetCommit] = deque()
        #: Whether the coordinator has the transaction.
        self._started = False
        #: Whether a request that starts the transaction got no answer.
        self._maybe_started = False
        #: Whether an EndTxn got no answer.
        self._maybe_ended = False
        self._settled = False
        self._needs_epoch = False
        self._forgotten = False

    # Calls of the program.

    def initialize(self, ticket: Ticket, now: float) -> list[Effect]:
        """Get a producer id, which fences earlier producers with this transactional id and aborts their transaction."""
        self._now = now
        self._transition(TransactionState.INITIALIZING)
        self._ticket, self._awaited = ticket, True
        return self._go_on()

    def begin(self, now: float) -> None:
        """Begin a transaction; no broker hears of it yet.

        Raises:
            IllegalStateError: there is one already, or it is not over yet.
            KafkaError: the producer has failed.
        """
        self._check("begin_transaction", TransactionState.READY)
        self._transition(TransactionState.IN_TRANSACTION)
        self._began, self._unheard = now, None
        self._added, self._new, self._groups = set(), {}, set()
        self._started = self._maybe_started = self._maybe_ended = False
        self._settled = self._needs_epoch = self._forgotten = False

    def check_send(self) -> None:
        """Refuse a record that does not belong to a transaction.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaError: the transaction or the producer has failed.
        """
        if self.state is not TransactionState.IN_TRANSACTION:
            self._check("send", TransactionState.IN_TRANSACTION)

    def knows(self, tp: TopicPartition) -> bool:
        """Whether :meth:`add` was called for a partition in this transaction."""
        return tp in self._added or tp in self._new

    def add(self, tp: TopicPartition, now: float) -> list[Effect]:
        """The first record for this partition is in a batch."""
        self._now = now
        if self.implicit:
            self._added.add(tp)
            self._maybe_started = True
            return []
        self._new[tp] = None
        return self._go_on()

    def may_send(self, tp: TopicPartition) -> bool:
        """Whether batches of a partition may be sent."""
        return tp in self._added and self.state is not TransactionState.FATAL_ERROR and self._fence is None

    def send_offsets(
        self,
        ticket: Ticket,
        offsets: Offsets,
        group: ConsumerGroupMetadata,
        now: float,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> list[Effect]:
        """Commit offsets of a group in the transaction.

        Args:
            ticket: of the call.
            offsets: for each partition that of the next record to read.
            group: the consumer's identity.
            now: the time.
            topic_ids: of all topics; None if one is not known.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaError: the transaction or the producer has failed.
        """
        self._check("send_offsets_to_transaction", TransactionState.IN_TRANSACTION)
        self._now = now
        self._offsets.append(_OffsetCommit(ticket, group, dict(offsets), topic_ids or {}))
        return self._go_on()

    def commit(self, ticket: Ticket, now: float) -> list[Effect]:
        """Commit the transaction when all batches are acknowledged: see :meth:`settled`.

        A second call, after the first caller has stopped waiting, waits for the same commit.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaError: the transaction or the producer has failed.
        """
        self._now = now
        if self._has_done("commit_transaction"):
            return [Resolve(ticket)]
        if self.state is not TransactionState.COMMITTING or self._awaited:
            self._check("commit_transaction", TransactionState.IN_TRANSACTION)
            self._transition(TransactionState.COMMITTING)
            self._call = "commit_transaction"
        self._ticket, self._awaited = ticket, True
        return self._go_on()

    def prepare(self) -> PreparedTransaction:
        """Leave the transaction open, for another program to end it. All batches are acknowledged.

        Raises:
            IllegalStateError: there is no transaction, nothing was written in it, or something is still under way.
            KafkaError: the transaction or the producer has failed.
        """
        self._check("prepare_transaction", TransactionState.IN_TRANSACTION)
        if self._new or self._offsets:
            raise IllegalStateError(
                "prepare_transaction: records or offsets of the transaction are still being sent. To do: await them "
                "first"
            )
        if not (self._started or self._maybe_started):
            raise IllegalStateError(
                "prepare_transaction: nothing was written in the transaction, so no coordinator has it. To do: abort it"
            )
        self._transition(TransactionState.PREPARED)
        version = 2 if self.implicit else 1
        return PreparedTransaction(self.transactional_id, self.producer_id, self.producer_epoch, version)

    def abort(self, ticket: Ticket, now: float) -> list[Effect]:
        """Abort the transaction when no batch is in flight any more: see :meth:`settled`.

        A second call, after the first caller has stopped waiting, waits for the same abort.

        Raises:
            IllegalStateError: there is no transaction.
            KafkaError: the producer has failed.
        """
        self._now = now
        if self._has_done("abort_transaction"):
            return [Resolve(ticket)]
        ending = self.state in (TransactionState.ABORTING, TransactionState.INITIALIZING)
        if not ending or self._awaited:
            self._check("abort_transaction", TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR)
            self._transition(TransactionState.ABORTING)
            self._call = "abort_transaction"
            self.error = None
            self._new.clear()
            aborted = TransactionAbortedError("the transaction was aborted before this was sent")
            self._fail_offsets(aborted)
            self._effects.append(DropBatches(aborted, maybe_written=self.implicit))
        self._ticket, self._awaited = ticket, True
        return self._go_on()

    def _has_done(self, call: str) -> bool:
        """Whether this call has succeeded since its caller stopped waiting for it."""
        done = self.state is TransactionState.READY and self._unheard == call
        if done:
            self._unheard = None
        return done

    def abandon(self, ticket: Ticket) -> None:
        """The caller does not wait for the ticket any more; the work goes on."""
        if self._awaited and self._ticket is ticket:
            self._ticket, self._awaited = None, False
        for commit in self._offsets:
            if commit.ticket is ticket:
                commit.ticket = None

    @property
    def completing(self) -> bool:
        """Whether a transaction is being committed or aborted: batches need not linger."""
        return self.state in (TransactionState.COMMITTING, TransactionState.ABORTING)

    @property
    def open(self) -> bool:
        """Whether there is a transaction that neither `commit` nor `abort` was called for."""
        return self.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR)

    # Events of the batches.

    def batch_failed(self, error: KafkaError, now: float) -> list[Effect]:
        """A batch of the transaction was not written, or not acknowledged in time."""
        self._now = now
        if not (self.open or self.completing) or self._fence is not None:
            return []
        if error.code == ErrorCode.PRODUCER_FENCED:
            self._fence = error
        elif error.code in _FATAL:
            self._fail(error)
        else:
            # INVALID_PRODUCER_EPOCH as well: the coordinator says whether that is a fencing (KIP-588).
            self._needs_epoch = True
            self._forgotten = self._forgotten or error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            self._fail_transaction(error)
        return self._go_on()

    def settled(self, now: float, *, gap: bool) -> list[Effect]:
        """No batch of the transaction waits or is in flight any more.

        Args:
            now: the time.
            gap: whether the next sequence number of a partition is not known.
        """
        self._now = now
        if not self.completing:
            return []
        self._settled = True
        self._needs_epoch = self._needs_epoch or gap
        return self._go_on()

    def broken(self, error: KafkaError, now: float) -> list[Effect]:
        """Something cannot go on, because of a bug."""
        self._now = now
        if self.state is not TransactionState.FATAL_ERROR:
            self._fail(error)
        return self._go_on()

    # Events of the coordinators.

    def tick(self, now: float) -> list[Effect]:
        """The deadline may be over."""
        self._now = now
        return self._go_on()

    def next_deadline(self) -> float | None:
        """When to call :meth:`tick`, None while nothing waits for a retry."""
        if self._asked is not None or self._retry_at <= self._now or self._wanted() is None:
            return None
        return self._retry_at

    def unanswered(self, error: KafkaError, now: float) -> list[Effect]:
        """The request got no answer, or could not be sent."""
        self._now = now
        asked, self._asked = self._asked, None
        if asked is None or self.state is TransactionState.FATAL_ERROR:
            return []
        request = asked.request
        self._lose(asked.coordinator)
        if isinstance(request, AddPartitionsToTxnRequest | AddOffsetsToTxnRequest | TxnOffsetCommitRequest):
            self._maybe_started = True
        if isinstance(request, EndTxnRequest):
            self._maybe_ended = True
        self._refuse(error)
        return self._go_on()

    def answered(self, response: Response, now: float) -> list[Effect]:
        """The answer to the request that is in flight."""
        self._now = now
        asked, self._asked = self._asked, None
        if asked is None or self.state is TransactionState.FATAL_ERROR:
            return []
        request = asked.request
        if isinstance(response, FindCoordinatorResponse) and isinstance(request, FindCoordinatorRequest):
            self._found(request, response)
        elif isinstance(response, ApiVersionsResponse):
            self._versions(response)
        elif isinstance(response, InitProducerIdResponse):
            self._initialized(response)
        elif isinstance(response, AddPartitionsToTxnResponse) and isinstance(request, AddPartitionsToTxnRequest):
            self._partitions_added(request, response)
        elif isinstance(response, AddOffsetsToTxnResponse) and isinstance(request, AddOffsetsToTxnRequest):
            self._offsets_added(request, response)
        elif isinstance(response, TxnOffsetCommitResponse) and isinstance(request, TxnOffsetCommitRequest):
            self._offsets_committed(request, response)
        elif isinstance(response, EndTxnResponse) and isinstance(request, EndTxnRequest):
            self._ended(request, response)
        elif isinstance(response, DescribeTransactionsResponse):
            self._fenced(response)
        return self._go_on()

    # What to ask next.

    def _go_on(self) -> list[Effect]:
        if self._asked is None:
            ask = self._wanted()
            if ask is None and self.completing and self._is_over():
                self._complete()
                ask = self._wanted()
            if ask is not None and self._retry_at <= self._now:
                self._asked = ask
                self._effects.append(ask)
        effects, self._effects = self._effects, []
        return effects

    def _wanted(self) -> Ask | None:
        """The request that brings the machine further, None if it waits for something else."""
        if self._fence is not None:
            request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
            return self._of_transaction(request, DescribeTransactionsResponse)
        if self.state is TransactionState.INITIALIZING:
            return self._wanted_to_initialize()
        if self.state is TransactionState.ABORTING:
            return self._wanted_to_end(committed=False)
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            if self._new:
                return self._of_transaction(
                    AddPartitionsToTxnRequest(
                        v3_and_below_transactional_id=self.transactional_id,
                        v3_and_below_producer_id=self.producer_id,
                        v3_and_below_producer_epoch=self.producer_epoch,
                        v3_and_below_topics=[
                            AddPartitionsToTxnTopic(name=name, partitions=numbers)
                            for name, numbers in _by_topic(self._new)
                        ],
                    ),
                    AddPartitionsToTxnResponse,
                    _CLIENTS_ADD_PARTITIONS,
                )
            if self._offsets:
                return self._wanted_for_offsets(self._offsets[0])
            if self.state is TransactionState.COMMITTING:
                return self._wanted_to_end(committed=True)
        return None

    def _wanted_to_initialize(self) -> Ask:
        if not self._has_version:
            return self._of_transaction(self._features, ApiVersionsResponse)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )
        return self._of_transaction(request, InitProducerIdResponse)

    def _wanted_for_offsets(self, commit: _OffsetCommit) -> Ask:
        group = commit.group
        if not self.implicit and group.group_id not in self._groups:
            return self._of_transaction(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    group_id=group.group_id,
                ),
                AddOffsetsToTxnResponse,
            )
        coordinator = self._group_coordinators.get(group.group_id)
        if coordinator is None:
            return _find(_GROUP_KEY, group.group_id)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    topic_id=commit.topic_ids.get(name, NO_ID),
                    partitions=[_offset(number, commit.left[TopicPartition(name, number)]) for number in numbers],
                )
                for name, numbers in _by_topic(commit.left)
            ],
        )
        newest = None if commit.topic_ids else _OFFSETS_BY_NAME
        return Ask(
            request, TxnOffsetCommitResponse, coordinator, at_most=newest if self.implicit else _CLASSIC_OFFSET_COMMIT
        )

    def _wanted_to_end(self, *, committed: bool) -> Ask | None:
        if not self._settled or self._forgotten or not (self._started or self._maybe_started):
            return None
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        return self._of_transaction(request, EndTxnResponse, None if self.implicit else _CLASSIC_END_TXN)

    def _of_transaction(self, request: Request, answer: type[Response], at_most: int | None = None) -> Ask:
        """The request to the transaction's coordinator, or the one that finds it."""
        if self._coordinator is None:
            return _find(_TRANSACTION_KEY, self.transactional_id)
        return Ask(request, answer, self._coordinator, at_most)

    def _is_over(self) -> bool:
        """Whether the coordinator need not hear of the end: it has no transaction."""
        return self._settled and not self._new and not self._offsets

    # Answers.

    def _found(self, request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> None:
        (key,) = request.coordinator_keys
        found = next(iter(response.coordinators), None)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if found is None else ErrorCode.of(found.error_code)
        if found is not None and code == ErrorCode.NONE:
            address = CoordinatorAddress(found.node_id, found.host, found.port)
            if request.key_type == _GROUP_KEY:
                self._group_coordinators[key] = address
            else:
                self._coordinator = address
            return
        detail = None if found is None else found.error_message
        what = "group" if request.key_type == _GROUP_KEY else "transactional id"
        self._refuse(error_for(code, f"find the coordinator of {what} {key!r}", detail))

    def _versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            self._lose(self._coordinator)
            self._refuse(error_for(response.error_code, "ask the transaction coordinator for its features"))
            return
        features = {feature.name: feature.max_version_level for feature in response.finalized_features}
        self.implicit = features.get(FEATURE, 0) >= 2
        self._has_version = True

    def _initialized(self, response: InitProducerIdResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            self._refuse_code(response.error_code, f"initialize transactional id {self.transactional_id!r}")
            return
        self._succeeded()
        self._use(response.producer_id, response.producer_epoch)
        self._ready()

    def _partitions_added(self, request: AddPartitionsToTxnRequest, response: AddPartitionsToTxnResponse) -> None:
        codes = {
            TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        asked = [
            TopicPartition(topic.name, number) for topic in request.v3_and_below_topics for number in topic.partitions
        ]
        # A broker adds all partitions or none: the others then have OPERATION_NOT_ATTEMPTED.
        refused = {tp: code for tp in asked if (code := codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR))}
        if not refused:
            self._succeeded()
            self._started = True
            self._added.update(asked)
            for tp in asked:
                self._new.pop(tp, None)
            self._effects.append(SendBatches())
            return
        tp, code = min(refused.items(), key=lambda item: item[1] == ErrorCode.OPERATION_NOT_ATTEMPTED)
        self._refuse_code(code, f"add {tp} to the transaction of {self.transactional_id!r}")

    def _offsets_added(self, request: AddOffsetsToTxnRequest, response: AddOffsetsToTxnResponse) -> None:
        if response.error_code == ErrorCode.NONE:
            self._succeeded()
            self._started = True
            self._groups.add(request.group_id)
        else:
            what = f"add the offsets of group {request.group_id!r} to the transaction of {self.transactional_id!r}"
            self._refuse_code(response.error_code, what)

    def _offsets_committed(self, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse) -> None:
        commit = self._offsets[0] if self._offsets else None
        if commit is None:
            self._maybe_started = True  # aborted meanwhile
            return
        names = {bytes(topic.topic_id): topic.name for topic in request.topics}
        codes = {
            TopicPartition(topic.name or names.get(bytes(topic.topic_id), ""), one.partition_index): ErrorCode.of(
                one.error_code
            )
            for topic in response.topics
            for one in topic.partitions
        }
        refused: dict[TopicPartition, ErrorCode] = {}
        for tp in list(commit.left):
            code = codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code == ErrorCode.NONE:
                del commit.left[tp]
                self._started = True
            else:
                refused[tp] = code
        if not refused:
            self._succeeded()
            self._offsets.popleft()
            self._resolve(commit.ticket)
            return
        tp, code = min(refused.items(), key=lambda item: item[1].retriable)
        what = (
            f"commit the offset of {tp} to group {request.group_id!r} in the transaction of {self.transactional_id!r}"
        )
        if code in _NOT_A_MEMBER:
            self._fail_transaction(
                CommitFailedError(
                    f"{what}: {code.name}: the consumer is not a member of the group's current generation. To do: "
                    "abort the transaction and poll to rejoin; the partitions may be assigned to another member"
                )
            )
        elif code == ErrorCode.UNKNOWN_TOPIC_ID:
            self._fail_transaction(
                CommitFailedError(
                    f"{what}: the topic was deleted, and maybe created again. To do: abort the transaction and poll, "
                    "which resets the positions"
                )
            )
        elif code in _MOVED or code == ErrorCode.REQUEST_TIMED_OUT:
            self._group_coordinators.pop(request.group_id, None)
            self._retry(error_for(code, what))
        else:
            self._refuse_code(code, what)

    def _ended(self, request: EndTxnRequest, response: EndTxnResponse) -> None:
        what = f"{'commit' if request.committed else 'abort'} the transaction of {self.transactional_id!r}"
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.INVALID_TXN_STATE and not request.committed and not self._started:
            # The request that was to start the transaction never arrived; it still may, with this epoch.
            self._maybe_started, self._needs_epoch = False, True
            return
        if code != ErrorCode.NONE:
            self._refuse_code(code, what)
            return
        self._succeeded()
        self._started = self._maybe_started = False
        if response.producer_id >= 0 and self.implicit:
            self._use(response.producer_id, response.producer_epoch)
            self._needs_epoch = False

    # Outcomes.

    def _complete(self) -> None:
        if self.state is TransactionState.ABORTING and (self._needs_epoch or self._forgotten):
            self._transition(TransactionState.INITIALIZING)
        else:
            self._ready()

    def _ready(self) -> None:
        self._unheard = None if self._awaited else self._call
        self._transition(TransactionState.READY)
        ticket, self._ticket, self._awaited = self._ticket, None, False
        self._resolve(ticket)

    def _use(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._effects.append(UseEpoch(producer_id, producer_epoch))

    def _succeeded(self) -> None:
        self._backoff.succeeded()
        self._concurrent.succeeded()

    def _lose(self, coordinator: CoordinatorAddress | None) -> None:
        """Look for a coordinator again."""
        if coordinator is None:
            return
        if self._coordinator == coordinator:
            self._coordinator = None
        for group in [group for group, known in self._group_coordinators.items() if known == coordinator]:
            del self._group_coordinators[group]

    def _retry(self, error: KafkaError) -> None:
        backoff = self._concurrent if error.code == ErrorCode.CONCURRENT_TRANSACTIONS else self._backoff
        self._retry_at = self._now + backoff.failed()
        self.last_error = error

    def _refuse_code(self, code: int, what: str) -> None:
        self._refuse(error_for(code, what))

    def _refuse(self, error: KafkaError) -> None:
        """A coordinator has refused a request of the transaction."""
        code = error.code
        if self._fence is not None:
            self._fenced(None)
        elif code in _FENCED:
            self._fence = error
        elif code in _MOVED:
            self._coordinator = None
            self._retry(error)
        elif error.retriable:
            self._retry(error)
        elif code in _FORGOTTEN and self.state is not TransactionState.INITIALIZING and not self._maybe_ended:
            self._forgotten = True
            if self.state is not TransactionState.ABORTING:
                self._fail_transaction(error)
        elif (
            code in _FATAL
            or code == ErrorCode.INVALID_TXN_STATE
            or self._maybe_ended
            or self.state in (TransactionState.INITIALIZING, TransactionState.ABORTING)
        ):
            self._fail(error)
        else:
            self._fail_transaction(error)

    def _fail_transaction(self, error: KafkaError) -> None:
        """Only an abort is possible now."""
        self._new.clear()
        if self.state is TransactionState.ABORTING:
            return
        first = self.error is None
        if first:
            self.error = error
        for commit in self._offsets:
            self._reject(commit.ticket, error)
        self._offsets.clear()
        if self.state is not TransactionState.ABORTABLE_ERROR:
            self._transition(TransactionState.ABORTABLE_ERROR)
        if self._awaited:
            ticket, self._ticket, self._awaited = self._ticket, None, False
            self._reject(ticket, self._abortable("commit_transaction"))

    def _fenced(self, response: DescribeTransactionsResponse | None) -> None:
        """The coordinator has said what it knows about the transactional id, or it has not."""
        assert self._fence is not None
        now = self._now
        said = "" if response is None or not response.transaction_states else _owner(response)
        lasted = now - self._began
        timed_out = (self._started or self._maybe_started) and lasted * 1000 >= self.timeout_ms
        if timed_out:
            why = (
                f"its transaction was open for {lasted:.1f} s, longer than transaction_timeout_ms ({self.timeout_ms} "
                "ms), so the coordinator aborted it; or another producer has taken over"
            )
            remedy = "commit more often, or raise transaction_timeout_ms"
        else:
            why = "another producer with this transactional id has taken over, or its transaction was aborted"
            remedy = "run one producer with a transactional id at a time"
        mine = f"this producer has epoch {self.producer_epoch} of producer id {self.producer_id}"
        self._fail(
            ProducerFencedError(
                f"transactional id {self.transactional_id!r} is fenced ({self._fence.code.name}): {why}; "
                f"{mine}{said}. To do: stop this producer; {remedy}",
                producer_epoch=self.producer_epoch,
                current_epoch=_epoch(response),
            )
        )

    def _fail(self, error: KafkaError) -> None:
        """Nothing is possible any more."""
        if self._maybe_ended and self.state is TransactionState.COMMITTING:
            error.add_note("whether the transaction was committed is not known: a commit was sent and not answered")
        self.error = error
        self._fence = None
        self._new.clear()
        self._transition(TransactionState.FATAL_ERROR)
        for commit in self._offsets:
            self._reject(commit.ticket, error)
        self._offsets.clear()
        self._effects.append(DropBatches(error, maybe_written=True))
        if self._awaited:
            ticket, self._ticket, self._awaited = self._ticket, None, False
            self._reject(ticket, error)

    def _fail_offsets(self, error: KafkaError) -> None:
        if self._asked is not None and isinstance(self._asked.request, TxnOffsetCommitRequest):
            self._maybe_started = True
        for commit in self._offsets:
            self._reject(commit.ticket, error)
        self._offsets.clear()

    def _resolve(self, ticket: Ticket) -> None:
        if ticket is not None:
            self._effects.append(Resolve(ticket))

    def _reject(self, ticket: Ticket, error: KafkaError) -> None:
        if ticket is not None:
            self._effects.append(Reject(ticket, error))

    def _transition(self, to: TransactionState) -> None:
        if to not in _TRANSITIONS[self.state]:
            raise AssertionError(f"a transactional producer cannot go from {self.state} to {to}")
        self.state = to

    def _abortable(self, call: str) -> TransactionAbortableError:
        failure = TransactionAbortableError(
            f"{call}: the transaction of {self.transactional_id!r} has failed and can only be aborted: {self.error}. "
            "To do: abort it, and begin another one"
        )
        failure.__cause__ = self.error
        return failure

    def _check(self, call: str, *allowed: TransactionState) -> None:
        """Refuse a call in the wrong state."""
        if self.state in allowed:
            return
        if self.state is TransactionState.FATAL_ERROR and self.error is not None:
            raise self.error.with_traceback(None)
        if self.state is TransactionState.ABORTABLE_ERROR:
            raise self._abortable(call)
        raise IllegalStateError(
            f"{call}: the transactional producer {self.transactional_id!r} is {self.state.value}. "
            f"To do: {_REMEDIES[self.state]}"
        )


_REMEDIES: Final[Mapping[TransactionState, str]] = {
    TransactionState.UNINITIALIZED: "await start() first",
    TransactionState.INITIALIZING: "wait until start() or abort_transaction() returns",
    TransactionState.READY: "begin a transaction first: `async with producer.transaction():`, or begin_transaction()",
    TransactionState.IN_TRANSACTION: "commit or abort the transaction first",
    TransactionState.PREPARED: "stop this producer, and end its transaction with Admin.end_transactions()",
    TransactionState.COMMITTING: "await commit_transaction() until it returns",
    TransactionState.ABORTING: "await abort_transaction() until it returns",
}


def _find(kind: int, key: str) -> Ask:
    return Ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), FindCoordinatorResponse, None)


def _by_topic(partitions: Collection[TopicPartition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return list(found.items())


def _offset(number: int, offset: OffsetAndMetadata) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _epoch(response: DescribeTransactionsResponse | None) -> int | None:
    if response is None or not response.transaction_states or response.transaction_states[0].error_code:
        return None
    return response.transaction_states[0].producer_epoch


def _owner(response: DescribeTransactionsResponse) -> str:
    known = response.transaction_states[0]
    if known.error_code != ErrorCode.NONE:
        return ""
    return (
        f", the coordinator has epoch {known.producer_epoch} of producer id {known.producer_id}, whose transaction is "
        f"{known.transaction_state}"
    )
