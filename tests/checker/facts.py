"""What a history proves: the log of each key, who wrote and who received each record, where positions jumped."""

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.checker.history import History, Key, Kind, Operation, Outcome, Poll, Record, Send, Value


class Log:
    """The records of a key, as far as they are known from polls and acknowledgements.

    Offsets have gaps, also in a whole log: transaction markers and aborted records take offsets too.

    Attributes:
        values: the value at each known offset; the first one, if they contradict each other.
        conflicts: all values of the offsets with more than one.
        places: the smallest offset of each value.
        repeated: all offsets of the values with more than one.
        offsets: the known offsets, sorted.
    """

    def __init__(self) -> None:
        self.values: dict[int, Value] = {}
        self.conflicts: dict[int, list[Value]] = {}
        self.places: dict[Value, int] = {}
        self.repeated: dict[Value, list[int]] = {}
        self.offsets: list[int] = []

    def add(self, offset: int, value: Value) -> None:
        known = self.values.setdefault(offset, value)
        if known != value:
            values = self.conflicts.setdefault(offset, [known])
            if value not in values:
                values.append(value)

    def finish(self) -> None:
        """Call it after the last `add`."""
        self.offsets = sorted(self.values)
        for offset in self.offsets:
            for value in self.conflicts.get(offset) or (self.values[offset],):
                first = self.places.setdefault(value, offset)
                if first != offset:
                    self.repeated.setdefault(value, [first]).append(offset)

    def between(self, low: int, high: int) -> list[int]:
        """Return the known offsets between two others."""
        return self.offsets[bisect_right(self.offsets, low) : bisect_left(self.offsets, high)]


class Jump(NamedTuple):
    """Two records of a key that one process received, or sent, one after the other, although the log has them
    otherwise: in the other order, or with further records between them.

    Attributes:
        first: the operation of `before`.
        second: the operation of `after`.
        skipped: the records between them; empty for a jump back.
    """

    key: Key
    before: Record
    after: Record
    first: Operation
    second: Operation
    skipped: Sequence[Record]


class Holding(NamedTuple):
    """A key that a member of a group has, in its own view: from a rebalance to another one, or to its end.

    Attributes:
        gained: the operation that gave it.
        commit: the last one of the key meanwhile that was acknowledged: the coordinator took it for a member, and did
            not give the key to another one before. None if there is none.
        ended: the operation that took it, or the crash; None if the history ends before.
    """

    group: str
    key: Key
    gained: Operation
    commit: Operation | None
    ended: Operation | None


