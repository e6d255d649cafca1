"""The history of a workload: what each process asked for, what it was answered, and in which order.

history = History()
sent = history.invoke("writer", Kind.SEND, [Send(("ledger", 0), "a")])
history.complete(sent, Outcome.OK, [Send(("ledger", 0), "a", offset=0)])
assert not check(history).bad
"""

import itertools
import threading
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

#: A partition: any hashable, for instance (topic, number).
Key: TypeAlias = Hashable
#: The value of a record. The workload sends each value once to a key: that is how a record is known again.
Value: TypeAlias = Hashable


class Record(NamedTuple):
    """A record at its place in a partition. `offset` is None if it is not known."""

    offset: int | None
    value: Value


class Send(NamedTuple):
    """A record that was sent. `offset` is the acknowledged one, or None without an acknowledgement."""

    key: Key
    value: Value
    offset: int | None = None


class Poll(NamedTuple):
    """The records that one poll returned: per key, offsets and values in the order of delivery."""

    records: Mapping[Key, Sequence[tuple[int, Value]]]


Step: TypeAlias = Send | Poll


class Kind(Enum):
    """What an operation does."""

    SEND = "send"  #: Sends, outside of a transaction.
    POLL = "poll"  #: Polls, outside of a transaction.
    TXN = "txn"  #: Sends and polls in one transaction.
    SCAN = "scan"  #: One read of whole keys: from the first offset to the end at its invocation, or later.
    ASSIGN = "assign"  #: The consumer takes exactly `keys`, and keeps its position in those that it had.
    SUBSCRIBE = "subscribe"  #: The consumer joins a group, which distributes keys in rebalances.
    COMMIT = "commit"  #: A commit of the group's offsets, outside of a transaction.
    COMMITTED = "committed"  #: A read of the group's committed offsets.
    GAIN = "gain"  #: A rebalance gave `keys` to a member; its callback has returned at the completion.
    LOSE = "lose"  #: A member loses `keys`, revoked or not; its callback begins at the invocation.
    SETTLE = "settle"  #: The faults and the changes of members have ended: each of `keys` has one member of the group.
    CRASH = "crash"  #: The process loses its producer and consumer, and continues with new ones.


class Outcome(Enum):
    """What is known about the effect of an operation."""

    OK = "ok"  #: It took effect.
    FAIL = "fail"  #: It did not take effect, and never will. A consumer goes back to its position before.
    UNKNOWN = "unknown"  #: It took effect, or will, or never does: a timeout, a crash, no completion at all.


@dataclass(slots=True, eq=False)
class Operation:
    """An invocation with its completion.

    A process can have several sends under way, like a producer; they are ordered by invocation.

    Attributes:
        process: who did it.
        kind: what it does.
        steps: its sends and polls, in order. Until the completion: the sends that were asked for.
        outcome: what is known about its effect.
        invoked: position of the invocation in the history.
        completed: position of the completion; None if the history ends before.
        keys: of ASSIGN, SUBSCRIBE, GAIN, LOSE and SETTLE, the keys.
        group: the id of the group as whose member the process acts, or that it asks about.
        offsets: of COMMIT and COMMITTED, the offset per key.
        rebalanced: keys that the process gained or lost during the operation.
        error: why the outcome is not OK.
    """

    process: Hashable
    kind: Kind
    steps: Sequence[Step]
    invoked: int
    outcome: Outcome = Outcome.UNKNOWN
    completed: int | None = None
    keys: Collection[Key] = ()
    group: str = ""
    offsets: Mapping[Key, int] = field(default_factory=dict)
    rebalanced: Collection[Key] = ()
    error: str = ""

    def sends(self) -> Iterator[Send]:
        return (step for step in self.steps if isinstance(step, Send))

    def reads(self) -> Mapping[Key, Sequence[tuple[int, Value]]]:
        """Return what its polls returned, per key, in the order of delivery."""
        polls = [step.records for step in self.steps if isinstance(step, Poll)]
        if len(polls) == 1:
            return polls[0]
        joined: dict[Key, list[tuple[int, Value]]] = {}
        for records in polls:
            for key, batch in records.items():
                joined.setdefault(key, []).extend(batch)
        return joined

    def __str__(self) -> str:
        return f"{self.kind.value} {self.invoked} of {self.process} ({self.outcome.value})"


class History:
    """All operations in the order of their invocations. Threads may share it."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._clock = itertools.count()
        self._lock = threading.Lock()

    def invoke(
        self, process: Hashable, kind: Kind, steps: Sequence[Step] = (), keys: Collection[Key] = (), group: str = ""
    ) -> Operation:
        """Record that a process begins an operation; `steps` are the sends that it asks for, as far as known."""
        with self._lock:
            operation = Operation(process, kind, steps, next(self._clock), keys=keys, group=group)
            self.operations.append(operation)
        return operation

    def complete(
        self,
        operation: Operation,
        outcome: Outcome,
        steps: Sequence[Step] | None = None,
        *,
        rebalanced: Collection[Key] = (),
        offsets: Mapping[Key, int] | None = None,
        error: str = "",
    ) -> None:
        """Record the end of an operation; `steps` are all its sends and polls, None to keep those of the invocation."""
        if operation.completed is not None:
            raise ValueError(f"{operation} has been completed already")
        if steps is not None:
            operation.steps = steps
        operation.outcome = outcome
        operation.rebalanced = rebalanced
        operation.offsets = offsets or {}
        operation.error = error
        with self._lock:
            operation.completed = next(self._clock)

    def do(
        self,
        process: Hashable,
        kind: Kind,
        steps: Sequence[Step] = (),
        outcome: Outcome = Outcome.OK,
        *,
        keys: Collection[Key] = (),
        group: str = "",
        rebalanced: Collection[Key] = (),
        offsets: Mapping[Key, int] | None = None,
    ) -> Operation:
        """Record an operation that ends before another one begins."""
        operation = self.invoke(process, kind, steps, keys, group)
        self.complete(operation, outcome, rebalanced=rebalanced, offsets=offsets)
        return operation
