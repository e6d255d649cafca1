"""The decision about a micro-batch that is written in transactions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client import PreparedTransaction
from barnabas_pipeline.sink.decision import (
    DecidedTask,
    Decision,
    DifferentRowsError,
    RowDigest,
    TaskOutcome,
    file_name,
    newest,
    older,
)
from barnabas_pipeline.sink.records import SinkRecord

EMPTY = str(RowDigest())


def prepared(task: int, epoch: int = 0) -> PreparedTransaction:
    return PreparedTransaction(f"x-{task}", 1000 + task, epoch, 2)


def wrote(task: int, digest: str, epoch: int = 0) -> TaskOutcome:
    return TaskOutcome("q", task, digest, prepared(task, epoch))


def kept(task: int, digest: str, committed: str | None = None) -> TaskOutcome:
    return TaskOutcome("q", task, digest, None, committed)


def decided(outcomes: list[TaskOutcome], batch: int = 7) -> Decision:
    decision = Decision.first(outcomes, batch)
    assert decision is not None
    return decision


FIRST = [wrote(0, "1:a"), kept(1, EMPTY), wrote(2, "1:c")]


def test_tasks_with_rows_are_decided() -> None:
    decision = decided(FIRST)
    assert (decision.query, decision.batch, decision.revision) == ("q", 7, 0)
    assert decision.tasks == {0: DecidedTask(prepared(0), "1:a"), 2: DecidedTask(prepared(2), "1:c")}
    assert Decision.of_json(decision.to_json()) == decision


def test_nothing_is_decided_about_nothing() -> None:
    assert Decision.first([], 7) is None
    assert Decision.first([kept(0, EMPTY)], 7) is None
    assert Decision.first([kept(0, "1:a", "1:a")], 7) is None


@pytest.mark.parametrize(
    "outcomes",
    [
        [kept(0, "1:a"), kept(1, EMPTY), kept(2, "1:c")],
        [kept(0, "1:x"), kept(3, "1:y")],  # other rows matter only if some are written again
        [],
    ],
)
def test_a_repeat_that_writes_nothing_changes_nothing(outcomes: list[TaskOutcome]) -> None:
    decision = decided(FIRST)
    assert decision.continued(outcomes) is decision


@pytest.mark.parametrize("committed", [None, "1:a"])
def test_a_lost_transaction_is_replaced(committed: str | None) -> None:
    again = decided(FIRST).continued([kept(0, "1:a", committed), kept(1, EMPTY), wrote(2, "1:c", epoch=3)])
    assert again.revision == 1
    assert again.tasks == {0: DecidedTask(prepared(0), "1:a"), 2: DecidedTask(prepared(2, 3), "1:c")}


@pytest.mark.parametrize(
    "outcomes",
    [
        pytest.param([kept(0, "1:a"), wrote(2, "1:x", epoch=3)], id="it has other rows"),
        pytest.param([kept(0, "1:x"), wrote(2, "1:c", epoch=3)], id="the one that is kept has other rows now"),
        pytest.param([kept(0, "1:a", "1:x"), wrote(2, "1:c", epoch=3)], id="other rows are committed"),
        pytest.param([wrote(2, "1:c", epoch=3)], id="a task is missing"),
        pytest.param([kept(0, "1:a"), kept(1, "1:b"), wrote(2, "1:c", epoch=3)], id="a task had no rows before"),
        pytest.param([kept(0, "1:a"), kept(2, "1:c"), wrote(3, "1:d")], id="a task is new"),
    ],
)
def test_rows_that_moved_are_an_error(outcomes: list[TaskOutcome]) -> None:
    with pytest.raises(DifferentRowsError, match="micro-batch 7 is partly committed"):
        decided(FIRST).continued(outcomes)


def test_committed_rows_without_a_decision_must_be_the_same() -> None:
    assert decided([kept(0, "1:a", "1:a"), wrote(1, "1:b")]).tasks.keys() == {1}
    with pytest.raises(DifferentRowsError, match="other rows in task 0"):
        Decision.first([kept(0, "1:a", "1:x"), wrote(1, "1:b")], 7)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "query": "q"}'])
def test_damaged_files_are_errors(text: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        Decision.of_json(text)


def test_the_newest_file_counts() -> None:
    names = ["decided-9-0", ".x.tmp", "decided-10-1", "decided-10-0", "decided-x-1", "decided-11", "staged-7", "12-1"]
    assert newest(names) == "decided-10-1" == file_name(Decision("q", 10, 1))
    assert newest(["x"]) is None
    assert older(names, "decided-10-0") == ["decided-9-0"]


RECORDS = st.builds(
    SinkRecord,
    st.sampled_from(["a", "b", "ab"]),
    st.none() | st.integers(0, 12),
    st.none() | st.binary(max_size=2),
    st.none() | st.binary(max_size=2),
    st.lists(st.tuples(st.sampled_from(["", "a"]), st.none() | st.binary(max_size=1)), max_size=2).map(tuple),
)


def digest(records: list[SinkRecord]) -> str:
    made = RowDigest()
    for record in records:
        made.add(record)
    return str(made)


@given(st.lists(RECORDS, max_size=4), st.lists(RECORDS, max_size=4))
def test_digests_are_equal_for_the_same_rows_in_any_order(one: list[SinkRecord], other: list[SinkRecord]) -> None:
    assert all(digest(list(order)) == digest(one) for order in itertools.islice(itertools.permutations(one), 6))
    assert (digest(one) == digest(other)) == (sorted(map(repr, one)) == sorted(map(repr, other)))
