"""The sink with transactions without Spark: drivers and tasks fail, or are killed, at each of their requests."""

import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from barnabas_broker.testing import Broker
from barnabas_client import PreparedTransaction
from barnabas_client.errors import KafkaError
from barnabas_client.loop_thread import close_loop_thread
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.sink.decision import TaskOutcome
from barnabas_pipeline.sink.options import WriteOptions
from barnabas_pipeline.sink.transactional import FOLDER, TransactionalWriter
from tests.pipeline.staging import SCHEMA
from tests.pipeline.support import admin, consume, numbered, options, produce
from tests.pipeline.transacting import Query, committed_values, is_open
from tests.sampling import slow

pytestmark = pytest.mark.broad

#: Commits once in a process of its own, with the state in the checkpoint location.
CHILD = """
import pickle, sys
from tests.pipeline.transacting import Query
checkpoint, servers, topic, batch = sys.argv[1:]
given = {"kafka.bootstrap.servers": servers, "kafka.client.id": "driver"}
Query(checkpoint, given, topic).writer.commit(pickle.loads(sys.stdin.buffer.read()), int(batch))
"""


@pytest.fixture(autouse=True)
def _disconnected() -> Iterator[None]:
    """Close the connections of the test."""
    yield
    close_loop_thread()


def query(broker: Broker, topic: str, checkpoint: Path, name: str = "", **given: str) -> Query:
    return Query(checkpoint, options(broker, {"kafka.client.id": "driver", **given}), topic, name)


def seen(broker: Broker, topic: str) -> list[bytes]:
    return committed_values(broker.bootstrap_servers, topic)


def files(checkpoint: Path) -> list[str]:
    return sorted(path.name for path in (checkpoint / FOLDER).glob("*"))


def abort_elsewhere(broker: Broker, outcome: TaskOutcome) -> None:
    """What the coordinator does at the timeout."""
    assert outcome.prepared is not None
    name = outcome.prepared.transactional_id
    admin(broker.bootstrap_servers, lambda one: one.fence_producers([name]))


def end(broker: Broker, prepared: PreparedTransaction | None, *, committed: bool) -> None:
    assert prepared is not None
    remote = remote_for(Settings.of(options(broker)))
    assert remote.run(remote.end_transactions([prepared], committed=committed)) == {}


