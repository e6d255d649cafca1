"""Histories of a correct broker have no anomalies; each single mutation of them is found."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checker.checker import check
from tests.checker.history import History, Key, Kind, Operation, Outcome, Poll, Send, Value
from tests.checker.simulated import GROUP, KEYS, Simulation
from tests.sampling import slow_but_each

Script = Sequence[tuple[str, int, int, int]]
Batch = Sequence[tuple[int, Value]]
T = TypeVar("T")

#: Sends and polls, in and out of transactions, are the most frequent actions.
WEIGHTS = {"send": 8, "poll": 8, "begin": 3, "commit": 3, "abort": 2, "subscribe": 2, "assign": 2}
ACTIONS = [name for name in Simulation.ACTIONS for _ in range(WEIGHTS.get(name, 1))]


def script(numbers: bytes) -> Script:
    """Return an action for three bytes."""
    return [
        (ACTIONS[action % len(ACTIONS)], who % 16, who // 16, choice)
        for action, who, choice in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=False)
    ]


#: Up to 200 actions. Bytes are drawn at once, which is ten times faster than a list of tuples, and shrink as well.
SCRIPTS = st.binary(min_size=150, max_size=600).map(script)
#: Has something for each mutation: acknowledged and failed sends, two transactions, polls of three records.
PRELUDE: Script = [
    *[("assign", 1, 0, 2), ("subscribe", 2, 0, 0), ("poll", 2, 0, 0)],
    *[("send", 0, 0, 0)] * 4,
    *[("poll", 1, 0, 3), ("poll", 2, 0, 3), ("send_failed", 3, 1, 0)],
    *[("begin", 0, 0, 0), ("send", 0, 0, 0), ("send", 0, 0, 0), ("commit", 0, 0, 0)],
    *[("begin", 3, 0, 0), ("send", 3, 1, 0), ("commit", 3, 0, 0)],
]


def simulate(script: Script) -> History:
    simulation = Simulation()
    for action, process, key, choice in script:
        simulation.act(action, process, key, choice)
    return simulation.finish()


@settings(max_examples=300)
@given(SCRIPTS)
def test_a_correct_broker_has_no_anomaly(actions: Script) -> None:
    assert check(simulate(actions)).lines() == []


def choose(items: Iterable[T], number: int) -> T:
    found = list(items)
    return found[number % len(found)]


def replace(operation: Operation, poll: Poll, key: Key, records: Batch) -> None:
    changed = Poll({**poll.records, key: records})
    operation.steps = [changed if step is poll else step for step in operation.steps]


def scan_of(history: History) -> tuple[Operation, Poll]:
    """Return the whole read at the end."""
    scan = next(each for each in history.operations if each.kind is Kind.SCAN)
    (poll,) = scan.steps
    assert isinstance(poll, Poll)
    return scan, poll


def scanned(history: History, number: int, least: int = 1) -> tuple[Operation, Poll, Key, Batch]:
    """Return a key of the whole read with at least so many records."""
    scan, poll = scan_of(history)
    key, records = choose([item for item in poll.records.items() if len(item[1]) >= least], number)
    return scan, poll, key, records


def extend(history: History, key: Key, value: Value) -> None:
    """Append a record to the whole read."""
    scan, poll = scan_of(history)
    records = poll.records[key]
    replace(scan, poll, key, [*records, (records[-1][0] + 10 if records else 1000, value)])


def within(poll: Poll) -> list[tuple[Key, int]]:
    """Return key and index of each record that has a next one."""
    return [(key, at) for key, records in poll.records.items() for at in range(len(records) - 1)]


def sent(history: History, outcome: Outcome, *kinds: Kind) -> list[tuple[Operation, Send]]:
    return [
        (each, send)
        for each in history.operations
        if each.outcome is outcome and each.kind in kinds
        for send in each.sends()
    ]


def committed(history: History) -> list[tuple[Operation, Send]]:
    return sent(history, Outcome.OK, Kind.SEND, Kind.TXN)


def simple_polls(history: History, least: int) -> list[tuple[int, Operation, Key, Batch]]:
    """Return the polls outside of transactions and rebalances with at least so many records of a key."""
    return [
        (at, operation, key, records)
        for at, operation in enumerate(history.operations)
        if operation.kind is Kind.POLL and not operation.rebalanced
        for key, records in operation.reads().items()
        if len(records) >= least
    ]


# Each mutation changes a correct history, and returns the anomaly that must be found.


def the_last_record_disappears(history: History, number: int) -> str:
    known = {(send.key, send.value) for _, send in committed(history)}
    scan, poll = scan_of(history)
    key, records = choose(
        [(key, batch) for key, batch in poll.records.items() if batch and (key, batch[-1][1]) in known], number
    )
    replace(scan, poll, key, records[:-1])
    return "lost-write"


def a_record_disappears(history: History, number: int) -> str:
    known = {(send.key, send.value) for _, send in committed(history)}
    scan, poll = scan_of(history)
    key, at = choose([(key, at) for key, at in within(poll) if (key, poll.records[key][at][1]) in known], number)
    records = poll.records[key]
    replace(scan, poll, key, [*records[:at], *records[at + 1 :]])
    return "lost-write"


def an_acknowledged_record_never_appears(history: History, number: int) -> str:
    history.operations.insert(0, Operation("new", Kind.SEND, [Send(choose(KEYS, number), -1)], -2, Outcome.OK, -1))
    return "unseen"


def two_records_are_delivered_in_the_wrong_order(history: History, number: int) -> str:
    scan, poll, key, records = scanned(history, number, 2)
    at = number % (len(records) - 1)
    replace(scan, poll, key, [*records[:at], records[at + 1], records[at], *records[at + 2 :]])
    return "int-nonmonotonic-poll"


def a_record_is_delivered_twice(history: History, number: int) -> str:
    scan, poll, key, records = scanned(history, number)
    at = number % len(records)
    replace(scan, poll, key, [*records[: at + 1], *records[at:]])
    return "int-nonmonotonic-poll"


def two_values_change_places(history: History, number: int) -> str:
    known = {(send.key, send.value) for _, send in committed(history)}
    scan, poll = scan_of(history)
    key, at = choose([(key, at) for key, at in within(poll) if (key, poll.records[key][at][1]) in known], number)
    batch = list(poll.records[key])
    (low, first), (high, second) = batch[at : at + 2]
    batch[at : at + 2] = [(low, second), (high, first)]
    replace(scan, poll, key, batch)
    return "inconsistent-offsets"


def a_poll_is_repeated(history: History, number: int) -> str:
    at, poll, _, _ = choose(simple_polls(history, 1), number)
    again = Operation(poll.process, Kind.POLL, poll.steps, poll.invoked, Outcome.OK, poll.completed)
    history.operations.insert(at, again)
    return "nonmonotonic-poll"


def a_record_is_skipped_between_polls(history: History, number: int) -> str:
    at, poll, key, records = choose(simple_polls(history, 3), number)
    first = Operation(poll.process, Kind.POLL, [Poll({key: records[:1]})], poll.invoked, Outcome.OK, poll.completed)
    history.operations.insert(at, first)
    poll.steps = [Poll({key: records[2:]})]
    return "poll-skip"


def a_record_is_skipped_within_a_poll(history: History, number: int) -> str:
    _, poll, key, records = choose(simple_polls(history, 3), number)
    poll.steps = [Poll({key: [records[0], *records[2:]]})]
    return "int-poll-skip"


def a_failed_record_appears(history: History, number: int) -> str:
    _, send = choose(sent(history, Outcome.FAIL, Kind.SEND, Kind.TXN), number)
    extend(history, send.key, send.value)
    return "G1a"


def an_acknowledgement_was_an_error(history: History, number: int) -> str:
    operation, _ = choose(committed(history), number)
    operation.outcome = Outcome.FAIL
    return "G1a"


def a_transaction_reads_its_own_record(history: History, number: int) -> str:
    operation, send = choose(sent(history, Outcome.OK, Kind.TXN), number)
    assert send.offset is not None
    operation.steps = [*operation.steps, Poll({send.key: [(send.offset, send.value)]})]
    return "precommitted-read"


def transactions_read_each_other(history: History, number: int) -> str:
    transactions = dict(sent(history, Outcome.OK, Kind.TXN))
    one, two = choose(list(pairwise(transactions)), number)
    for operation, other in ((one, transactions[two]), (two, transactions[one])):
        assert other.offset is not None
        operation.steps = [*operation.steps, Poll({other.key: [(other.offset, other.value)]})]
    return "G1c"


def a_record_is_written_twice(history: History, number: int) -> str:
    _, _, key, records = scanned(history, number)
    extend(history, key, choose(records, number)[1])
    return "duplicate"


def an_acknowledgement_names_another_offset(history: History, number: int) -> str:
    operation, send = choose(committed(history), number)
    assert send.offset is not None
    wrong = send._replace(offset=send.offset + 1)
    operation.steps = [wrong if step is send else step for step in operation.steps]
    return "duplicate"


def a_record_comes_from_nowhere(history: History, number: int) -> str:
    extend(history, choose(KEYS, number), -1)
    return "unwritten"


def a_producers_records_change_places(history: History, number: int) -> str:
    crashes = Counter[object]()
    last: dict[object, tuple[int, Operation]] = {}
    pairs: list[tuple[int, int]] = []
    for at, operation in enumerate(history.operations):
        if operation.kind is Kind.CRASH:
            crashes[operation.process] += 1
        if operation.kind is Kind.SEND and operation.outcome is Outcome.OK:
            (send,) = operation.sends()
            where = operation.process, send.key, crashes[operation.process]
            if where in last:
                pairs.append((last[where][0], at))
            last[where] = at, operation
    one, two = choose(pairs, number)
    every = history.operations
    every[one], every[two] = every[two], every[one]
    return "nonmonotonic-send"


def a_transactions_records_change_places(history: History, number: int) -> str:
    pairs = [
        (operation, one, two)
        for operation in {operation: None for operation, _ in sent(history, Outcome.OK, Kind.TXN)}
        for one, two in pairwise(operation.sends())
        if one.key == two.key
    ]
    operation, one, two = choose(pairs, number)
    operation.steps = [two if step is one else one if step is two else step for step in operation.steps]
    return "int-nonmonotonic-send"


def the_groups_offset_goes_back(history: History, number: int) -> str:
    commits = [each for each in history.operations if each.kind is Kind.COMMIT and any(each.offsets.values())]
    key, offset = choose([item for each in commits for item in each.offsets.items() if item[1]], number)
    history.do("new", Kind.COMMITTED, offsets={key: offset - 1}, group=GROUP)
    return "lost-commit"


def a_member_that_was_removed_commits(history: History, number: int) -> str:
    commits = [each for each in history.operations if each.kind is Kind.COMMIT and each.offsets]
    key, offset = choose([item for each in commits for item in each.offsets.items()], number)
    gained = Operation("removed", Kind.GAIN, [], -2, Outcome.OK, -1, keys=[key], group=GROUP)
    history.operations.insert(0, gained)
    history.do("removed", Kind.COMMIT, offsets={key: offset}, group=GROUP)
    return "two-owners"


def no_member_reads_a_record(history: History, number: int) -> str:
    members = [each for each in history.operations if each.group]
    ends = Counter[Key]()
    for each in members:
        if each.outcome is Outcome.OK:
            ends |= Counter(each.offsets)
    known = {(send.key, send.value) for _, send in committed(history)}
    read = {(key, record) for each in members for key, batch in each.reads().items() for record in batch}
    key, record = choose(
        sorted(each for each in read if each[1][0] < ends[each[0]] and (each[0], each[1][1]) in known), number
    )
    for each in members:
        each.steps = [
            Poll({**step.records, key: [other for other in step.records[key] if other != record]})
            if isinstance(step, Poll) and key in step.records
            else step
            for step in each.steps
        ]
    return "unconsumed"


def a_key_has_two_members_in_the_end(history: History, number: int) -> str:
    for process in ("one", "two"):
        history.do(process, Kind.GAIN, keys=[choose(KEYS, number)], group=GROUP)
    history.do("end", Kind.SETTLE, keys=KEYS, group=GROUP)
    return "unsettled"


# A record whose send has an unknown outcome may be missing: mutations that take records away choose known ones.
@pytest.mark.parametrize(
    "mutate",
    slow_but_each(
        3,
        [
            the_last_record_disappears,
            a_record_disappears,
            an_acknowledged_record_never_appears,
            two_records_are_delivered_in_the_wrong_order,
            a_record_is_delivered_twice,
            two_values_change_places,
            a_poll_is_repeated,
            a_record_is_skipped_between_polls,
            a_record_is_skipped_within_a_poll,
            a_failed_record_appears,
            an_acknowledgement_was_an_error,
            a_transaction_reads_its_own_record,
            transactions_read_each_other,
            a_record_is_written_twice,
            an_acknowledgement_names_another_offset,
            a_record_comes_from_nowhere,
            a_producers_records_change_places,
            a_transactions_records_change_places,
            the_groups_offset_goes_back,
            a_member_that_was_removed_commits,
            no_member_reads_a_record,
            a_key_has_two_members_in_the_end,
        ],
    ),
)
def test_a_mutation_is_found(mutate: Callable[[History, int], str]) -> None:
    @settings(max_examples=50)
    @given(SCRIPTS, st.integers(0, 1000))
    def found(actions: Script, number: int) -> None:
        history = simulate([*PRELUDE, *actions])
        expected = mutate(history, number)
        assert expected in check(history).bad

    found()
