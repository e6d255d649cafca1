"""Lag over time, computed by hand for a group that stalls, catches up and is reset."""

import numpy as np
import pandas as pd
import pytest

from barnabas_pipeline.lag import rows as lag_rows

TIMES = lag_rows.points(0, 60_000, 10_000)


def commits(*given: tuple[int, float | None], partition: int = 0) -> pd.DataFrame:
    rows = [("g", "t", partition, point, np.nan if offset is None else offset) for point, offset in given]
    return pd.DataFrame(rows, columns=["group", "topic", "partition", "point", "committed"])


def test_points_cover_the_window() -> None:
    assert list(lag_rows.points(1, 60_000, 25_000)) == [-15_000, 10_000, 35_000, 60_000]
    assert list(lag_rows.points(0, 10, 1_000)) == [-990, 10]


def test_a_commit_holds_until_the_next_one() -> None:
    ends = {("t", 0): np.array([0.0, 10, 20, 30, 40, 50, 60])}
    rows = lag_rows.progress(TIMES, commits((1, 5), (4, 40)), ends)
    assert list(rows.columns) == lag_rows.COLUMNS
    assert list(rows["time"]) == [10_000, 20_000, 30_000, 40_000, 50_000, 60_000]
    assert list(rows["committed"]) == [5, 5, 5, 40, 40, 40]
    assert list(rows["lag"]) == [5, 15, 25, 0, 10, 20]
    # Record 5 was written at 5 s, record 40 just after 40 s.
    assert list(rows["lag_seconds"]) == [5, 15, 25, 0, 10, 20]
    assert list(rows["consumed_rate"]) == [0, 0, 0, 3.5, 0, 0]
    assert list(rows["produced_rate"]) == [1, 1, 1, 1, 1, 1]


def test_a_deleted_offset_has_no_lag() -> None:
    rows = lag_rows.progress(TIMES, commits((1, 5), (3, None), (5, 7)), {("t", 0): np.full(7, 10.0)})
    assert list(rows["time"]) == [10_000, 20_000, 50_000, 60_000]


def test_the_end_is_at_least_the_committed_offset() -> None:
    rows = lag_rows.progress(TIMES, commits((1, 12)), {("t", 0): np.full(7, 10.0)})
    assert list(rows["lag"]) == [0] * 6


def test_the_end_of_a_deleted_topic_is_unknown() -> None:
    rows = lag_rows.progress(TIMES, commits((1, 12)), {})
    assert rows["committed"].tolist() == [12] * 6
    assert rows[["end", "lag", "lag_seconds"]].isna().all().all()


def test_no_commits_give_no_rows() -> None:
    rows = lag_rows.progress(TIMES, commits(), {})
    assert rows.empty
    assert list(rows.columns) == lag_rows.COLUMNS
    assert lag_rows.stalls(rows, 1).empty


def test_a_reset_group_consumes_nothing() -> None:
    rows = lag_rows.progress(TIMES, commits((0, 50), (3, 10)), {("t", 0): np.full(7, 60.0)})
    assert (rows["consumed_rate"] == 0).all()
    assert list(rows["lag"]) == [10, 10, 10, 50, 50, 50, 50]


def test_a_stall_is_no_progress_while_lag_grows() -> None:
    ends = {("t", 0): np.array([0.0, 10, 20, 30, 40, 50, 60])}
    rows = lag_rows.progress(TIMES, commits((1, 10), (5, 45), (6, 60)), ends)
    (stall,) = lag_rows.stalls(rows, 30_000).to_dict("records")
    assert (stall["since"], stall["until"], stall["seconds"]) == (10_000, 40_000, 30)
    assert (stall["offset"], stall["lag_before"], stall["lag_after"]) == (10, 0, 30)
    assert lag_rows.stalls(rows, 30_001).empty


@pytest.mark.parametrize(
    ("end", "committed"),
    [
        (np.full(7, 10.0), ((0, 10),)),
        (np.full(7, 10.0), ((0, 4),)),
        (np.arange(0.0, 70, 10), tuple(enumerate(range(0, 70, 10)))),
    ],
    ids=["nothing to do", "nothing new", "busy"],
)
def test_idle_and_busy_groups_do_not_stall(
    end: "np.ndarray[tuple[int], np.dtype[np.float64]]", committed: tuple[tuple[int, float], ...]
) -> None:
    assert lag_rows.stalls(lag_rows.progress(TIMES, commits(*committed), {("t", 0): end}), 10_000).empty


def test_totals_sum_lag_and_take_the_maximum_of_seconds() -> None:
    both = pd.concat([commits((0, 10)), commits((0, 30), partition=1)])
    rows = lag_rows.progress(TIMES, both, {("t", 0): np.full(7, 40.0), ("t", 1): np.full(7, 40.0)})
    last = lag_rows.totals(rows).iloc[-1]
    assert (last["group"], last["topic"], last["lag"]) == ("g", "t", 40)
    assert last["lag_seconds"] == rows["lag_seconds"].max()