def test_a_micro_batch_is_visible_when_it_is_committed(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    outcomes = one.tasks(0, numbered(0, 200))
    assert seen(broker, topic) == []
    assert files(tmp_path) == []
    one.writer.commit(outcomes, 0)
    assert seen(broker, topic) == sorted(numbered(0, 200))
    one.writer.commit(one.tasks(1, numbered(200, 50)), 1)
    assert seen(broker, topic) == sorted(numbered(0, 250))
    assert files(tmp_path) == ["decided-1-0"]
    assert not is_open(broker.bootstrap_servers, topic)


def test_a_committed_micro_batch_is_not_written_again(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    one.writer.commit(one.tasks(0, numbered(0, 60)), 0)
    for again in (one.tasks(0, numbered(0, 60)), one.tasks(0, numbered(0, 60), count=3), []):
        assert [outcome.prepared for outcome in again] == [None] * len(again)
        one.writer.commit(again, 0)
    one.writer.commit(one.tasks(1, numbered(60, 60)), 1)
    one.writer.commit(one.tasks(0, numbered(0, 60)), 0)  # Spark never goes back further
    assert len(consume(broker.bootstrap_servers, topic)) == 120
    assert seen(broker, topic) == sorted(numbered(0, 120))


def test_a_micro_batch_without_rows_needs_no_transaction(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    one.writer.commit([one.write(0, 0, []), one.write(0, 1, [])], 0)
    one.writer.commit([], 1)
    assert files(tmp_path) == []


def test_a_repeat_before_the_decision_starts_from_nothing(broker: Broker, topic: str, tmp_path: Path) -> None:
    query(broker, topic, tmp_path, "q").tasks(0, numbered(0, 100))
    again = query(broker, topic, tmp_path, "q")
    again.writer.commit(again.tasks(0, numbered(0, 100)), 0)
    assert seen(broker, topic) == sorted(numbered(0, 100))
    assert len(consume(broker.bootstrap_servers, topic)) == 200


def test_an_abort_ends_what_is_not_decided(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    one.writer.abort([*one.tasks(0, numbered(0, 100)), None], 0)
    assert not is_open(broker.bootstrap_servers, topic)
    assert seen(broker, topic) == []


def test_an_abort_leaves_what_is_decided(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    outcomes = one.tasks(0, numbered(0, 100))
    with (
        broker.faults.error("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=None, client_id="driver"),
        pytest.raises(RuntimeError, match="is decided"),
    ):
        one.writer.commit(outcomes, 0)
    one.writer.abort(outcomes, 0)
    assert is_open(broker.bootstrap_servers, topic)
    one.writer.commit(one.tasks(0, numbered(0, 100)), 0)
    assert seen(broker, topic) == sorted(numbered(0, 100))
    assert len(consume(broker.bootstrap_servers, topic)) == 100, "the repeat wrote nothing"


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("nth", [1, slow(2)])
@pytest.mark.parametrize("api", ["EndTxn", "Produce", "InitProducerId", "TxnOffsetCommit", "DescribeTransactions"])
def test_lost_requests_and_responses(
    broker: Broker, topic: str, tmp_path: Path, api: str, nth: int, executed: bool
) -> None:
    one = query(broker, topic, tmp_path)
    with broker.faults.drop(api, executed=executed, nth=nth, client_id="driver") as lost:
        for batch in range(2):
            one.writer.commit(one.tasks(batch, numbered(50 * batch, 50)), batch)
        assert lost.fired == 1
    assert seen(broker, topic) == numbered_sorted(100)


def numbered_sorted(count: int) -> list[bytes]:
    return sorted(numbered(0, count))


@pytest.mark.parametrize("ended", [0, 1, 2, 3])
def test_a_driver_that_is_killed_between_the_ends(broker: Broker, topic: str, tmp_path: Path, ended: int) -> None:
    """It is killed when it has sent some ends and no answer to the last one has come."""
    one = query(broker, topic, tmp_path, "q")
    outcomes = one.tasks(0, numbered(0, 90), count=3)
    with broker.faults.error(
        "EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", nth=ended + 1, times=None, client_id="driver"
    ):
        if ended == 3:
            one.writer.commit(outcomes, 0)
        else:
            with pytest.raises(RuntimeError, match="is decided"):
                one.writer.commit(outcomes, 0)
    assert len(seen(broker, topic)) <= 30 * ended
    again = query(broker, topic, tmp_path, "q")
    again.writer.commit(again.tasks(0, numbered(0, 90), count=3), 0)
    assert seen(broker, topic) == numbered_sorted(90)
    assert len(consume(broker.bootstrap_servers, topic)) == 90


@pytest.mark.parametrize("api", ["DescribeTransactions", "EndTxn", "FindCoordinator"])
def test_a_driver_that_is_killed_while_it_waits(broker: Broker, topic: str, tmp_path: Path, api: str) -> None:
    one = query(broker, topic, tmp_path, "q")
    staged = pickle.dumps(one.tasks(0, numbered(0, 100)))
    words = [sys.executable, "-c", CHILD, str(tmp_path), broker.bootstrap_servers, topic, "0"]
    with broker.faults.drop(api, executed=True, client_id="driver") as lost:
        child = subprocess.Popen(words, stdin=subprocess.PIPE)
        assert child.stdin is not None
        child.stdin.write(staged)
        child.stdin.close()
        lost.wait(timeout=60)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    again = query(broker, topic, tmp_path, "q")
    again.writer.commit(again.tasks(0, numbered(0, 100)), 0)
    assert seen(broker, topic) == numbered_sorted(100)


def test_a_second_attempt_of_a_task_fences_the_first(broker: Broker, topic: str, tmp_path: Path) -> None:
    """Speculation: the copy starts when the original is done."""
    one = query(broker, topic, tmp_path)
    outcomes = one.tasks(0, numbered(0, 100))
    copy = one.write(0, 1, numbered(0, 100)[1::2])
    with pytest.raises(RuntimeError, match="aborted before it was decided"):
        one.writer.commit(outcomes, 0)
    assert files(tmp_path) == []
    one.writer.commit([outcomes[0], copy], 0)
    assert seen(broker, topic) == numbered_sorted(100)


def test_a_transaction_that_timed_out_before_the_decision(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    outcomes = one.tasks(0, numbered(0, 100))
    abort_elsewhere(broker, outcomes[1])
    with pytest.raises(RuntimeError, match="aborted before it was decided"):
        one.writer.commit(outcomes, 0)
    one.writer.abort(outcomes, 0)
    one.writer.commit(one.tasks(0, numbered(0, 100)), 0)
    assert seen(broker, topic) == numbered_sorted(100)


def decide_and_lose(broker: Broker, one: Query, values: list[bytes]) -> None:
    """A driver is killed after one end, and the other transactions time out."""
    outcomes = one.tasks(0, values, count=3)
    with (
        broker.faults.error("EndTxn", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", nth=2, times=None, client_id="driver"),
        pytest.raises(RuntimeError, match="is decided"),
    ):
        one.writer.commit(outcomes, 0)
    left = [task for task in outcomes if task.prepared is not None and _is_open(broker, task.prepared)]
    assert len(left) == 2
    abort_elsewhere(broker, left[1])


def _is_open(broker: Broker, prepared: PreparedTransaction) -> bool:
    remote = remote_for(Settings.of(options(broker)))
    return bool(remote.run(remote.open_transactions([prepared])))


def test_a_decided_transaction_that_timed_out_is_written_again(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    decide_and_lose(broker, one, numbered(0, 90))
    again = one.tasks(0, numbered(0, 90), count=3)
    assert sum(outcome.prepared is not None for outcome in again) == 1
    one.writer.commit(again, 0)
    assert files(tmp_path) == ["decided-0-1"]
    assert seen(broker, topic) == numbered_sorted(90)


def test_a_driver_that_commits_a_lost_transaction_says_so(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    decide_and_lose(broker, one, numbered(0, 90))
    with pytest.raises(RuntimeError, match=r"is decided, but the transaction of .* was aborted"):
        one.writer.commit([], 0)
    one.writer.commit(one.tasks(0, numbered(0, 90), count=3), 0)
    assert seen(broker, topic) == numbered_sorted(90)


def test_rows_that_moved_after_the_loss_are_an_error(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    decide_and_lose(broker, one, numbered(0, 90))
    moved = one.tasks(0, numbered(1, 90), count=3)
    with pytest.raises(RuntimeError, match=r"is partly committed, .* the repeat has other rows in task"):
        one.writer.commit(moved, 0)
    one.writer.abort(moved, 0)
    values = seen(broker, topic)
    assert len(values) == len(set(values)) < 90


def test_a_driver_that_was_thought_dead(broker: Broker, topic: str, tmp_path: Path) -> None:
    """The old driver decides while the new one's tasks run: each task is committed by exactly one of them."""
    old, new = query(broker, topic, tmp_path, "q"), query(broker, topic, tmp_path, "q")
    values = numbered(0, 90)
    before = old.tasks(0, values, count=3)
    folder = old.writer._decisions()
    first = new.write(0, 0, values[0::3])  # fences the old one's task 0
    with pytest.raises(RuntimeError, match="aborted before it was decided"):
        old.writer.commit(before, 0)
    old.writer.abort(before[:1], 0)
    # The same, but the old driver had asked whether all are open before task 0 was fenced.
    from barnabas_pipeline.sink.decision import Decision

    decision = Decision.first(before, 0)
    assert decision is not None
    folder.write(decision)
    for outcome in before[1:]:
        end(broker, outcome.prepared, committed=True)
    rest = [new.write(0, task, values[task::3]) for task in (1, 2)]
    assert [outcome.prepared for outcome in rest] == [None, None]
    new.writer.commit([first, *rest], 0)
    assert seen(broker, topic) == sorted(values)
    new.writer.commit(new.tasks(1, numbered(90, 30), count=3), 1)
    # The old driver goes on with its decision, and harms nothing.
    folder.write(decision)
    old.writer.commit(before, 0)
    assert seen(broker, topic) == numbered_sorted(120)
    assert "decided-1-0" in files(tmp_path)


def test_a_task_without_a_decision_looks_at_its_offset(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    outcomes = one.tasks(0, numbered(0, 60))
    end(broker, outcomes[0].prepared, committed=True)  # as a driver whose decision is gone
    again = one.tasks(0, numbered(0, 60))
    assert (again[0].prepared, again[0].committed) == (None, again[0].digest)
    one.writer.commit(again, 0)
    assert seen(broker, topic) == numbered_sorted(60)


def test_a_new_checkpoint_in_the_same_folder_starts_from_nothing(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path, "one")
    for batch in range(2):
        one.writer.commit(one.tasks(batch, numbered(10 * batch, 10)), batch)
    other = query(broker, topic, tmp_path, "other")
    other.writer.commit(other.tasks(0, numbered(20, 10)), 0)
    assert seen(broker, topic) == numbered_sorted(30)


def test_a_failed_task_aborts_its_transaction(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    with (
        broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None, client_id="driver"),
        pytest.raises(KafkaError),
    ):
        one.write(0, 0, numbered(0, 60))
    produce(broker.bootstrap_servers, topic, [b"other"])
    assert seen(broker, topic) == [b"other"]
    assert not is_open(broker.bootstrap_servers, topic)


def test_a_damaged_decision_is_named(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path)
    one.writer.commit(one.tasks(0, numbered(0, 10)), 0)
    (tmp_path / FOLDER / "decided-0-0").write_text("{")
    with pytest.raises(RuntimeError, match="decided-0-0 is damaged"):
        one.write(1, 0, numbered(0, 10))
    with pytest.raises(RuntimeError, match="decided-0-0 is damaged"):
        one.writer.commit([], 1)


def test_a_task_outside_of_a_streaming_query_is_refused(broker: Broker, topic: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"has not passed the properties .*exactlyOnce=true"):
        query(broker, topic, tmp_path).writer.write(iter([]))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"exactlyOnce": "yes"}, "give true, transactional or false"),
        ({"exactlyOnce": "transactional"}, "needs the option 'checkpointLocation'"),
        ({"exactlyOnce": "true", "checkpointLocation": "x", "transactionalIdPrefix": "y"}, "exactlyOnce=transactional"),
        ({"exactlyOnce": "transactional", "checkpointLocation": "x", "kafka.acks": "1"}, "needs kafka.acks=all"),
    ],
)
def test_invalid_options_are_errors(given: dict[str, str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        WriteOptions.of({"kafka.bootstrap.servers": "x:1", "topic": "t", **given}, SCHEMA, streaming=True)


def test_the_names_of_transactions_and_groups_begin_with_the_prefix(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = query(broker, topic, tmp_path, "q", transactionalIdPrefix="mine")
    outcome = one.write(0, 4, numbered(0, 3))
    assert outcome.prepared is not None
    assert outcome.prepared.transactional_id == "mine-q-4"
    one.writer.commit([outcome], 0)
    found = admin(broker.bootstrap_servers, lambda one: one.list_consumer_group_offsets("mine-q-4"))
    assert [(offset.offset, offset.metadata) for offset in found.values()] == [(0, outcome.digest)]


def test_the_writer_is_pickled(tmp_path: Path) -> None:
    given = {"kafka.bootstrap.servers": "x:1", "topic": "t", "exactlyOnce": "transactional"}
    made = WriteOptions.of({**given, "checkpointLocation": str(tmp_path)}, SCHEMA, streaming=True)
    assert isinstance(pickle.loads(pickle.dumps(TransactionalWriter(made, str(tmp_path)))), TransactionalWriter)
    assert isinstance(SCHEMA, StructType)
