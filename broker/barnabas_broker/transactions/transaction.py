"""The state machine of one transactional id. Pure: requests in, decisions out.

Times are ms since 1970, because they are stored and the next coordinator compares them with its own clock.

The machine decides on a new :class:`Metadata` and returns it as a record. It is in its new state when the record is
durable (:meth:`Transaction.apply`); until then the runtime lets requests wait. They also wait while markers are being
written, and get CONCURRENT_TRANSACTIONS if that takes long; clients repeat them.

Source: Kafka 4.3's ``TransactionMetadata`` and ``TransactionCoordinator``; KIP-98, KIP-360 (a producer recovers with
its old epoch), KIP-588 (timeouts), KIP-890 (version 2: each transaction has its own epoch).
"""

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Final, NamedTuple

from barnabas_broker.coordinators.result import IllegalTransition, Result
from barnabas_broker.storage.names import TopicPartition
from barnabas_explain.transactions import Cause
from barnabas_protocol.errors import ErrorCode

#: No producer id, no epoch.
NONE: Final = -1
#: The largest epoch; only a fence uses it. Clients get at most the one before.
MAX_EPOCH: Final = 2**15 - 1
#: The version of transactions that this broker decides with itself (the feature ``transaction.version``).
SERVER_VERSION: Final = 2

#: No partitions: one object, because each empty set that Python makes takes 216 bytes.
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class TransactionState(Enum):
    """State of a transactional id. The value is the name in DescribeTransactions and ListTransactions."""

    EMPTY = "Empty"
    """It has a producer id, and no transaction was begun with its current epoch.

    Requests: InitProducerId gives the next epoch; partitions begin a transaction; EndTxn fails with INVALID_TXN_STATE,
    except for an abort in version 2, which is written without markers and gives the next epoch.
    """

    ONGOING = "Ongoing"
    """A transaction is open.

    Requests: partitions are added; EndTxn decides it; InitProducerId aborts it and fences its producer, the client
    gets CONCURRENT_TRANSACTIONS and repeats the request; after its timeout it is aborted.
    """

    PREPARE_COMMIT = "PrepareCommit"
    """The commit is decided and in the log; its markers are being written. Requests: CONCURRENT_TRANSACTIONS."""

    PREPARE_ABORT = "PrepareAbort"
    """The abort is decided and in the log; its markers are being written. Requests: CONCURRENT_TRANSACTIONS."""

    COMPLETE_COMMIT = "CompleteCommit"
    """The last transaction was committed everywhere.

    Requests: as EMPTY; EndTxn that repeats the commit succeeds.
    """

    COMPLETE_ABORT = "CompleteAbort"
    """The last transaction was aborted everywhere.

    Requests: as EMPTY; EndTxn that repeats the abort succeeds.
    """

    DEAD = "Dead"
    """The transactional id has expired. Final."""

    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    """Kafka's name for the moment in which a fence is decided. It is never in the log, and nothing stays in it; clients
    may filter by it."""


#: The status byte of each state in ``__transaction_state``.
STATUS: Final[dict[TransactionState, int]] = {state: number for number, state in enumerate(TransactionState)}

_S = TransactionState
#: The states that can follow each state.
TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset((_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD)),
    _S.ONGOING: frozenset((_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE)),
    _S.PREPARE_COMMIT: frozenset((_S.COMPLETE_COMMIT,)),
    _S.PREPARE_ABORT: frozenset((_S.COMPLETE_ABORT,)),
    _S.COMPLETE_COMMIT: frozenset((_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD)),
    _S.COMPLETE_ABORT: frozenset((_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD)),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset((_S.PREPARE_ABORT,)),
}

_PREPARED: Final = frozenset((_S.PREPARE_COMMIT, _S.PREPARE_ABORT))
#: The states in which a transactional id may expire.
IDLE: Final = (_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)


class Metadata(NamedTuple):
    """The stored state of a transactional id.

    Attributes:
        state: never DEAD or PREPARE_EPOCH_FENCE in the log.
        producer_id: of the current producer.
        producer_epoch: its epoch; -1 before the first InitProducerId is in the log.
        timeout_ms: how long a transaction may be open.
        partitions: those of the transaction.
        start_ms: when the transaction began; -1 for none.
        updated_ms: when the state changed last.
        last_epoch: the epoch before the current one, for a request that is repeated; -1 if it was fenced. Not stored.
        previous_producer_id: the producer id before the last change.
        next_producer_id: the producer id after the markers are written, if the epochs of this one are exhausted.
        version: the version of transactions that the client speaks: 0 or 2.
    """

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    updated_ms: int
    last_epoch: int = NONE
    previous_producer_id: int = NONE
    next_producer_id: int = NONE
    version: int = 0


