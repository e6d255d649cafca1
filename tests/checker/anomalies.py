"""The anomalies: what a log with offsets, groups and transactions must not show.

Each function takes the facts of a history, and yields a case per occurrence. Names and meaning are those of
jepsen.tests.kafka, Jepsen's workload for Kafka; `unwritten`, `lost-commit` and the three of groups are added. Consumers
are assumed to read committed records only, and producers to be idempotent.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.checker.cycles import both, cycles, wr, ww
from tests.checker.facts import Facts, Holding, Jump
from tests.checker.history import Key, Kind, Operation, Outcome, Poll, Record, Value


@dataclass(frozen=True, slots=True)
class Case:
    """An occurrence of an anomaly.

    Attributes:
        text: what was seen, in a sentence.
        key: where; None if several keys take part.
        records: the records that show it.
        operations: the operations that show it, the cause first.
    """

    text: str
    key: Key | None
    records: tuple[Record, ...]
    operations: tuple[Operation, ...]

    def __str__(self) -> str:
        return "; ".join([self.text, *map(str, self.operations)])


def inconsistent_offsets(facts: Facts) -> Iterator[Case]:
    """An offset of a key holds two values: according to two polls, or to a poll and an acknowledgement.

    Never allowed. It shows a log that was truncated and written again, or replicas that differ. Evidence: the values,
    and the operations that sent them.
    """
    for key, log in facts.logs.items():
        for offset, values in log.conflicts.items():
            records = tuple(Record(offset, value) for value in values)
            yield Case(f"{key}: offset {offset} holds {_list(values)}", key, records, _writers(facts, key, *values))


def duplicate(facts: Facts) -> Iterator[Case]:
    """A value is at two offsets of a key.

    Never allowed with idempotent producers; producers without idempotence write duplicates when they retry. Evidence:
    the value at its offsets, and the operation that sent it.
    """
    for key, log in facts.logs.items():
        for value, offsets in log.repeated.items():
            records = tuple(Record(offset, value) for offset in offsets)
            yield Case(f"{key}: {value!r} is at offsets {_list(offsets)}", key, records, _writers(facts, key, value))


def unwritten(facts: Facts) -> Iterator[Case]:
    """A poll returned a value that the workload never sent.

    Never allowed. Evidence: the record, and the operation that received it. (Jepsen ends with an error instead.)
    """
    for operation, key, record in _received(facts):
        if facts.writer(key, record.value) is None:
            yield Case(f"{key}: nothing sent {record.value!r}, at offset {record.offset}", key, (record,), (operation,))


def aborted_read(facts: Facts) -> Iterator[Case]:
    """G1a: a poll returned a record of an operation that failed: of an aborted transaction, or of a rejected send.

    Never allowed for consumers that read committed records. Evidence: the record, its writer and its reader.
    """
    failed = {operation for operation in facts.senders if operation.outcome is Outcome.FAIL}
    if not failed:
        return
    for operation, key, record in _received(facts):
        writer = facts.writer(key, record.value)
        if writer in failed and writer is not None:
            yield Case(f"{key}: {record.value!r} was read, but its send failed", key, (record,), (writer, operation))


def precommitted_read(facts: Facts) -> Iterator[Case]:
    """A transaction received a record that it sent itself, and had not committed yet.

    Never allowed: unlike in a database, a transaction's own records are invisible to it. Evidence: the record and the
    transaction.
    """
    for operation in facts.senders:
        for key, records in operation.reads().items():
            for offset, value in records:
                if facts.writer(key, value) is operation:
                    record = Record(offset, value)
                    yield Case(f"{key}: a transaction read {value!r}, which it sent", key, (record,), (operation,))


def lost_write(facts: Facts) -> Iterator[Case]:
    """A record that took effect is missing: no poll returned it, although one returned a later record of the key; or
    it was acknowledged or received before a whole read (SCAN) of the key, which does not return it.

    Never allowed. At the end of a log, without a whole read, a record that was never returned is `unseen` instead.
    Evidence: the record with its last known offset, its writer, and the operation that should have returned it.
    """
    told: set[tuple[Key, Value]] = set()
    for scan in facts.operations:
        if scan.kind is Kind.SCAN and scan.outcome is Outcome.OK:
            for key, value, operation in _missing(facts, scan):
                if (key, value) not in told:
                    told.add((key, value))
                    place = Record(facts.log(key).places.get(value), value)
                    yield Case(f"{key}: {value!r} is missing in a whole read", key, (place,), (operation, scan))
    for key, log in facts.logs.items():
        received = facts.received.get(key)
        if not received:
            continue
        # With a value at several offsets, the bound takes the first, and what must be below it the last: no case
        # depends on which of them is right.
        bound = max(log.places[value] for value in received)
        for value, offset in log.places.items():
            if value in received or (key, value) in told or max(log.repeated.get(value, (offset,))) > bound:
                continue
            writer = facts.writer(key, value)
            if writer is not None and facts.took_effect(writer):
                text = f"{key}: {value!r}, at offset {offset}, was never read, but offset {bound} was"
                yield Case(text, key, (Record(offset, value), Record(bound, log.values[bound])), (writer,))


def _missing(facts: Facts, scan: Operation) -> Iterator[tuple[Key, Value, Operation]]:
    """Yield what was acknowledged or received before a whole read began, and is not in it."""
    found = {key: {value for _, value in records} for key, records in scan.reads().items()}
    for operation in facts.operations:
        if operation.completed is None or operation.completed > scan.invoked:
            continue
        for step in operation.steps:
            if isinstance(step, Poll):
                for key, records in step.records.items():
                    if key in found:
                        for _, value in records:
                            if value not in found[key]:
                                yield key, value, operation
            elif operation.outcome is Outcome.OK and step.key in found and step.value not in found[step.key]:
                yield step.key, step.value, operation


def unseen(facts: Facts) -> Iterator[Case]:
    """An acknowledged record was never received by anything.

    Not allowed in a history that ends with whole reads; in others, consumers may be late. Evidence: the record and its
    writer.
    """
    for operation in facts.senders:
        if operation.outcome is Outcome.OK:
            for key, value, offset in operation.sends():
                if value not in facts.received.get(key, ()):
                    text = f"{key}: {value!r}, acknowledged at offset {offset}, was never read"
                    yield Case(text, key, (Record(offset, value),), (operation,))


def poll_skip(facts: Facts) -> Iterator[Case]:
    """Between two operations, a consumer went ahead over a record that is in the log.

    Never allowed while it keeps the key. (Jepsen allows it in tests with subscriptions, because a rebalance moves
    positions; here the position of a key is forgotten when a rebalance takes it.) Evidence: the two records, those
    between them, and the two operations.
    """
    return _skips(facts.poll_jumps)


def nonmonotonic_poll(facts: Facts) -> Iterator[Case]:
    """Between two operations, a consumer went back, or stayed where it was.

    Never allowed while it keeps the key; see `poll_skip`. Evidence: the two records and operations.
    """
    return _backward(facts.poll_jumps)


def int_poll_skip(facts: Facts) -> Iterator[Case]:
    """Inside of an operation, a consumer went ahead over a record that is in the log.

    Never allowed without a rebalance of the key in the operation. Evidence: as of `poll_skip`.
    """
    return _skips(facts.inner_poll_jumps)


def int_nonmonotonic_poll(facts: Facts) -> Iterator[Case]:
    """Inside of an operation, a consumer went back, or received a record twice.

    Never allowed without a rebalance of the key in the operation. Evidence: the two records, and the operation.
    """
    return _backward(facts.inner_poll_jumps)


def nonmonotonic_send(facts: Facts) -> Iterator[Case]:
    """A producer's record has a smaller offset than one that it sent to the same key in an earlier operation.

    Never allowed for one idempotent producer. Gaps are normal: other producers write to the key. Evidence: the two
    records and operations.
    """
    return _backward(facts.send_jumps)


def int_nonmonotonic_send(facts: Facts) -> Iterator[Case]:
    """Inside of an operation, a later record has a smaller offset.

    Never allowed for one idempotent producer. Evidence: the two records, and the operation.
    """
    return _backward(facts.inner_send_jumps)


def int_send_skip(facts: Facts) -> Iterator[Case]:
    """Inside of an operation, other records are between two that it sent to a key.

    Always allowed: transactions do not isolate writes from each other. Evidence: the two records, those between them,
    and the operation.
    """
    return _skips(facts.inner_send_jumps)


def g0(facts: Facts) -> Iterator[Case]:
    """G0: a cycle of writes. A's record is before B's in one key, and after it in another.

    Always allowed: transactions do not isolate writes from each other. Evidence: the cycle; each operation wrote
    before the next, and the last before the first.
    """
    graph = ww(facts)
    for cycle in cycles(graph, graph):
        yield _cycle("each wrote before the next one, and the last before the first", cycle)


def g1c(facts: Facts) -> Iterator[Case]:
    """G1c: a cycle of reads. Each transaction received a record of the one before, in a circle.

    Never allowed for consumers that read committed records: one of them must have read before the commit. Evidence:
    the cycle; each operation sent a record that the next one received.
    """
    graph = wr(facts)
    for cycle in cycles(graph, graph):
        yield _cycle("each sent a record that the next one read, and the last one that the first read", cycle)


def g1c_ww(facts: Facts) -> Iterator[Case]:
    """G1c with writes: a cycle of writes and at least one read.

    Always allowed, because writes are not isolated: B reads A's committed record after B's own record has got an offset
    before another one of A's. (Jepsen calls it G1c too, and allows it when it infers the order of writes from offsets.)
    Evidence: the cycle, whose second operation received a record of the first.
    """
    reads = wr(facts)
    for cycle in cycles(both(ww(facts), reads), reads):
        yield _cycle("each wrote before the next one, or wrote what it read, in a circle", cycle)


def lost_commit(facts: Facts) -> Iterator[Case]:
    """A group's committed offset is smaller than one that was acknowledged before it was asked for, or before the
    commit of the smaller one began.

    Never allowed: positions of a group only go ahead in these workloads, and the commits of a member that was fenced
    are refused. (Not among Jepsen's.) Evidence: the two offsets, and the operations.
    """
    events: list[tuple[int, Operation]] = []
    for operation in facts.operations:
        if operation.offsets and operation.completed is not None and operation.outcome is Outcome.OK:
            events.append((operation.invoked, operation))
            events.append((operation.completed, operation))
    newest: dict[tuple[str, Key], tuple[int, Operation]] = {}
    expected: dict[tuple[Operation, Key], tuple[int, Operation]] = {}
    for position, operation in sorted(events, key=lambda event: event[0]):
        for key, offset in operation.offsets.items():
            known = newest.get((operation.group, key))
            if position == operation.invoked:
                if known is not None:
                    expected[operation, key] = known
                continue
            if (promised := expected.pop((operation, key), None)) is not None and offset < promised[0]:
                text = f"{key}: the group's offset is {offset}, after {promised[0]} was acknowledged"
                yield Case(text, key, (), (promised[1], operation))
            if operation.kind is not Kind.COMMITTED and (known is None or known[0] < offset):
                newest[operation.group, key] = offset, operation


def unconsumed(facts: Facts) -> Iterator[Case]:
    """A group has committed an offset behind a record that no poll of its members returned.

    Never allowed: a record is consumed at least once. Only for groups whose members' polls are known, and who read from
    the first offset. (Not among Jepsen's.) Evidence: the record, its writer, and the operation with the larger offset.
    """
    committed: dict[tuple[str, Key], tuple[int, Operation]] = {}
    for operation in facts.operations:
        if operation.group in facts.received_by_group and operation.outcome is Outcome.OK:
            for key, offset in operation.offsets.items():
                if offset > committed.get((operation.group, key), (0, operation))[0]:
                    committed[operation.group, key] = offset, operation
    for (group, key), (end, operation) in committed.items():
        received = facts.received_by_group[group].get(key, ())
        log = facts.log(key)
        for offset in log.between(-1, end):
            if (value := log.values[offset]) not in received:
                text = f"{key}: {group} has committed {end}, but its members never read {value!r}, at offset {offset}"
                yield Case(text, key, (Record(offset, value),), (*_writers(facts, key, value), operation))


def two_owners(facts: Facts) -> Iterator[Case]:
    """Two members of a group have a key at the same time, and the coordinator takes the commits of both.

    Never allowed. A member has a key from the return of the callback that gave it. A member that is cut off, or does
    not poll, cannot know that it was removed from the group and its keys were given away: therefore it counts only up
    to its last commit of the key that was acknowledged, for those of a member that was removed are refused. (Not among
    Jepsen's.) Evidence: for both, how the key was gained and the last commit.
    """
    newest: dict[tuple[str, Key], tuple[int, Holding]] = {}
    for holding in sorted(facts.holdings, key=lambda each: each.gained.completed or each.gained.invoked):
        gained, commit = holding.gained, holding.commit
        if commit is None or gained.completed is None:
            continue
        known = newest.get((holding.group, holding.key))
        if known is not None and gained.completed < known[0]:
            other = known[1]
            assert other.commit is not None
            text = f"{holding.key}: {other.gained.process} and {gained.process} have it in {holding.group}"
            yield Case(text, holding.key, (), (other.gained, other.commit, gained, commit))
        if known is None or known[0] < commit.invoked:
            newest[holding.group, holding.key] = commit.invoked, holding


def unsettled(facts: Facts) -> Iterator[Case]:
    """After the faults and the changes of its members, a key of a group has no member, or several, or a member has no
    key.

    Never allowed: a group converges. (Not among Jepsen's.) Evidence: the operation that found it, and how the members
    had gained the key.
    """
    for operation in facts.operations:
        if operation.kind is not Kind.SETTLE:
            continue
        if operation.outcome is not Outcome.OK:
            yield Case(f"{operation.group}: {operation.error}", None, (), (operation,))
        owners: dict[Key, list[Operation]] = {key: [] for key in operation.keys}
        for _, key, gained, _, ended in (each for each in facts.holdings if each.group == operation.group):
            if gained.invoked < operation.invoked and (ended is None or ended.invoked > operation.invoked):
                owners.setdefault(key, []).append(gained)
        for key, gains in owners.items():
            if len(gains) != 1:
                processes = _list(each.process for each in gains) or "no member"
                yield Case(f"{key}: in {operation.group} it has {processes}", key, (), (operation, *gains))


class Anomaly(NamedTuple):
    """An anomaly: its name, its function, and whether correct brokers show it too."""

    name: str
    find: Callable[[Facts], Iterator[Case]]
    allowed: bool = False


ANOMALIES = (
    Anomaly("inconsistent-offsets", inconsistent_offsets),
    Anomaly("lost-write", lost_write),
    Anomaly("duplicate", duplicate),
    Anomaly("unwritten", unwritten),
    Anomaly("G1a", aborted_read),
    Anomaly("precommitted-read", precommitted_read),
    Anomaly("unseen", unseen),
    Anomaly("poll-skip", poll_skip),
    Anomaly("nonmonotonic-poll", nonmonotonic_poll),
    Anomaly("int-poll-skip", int_poll_skip),
    Anomaly("int-nonmonotonic-poll", int_nonmonotonic_poll),
    Anomaly("nonmonotonic-send", nonmonotonic_send),
    Anomaly("int-nonmonotonic-send", int_nonmonotonic_send),
    Anomaly("int-send-skip", int_send_skip, allowed=True),
    Anomaly("G0", g0, allowed=True),
    Anomaly("G1c", g1c),
    Anomaly("G1c-ww", g1c_ww, allowed=True),
    Anomaly("lost-commit", lost_commit),
    Anomaly("unconsumed", unconsumed),
    Anomaly("two-owners", two_owners),
    Anomaly("unsettled", unsettled),
)


def _received(facts: Facts) -> Iterator[tuple[Operation, Key, Record]]:
    for operation in facts.operations:
        for step in operation.steps:
            if isinstance(step, Poll):
                for key, records in step.records.items():
                    for offset, value in records:
                        yield operation, key, Record(offset, value)


def _skips(jumps: Sequence[Jump]) -> Iterator[Case]:
    for jump in jumps:
        if jump.skipped:
            count = len(jump.skipped)
            text = f"{jump.key}: after offset {jump.before.offset} came {jump.after.offset}; {count} between them"
            yield Case(text, jump.key, (jump.before, jump.after, *jump.skipped), _distinct(jump))


def _backward(jumps: Sequence[Jump]) -> Iterator[Case]:
    for jump in jumps:
        if not jump.skipped:
            text = f"{jump.key}: after offset {jump.before.offset} came {jump.after.offset}"
            yield Case(text, jump.key, (jump.before, jump.after), _distinct(jump))


def _distinct(jump: Jump) -> tuple[Operation, ...]:
    return (jump.first,) if jump.first is jump.second else (jump.first, jump.second)


def _cycle(text: str, cycle: list[Operation]) -> Case:
    return Case(f"{len(cycle)} operations: {text}", None, (), tuple(cycle))


def _writers(facts: Facts, key: Key, *values: Value) -> tuple[Operation, ...]:
    return tuple(writer for value in values if (writer := facts.writer(key, value)) is not None)


def _list(items: Iterable[object]) -> str:
    return " and ".join(map(repr, items))
