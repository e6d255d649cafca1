"""The state machine of a transactional id: each state with each request, epochs, rotation, and random histories."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.coordinators.result import IllegalTransition
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.records import (
    read_transaction_value,
    transaction_value,
)
from barnabas_broker.transactions.transaction import (
    IDLE,
    MAX_EPOCH,
    NEED_PRODUCER_ID,
    NONE,
    TRANSITIONS,
    Completed,
    Decision,
    Ended,
    Event,
    Metadata,
    RefusedStep,
    SendMarkers,
    Transaction,
    TransactionState,
    TxnReply,
    fresh_metadata,
)
from barnabas_explain.transactions import Cause
from barnabas_protocol.errors import ErrorCode
from tests.lots import in_lots

S = TransactionState
E = ErrorCode
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PID, EPOCH = 1000, 5


def at(state: TransactionState, **fields: Any) -> Transaction:
    """A transactional id in a state, as from the log."""
    ongoing = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    start = NONE if state is S.EMPTY else 100
    partitions = frozenset([T0]) if ongoing else frozenset()
    metadata = Metadata(state, PID, EPOCH, 60_000, partitions, start, 100, previous_producer_id=PID)
    return Transaction("id", metadata._replace(**fields))


NOTHING: Decision = Decision()


def code(decision: Decision) -> ErrorCode | None:
    """The error code of a request that is answered at once, or waits until it is refused; None if it is in the log
    first."""
    if decision.waits:
        assert decision == Decision(waits=True)
        return E.CONCURRENT_TRANSACTIONS
    return None if decision.records or decision.response is None else decision.response.error


def appended(machine: Transaction, decision: Decision) -> Decision:
    """Apply the record of a decision; what follows."""
    (record,) = decision.records
    machine.apply(record)
    return decision


def reply(decision: Decision) -> TxnReply:
    assert decision.response is not None
    return decision.response


def finished(machine: Transaction, decision: Decision) -> None:
    """Write a decision, its markers and its end."""
    markers = appended(machine, decision).events[-1]
    assert isinstance(markers, SendMarkers)
    assert appended(machine, machine.markers_written(markers.partitions, 300)).events == (Completed(),)


PREPARED = (S.PREPARE_COMMIT, S.PREPARE_ABORT)

#: What each request gets in each state: an error code, or the state that it leads to.
ANSWERS: dict[tuple[str, TransactionState], ErrorCode | TransactionState] = {
    **{("init", state): S.EMPTY for state in IDLE},
    ("init", S.ONGOING): S.PREPARE_ABORT,
    **{("recover", state): S.EMPTY for state in IDLE},
    ("recover", S.ONGOING): S.PREPARE_ABORT,
    **{("recover with an old id", state): E.PRODUCER_FENCED for state in (*IDLE, S.ONGOING)},
    **{("recover with an old epoch", state): E.PRODUCER_FENCED for state in IDLE},
    **{("add", state): S.ONGOING for state in (*IDLE, S.ONGOING)},
    ("add again", S.ONGOING): E.NONE,
    **{("add, old epoch", state): E.PRODUCER_FENCED for state in (*IDLE, S.ONGOING)},
    **{("add, other id", state): E.INVALID_PRODUCER_ID_MAPPING for state in (*IDLE, S.ONGOING)},
    ("commit", S.EMPTY): E.INVALID_TXN_STATE,
    ("commit", S.ONGOING): S.PREPARE_COMMIT,
    ("commit", S.COMPLETE_COMMIT): E.NONE,
    ("commit", S.COMPLETE_ABORT): E.INVALID_TXN_STATE,
    ("abort", S.EMPTY): E.INVALID_TXN_STATE,
    ("abort", S.ONGOING): S.PREPARE_ABORT,
    ("abort", S.COMPLETE_COMMIT): E.INVALID_TXN_STATE,
    ("abort", S.COMPLETE_ABORT): E.NONE,
    # Version 2, the table of Kafka's TransactionCoordinator: the current epoch, and the one before (a repetition).
    ("commit 2", S.EMPTY): E.INVALID_TXN_STATE,
    ("commit 2", S.ONGOING): S.PREPARE_COMMIT,
    ("commit 2", S.COMPLETE_COMMIT): E.INVALID_TXN_STATE,
    ("commit 2", S.COMPLETE_ABORT): E.INVALID_TXN_STATE,
    ("abort 2", S.EMPTY): S.PREPARE_ABORT,
    ("abort 2", S.ONGOING): S.PREPARE_ABORT,
    ("abort 2", S.COMPLETE_COMMIT): S.PREPARE_ABORT,
    ("abort 2", S.COMPLETE_ABORT): S.PREPARE_ABORT,
    ("commit 2 again", S.EMPTY): E.PRODUCER_FENCED,
    ("commit 2 again", S.ONGOING): E.PRODUCER_FENCED,
    ("commit 2 again", S.COMPLETE_COMMIT): E.NONE,
    ("commit 2 again", S.COMPLETE_ABORT): E.INVALID_TXN_STATE,
    ("abort 2 again", S.EMPTY): E.PRODUCER_FENCED,
    ("abort 2 again", S.ONGOING): E.PRODUCER_FENCED,
    ("abort 2 again", S.COMPLETE_COMMIT): E.INVALID_TXN_STATE,
    ("abort 2 again", S.COMPLETE_ABORT): E.NONE,
    **{("commit, old epoch", state): E.PRODUCER_FENCED for state in (*IDLE, S.ONGOING)},
    **{("commit, other id", state): E.INVALID_PRODUCER_ID_MAPPING for state in (*IDLE, S.ONGOING)},
    **{("commit 2, other id", state): E.INVALID_PRODUCER_ID_MAPPING for state in (*IDLE, S.ONGOING)},
    **{("commit 2, old epoch", state): E.PRODUCER_FENCED for state in (*IDLE, S.ONGOING)},
}
REQUESTS = sorted({request for request, _ in ANSWERS})


def ask(machine: Transaction, request: str) -> Decision:
    """Send a request."""
    now = 200
    if request.startswith(("init", "recover")):
        expected = {
            "init": None,
            "recover": (PID, EPOCH),
            "recover with an old id": (PID - 1, EPOCH),
            "recover with an old epoch": (PID, EPOCH - 2),
        }[request]
        return machine.init_producer_id(30_000, expected, NONE, now)
    producer_id = PID - 1 if "other id" in request else PID
    epoch = EPOCH - 2 if "old epoch" in request else EPOCH - 1 if request.endswith("2 again") else EPOCH
    if request.startswith("add"):
        return machine.add_partitions(producer_id, epoch, [T0 if "again" in request else T1], 0, now)
    version = 2 if " 2" in request else 0
    return machine.end(producer_id, epoch, request.startswith("commit"), version, NONE, now)


@in_lots(
    ("request_", "state", "wanted"),
    [(*key, wanted) for key, wanted in ANSWERS.items()],
)
def test_each_state_answers_each_request(
    request_: str, state: TransactionState, wanted: ErrorCode | TransactionState
) -> None:
    machine = at(state)
    decision = ask(machine, request_)
    if isinstance(wanted, ErrorCode):
        assert code(decision) is wanted
        assert (machine.state, machine.ending) == (state, False)
        refused = any(isinstance(event, RefusedStep) for event in decision.events)
        assert refused is (wanted is E.INVALID_TXN_STATE), "what the state does not allow is logged"
    else:
        assert code(decision) is None, "the answer waits for the log"
        assert machine.state is state
        fenced = state is S.ONGOING and request_ in ("init", "recover")
        assert reply(appended(machine, decision)).error is (E.CONCURRENT_TRANSACTIONS if fenced else E.NONE)
        assert machine.state is wanted


@pytest.mark.parametrize("state", PREPARED, ids=lambda state: state.value)
@in_lots("request_", REQUESTS)
def test_while_markers_are_written_clients_must_wait(request_: str, state: TransactionState) -> None:
    machine = at(state)
    # EndTxn before version 5 checks the producer first, as in Kafka.
    first = {"commit, old epoch": E.PRODUCER_FENCED, "commit, other id": E.INVALID_PRODUCER_ID_MAPPING}
    assert code(ask(machine, request_)) is first.get(request_, E.CONCURRENT_TRANSACTIONS)
    assert machine.state is state


def test_a_first_producer_gets_epoch_0_and_the_next_one_epoch_1() -> None:
    machine = Transaction("id", fresh_metadata(7, 1000, 1))
    first = reply(appended(machine, machine.init_producer_id(1000, None, NONE, 2)))
    assert first == TxnReply(E.NONE, 7, 0)
    second = reply(appended(machine, machine.init_producer_id(2000, None, NONE, 3)))
    assert second == TxnReply(E.NONE, 7, 1)
    assert machine.timeout_ms == 2000


def test_a_producer_that_recovers_may_repeat_the_request_until_another_producer_comes() -> None:
    machine = at(S.EMPTY)
    for _ in range(2):
        answer = reply(appended(machine, machine.init_producer_id(1000, (PID, EPOCH), NONE, 2)))
        assert (answer.producer_id, answer.producer_epoch) == (PID, EPOCH + 1)
    appended(machine, machine.init_producer_id(1000, None, NONE, 3))
    assert code(machine.init_producer_id(1000, (PID, EPOCH), NONE, 4)) is E.PRODUCER_FENCED
    assert code(machine.init_producer_id(1000, (PID, EPOCH + 1), NONE, 4)) is E.PRODUCER_FENCED


def test_init_aborts_the_open_transaction_with_a_new_epoch_and_then_gives_the_next_one() -> None:
    machine = at(S.ONGOING)
    after = appended(machine, machine.init_producer_id(1000, None, NONE, 200))
    assert after.events[0] == Ended(False, Cause.FENCED, at(S.ONGOING).metadata)
    assert reply(after).error is E.CONCURRENT_TRANSACTIONS
    assert after.events[-1] == SendMarkers(PID, EPOCH + 1, False, frozenset([T0]), 2)
    assert machine.verify(PID, EPOCH, [T0]) == {T0: E.PRODUCER_FENCED}, "the old producer is fenced at once"
    assert appended(machine, machine.markers_written([T0], 300)).events == (Completed(),)
    answer = reply(appended(machine, machine.init_producer_id(1000, None, NONE, 400)))
    assert (answer.error, answer.producer_epoch) == (E.NONE, EPOCH + 2)


def test_the_timeout_aborts_and_fences() -> None:
    machine = at(S.ONGOING)
    end = machine.metadata.start_ms + machine.timeout_ms
    assert machine.abort_overdue(machine.timeout_ms, NONE, end) == NOTHING
    after = appended(machine, machine.abort_overdue(machine.timeout_ms + 1, NONE, end + 1))
    assert [type(event) for event in after.events] == [Ended, SendMarkers]
    assert isinstance(after.events[0], Ended)
    assert after.events[0].cause is Cause.TIMEOUT
    assert code(machine.end(PID, EPOCH, True, 0, NONE, end + 2)) is E.PRODUCER_FENCED


def test_in_version_2_each_transaction_has_its_own_epoch() -> None:
    machine = at(S.ONGOING)
    answer = reply(after := appended(machine, machine.end(PID, EPOCH, True, 2, NONE, 200)))
    assert answer == TxnReply(E.NONE, PID, EPOCH + 1)
    assert after.events[-1] == SendMarkers(PID, EPOCH + 1, True, frozenset([T0]), 2)
    # The next transaction, with the next epoch, waits for the markers.
    assert code(machine.add_partitions(PID, EPOCH + 1, [T1], 2, 210)) is E.CONCURRENT_TRANSACTIONS
    appended(machine, machine.markers_written([T0], 300))
    appended(machine, machine.add_partitions(PID, EPOCH + 1, [T1], 2, 310))
    for late in (True, False):
        answer_to_late = machine.end(PID, EPOCH, late, 2, NONE, 320)
        assert code(answer_to_late) is E.PRODUCER_FENCED, "a late EndTxn never ends the next transaction"
    assert machine.state is S.ONGOING


def test_a_repeated_end_gets_the_same_epoch() -> None:
    machine = at(S.ONGOING)
    finished(machine, machine.end(PID, EPOCH, True, 2, NONE, 200))
    assert reply(machine.end(PID, EPOCH, True, 2, NONE, 300)) == TxnReply(E.NONE, PID, EPOCH + 1)


def test_an_abort_without_partitions_gives_the_next_epoch_in_version_2() -> None:
    machine = at(S.EMPTY)
    after = appended(machine, machine.end(PID, EPOCH, False, 2, NONE, 200))
    assert reply(after) == TxnReply(E.NONE, PID, EPOCH + 1)
    assert after.events == (SendMarkers(PID, EPOCH + 1, False, frozenset(), 2),), "nothing has ended"
    assert appended(machine, machine.markers_written((), 300)).events == (Completed(),)
    assert (machine.state, machine.metadata.start_ms) == (S.COMPLETE_ABORT, 200)


@pytest.mark.parametrize("expected", [None, (PID, MAX_EPOCH - 1)])
def test_init_takes_a_new_producer_id_when_the_epochs_are_exhausted(expected: tuple[int, int] | None) -> None:
    machine = at(S.EMPTY, producer_epoch=MAX_EPOCH - 1)
    assert machine.init_producer_id(1000, expected, NONE, 2) is NEED_PRODUCER_ID
    answer = reply(appended(machine, machine.init_producer_id(1000, expected, 2000, 2)))
    assert answer == TxnReply(E.NONE, 2000, 0)
    again = machine.init_producer_id(1000, (PID, MAX_EPOCH - 1), 3000, 2)
    if expected is None:
        assert code(again) is E.PRODUCER_FENCED
    else:
        assert reply(appended(machine, again)) == TxnReply(E.NONE, 2000, 0), "a repeated request"


@pytest.mark.parametrize("state", [S.ONGOING, S.EMPTY])
def test_the_end_of_a_transaction_takes_a_new_producer_id_when_the_epochs_are_exhausted(
    state: TransactionState,
) -> None:
    machine = at(state, producer_epoch=MAX_EPOCH - 1)
    assert machine.end(PID, MAX_EPOCH - 1, False, 2, NONE, 200) is NEED_PRODUCER_ID
    after = appended(machine, machine.end(PID, MAX_EPOCH - 1, False, 2, 2000, 200))
    assert reply(after) == TxnReply(E.NONE, 2000, 0)
    assert (machine.metadata.producer_id, machine.metadata.producer_epoch) == (PID, MAX_EPOCH)
    partitions = frozenset([T0]) if state is S.ONGOING else frozenset()
    assert after.events[-1] == SendMarkers(PID, MAX_EPOCH, False, partitions, 2)
    appended(machine, machine.markers_written(partitions, 300))
    assert (machine.metadata.producer_id, machine.metadata.producer_epoch) == (2000, 0)
    assert reply(machine.end(PID, MAX_EPOCH - 1, False, 2, NONE, 400)) == TxnReply(E.NONE, 2000, 0)


def test_a_fence_takes_a_new_producer_id_when_the_epochs_are_exhausted() -> None:
    machine = at(S.ONGOING, producer_epoch=MAX_EPOCH - 1)
    assert machine.abort_overdue(10**6, NONE, 10**6) is NEED_PRODUCER_ID
    finished(machine, machine.abort_overdue(10**6, 2000, 10**6))
    assert (machine.metadata.producer_id, machine.metadata.producer_epoch) == (2000, 0)


def test_markers_may_be_written_in_parts_and_more_than_once() -> None:
    machine = at(S.ONGOING, partitions=frozenset([T0, T1]))
    appended(machine, machine.end(PID, EPOCH, True, 0, NONE, 200))
    assert machine.markers_written([T0], 300) == NOTHING
    assert machine.markers_written([T0], 300) == NOTHING
    assert appended(machine, machine.markers_written([T1], 300)).events == (Completed(),)
    assert machine.markers_written([T1], 300) == NOTHING
    assert machine.state is S.COMPLETE_COMMIT


@pytest.mark.parametrize("state", PREPARED)
def test_a_new_coordinator_continues_to_write_markers(state: TransactionState) -> None:
    machine = at(state)
    markers = SendMarkers(PID, EPOCH, state is S.PREPARE_COMMIT, frozenset([T0]), 0)
    assert machine.resume() == Decision(events=(markers,))
    without = at(state, partitions=frozenset())
    assert without.resume().events == (markers._replace(partitions=frozenset()),)
    appended(without, without.markers_written((), 300))
    assert without.state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


@pytest.mark.parametrize("state", [*IDLE, S.ONGOING])
def test_a_new_coordinator_leaves_other_states_alone(state: TransactionState) -> None:
    assert at(state).resume() == NOTHING


@in_lots("request_", [*REQUESTS, "overdue", "expiry"])
def test_a_decision_changes_nothing_before_its_record_is_applied(request_: str) -> None:
    for state in (*IDLE, S.ONGOING, *PREPARED):
        machine = at(state)
        before = machine.metadata
        if request_ == "overdue":
            machine.abort_overdue(10**6, NONE, 10**6)
        elif request_ == "expiry":
            machine.expire(0, 10**6)
        else:
            ask(machine, request_)
        assert (machine.metadata, machine.unmarked) == (before, before.partitions)


def test_the_end_is_decided_again_until_it_is_in_the_log() -> None:
    machine = at(S.PREPARE_COMMIT)
    assert machine.markers_written([T0], 300).records
    assert code(machine.add_partitions(PID, EPOCH, [T0], 0, 310)) is E.CONCURRENT_TRANSACTIONS
    assert appended(machine, machine.markers_written([T0], 400)).events == (Completed(),)
    assert machine.markers_written([T0], 500) == NOTHING


@pytest.mark.parametrize("state", [*IDLE, S.ONGOING, *PREPARED], ids=lambda state: state.value)
def test_only_what_is_idle_expires(state: TransactionState) -> None:
    machine = at(state)
    assert machine.expire(1000, 1099) == NOTHING
    decision = machine.expire(1000, 1100)
    if state in IDLE:
        assert (decision.records, decision.response) == ((None,), None), "a tombstone"
        assert (machine.state, machine.gone) == (state, False)
        appended(machine, decision)
        assert machine.state is S.DEAD and machine.gone
        assert code(machine.init_producer_id(1, None, NONE, 1100)) is E.NOT_COORDINATOR
    else:
        assert decision == NOTHING


def test_verification() -> None:
    machine = at(S.ONGOING)
    assert machine.verify(PID, EPOCH, [T0, T1]) == {T0: E.NONE, T1: E.TRANSACTION_ABORTABLE}
    assert machine.verify(PID, EPOCH - 1, [T0]) == {T0: E.PRODUCER_FENCED}
    assert machine.verify(PID - 1, EPOCH, [T0]) == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert at(S.PREPARE_COMMIT).verify(PID, EPOCH, [T0]) == {T0: E.CONCURRENT_TRANSACTIONS}
    assert at(S.EMPTY).verify(PID, EPOCH, [T0]) == {T0: E.TRANSACTION_ABORTABLE}


def test_a_transition_that_the_table_does_not_have_is_a_bug() -> None:
    assert TRANSITIONS.keys() == set(S)
    with pytest.raises(IllegalTransition):
        at(S.ONGOING)._change(at(S.EMPTY).metadata, None)


class Histories(RuleBasedStateMachine):
    """Random requests, failed appends, markers and moves; checked after each step."""

    @initialize(epoch=st.sampled_from([0, 5, MAX_EPOCH - 3]))
    def create(self, epoch: int) -> None:
        self.now = 1000
        self.fresh = 5000
        metadata = fresh_metadata(PID, 60_000, self.now)._replace(producer_epoch=epoch)
        self.machine = Transaction("id", metadata)
        #: What the log has, and the decision that is being appended.
        self.log: list[Metadata | None] = [metadata]
        self.pending: Decision | None = None
        self.markers: SendMarkers | None = None
        #: Every producer id and epoch that a client was given, and the highest of all.
        self.given = [(metadata.producer_id, metadata.producer_epoch)]
        self.decided: dict[tuple[int, int], bool] = {}

    def take(self, decision: Decision) -> None:
        """Begin to append a decision; what has no record follows at once."""
        if decision.records:
            assert len(decision.records) == 1
            self.pending = decision
        else:
            self.follow(decision)

    def follow(self, decision: Decision) -> None:
        answer = decision.response
        if answer is not None and answer.error is E.NONE and answer.producer_id != NONE:
            pair = answer.producer_id, answer.producer_epoch
            if pair not in self.given:
                assert pair > self.given[-1], "epochs only grow"
                self.given.append(pair)
                assert pair[1] < MAX_EPOCH, "the last epoch is never given to a client"
        for event in decision.events:
            self.happened(event)

    def happened(self, event: Event) -> None:
        if isinstance(event, SendMarkers):
            assert self.machine.state in PREPARED, "markers only after the decision is in the log"
            key = event.producer_id, event.producer_epoch
            assert self.decided.setdefault(key, event.committed) is event.committed or event.version == 0
            self.markers = event
            if not event.partitions:
                self.take(self.machine.markers_written((), self.now))

    # One change is under way at a time: that is the runtime's part.

    @precondition(lambda self: self.pending is None)
    @rule(expected=st.sampled_from(["none", "current", "old"]))
    def init(self, expected: str) -> None:
        have = {"none": None, "current": self.given[-1], "old": self.given[0]}[expected]
        self.take(self.machine.init_producer_id(60_000, have, self.fresh, self.now))
        self.fresh += 1

    @precondition(lambda self: self.pending is None)
    @rule(which=st.integers(-3, -1), version=st.sampled_from([0, 2]), partition=st.sampled_from([T0, T1]))
    def add(self, which: int, version: int, partition: TopicPartition) -> None:
        who = self.given[max(which, -len(self.given))]
        self.take(self.machine.add_partitions(*who, [partition], version, self.now))

    @precondition(lambda self: self.pending is None)
    @rule(which=st.integers(-3, -1), version=st.sampled_from([0, 2]), committed=st.booleans())
    def end(self, which: int, version: int, committed: bool) -> None:
        who = self.given[max(which, -len(self.given))]
        before = self.machine.metadata
        decision = self.machine.end(*who, committed, version, self.fresh, self.now)
        self.fresh += 1
        if decision.records:
            assert who == (before.producer_id, before.producer_epoch), "only the current epoch ends a transaction"
        self.take(decision)

    @precondition(lambda self: self.pending is not None)
    @rule(durable=st.sampled_from([True, True, True, False]))
    def append(self, durable: bool) -> None:
        pending, self.pending = self.pending, None
        assert pending is not None
        if durable:
            self.log.append(pending.records[0])
            self.machine.apply(pending.records[0])
            self.follow(pending)
        elif Completed() in pending.events:
            self.take(self.machine.markers_written((), self.now))

    @precondition(lambda self: self.markers is not None and self.pending is None)
    @rule(partition=st.sampled_from([T0, T1]))
    def marker(self, partition: TopicPartition) -> None:
        assert self.markers is not None
        if partition in self.markers.partitions:
            self.take(self.machine.markers_written([partition], self.now))

    @precondition(lambda self: self.pending is None)
    @rule(ms=st.sampled_from([1, 1000, 61_000]))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.take(self.machine.abort_overdue(self.now - self.machine.metadata.start_ms, self.fresh, self.now))
        self.fresh += 1

    @rule()
    def move(self) -> None:
        """Another coordinator takes over, from the log."""
        self.pending = self.markers = None
        self.machine = self.replayed(self.log)
        self.take(self.machine.resume())

    @staticmethod
    def replayed(log: list[Metadata | None]) -> Transaction:
        """A machine that has applied what is in the log."""
        machine = Transaction("id", fresh_metadata(NONE, 0, 0))
        for record in log:
            machine.apply(None if record is None else read_transaction_value(transaction_value(record)))
        return machine

    @invariant()
    def state_is_that_of_the_log(self) -> None:
        for log in (self.log, self.log[-1:]):  # all of it, and what compaction leaves
            stored = self.replayed(log)
            assert self.machine.metadata._replace(last_epoch=NONE) == stored.metadata
            assert self.machine.unmarked <= stored.unmarked


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase
