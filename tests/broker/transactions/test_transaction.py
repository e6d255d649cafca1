"""The state machine of a transactional id: each state with each request, epochs, rotation, and random histories."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.transaction import (
    IDLE,
    MAX_EPOCH,
    NONE,
    TRANSITIONS,
    Completed,
    Effect,
    Ended,
    IllegalTransition,
    Metadata,
    NeedProducerId,
    Persist,
    Refused,
    Reply,
    RetryPersist,
    SendMarkers,
    Transaction,
    TransactionState,
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


def code(effects: list[Effect]) -> ErrorCode | None:
    """The error code of the only answer; None if there is none yet."""
    replies = [effect.error for effect in effects if isinstance(effect, Reply)]
    assert len(replies) <= 1
    return replies[0] if replies else None


def appended(machine: Transaction, effects: list[Effect], error: ErrorCode = E.NONE) -> list[Effect]:
    """The effects after the append that a machine has asked for."""
    (persist,) = [effect for effect in effects if isinstance(effect, Persist)]
    return machine.persisted(persist.ticket, error)


def reply(effects: list[Effect]) -> Reply:
    (found,) = [effect for effect in effects if isinstance(effect, Reply)]
    return found


def finished(machine: Transaction, effects: list[Effect]) -> None:
    """Write a decision, its markers and its end."""
    after = appended(machine, effects)
    markers = [effect for effect in after if isinstance(effect, SendMarkers)]
    if markers:
        after = machine.markers_written(markers[0].partitions, 300)
    assert appended(machine, after) == [Completed()]


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


def ask(machine: Transaction, request: str) -> list[Effect]:
    """Send a request."""
    token, now = object(), 200
    if request.startswith(("init", "recover")):
        expected = {
            "init": None,
            "recover": (PID, EPOCH),
            "recover with an old id": (PID - 1, EPOCH),
            "recover with an old epoch": (PID, EPOCH - 2),
        }[request]
        return machine.init_producer_id(token, 30_000, expected, NONE, now)
    producer_id = PID - 1 if "other id" in request else PID
    epoch = EPOCH - 2 if "old epoch" in request else EPOCH - 1 if request.endswith("2 again") else EPOCH
    if request.startswith("add"):
        return machine.add_partitions(token, producer_id, epoch, [T0 if "again" in request else T1], 0, now)
    version = 2 if " 2" in request else 0
    return machine.end(token, producer_id, epoch, request.startswith("commit"), version, NONE, now)


@in_lots(
    ("request_", "state", "wanted"),
    [(*key, wanted) for key, wanted in ANSWERS.items()],
)
def test_each_state_answers_each_request(
    request_: str, state: TransactionState, wanted: ErrorCode | TransactionState
) -> None:
    machine = at(state)
    effects = ask(machine, request_)
    if isinstance(wanted, ErrorCode):
        assert code(effects) is wanted
        assert (machine.state, machine.changing) == (state, False)
        refused = any(isinstance(effect, Refused) for effect in effects)
        assert refused is (wanted is E.INVALID_TXN_STATE), "what the state does not allow is logged"
    else:
        assert code(effects) is None, "the answer waits for the log"
        assert machine.state is state
        fenced = state is S.ONGOING and request_ in ("init", "recover")
        assert code(appended(machine, effects)) is (E.CONCURRENT_TRANSACTIONS if fenced else E.NONE)
        assert machine.state is wanted


@pytest.mark.parametrize("state", PREPARED, ids=lambda state: state.value)
@in_lots("request_", REQUESTS)
def test_while_markers_are_written_clients_must_wait(request_: str, state: TransactionState) -> None:
    machine = at(state)
    # EndTxn before version 5 checks the producer first, as in Kafka.
    first = {"commit, old epoch": E.PRODUCER_FENCED, "commit, other id": E.INVALID_PRODUCER_ID_MAPPING}
    assert code(ask(machine, request_)) is first.get(request_, E.CONCURRENT_TRANSACTIONS)
    assert machine.state is state


@pytest.mark.parametrize("request_", ["init", "add", "commit", "abort 2"])
def test_while_a_change_is_being_appended_clients_must_wait(request_: str) -> None:
    machine = at(S.EMPTY)
    machine.add_partitions("first", PID, EPOCH, [T0], 0, 150)
    assert code(ask(machine, request_)) is E.CONCURRENT_TRANSACTIONS


def test_a_first_producer_gets_epoch_0_and_the_next_one_epoch_1() -> None:
    machine = Transaction("id", fresh_metadata(7, 1000, 1))
    first = reply(appended(machine, machine.init_producer_id("a", 1000, None, NONE, 2)))
    assert first == Reply("a", E.NONE, 7, 0)
    second = reply(appended(machine, machine.init_producer_id("b", 2000, None, NONE, 3)))
    assert second == Reply("b", E.NONE, 7, 1)
    assert machine.timeout_ms == 2000


def test_a_producer_that_recovers_may_repeat_the_request_until_another_producer_comes() -> None:
    machine = at(S.EMPTY)
    for _ in range(2):
        answer = reply(appended(machine, machine.init_producer_id("a", 1000, (PID, EPOCH), NONE, 2)))
        assert (answer.producer_id, answer.producer_epoch) == (PID, EPOCH + 1)
    appended(machine, machine.init_producer_id("b", 1000, None, NONE, 3))
    assert code(machine.init_producer_id("a", 1000, (PID, EPOCH), NONE, 4)) is E.PRODUCER_FENCED
    assert code(machine.init_producer_id("a", 1000, (PID, EPOCH + 1), NONE, 4)) is E.PRODUCER_FENCED


def test_init_aborts_the_open_transaction_with_a_new_epoch_and_then_gives_the_next_one() -> None:
    machine = at(S.ONGOING)
    after = appended(machine, machine.init_producer_id("new", 1000, None, NONE, 200))
    assert after[0] == Ended(False, Cause.FENCED, at(S.ONGOING).metadata)
    assert reply(after).error is E.CONCURRENT_TRANSACTIONS
    assert after[-1] == SendMarkers(PID, EPOCH + 1, False, frozenset([T0]), 2)
    assert machine.verify(PID, EPOCH, [T0]) == {T0: E.PRODUCER_FENCED}, "the old producer is fenced at once"
    assert appended(machine, machine.markers_written([T0], 300)) == [Completed()]
    answer = reply(appended(machine, machine.init_producer_id("new", 1000, None, NONE, 400)))
    assert (answer.error, answer.producer_epoch) == (E.NONE, EPOCH + 2)


def test_the_timeout_aborts_and_fences() -> None:
    machine = at(S.ONGOING)
    end = machine.metadata.start_ms + machine.timeout_ms
    assert machine.abort_overdue(machine.timeout_ms, NONE, end) == []
    after = appended(machine, machine.abort_overdue(machine.timeout_ms + 1, NONE, end + 1))
    assert [type(effect) for effect in after] == [Ended, SendMarkers]
    assert isinstance(after[0], Ended)
    assert after[0].cause is Cause.TIMEOUT
    assert code(machine.end("c", PID, EPOCH, True, 0, NONE, end + 2)) is E.PRODUCER_FENCED


def test_in_version_2_each_transaction_has_its_own_epoch() -> None:
    machine = at(S.ONGOING)
    answer = reply(after := appended(machine, machine.end("c", PID, EPOCH, True, 2, NONE, 200)))
    assert answer == Reply("c", E.NONE, PID, EPOCH + 1)
    assert after[-1] == SendMarkers(PID, EPOCH + 1, True, frozenset([T0]), 2)
    # The next transaction, with the next epoch, waits for the markers.
    assert code(machine.add_partitions("d", PID, EPOCH + 1, [T1], 2, 210)) is E.CONCURRENT_TRANSACTIONS
    appended(machine, machine.markers_written([T0], 300))
    appended(machine, machine.add_partitions("d", PID, EPOCH + 1, [T1], 2, 310))
    for late in (True, False):
        answer_to_late = machine.end("late", PID, EPOCH, late, 2, NONE, 320)
        assert code(answer_to_late) is E.PRODUCER_FENCED, "a late EndTxn never ends the next transaction"
    assert machine.state is S.ONGOING


def test_a_repeated_end_gets_the_same_epoch() -> None:
    machine = at(S.ONGOING)
    finished(machine, machine.end("c", PID, EPOCH, True, 2, NONE, 200))
    assert reply(machine.end("again", PID, EPOCH, True, 2, NONE, 300)) == Reply("again", E.NONE, PID, EPOCH + 1)


def test_an_abort_without_partitions_gives_the_next_epoch_in_version_2() -> None:
    machine = at(S.EMPTY)
    effects = machine.end("c", PID, EPOCH, False, 2, NONE, 200)
    after = appended(machine, effects)
    assert reply(after) == Reply("c", E.NONE, PID, EPOCH + 1)
    assert not any(isinstance(effect, (SendMarkers, Ended)) for effect in after)
    assert appended(machine, after) == [Completed()]
    assert (machine.state, machine.metadata.start_ms) == (S.COMPLETE_ABORT, 200)


@pytest.mark.parametrize("expected", [None, (PID, MAX_EPOCH - 1)])
def test_init_takes_a_new_producer_id_when_the_epochs_are_exhausted(expected: tuple[int, int] | None) -> None:
    machine = at(S.EMPTY, producer_epoch=MAX_EPOCH - 1)
    assert machine.init_producer_id("a", 1000, expected, NONE, 2) == [NeedProducerId()]
    assert not machine.changing
    answer = reply(appended(machine, machine.init_producer_id("a", 1000, expected, 2000, 2)))
    assert answer == Reply("a", E.NONE, 2000, 0)
    again = machine.init_producer_id("a", 1000, (PID, MAX_EPOCH - 1), 3000, 2)
    if expected is None:
        assert code(again) is E.PRODUCER_FENCED
    else:
        assert reply(appended(machine, again)) == Reply("a", E.NONE, 2000, 0), "a repeated request"


@pytest.mark.parametrize("state", [S.ONGOING, S.EMPTY])
def test_the_end_of_a_transaction_takes_a_new_producer_id_when_the_epochs_are_exhausted(
    state: TransactionState,
) -> None:
    machine = at(state, producer_epoch=MAX_EPOCH - 1)
    assert machine.end("c", PID, MAX_EPOCH - 1, False, 2, NONE, 200) == [NeedProducerId()]
    effects = machine.end("c", PID, MAX_EPOCH - 1, False, 2, 2000, 200)
    after = appended(machine, effects)
    assert reply(after) == Reply("c", E.NONE, 2000, 0)
    assert (machine.metadata.producer_id, machine.metadata.producer_epoch) == (PID, MAX_EPOCH)
    if state is S.ONGOING:
        assert after[-1] == SendMarkers(PID, MAX_EPOCH, False, frozenset([T0]), 2)
        after = machine.markers_written([T0], 300)
    appended(machine, after)
    assert (machine.metadata.producer_id, machine.metadata.producer_epoch) == (2000, 0)
    assert reply(machine.end("again", PID, MAX_EPOCH - 1, False, 2, NONE, 400)) == Reply("again", E.NONE, 2000, 0)


def test_a_fence_takes_a_new_producer_id_when_the_epochs_are_exhausted() -> None:
    machine = at(S.ONGOING, producer_epoch=MAX_EPOCH - 1)
    assert machine.abort_overdue(10**6, NONE, 10**6) == [NeedProducerId()]
    finished(machine, machine.abort_overdue(10**6, 2000, 10**6))
    assert (machine.metadata.producer_id, machine.metadata.producer_epoch) == (2000, 0)


def test_markers_may_be_written_in_parts_and_more_than_once() -> None:
    machine = at(S.ONGOING, partitions=frozenset([T0, T1]))
    appended(machine, machine.end("c", PID, EPOCH, True, 0, NONE, 200))
    assert machine.markers_written([T0], 300) == []
    assert machine.markers_written([T0], 300) == []
    assert appended(machine, machine.markers_written([T1], 300)) == [Completed()]
    assert machine.markers_written([T1], 300) == []
    assert machine.state is S.COMPLETE_COMMIT


@pytest.mark.parametrize("state", PREPARED)
def test_a_new_coordinator_continues_to_write_markers(state: TransactionState) -> None:
    machine = at(state)
    assert machine.resume() == [SendMarkers(PID, EPOCH, state is S.PREPARE_COMMIT, frozenset([T0]), 0)]
    without = at(state, partitions=frozenset())
    appended(without, without.resume())
    assert without.state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


@pytest.mark.parametrize("state", [*IDLE, S.ONGOING])
def test_a_new_coordinator_leaves_other_states_alone(state: TransactionState) -> None:
    assert at(state).resume() == []


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    ],
)
def test_a_failed_append_leaves_the_state_as_it_was(error: ErrorCode, answer: ErrorCode) -> None:
    machine = at(S.ONGOING)
    before = machine.metadata
    assert appended(machine, machine.end("c", PID, EPOCH, True, 2, NONE, 200), error) == [Reply("c", answer)]
    assert (machine.metadata, machine.changing) == (before, False)


def test_a_late_result_of_an_append_is_ignored() -> None:
    machine = at(S.ONGOING)
    first = machine.end("c", PID, EPOCH, True, 0, NONE, 200)
    assert isinstance(first[0], Persist)
    appended(machine, first, E.REQUEST_TIMED_OUT)
    second = machine.end("d", PID, EPOCH, False, 0, NONE, 300)
    assert machine.persisted(first[0].ticket, E.NONE) == []
    assert reply(appended(machine, second)).token == "d"
    assert machine.state is S.PREPARE_ABORT


def test_the_end_is_appended_again_until_it_is_in_the_log() -> None:
    machine = at(S.PREPARE_COMMIT)
    effects = machine.markers_written([T0], 300)
    assert appended(machine, effects, E.NOT_ENOUGH_REPLICAS) == [RetryPersist()]
    assert code(machine.add_partitions("a", PID, EPOCH, [T0], 0, 310)) is E.CONCURRENT_TRANSACTIONS
    assert appended(machine, machine.complete(400)) == [Completed()]


@pytest.mark.parametrize("state", [*IDLE, S.ONGOING, *PREPARED], ids=lambda state: state.value)
def test_only_what_is_idle_expires(state: TransactionState) -> None:
    machine = at(state)
    assert machine.expire(1000, 1099) == []
    effects = machine.expire(1000, 1100)
    if state in IDLE:
        assert effects == [Persist(1, None)], "a tombstone"
        assert code(machine.init_producer_id("a", 1, None, NONE, 1100)) is E.CONCURRENT_TRANSACTIONS
        machine.persisted(1, E.NONE)
        assert machine.state is S.DEAD
    else:
        assert effects == []


def test_an_expiry_that_cannot_be_written_changes_nothing() -> None:
    machine = at(S.EMPTY)
    assert appended(machine, machine.expire(1000, 1100), E.NOT_ENOUGH_REPLICAS) == []
    assert (machine.state, machine.changing) == (S.EMPTY, False)


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
        at(S.ONGOING)._transition(at(S.EMPTY).metadata, None)


class Histories(RuleBasedStateMachine):
    """Random requests, failed appends, markers and moves; checked after each step."""

    @initialize(epoch=st.sampled_from([0, 5, MAX_EPOCH - 3]))
    def create(self, epoch: int) -> None:
        self.now = 1000
        self.fresh = 5000
        metadata = fresh_metadata(PID, 60_000, self.now)._replace(producer_epoch=epoch)
        self.machine = Transaction("id", metadata)
        #: What the log has, and which change is being appended.
        self.stored = metadata
        self.pending: Persist | None = None
        self.markers: SendMarkers | None = None
        self.waiting: set[object] = set()
        #: Every producer id and epoch that a client was given, and the highest of all.
        self.given = [(metadata.producer_id, metadata.producer_epoch)]
        self.decided: dict[tuple[int, int], bool] = {}

    def take(self, effects: list[Effect], token: object | None = None) -> None:
        if token is not None and effects != [NeedProducerId()]:
            self.waiting.add(token)
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token in self.waiting, "each request is answered once"
                self.waiting.discard(effect.token)
                pair = effect.producer_id, effect.producer_epoch
                if effect.error is E.NONE and pair[0] != NONE and pair not in self.given:
                    assert pair > self.given[-1], "epochs only grow"
                    self.given.append(pair)
                    assert pair[1] < MAX_EPOCH, "the last epoch is never given to a client"
            elif isinstance(effect, Persist):
                assert self.pending is None, "one change at a time"
                self.pending = effect
            elif isinstance(effect, SendMarkers):
                assert self.stored.state in PREPARED, "markers only after the decision is in the log"
                key = effect.producer_id, effect.producer_epoch
                assert self.decided.setdefault(key, effect.committed) is effect.committed or effect.version == 0
                self.markers = effect

    @rule(expected=st.sampled_from(["none", "current", "old"]))
    def init(self, expected: str) -> None:
        token = object()
        have = {"none": None, "current": self.given[-1], "old": self.given[0]}[expected]
        effects = self.machine.init_producer_id(token, 60_000, have, self.fresh, self.now)
        self.fresh += 1
        self.take(effects, token)

    @rule(which=st.integers(-3, -1), version=st.sampled_from([0, 2]), partition=st.sampled_from([T0, T1]))
    def add(self, which: int, version: int, partition: TopicPartition) -> None:
        token = object()
        who = self.given[max(which, -len(self.given))]
        self.take(self.machine.add_partitions(token, *who, [partition], version, self.now), token)

    @rule(which=st.integers(-3, -1), version=st.sampled_from([0, 2]), committed=st.booleans())
    def end(self, which: int, version: int, committed: bool) -> None:
        token = object()
        who = self.given[max(which, -len(self.given))]
        before = self.machine.metadata
        effects = self.machine.end(token, *who, committed, version, self.fresh, self.now)
        self.fresh += 1
        if any(isinstance(effect, Persist) for effect in effects):
            assert who == (before.producer_id, before.producer_epoch), "only the current epoch ends a transaction"
        self.take(effects, token)

    @precondition(lambda self: self.pending is not None)
    @rule(error=st.sampled_from([E.NONE, E.NONE, E.NONE, E.NOT_ENOUGH_REPLICAS]))
    def append(self, error: ErrorCode) -> None:
        pending, self.pending = self.pending, None
        assert pending is not None
        if error is E.NONE:
            assert pending.metadata is not None
            self.stored = pending.metadata
        effects = self.machine.persisted(pending.ticket, error)
        self.take(effects)
        if RetryPersist() in effects:
            self.take(self.machine.complete(self.now))

    @precondition(lambda self: self.markers is not None)
    @rule(partition=st.sampled_from([T0, T1]))
    def marker(self, partition: TopicPartition) -> None:
        assert self.markers is not None
        if partition in self.markers.partitions:
            self.take(self.machine.markers_written([partition], self.now))

    @rule(ms=st.sampled_from([1, 1000, 61_000]))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.take(self.machine.abort_overdue(self.now - self.machine.metadata.start_ms, self.fresh, self.now))
        self.fresh += 1

    @rule()
    def move(self) -> None:
        """Another coordinator takes over, from the log."""
        if self.pending is not None:
            self.take(self.machine.persisted(self.pending.ticket, E.NOT_COORDINATOR))
        self.pending = None
        assert not self.waiting, "every request is answered"
        self.markers = None
        self.machine = Transaction("id", self.stored)
        self.take(self.machine.resume())

    @invariant()
    def state_is_that_of_the_log(self) -> None:
        own, stored = self.machine.metadata, self.stored
        assert own.partitions <= stored.partitions
        assert own._replace(partitions=frozenset(), last_epoch=NONE) == stored._replace(
            partitions=frozenset(), last_epoch=NONE
        )
        assert bool(self.waiting) <= self.machine.changing, "a request waits only for a change"


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase
