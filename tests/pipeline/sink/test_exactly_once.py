"""The exactly-once commit without Spark: it is killed, or fails, at each of its requests, and repeated."""

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas_broker.testing import Broker
from barnabas_client import TopicPartition
from barnabas_client.errors import KafkaError
from barnabas_client.loop_thread import close_loop_thread
from barnabas_pipeline.sink.commit_plan import CommitPlan, CommitState, StagedBatch, StagedFile
from barnabas_pipeline.sink.exactly_once import FOLDER
from tests.pipeline.staging import PARTITIONS, rows, stage, writer
from tests.pipeline.support import admin, consume, numbered, options, produce, written_values

pytestmark = pytest.mark.broad

#: Commits once in a process of its own, with the state in the checkpoint location.
CHILD = """
import pickle, sys
from tests.pipeline.staging import writer
checkpoint, servers, topic, batch = sys.argv[1:]
staged = pickle.loads(sys.stdin.buffer.read())
writer(checkpoint, {"kafka.bootstrap.servers": servers, "kafka.batch.size": "500"}, topic).commit(staged, int(batch))
"""


def small(broker: Broker) -> dict[str, str]:
    """Options for small batches, so that a few records make many."""
    return options(broker, {"kafka.batch.size": "500", "kafka.client.id": "committer"})


def values_in(broker: Broker, topic: str) -> list[bytes]:
    return written_values(broker.bootstrap_servers, topic)


def files(checkpoint: Path) -> list[str]:
    return sorted(path.name for path in (checkpoint / FOLDER).iterdir())