class Facts:
    """The facts of a history, in time and memory proportional to its size.

    Attributes:
        operations: in the order of their invocations.
        logs: per key, the known records.
        writers: per key and value, the operation that sent it.
        received: per key, the values that a poll returned, in operations of any outcome: also when a transaction
            fails, the consumer has received committed records.

    Raises:
        ValueError: the workload sent a value twice to a key.
    """

    def __init__(self, history: History) -> None:
        self.operations: Sequence[Operation] = history.operations
        self.logs: dict[Key, Log] = {}
        self.writers: dict[Key, dict[Value, Operation]] = {}
        self.received: dict[Key, set[Value]] = {}
        senders: list[Operation] = []
        for operation in self.operations:
            sends = False
            for step in operation.steps:
                if isinstance(step, Poll):
                    self._add_poll(step)
                    continue
                sends = True
                writers = self.writers.setdefault(step.key, {})
                if writers.setdefault(step.value, operation) is not operation:
                    raise ValueError(f"the workload sent {step.value!r} twice to {step.key}: values must be unique")
            if sends:
                senders.append(operation)
        self.senders: Sequence[Operation] = senders
        for operation in senders:
            if self.took_effect(operation):
                for send in operation.sends():
                    if send.offset is not None:
                        self.log(send.key).add(send.offset, send.value)
        for log in self.logs.values():
            log.finish()

    def _add_poll(self, poll: Poll) -> None:
        for key, records in poll.records.items():
            add = self.log(key).add
            received = self.received.setdefault(key, set())
            for offset, value in records:
                add(offset, value)
                received.add(value)

    def log(self, key: Key) -> Log:
        found = self.logs.get(key)
        if found is None:
            found = self.logs[key] = Log()
        return found

    def took_effect(self, operation: Operation) -> bool:
        """Return whether its sends are certainly in the logs: it is OK, or a poll returned one of them."""
        if operation.outcome is Outcome.OK:
            return True
        return operation.outcome is Outcome.UNKNOWN and any(
            send.value in self.received.get(send.key, ()) for send in operation.sends()
        )

    def place(self, send: Send) -> int | None:
        """Return the offset of a record that was sent: the acknowledged one, or where a poll found it."""
        if send.offset is not None:
            return send.offset
        log = self.logs.get(send.key)
        return None if log is None else log.places.get(send.value)

    def _jump(
        self, key: Key, before: tuple[int, Value], after: tuple[int, Value], first: Operation, second: Operation
    ) -> Iterator[Jump]:
        """Yield the jump between two records whose offsets are not contiguous, unless nothing is known between them."""
        log = self.logs[key]
        skipped = [Record(offset, log.values[offset]) for offset in log.between(before[0], after[0])]
        if skipped or after[0] <= before[0]:
            yield Jump(key, Record(*before), Record(*after), first, second, skipped)

    @functools.cached_property
    def poll_jumps(self) -> Sequence[Jump]:
        """Jumps between a process's last operation that received records of a key, and its next one.

        A position is forgotten when a rebalance, another assignment or a crash takes the key away. A failed
        transaction leaves the positions as they were, for the application goes back. After an operation with unknown
        outcome, they are unknown.
        """
        jumps: list[Jump] = []
        positions: dict[Hashable, dict[Key, tuple[int, Value, Operation]]] = {}
        for operation in self.operations:
            kind, outcome = operation.kind, operation.outcome
            if kind in _NO_POSITION:
                continue
            position = positions.setdefault(operation.process, {})
            if kind is Kind.CRASH:
                position.clear()
            elif (kind is Kind.ASSIGN or kind is Kind.SUBSCRIBE) and outcome is not Outcome.FAIL:
                kept = operation.keys if outcome is Outcome.OK else ()
                for key in [key for key in position if key not in kept]:
                    del position[key]
            for key in operation.rebalanced:
                position.pop(key, None)
            if kind is not Kind.POLL and kind is not Kind.TXN:
                continue
            for key, records in operation.reads().items():
                if not records or key in operation.rebalanced:
                    continue
                before = position.get(key)
                if before is not None and before[0] + 1 != records[0][0]:
                    jumps.extend(self._jump(key, before[:2], records[0], before[2], operation))
                if outcome is Outcome.OK:
                    position[key] = (*records[-1], operation)
                elif outcome is Outcome.UNKNOWN:
                    position.pop(key, None)
        return jumps

    @functools.cached_property
    def inner_poll_jumps(self) -> Sequence[Jump]:
        """Jumps between two records of a key that one operation received, without a rebalance of the key."""
        jumps: list[Jump] = []
        for operation in self.operations:
            if not operation.steps:
                continue
            for key, records in operation.reads().items():
                if len(records) < 2 or key in operation.rebalanced:
                    continue
                last = records[0]
                for record in records[1:]:
                    if record[0] != last[0] + 1:
                        jumps.extend(self._jump(key, last, record, operation, operation))
                    last = record
        return jumps

    @functools.cached_property
    def send_jumps(self) -> Sequence[Jump]:
        """Jumps back between the last record that a process sent to a key in one operation, and the first one in its
        next operation.

        A crash ends the order: what the old producer has under way can arrive after records of the new one.
        """
        jumps: list[Jump] = []
        last: dict[Hashable, dict[Key, tuple[int, Value, Operation]]] = {}
        for operation in self.operations:
            if operation.kind is Kind.CRASH:
                last.pop(operation.process, None)
                continue
            if operation.kind is not Kind.SEND and operation.kind is not Kind.TXN:
                continue
            mine = last.setdefault(operation.process, {})
            for send, place in self._placed(operation):
                before = mine.get(send.key)
                # Other producers write to the key too: only the order counts.
                if before is not None and before[2] is not operation and place <= before[0]:
                    jumps.extend(self._jump(send.key, before[:2], (place, send.value), before[2], operation))
                mine[send.key] = (place, send.value, operation)
        return jumps

    @functools.cached_property
    def inner_send_jumps(self) -> Sequence[Jump]:
        """Jumps between two records that one operation sent to a key."""
        jumps: list[Jump] = []
        for operation in self.senders:
            if len(operation.steps) < 2:
                continue
            last: dict[Key, tuple[int, Value]] = {}
            for send, place in self._placed(operation):
                before = last.get(send.key)
                if before is not None and before[0] + 1 != place:
                    jumps.extend(self._jump(send.key, before, (place, send.value), operation, operation))
                last[send.key] = place, send.value
        return jumps

    def _placed(self, operation: Operation) -> Iterator[tuple[Send, int]]:
        if self.took_effect(operation):
            for send in operation.sends():
                place = self.place(send)
                if place is not None:
                    yield send, place

    @functools.cached_property
    def holdings(self) -> Sequence[Holding]:
        """What the members of groups had, and when, in the order in which they gained it."""
        found: list[Holding] = []
        #: The position in `found` of what each process has.
        open_: dict[Hashable, dict[Key, int]] = {}
        for operation in self.operations:
            mine = open_.setdefault(operation.process, {}) if operation.group else {}
            if operation.kind is Kind.GAIN:
                for key in operation.keys:
                    if key not in mine:
                        mine[key] = len(found)
                        found.append(Holding(operation.group, key, operation, None, None))
            elif operation.kind is Kind.COMMIT and operation.outcome is Outcome.OK:
                for key in operation.offsets.keys() & mine.keys():
                    found[mine[key]] = found[mine[key]]._replace(commit=operation)
            elif operation.kind is Kind.LOSE or operation.kind is Kind.CRASH:
                for key in list(mine) if operation.kind is Kind.CRASH else operation.keys:
                    if (at := mine.pop(key, None)) is not None:
                        found[at] = found[at]._replace(ended=operation)
        return found

    @functools.cached_property
    def received_by_group(self) -> Mapping[str, Mapping[Key, set[Value]]]:
        """Per group and key, the values that a poll of a member returned."""
        found: dict[str, dict[Key, set[Value]]] = {}
        for operation in self.operations:
            if operation.group:
                for key, records in operation.reads().items():
                    found.setdefault(operation.group, {}).setdefault(key, set()).update(value for _, value in records)
        return found

    def writer(self, key: Key, value: Value) -> Operation | None:
        return self.writers.get(key, _NOTHING).get(value)


#: They neither use nor change the position of the process's consumer; a SCAN has a consumer of its own.
_NO_POSITION = frozenset((Kind.SEND, Kind.SCAN, Kind.COMMIT, Kind.COMMITTED, Kind.GAIN, Kind.LOSE, Kind.SETTLE))
_NOTHING: Mapping[Value, Operation] = {}