class TxnReply(NamedTuple):
    """The answer to a request.

    Attributes:
        error: NONE for success.
        producer_id: of InitProducerId, and of EndTxn from version 5 on; -1 otherwise.
        producer_epoch: likewise.
    """

    error: ErrorCode
    producer_id: int = NONE
    producer_epoch: int = NONE


class SendMarkers(NamedTuple):
    """Write markers to these partitions, then report each with ``Transaction.markers_written``; there may be none."""

    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    version: int


class Ended(NamedTuple):
    """A transaction was decided, for the log and the metrics.

    Attributes:
        committed: whether it was committed.
        cause: why.
        before: the state of the transaction, with its partitions and its start.
    """

    committed: bool
    cause: Cause
    before: Metadata


class Completed(NamedTuple):
    """All markers of a transaction are written, and so is the record of that."""


class RefusedStep(NamedTuple):
    """A client asked for a step that the state does not allow, for the log."""

    asked: str
    state: TransactionState
    error: ErrorCode


Event = SendMarkers | Ended | Completed | RefusedStep
#: A decision; its record is the new state, or None for a tombstone.
Decision = Result[Metadata | None, TxnReply, Event]

_NOTHING: Final[Decision] = Decision()
_WAIT: Final[Decision] = Decision(waits=True)
#: Nothing is decided: ask again with a fresh producer id.
NEED_PRODUCER_ID: Final[Decision] = Decision(response=TxnReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def exhausted(epoch: int) -> bool:
    """Whether a producer id has no further epoch for clients: the last one is kept for a fence."""
    return epoch >= MAX_EPOCH - 1


class Transaction:
    """One transactional id.

    Attributes:
        transactional_id: its name.
        metadata: its state, as in the log.
        unmarked: volatile: the partitions of a decided transaction whose markers are not written yet. A marker may be
            written twice, so that the next coordinator begins with all partitions.

    Args:
        transactional_id: its name.
        metadata: from the log, or :func:`fresh_metadata`.
    """

    __slots__ = ("metadata", "transactional_id", "unmarked")

    def __init__(self, transactional_id: str, metadata: Metadata) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.unmarked = metadata.partitions

    def apply(self, record: Metadata | None) -> None:
        """Take over a record that is in the log; None is a tombstone."""
        self.metadata = self.metadata._replace(state=_S.DEAD) if record is None else record
        self.unmarked = self.metadata.partitions

    @property
    def state(self) -> TransactionState:
        """The state that is in the log."""
        return self.metadata.state

    @property
    def gone(self) -> bool:
        """Whether nothing about it is in the log: it has expired, or its first record could not be written."""
        return self.metadata.state is _S.DEAD or self.metadata.producer_epoch == NONE

    @property
    def ending(self) -> bool:
        """Whether the markers of the last transaction are being written."""
        return self.metadata.state in _PREPARED

    # Requests

    def init_producer_id(self, timeout_ms: int, expected: tuple[int, int] | None, fresh: int, now: int) -> Decision:
        """InitProducerId.

        Args:
            timeout_ms: of the producer's transactions.
            expected: the producer id and epoch that the producer has (KIP-360); None for a new producer.
            fresh: a producer id that was never used; -1 if there is none at hand.
            now: the time.
        """
        old = self.metadata
        if self.ending:
            return _WAIT
        if expected is not None and not self._may_recover(*expected):
            return _answer(ErrorCode.PRODUCER_FENCED)
        if old.state is _S.DEAD:
            return _answer(ErrorCode.NOT_COORDINATOR)
        if old.state is _S.ONGOING:
            # The epoch of the fence is never returned: the client repeats the request and gets the next one.
            return self._fence(Cause.FENCED, fresh, now)
        new = old._replace(
            state=_S.EMPTY,
            previous_producer_id=old.producer_id,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NONE,
            updated_ms=now,
        )
        epoch = None if expected is None else expected[1]
        if epoch is not None and old.producer_epoch != NONE and epoch != old.producer_epoch:
            if epoch != old.last_epoch:
                return _answer(ErrorCode.PRODUCER_FENCED)
            # A request that is repeated: its first answer was lost. No other producer has come between, because that
            # would have reset the last epoch.
        elif exhausted(old.producer_epoch):
            if fresh == NONE:
                return NEED_PRODUCER_ID
            last = NONE if expected is None else old.producer_epoch
            new = new._replace(producer_id=fresh, producer_epoch=0, last_epoch=last)
        else:
            last = NONE if expected is None else old.producer_epoch
            new = new._replace(producer_epoch=old.producer_epoch + 1, last_epoch=last)
        return self._change(new, TxnReply(ErrorCode.NONE, new.producer_id, new.producer_epoch))

    def _may_recover(self, producer_id: int, epoch: int) -> bool:
        old = self.metadata
        return (
            old.producer_epoch == NONE  # the id was just created: the producer outlived its expiry
            or producer_id == old.producer_id
            or (producer_id == old.previous_producer_id and exhausted(epoch))
        )

    def add_partitions(
        self, producer_id: int, epoch: int, partitions: Collection[TopicPartition], version: int, now: int
    ) -> Decision:
        """AddPartitionsToTxn and AddOffsetsToTxn: all partitions are added, or none is."""
        old = self.metadata
        if self.ending:
            # First: the producer may have the producer id that is still pending.
            return _WAIT
        error = self._check_producer(producer_id, epoch)
        if error is not ErrorCode.NONE:
            return _answer(error)
        if old.state is _S.ONGOING and old.partitions.issuperset(partitions):
            return _answer(ErrorCode.NONE)
        new = old._replace(
            state=_S.ONGOING,
            previous_producer_id=old.producer_id,
            partitions=old.partitions.union(partitions),
            start_ms=old.start_ms if old.state is _S.ONGOING else now,
            updated_ms=now,
            version=version,
        )
        return self._change(new, TxnReply(ErrorCode.NONE))

    def verify(
        self, producer_id: int, epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition belongs to the open transaction (KIP-890). Changes that are being appended do not
        count: the leader checks again when it appends."""
        error = self._check_producer(producer_id, epoch)
        if error is ErrorCode.NONE and self.ending:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        own = self.metadata.partitions
        return {each: ErrorCode.NONE if each in own else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    def _check_producer(self, producer_id: int, epoch: int) -> ErrorCode:
        if producer_id != self.metadata.producer_id or self.state is _S.DEAD:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if epoch == self.metadata.producer_epoch else ErrorCode.PRODUCER_FENCED

    def end(self, producer_id: int, epoch: int, committed: bool, version: int, fresh: int, now: int) -> Decision:
        """EndTxn.

        Args:
            producer_id: of the producer.
            epoch: its epoch.
            committed: whether to commit.
            version: of transactions: 0 for EndTxn before 5, then 2.
            fresh: a producer id that was never used; -1 if there is none at hand.
            now: the time.
        """
        if version < SERVER_VERSION:
            return self._end_classic(producer_id, epoch, committed, now)
        return self._end_with_epoch(producer_id, epoch, committed, fresh, now)

    def _end_classic(self, producer_id: int, epoch: int, committed: bool, now: int) -> Decision:
        error = self._check_producer(producer_id, epoch)
        if error is not ErrorCode.NONE:
            return _answer(error)
        if self.ending:
            return _WAIT
        if self.state is _S.ONGOING:
            return self._decide(committed, Cause.CLIENT, 0, NONE, now, TxnReply(ErrorCode.NONE))
        if self.state is (_S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT):
            return _answer(ErrorCode.NONE)  # The request is repeated: its first answer was lost.
        return self._refuse(committed)

    def _end_with_epoch(self, producer_id: int, epoch: int, committed: bool, fresh: int, now: int) -> Decision:
        """EndTxn of version 2. The epoch says which transaction is meant: the current one, or the one before if the
        request is repeated; an older request is fenced, so that it cannot end the next transaction."""
        old = self.metadata
        if self.ending:
            return _WAIT
        complete = old.state in (_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT)
        rotated = producer_id == old.previous_producer_id and epoch == MAX_EPOCH - 1 and old.producer_epoch == 0
        if (producer_id != old.producer_id and not rotated) or old.state is _S.DEAD:
            return _answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        repeated = complete and (rotated or epoch + 1 == old.producer_epoch)
        if not repeated and (epoch != old.producer_epoch or producer_id != old.producer_id):
            return _answer(ErrorCode.PRODUCER_FENCED)
        if repeated:
            if old.state is (_S.COMPLETE_COMMIT if committed else _S.COMPLETE_ABORT):
                return Decision(response=TxnReply(ErrorCode.NONE, old.producer_id, old.producer_epoch))
            return self._refuse(committed)
        if committed and old.state is not _S.ONGOING:
            return self._refuse(committed)
        if exhausted(old.producer_epoch) and fresh == NONE:
            return NEED_PRODUCER_ID
        rotate_to = fresh if exhausted(old.producer_epoch) else NONE
        return self._decide(committed, Cause.CLIENT, SERVER_VERSION, rotate_to, now)

    def _refuse(self, committed: bool) -> Decision:
        asked = "commit" if committed else "abort"
        error = ErrorCode.INVALID_TXN_STATE
        return Decision(response=TxnReply(error), events=(RefusedStep(asked, self.state, error),))

    # Decisions

    def _decide(
        self, committed: bool, cause: Cause, version: int, rotate_to: int, now: int, response: TxnReply | None = None
    ) -> Decision:
        """Write the decision. In version 2 that takes the next epoch, which is the answer if there is no other one."""
        old = self.metadata
        new = old._replace(
            state=_S.PREPARE_COMMIT if committed else _S.PREPARE_ABORT,
            previous_producer_id=old.producer_id,
            next_producer_id=rotate_to,
            # An abort without partitions is a transaction, too; it has no other start.
            start_ms=old.start_ms if old.state is _S.ONGOING else now,
            updated_ms=now,
            version=version,
        )
        if version >= SERVER_VERSION:
            new = new._replace(producer_epoch=min(old.producer_epoch + 1, MAX_EPOCH), last_epoch=old.producer_epoch)
        if response is None:
            after = _completed(new, now)
            response = TxnReply(ErrorCode.NONE, after.producer_id, after.producer_epoch)
        ended = (Ended(committed, cause, old),) if old.state is _S.ONGOING else ()
        return self._change(new, response, (*ended, _markers_of(new)))

    def _fence(self, cause: Cause, fresh: int, now: int) -> Decision:
        """Abort the open transaction with a new epoch, so that its producer can do nothing any more."""
        epoch = self.metadata.producer_epoch
        if exhausted(epoch) and fresh == NONE:
            return NEED_PRODUCER_ID
        rotate_to = fresh if exhausted(epoch) else NONE
        response = TxnReply(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._decide(False, cause, SERVER_VERSION, rotate_to, now, response)

    def overdue(self, open_ms: int) -> bool:
        """Whether a transaction that has been open for `open_ms` has been open for longer than its timeout."""
        return self.state is _S.ONGOING and self.timeout_ms < open_ms

    @property
    def timeout_ms(self) -> int:
        """How long a transaction may be open."""
        return self.metadata.timeout_ms

    def abort_overdue(self, open_ms: int, fresh: int, now: int) -> Decision:
        """Abort the transaction if its timeout is over (KIP-588).

        Args:
            open_ms: for how long it has been open. The time of day does not tell: it may have been set.
            fresh: a producer id that was never used; -1 if there is none at hand.
            now: the time.
        """
        return self._fence(Cause.TIMEOUT, fresh, now) if self.overdue(open_ms) else _NOTHING

    def expire(self, unused_ms: int, now: int) -> Decision:
        """Delete the transactional id if it has not been used for `unused_ms`."""
        if self.state in IDLE and self.metadata.updated_ms <= now - unused_ms:
            return Decision(records=(None,))
        return _NOTHING

    # The end of a transaction

    def resume(self) -> Decision:
        """After a replay: continue to write the markers of a decided transaction."""
        return Decision(events=(_markers_of(self.metadata),)) if self.ending else _NOTHING

    def markers_written(self, partitions: Collection[TopicPartition], now: int) -> Decision:
        """Markers are written, or their partitions do not exist any more. After the last one the transaction ends."""
        own = self.metadata
        if not self.ending:
            return _NOTHING
        self.unmarked = self.unmarked.difference(partitions)
        if self.unmarked:
            return _NOTHING
        return self._change(_completed(own, now), None, (Completed(),))

    def _change(self, new: Metadata, response: TxnReply | None, events: Sequence[Event] = ()) -> Decision:
        """Decide on a new state.

        Raises:
            IllegalTransition: a bug.
        """
        if new.state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"{self.transactional_id!r}: from {self.state.value} to {new.state.value}")
        return Decision((new,), response, events)


def _answer(error: ErrorCode) -> Decision:
    return Decision(response=TxnReply(error))


def _markers_of(decided: Metadata) -> SendMarkers:
    committed = decided.state is _S.PREPARE_COMMIT
    return SendMarkers(decided.producer_id, decided.producer_epoch, committed, decided.partitions, decided.version)


def _completed(own: Metadata, now: int) -> Metadata:
    """The state after all markers are written."""
    new = own._replace(
        state=_S.COMPLETE_COMMIT if own.state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT,
        previous_producer_id=own.producer_id,
        next_producer_id=NONE,
        partitions=NO_PARTITIONS,
        updated_ms=now,
    )
    if own.version >= SERVER_VERSION and own.next_producer_id != NONE:
        return new._replace(producer_id=own.next_producer_id, producer_epoch=0)
    return new


def fresh_metadata(producer_id: int, timeout_ms: int, now: int) -> Metadata:
    """The state of a transactional id that is not in the log yet.

    Args:
        producer_id: one that was never used.
        timeout_ms: of its transactions.
        now: the time.
    """
    return Metadata(_S.EMPTY, producer_id, NONE, timeout_ms, NO_PARTITIONS, NONE, now)