def test_micro_batches_are_written_once(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = writer(tmp_path, small(broker), topic)
    staged = stage(one, numbered(0, 200))
    assert values_in(broker, topic) == []
    one.commit(staged, 0)
    one.commit(stage(one, numbered(0, 200)), 0)  # Spark repeats it if the checkpoint lacks its success
    one.commit(stage(one, numbered(200, 100)), 1)
    assert values_in(broker, topic) == sorted(numbered(0, 300))
    assert files(tmp_path) == ["done-1"]
    for partition in range(PARTITIONS):
        found = [r.value or b"" for r in consume(broker.bootstrap_servers, topic) if r.partition == partition]
        # The rows of each task keep their order, and the tasks follow each other.
        assert found == sorted(found, key=lambda value: int(value.removeprefix(b"value-")))


def test_a_micro_batch_without_rows_is_committed(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = writer(tmp_path, small(broker), topic)
    one.commit([StagedFile(None, ())], 0)
    one.commit([], 1)
    assert values_in(broker, topic) == []
    assert files(tmp_path) == ["done-1"]


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("nth", [1, 2, 5])
def test_a_lost_response_writes_nothing_twice(
    broker: Broker, topic: str, tmp_path: Path, nth: int, executed: bool
) -> None:
    one = writer(tmp_path, small(broker), topic)
    with broker.faults.drop("Produce", executed=executed, nth=nth, client_id="committer") as lost:
        one.commit(stage(one, numbered(0, 200)), 0)
        assert lost.fired == 1
    assert values_in(broker, topic) == sorted(numbered(0, 200))


@pytest.mark.parametrize("nth", [1, 2, 4, 7, 11])
def test_a_failed_commit_continues_where_it_stopped(broker: Broker, topic: str, tmp_path: Path, nth: int) -> None:
    one = writer(tmp_path, small(broker), topic)
    staged = stage(one, numbered(0, 200))
    with (
        broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", nth=nth, times=None, client_id="committer"),
        pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        one.commit(staged, 0)
    one.abort(staged, 0)
    # The tasks stage other rows the second time, like a query that is not deterministic.
    again = stage(one, numbered(1000, 50))
    produce(broker.bootstrap_servers, topic, [b"of others"] * 20)
    one.commit(again, 0)
    assert values_in(broker, topic) == sorted([*numbered(0, 200), *[b"of others"] * 20])
    assert files(tmp_path) == ["done-0"]


def test_abort_deletes_staged_files(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = writer(tmp_path, small(broker), topic)
    staged = stage(one, numbered(0, 10))
    one.abort([*staged, None], 0)
    assert files(tmp_path) == []


def _kill_at(broker: Broker, topic: str, checkpoint: Path, staged: list[StagedFile], nth: int, batch: int) -> bool:
    """Commit in a process that is killed at its nth Produce, before the response; return whether it sent it."""
    command = [sys.executable, "-c", CHILD, str(checkpoint), broker.bootstrap_servers, topic, str(batch)]
    with (
        broker.faults.delay("Produce", 60, nth=nth, client_id="barnabas-spark") as reached,
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child,
    ):
        assert child.stdin is not None and child.stderr is not None
        child.stdin.write(pickle.dumps(staged))
        child.stdin.close()
        try:
            reached.wait(timeout=90)
        except TimeoutError:
            child.kill()
            raise AssertionError(child.stderr.read().decode()) from None
        child.send_signal(signal.SIGKILL)
        child.wait(90)
    broker.faults.disconnect()
    return reached.fired == 1


@pytest.mark.timeout(600)  # six processes, one after the other
def test_a_killed_commit_continues_where_it_stopped(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = writer(tmp_path, small(broker), topic)
    staged = stage(one, numbered(0, 600))
    for nth in (1, 3, 2, 5, 4):
        assert _kill_at(broker, topic, tmp_path, staged, nth, 0)
        staged = stage(one, numbered(0, 600))
    one.commit(staged, 0)
    one.commit(stage(one, numbered(600, 30)), 1)
    assert values_in(broker, topic) == sorted(numbered(0, 630))


def test_lost_records_after_the_planned_ends_are_an_error(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = writer(tmp_path, small(broker), topic)
    staged = stage(one, numbered(0, 60))
    with (
        broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None, client_id="committer"),
        pytest.raises(KafkaError),
    ):
        one.commit(staged, 0)
    produce(broker.bootstrap_servers, topic, [b"x"] * 3, partition=1)
    admin(broker.bootstrap_servers, lambda one: one.delete_records({TopicPartition(topic, 1): 2}))
    with pytest.raises(RuntimeError, match=rf"no longer known whether micro-batch 0 is written to {topic}-1.*plan-0"):
        one.commit(staged, 0)


def test_a_damaged_file_is_named(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = writer(tmp_path, small(broker), topic)
    one.commit(stage(one, numbered(0, 10)), 0)
    (tmp_path / FOLDER / "done-0").write_text("{")
    with pytest.raises(RuntimeError, match="done-0 is damaged"):
        one.commit([], 1)


def test_a_damaged_staged_file_is_not_sent(broker: Broker, topic: str, tmp_path: Path) -> None:
    one = writer(tmp_path, small(broker), topic)
    staged = stage(one, numbered(0, 10))
    assert staged[0].file is not None
    path = tmp_path / FOLDER / staged[0].file
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match=f"{staged[0].file} is damaged"):
        one.commit(staged, 0)


@pytest.mark.parametrize(
    ("batch", "match"),
    [
        (pa.RecordBatch.from_pydict({"value": [b"x"], "partition": pa.array([9], pa.int32())}), "no partition 9"),
        (
            pa.RecordBatch.from_pydict({"value": [b"x" * 2_000_000], "partition": pa.array([0], pa.int32())}),
            "larger than kafka.max.request.size",
        ),
    ],
)
def test_rows_that_cannot_be_written_fail_their_task(
    broker: Broker, topic: str, tmp_path: Path, batch: pa.RecordBatch, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        writer(tmp_path, small(broker), topic).write(iter([batch]))
    assert files(tmp_path) == []


def test_a_topic_that_does_not_exist_fails_its_task(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="topic 'nowhere' does not exist"):
        writer(tmp_path, small(broker), "nowhere").write(iter([rows([b"x"])]))


def test_sequence_numbers_wrap() -> None:
    tp = TopicPartition("t", 0)
    batches = [StagedBatch("f", "t", 0, at, 100, 10) for at in (0, 100, 200)]
    plan = CommitPlan(3, 7, 0, batches, {tp: 2**31 - 15}, {tp: 40})
    assert [base for base, _ in plan.by_partition()[tp]] == [2**31 - 15, 2**31 - 5, 5]
    assert plan.done(CommitState(2, 7, 0, {tp: 2**31 - 15})).following == {tp: 15}
    assert CommitPlan.of_json(plan.to_json()) == plan
    done = plan.done(CommitState())
    assert CommitState.of_json(done.to_json()) == done


@pytest.fixture(autouse=True)
def _disconnected() -> Callable[[], None]:
    """Close the connections of the previous test."""
    close_loop_thread()
    return close_loop_thread
