"""Simulated brokers keep the promises of transactions under all faults, and every planted bug breaks one."""

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas_broker.coordinators.result import Result
from barnabas_broker.coordinators.runtime import HostedPartition, Runtime
from barnabas_broker.coordinators.writer import Writer
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.producer_state import ProducerState
from barnabas_broker.transactions.markers import Marker, MarkerSender
from barnabas_broker.transactions.transaction import Decision, Transaction
from barnabas_protocol.errors import ErrorCode
from tests.broker.transactions.simulation import Violation, run_seed
from tests.witnesses import each_planted_bug, find_planted_bug

STEP = 5
#: The first seeds of the runs; `make test` runs the first one.
STARTS = [0, *(pytest.param(start, marks=pytest.mark.slow) for start in range(STEP, 50, STEP))]
#: Seeds that are searched for a planted bug whose witness no longer shows it.
BUG_SEEDS = 200


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The log lines of thousands of transactions are not kept."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def run_seeds(first: int, number: int) -> None:
    for seed in range(first, first + number):
        run_seed(seed)


@pytest.mark.parametrize("start", STARTS)
def test_no_seed_breaks_a_promise(start: int) -> None:
    run_seeds(start, STEP)


def test_a_seed_replays() -> None:
    first, again = run_seed(3), run_seed(3)
    assert [each.entries for each in first.partitions] == [each.entries for each in again.partitions]
    assert first.moves == again.moves > 0
    ends = [each.committed for each in first.transactions]
    assert ends == [each.committed for each in again.transactions]
    assert ends.count(True) > 5 and ends.count(False) > 5


def new_coordinators_do_not_resume(patch: pytest.MonkeyPatch) -> None:
    """What was decided and not ended is forgotten by the next coordinator."""
    patch.setattr(Transaction, "resume", lambda self: Decision())


def decisions_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """Clients are answered, and markers are sent, before the decision is in the log."""
    add = Writer.add

    def wrong(self: Writer, partition: int, records: list[Any], waiter: Callable[[ErrorCode], None]) -> None:
        add(self, partition, records, lambda error: None)
        waiter(ErrorCode.NONE)

    patch.setattr(Writer, "add", wrong)


def lost_markers_are_not_sent_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MarkerSender, "_wait", lambda self, part, reason: None)


def the_first_marker_ends_all_partitions(patch: pytest.MonkeyPatch) -> None:
    """A transaction is complete when one partition has its marker: the next one begins too early."""
    written = Transaction.markers_written

    def wrong(self: Transaction, partitions: Collection[TopicPartition], now_ms: int) -> Decision:
        return written(self, self.unmarked, now_ms)

    patch.setattr(Transaction, "markers_written", wrong)


def markers_of_any_epoch_count(patch: pytest.MonkeyPatch) -> None:
    """A late marker ends the next transaction."""
    patch.setattr(ProducerState, "check_marker", lambda self, *args, commit: None)


def new_producers_do_not_abort(patch: pytest.MonkeyPatch) -> None:
    """The records of a crashed client become a part of the next client's transaction."""
    init = Transaction.init_producer_id

    def wrong(self: Transaction, *args: Any) -> Decision:
        if self.metadata.partitions and not self.ending:
            self.metadata = self.metadata._replace(partitions=frozenset(), state=type(self.state).COMPLETE_ABORT)
        return init(self, *args)

    patch.setattr(Transaction, "init_producer_id", wrong)


def aborts_commit(patch: pytest.MonkeyPatch) -> None:
    """Markers of an abort are those of a commit."""
    send = MarkerSender.send

    def wrong(self: MarkerSender, marker: Marker) -> None:
        marker.effect = marker.effect._replace(committed=True)
        send(self, marker)

    patch.setattr(MarkerSender, "send", wrong)


def timeouts_do_not_abort(patch: pytest.MonkeyPatch) -> None:
    """The transaction of a client that does not return stays open."""
    patch.setattr(Transaction, "overdue", lambda self, open_ms: False)


