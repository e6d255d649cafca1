"""The coordinator of transactions: a model whose messages are lost, late and repeated, and which dies and returns.

What it decides is durable; what it has sent is not. After each of its deaths it writes all markers of the transactions
that had not ended again, with a higher coordinator epoch. Its transactions are of version 2: each has an epoch of its
own (KIP-890).
"""

from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Final, NamedTuple

from barnabas_protocol.errors import ErrorCode
from tests.sim.world import World

Done = Callable[[ErrorCode], None]

#: Seconds after which an open transaction is aborted.
TIMEOUT: Final = 10.0


class Marker(NamedTuple):
    """A marker for one partition of ``__consumer_offsets``."""

    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


class State(Enum):
    """What a transaction is doing."""

    ONGOING = "ongoing"
    COMMITS = "commits"
    ABORTS = "aborts"
    COMPLETE = "complete"


class Transaction:
    """A transaction of a processor: for each partition the records that it has processed, from and to which offset.

    Attributes:
        epoch: of its producer.
        state: what it is doing.
        indexes: the partitions of ``__consumer_offsets`` that are a part of it.
    """

    def __init__(self, producer_id: int, epoch: int, group: str, ranges: dict[int, tuple[int, int]]) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.group = group
        self.ranges = ranges
        self.state = State.ONGOING
        self.indexes: set[int] = set()
        self.unwritten: set[int] = set()


class Transactions:
    """Coordinates the transactions of all processors, and checks that they process each record once.

    Attributes:
        send: sends a marker to the leader of its partition; the result may never come.
        processed: the offset up to which committed transactions have processed each partition, by group.
        closing: whether no transaction begins any more.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.send: Callable[[Marker, Done], None] = lambda marker, done: None
        self.processed: dict[str, dict[int, int]] = {}
        self.closing = False
        self._ids: dict[str, int] = {}
        self._epochs: dict[int, int] = {}
        #: The last transaction of each producer, and the process that began it.
        self._last: dict[int, tuple[Transaction, object]] = {}
        self._epoch = 0
        self._numbers = count(1000)
        self._down = False

    # Requests of processors

    def begin(self, name: str, process: object, group: str, ranges: dict[int, tuple[int, int]]) -> Transaction | None:
        """Begin a transaction; None while the last one of this transactional id has not ended."""
        if self.closing or self._down:
            return None
        if name not in self._ids:
            self._ids[name] = next(self._numbers)
        producer_id = self._ids[name]
        before, owner = self._last.get(producer_id, (None, process))
        if before is not None and before.state is State.ONGOING and owner is not process:
            self._decide(before, commit=False)  # InitProducerId of a process that was started again.
        if before is not None and before.state is not State.COMPLETE:
            return None
        transaction = Transaction(producer_id, self._epochs.get(producer_id, 0), group, ranges)
        self._last[producer_id] = transaction, process
        self.world.after(TIMEOUT, self._time_out, transaction)
        return transaction

    def verify(self, producer_id: int, epoch: int, index: int) -> ErrorCode:
        """AddPartitionsToTxn of a broker."""
        if self._down:
            return ErrorCode.NOT_COORDINATOR
        transaction, _ = self._last[producer_id]
        if epoch < self._epochs.get(producer_id, 0):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if transaction.state is not State.ONGOING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        transaction.indexes.add(index)
        return ErrorCode.NONE

    def end(self, transaction: Transaction, then: Callable[[bool], None], *, commit: bool) -> None:
        """EndTxn; `then` gets whether the transaction was still open."""
        self.world.after(self.world.between(0.0005, 0.3), self._end, transaction, then, commit)

    def _end(self, transaction: Transaction, then: Callable[[bool], None], commit: bool) -> None:
        if self._down:
            self.world.after(0.3, self._end, transaction, then, commit)
            return
        was_open = transaction.state is State.ONGOING
        if was_open:
            self._decide(transaction, commit=commit)
        self.world.after(self.world.between(0.0005, 0.1), then, was_open)

    def _time_out(self, transaction: Transaction) -> None:
        if transaction.state is State.ONGOING:
            self._decide(transaction, commit=False)

    # The end

    def _decide(self, transaction: Transaction, *, commit: bool) -> None:
        """Decide, which is durable at once, and write the markers, with an epoch of their own."""
        world = self.world
        world.note(
            "the transaction %s of producer %d, epoch %d %s",
            transaction.ranges,
            transaction.producer_id,
            transaction.epoch,
            "commits" if commit else "aborts",
        )
        transaction.state = State.COMMITS if commit else State.ABORTS
        self._epochs[transaction.producer_id] = transaction.epoch + 1
        if commit:
            processed = self.processed.setdefault(transaction.group, {})
            for partition, (start, end) in transaction.ranges.items():
                if processed.get(partition, 0) != start:
                    world.fail(
                        f"{transaction.group} commits {start} to {end} of partition {partition} in a transaction, but"
                        f" had processed it up to {processed.get(partition, 0)}"
                    )
                processed[partition] = end
        transaction.unwritten = set(transaction.indexes)
        if not self._down:
            self._write(transaction)

    def _write(self, transaction: Transaction) -> None:
        if not transaction.unwritten:
            transaction.state = State.COMPLETE
        for index in sorted(transaction.unwritten):
            self._write_one(transaction, index, self._epoch)

    def _write_one(self, transaction: Transaction, index: int, epoch: int) -> None:
        """Write a marker, until it is written or this coordinator dies."""
        world = self.world
        if epoch != self._epoch or self._down or index not in transaction.unwritten:
            return
        commit = transaction.state is State.COMMITS
        marker = Marker(index, transaction.producer_id, transaction.epoch + 1, epoch, commit)

        def written(error: ErrorCode) -> None:
            if error == ErrorCode.NONE and not world.happens(0.1):
                world.after(world.between(0.0005, 0.1), self._written, transaction, index, epoch)

        for repeated in (False, True):
            if repeated and not world.happens(0.2):
                break
            if not world.happens(0.1):
                late = repeated or world.happens(0.05)
                delay = world.between(0.1, 6.0) if late else world.between(0.0005, 0.05)
                world.after(delay, self.send, marker, written)
        world.after(world.between(0.5, 1.5), self._write_one, transaction, index, epoch)

    def _written(self, transaction: Transaction, index: int, epoch: int) -> None:
        if epoch == self._epoch and not self._down:
            transaction.unwritten.discard(index)
            if not transaction.unwritten:
                transaction.state = State.COMPLETE

    # Faults

    def kill(self) -> None:
        """Die, and return with a higher epoch."""
        if not self._down:
            self.world.note("the coordinator of transactions dies")
            self._down = True
            self._epoch += 1
            self.world.after(self.world.between(0.1, 3.0), self._return)

    def _return(self) -> None:
        self.world.note("the coordinator of transactions returns, epoch %d", self._epoch)
        self._down = False
        for transaction, _ in list(self._last.values()):
            if transaction.state in (State.COMMITS, State.ABORTS):
                transaction.unwritten = set(transaction.indexes)
                self._write(transaction)

    @property
    def ended(self) -> bool:
        """Whether every transaction has ended."""
        return all(transaction.state is State.COMPLETE for transaction, _ in self._last.values())
