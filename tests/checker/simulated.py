"""A correct broker in memory: its histories have no anomaly, whatever its processes do.

It has read-committed consumers, transactions with markers, aborts, a group with rebalances, and crashes after which
the outcome of an operation is not known.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.checker.history import History, Key, Kind, Operation, Outcome, Poll, Send, Step, Value

KEYS = ("a", "b", "c")
GROUP = "group"
PROCESSES = 4


class Fate(Enum):
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass
class Transaction:
    fate: Fate = Fate.OPEN
    keys: set[Key] = field(default_factory=set)


@dataclass
class Entry:
    """An offset of a log: a record with its transaction, or a marker (value None)."""

    value: int | None
    transaction: Transaction


@dataclass
class Process:
    """What a process holds between two actions.

    Attributes:
        positions: next offset of each key that it consumes.
        member: whether the positions come from the group.
        moved: keys of rebalances that the next operation reports.
        running: the operation of the open transaction, with its steps so far.
        start: the positions when the transaction began.
    """

    name: str
    positions: dict[Key, int] = field(default_factory=dict)
    member: bool = False
    moved: set[Key] = field(default_factory=set)
    running: Operation | None = None
    steps: list[Step] = field(default_factory=list)
    start: dict[Key, int] = field(default_factory=dict)
    transaction: Transaction = field(default_factory=Transaction)

    @property
    def group(self) -> str:
        """Its group, as operations have it."""
        return GROUP if self.member else ""


class Simulation:
    """Applies actions to the broker, and records them. An action that is impossible at the moment does nothing.

    `act` takes the action by name, and three small numbers: a process, a key, and a choice.
    """

    ACTIONS = (
        "send",
        "send_unknown",
        "send_failed",
        "poll",
        "begin",
        "commit",
        "abort",
        "commit_unknown",
        "assign",
        "subscribe",
        "committed",
        "crash",
        "resolve",
    )

    def __init__(self) -> None:
        self.history = History()
        self._logs: dict[Key, list[Entry]] = {key: [] for key in KEYS}
        self._group: dict[Key, int] = dict.fromkeys(KEYS, 0)
        self._processes = [Process(f"process {number}") for number in range(PROCESSES)]
        self._dangling: list[Transaction] = []
        self._number = 0

    def act(self, action: str, process: int, key: int, choice: int) -> None:
        getattr(self, f"_{action}")(self._processes[process % PROCESSES], KEYS[key % len(KEYS)], choice)

    def finish(self) -> History:
        """End all transactions, read all keys to the end, and return the history."""
        for process in self._processes:
            if process.running is not None:
                self._commit(process, KEYS[0], 0)
        for transaction in self._dangling:
            self._end(transaction, Fate.ABORTED)
        if any(process.member for process in self._processes):
            self.history.do("end", Kind.SETTLE, keys=KEYS, group=GROUP)
        scan = self.history.invoke("end", Kind.SCAN)
        records: dict[Key, list[tuple[int, Value]]] = {key: self._visible(key, 0) for key in KEYS}
        self.history.complete(scan, Outcome.OK, [Poll(records)])
        return self.history

    def _append(self, key: Key, value: int, transaction: Transaction) -> int:
        self._logs[key].append(Entry(value, transaction))
        transaction.keys.add(key)
        return len(self._logs[key]) - 1

    def _end(self, transaction: Transaction, fate: Fate) -> None:
        transaction.fate = fate
        for key in sorted(transaction.keys, key=str):
            self._logs[key].append(Entry(None, transaction))

    def _visible(self, key: Key, position: int) -> list[tuple[int, Value]]:
        """Return the committed records from a position to the last stable offset."""
        found: list[tuple[int, Value]] = []
        for offset, entry in enumerate(self._logs[key]):
            if entry.transaction.fate is Fate.OPEN:
                break
            if offset >= position and entry.value is not None and entry.transaction.fate is Fate.COMMITTED:
                found.append((offset, entry.value))
        return found

    def _value(self) -> int:
        self._number += 1
        return self._number

    def _send(self, process: Process, key: Key, choice: int) -> None:
        value = self._value()
        if process.running is not None:
            process.steps.append(Send(key, value, self._append(key, value, process.transaction)))
            return
        operation = self.history.invoke(process.name, Kind.SEND, [Send(key, value)])
        offset = self._append(key, value, Transaction(Fate.COMMITTED))
        self.history.complete(operation, Outcome.OK, [Send(key, value, offset)])

    def _send_unknown(self, process: Process, key: Key, choice: int) -> None:
        if process.running is None:
            value = self._value()
            self.history.do(process.name, Kind.SEND, [Send(key, value)], Outcome.UNKNOWN)
            if choice % 2:
                self._append(key, value, Transaction(Fate.COMMITTED))

    def _send_failed(self, process: Process, key: Key, choice: int) -> None:
        if process.running is None:
            self.history.do(process.name, Kind.SEND, [Send(key, self._value())], Outcome.FAIL)

    def _poll(self, process: Process, key: Key, choice: int) -> None:
        records: dict[Key, list[tuple[int, Value]]] = {}
        for each, position in process.positions.items():
            if batch := self._visible(each, position)[: choice % 4]:
                records[each] = batch
                process.positions[each] = batch[-1][0] + 1
        if process.running is not None:
            process.steps.append(Poll(records))
            return
        operation = self.history.invoke(process.name, Kind.POLL, group=process.group)
        self.history.complete(operation, Outcome.OK, [Poll(records)], rebalanced=self._moved(process))
        if process.member:
            self._group.update(process.positions)
            self.history.do(process.name, Kind.COMMIT, offsets=dict(process.positions), group=GROUP)

    def _moved(self, process: Process) -> Collection[Key]:
        moved, process.moved = process.moved, set()
        return moved

    def _begin(self, process: Process, key: Key, choice: int) -> None:
        if process.running is None:
            process.running = self.history.invoke(process.name, Kind.TXN, group=process.group)
            process.steps, process.start = [], dict(process.positions)
            process.transaction = Transaction()

    def _complete(self, process: Process, outcome: Outcome) -> None:
        assert process.running is not None
        offsets = dict(process.positions) if process.member and outcome is Outcome.OK else {}
        self.history.complete(process.running, outcome, process.steps, rebalanced=self._moved(process), offsets=offsets)
        process.running = None

    def _commit(self, process: Process, key: Key, choice: int) -> None:
        if process.running is not None:
            self._end(process.transaction, Fate.COMMITTED)
            if process.member:
                self._group.update(process.positions)
            self._complete(process, Outcome.OK)

    def _abort(self, process: Process, key: Key, choice: int) -> None:
        if process.running is not None:
            self._end(process.transaction, Fate.ABORTED)
            process.positions.update({key: process.start[key] for key in process.positions})
            self._complete(process, Outcome.FAIL)

    def _commit_unknown(self, process: Process, key: Key, choice: int) -> None:
        if process.running is not None:
            if process.member and choice % 2:
                self._group.update(process.positions)
            self._end(process.transaction, Fate.COMMITTED if choice % 2 else Fate.ABORTED)
            self._complete(process, Outcome.UNKNOWN)
            self._gone(process)

    def _assign(self, process: Process, key: Key, choice: int) -> None:
        if process.running is None:
            keys = KEYS[: choice % len(KEYS) + 1]
            kept = {} if process.member else process.positions
            moved = process.moved | set(process.positions) if process.member else process.moved
            self._leave(process)
            process.positions = {each: kept.get(each, 0) for each in keys}
            self.history.do(process.name, Kind.ASSIGN, keys=keys, rebalanced=moved)

    def _subscribe(self, process: Process, key: Key, choice: int) -> None:
        if process.running is None and not process.member:
            process.member = True
            process.positions = {}
            self.history.do(process.name, Kind.SUBSCRIBE, keys=KEYS)
            process.moved = set(KEYS)
            self._rebalance(choice)

    def _leave(self, process: Process) -> None:
        process.moved = set()
        if process.member:
            self.history.do(process.name, Kind.LOSE, keys=list(process.positions), group=GROUP)
            process.member, process.positions = False, {}
            self._rebalance(0)

    def _rebalance(self, choice: int) -> None:
        """Distribute the keys. A transaction of a member that is open is aborted, as its application would do."""
        members = [process for process in self._processes if process.member]
        for process in members:
            if process.running is not None:
                process.moved |= set(process.positions)
                self._abort(process, KEYS[0], 0)
        for process in members:
            self.history.do(process.name, Kind.LOSE, keys=list(process.positions), group=GROUP)
            process.moved |= set(process.positions)
            process.positions = {}
        for number, key in enumerate(KEYS if members else ()):
            owner = members[(number + choice) % len(members)]
            owner.positions[key] = self._group[key]
            owner.moved.add(key)
            self.history.do(owner.name, Kind.GAIN, keys=[key], group=GROUP)

    def _committed(self, process: Process, key: Key, choice: int) -> None:
        self.history.do(process.name, Kind.COMMITTED, offsets=dict(self._group), group=GROUP)

    def _crash(self, process: Process, key: Key, choice: int) -> None:
        if process.running is not None:
            self._dangling.append(process.transaction)
            self._complete(process, Outcome.UNKNOWN)
        self._gone(process)

    def _gone(self, process: Process) -> None:
        self.history.do(process.name, Kind.CRASH)
        self._leave(process)
        process.positions = {}

    def _resolve(self, process: Process, key: Key, choice: int) -> None:
        """The coordinator ends a transaction whose producer has crashed: on timeout, or because it was prepared."""
        if self._dangling:
            transaction = self._dangling.pop(choice % len(self._dangling))
            self._end(transaction, Fate.COMMITTED if choice % 2 else Fate.ABORTED)