AnyRuntime = Runtime[Any, Any, Any]


def decisions_are_applied_before_they_are_appended(patch: pytest.MonkeyPatch) -> None:
    """An append that fails has changed the state."""
    right = Runtime._carry_out

    def wrong(self: AnyRuntime, hosted: Any, result: Result[Any, Any, Any], *others: Any) -> None:
        for record in result.records:
            hosted.machine.apply(record)
        right(self, hosted, result, *others)

    patch.setattr(Runtime, "_carry_out", wrong)


def requests_are_answered_before_their_records_are_durable(patch: pytest.MonkeyPatch) -> None:
    right = Runtime._carry_out

    def wrong(self: AnyRuntime, hosted: Any, result: Any, respond: Callable[[Any], None] | None, retry: Any) -> None:
        if respond is not None and result.records and result.response is not None:
            respond(result.response)
            respond = None
        right(self, hosted, result, respond, retry)

    patch.setattr(Runtime, "_carry_out", wrong)


def requests_survive_an_unload(patch: pytest.MonkeyPatch) -> None:
    """A machine from before an unload goes on to decide."""

    def unload(self: AnyRuntime, index: int) -> None:
        self.partitions.pop(index, None)

    def serves(self: AnyRuntime, home: HostedPartition[Any]) -> bool:
        return home.index in self.partitions

    def append(self: AnyRuntime, hosted: Any, records: Any, waiter: Any) -> None:
        if serves(self, hosted.home):
            self.writer.add(hosted.home.index, records, waiter)
        else:
            self._loop.call_soon(waiter, ErrorCode.NOT_COORDINATOR)

    patch.setattr(Runtime, "unload", unload)
    patch.setattr(Runtime, "_serves", serves)
    patch.setattr(Runtime, "append", append)


def an_append_that_takes_long_has_failed(patch: pytest.MonkeyPatch) -> None:
    """What becomes durable later is in the log and not in memory."""
    right = Runtime._appended

    def wrong(self: AnyRuntime, hosted: Any, append: Any, error: ErrorCode) -> None:
        late = hosted.append is not append
        if not late:
            right(
                self, hosted, append, ErrorCode.NOT_ENOUGH_REPLICAS if error is ErrorCode.REQUEST_TIMED_OUT else error
            )

    patch.setattr(Runtime, "_appended", wrong)


def changes_of_an_id_overlap(patch: pytest.MonkeyPatch) -> None:
    """A request is decided although the result of the one before is not known yet."""
    right = Runtime._take

    def wrong(self: AnyRuntime, hosted: Any, request: Any) -> None:
        hosted.append = None
        right(self, hosted, request)

    patch.setattr(Runtime, "_take", wrong)


BUGS = {
    bug.__name__: bug
    for bug in (
        new_coordinators_do_not_resume,
        decisions_are_not_awaited,
        lost_markers_are_not_sent_again,
        the_first_marker_ends_all_partitions,
        markers_of_any_epoch_count,
        new_producers_do_not_abort,
        aborts_commit,
        timeouts_do_not_abort,
        decisions_are_applied_before_they_are_appended,
        requests_are_answered_before_their_records_are_durable,
        requests_survive_an_unload,
        an_append_that_takes_long_has_failed,
        changes_of_an_id_overlap,
    )
}
#: The seeds that show the planted bugs, except those of seed 0.
WITNESSES = {
    "an_append_that_takes_long_has_failed": 2,
    "changes_of_an_id_overlap": 5,
    "markers_of_any_epoch_count": 1,
    "requests_survive_an_unload": 5,
    "timeouts_do_not_abort": 3,
}


@each_planted_bug(BUGS)
def test_every_planted_bug_is_found(bug: str) -> None:
    @contextmanager
    def planted() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            BUGS[bug](patch)
            yield

    find_planted_bug(bug, planted, run_seed, Violation, WITNESSES.get(bug, 0), BUG_SEEDS)
