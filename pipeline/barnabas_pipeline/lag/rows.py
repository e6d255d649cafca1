"""Lag over time from commits and end offsets: a row for each group, topic, partition and point in time. Pure.

Points are evenly spaced, because a stall leaves no commits. The offset of a point is the last commit before it. The end
of the partition at that time is the offset of the first record with a later timestamp; it is only as accurate as the
timestamps that producers set.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Points = NDArray[np.int64]

KEYS: Final = ["group", "topic", "partition"]
#: The columns of :func:`progress`. Times are ms since 1970, rates are records per second since the previous point.
COLUMNS: Final = [*KEYS, "time", "committed", "end", "lag", "lag_seconds", "consumed_rate", "produced_rate"]
STALL_COLUMNS: Final = [*KEYS, "since", "until", "seconds", "offset", "lag_before", "lag_after"]


def points(since: int, until: int, interval_ms: int) -> Points:
    """Return evenly spaced times up to `until`, the first one at or before `since`; ms since 1970."""
    count = max(-(-(until - since) // interval_ms), 1)
    return until - interval_ms * np.arange(count, -1, -1, dtype=np.int64)


def progress(times: Points, commits: pd.DataFrame, ends: dict[tuple[str, int], Floats]) -> pd.DataFrame:
    """Compute the progress and lag of every partition that a group has committed.

    Args:
        times: the points.
        commits: columns group, topic, partition, `point` (the index of the first point at or after the commit) and
            committed (NaN if the offset was deleted); at most one row for each point.
        ends: for each topic and partition its end offset at each point, NaN if unknown.

    Returns:
        The columns :data:`COLUMNS`; no rows before a partition's first commit, and none while its offset is deleted.
    """
    parts = []
    for (group, topic, partition), rows in commits.groupby(KEYS, sort=True):
        end = ends.get((topic, partition))
        part = _one(times, rows, np.full(len(times), np.nan) if end is None else end)
        part.insert(0, "group", group)
        part.insert(1, "topic", topic)
        part.insert(2, "partition", partition)
        parts.append(part)
    if not parts:
        return pd.DataFrame(columns=COLUMNS)
    return pd.concat(parts, ignore_index=True)[COLUMNS]


def _one(times: Points, commits: pd.DataFrame, end: Floats) -> pd.DataFrame:
    committed = np.full(len(times), np.nan)
    known = np.zeros(len(times), dtype=bool)
    last, at = np.nan, 0
    for point, offset in zip(commits["point"], commits["committed"], strict=True):
        committed[at:point] = last
        last, at = offset, point
        known[point:] = True
    committed[at:] = last
    # Clocks differ: the end is at least what was consumed, and it never decreases.
    end = np.fmax.accumulate(np.fmax(end, np.where(np.isnan(end), np.nan, committed)))
    lag = end - committed
    out = pd.DataFrame(
        {
            "time": times,
            "committed": committed,
            "end": end,
            "lag": lag,
            "lag_seconds": _behind(times, committed, end),
            "consumed_rate": _rate(times, committed),
            "produced_rate": _rate(times, end),
        }
    )
    return out[known & ~np.isnan(committed)]


def _rate(times: Points, offsets: Floats) -> Floats:
    """Return records per second since the previous point; 0 if the offset was reset backwards."""
    steps = np.diff(offsets, prepend=np.nan) / (np.diff(times, prepend=times[0] - 1) / 1000)
    return np.where(np.isnan(steps), 0.0, np.maximum(steps, 0.0))


def _behind(times: Points, committed: Floats, end: Floats) -> Floats:
    """Return the seconds since the first unconsumed record was written, at most since the first point."""
    out = np.full(len(times), np.nan)
    for at, (offset, now) in enumerate(zip(committed, end, strict=True)):
        if np.isnan(offset) or np.isnan(now):
            continue
        if now <= offset:
            out[at] = 0.0
            continue
        known = end[: at + 1]
        first = int(np.argmax(known > offset))
        written = float(times[first])
        if first and not np.isnan(known[first - 1]):
            part = (offset - known[first - 1]) / (known[first] - known[first - 1])
            written = times[first - 1] + part * (times[first] - times[first - 1])
        out[at] = (times[at] - written) / 1000
    return out


def stalls(rows: pd.DataFrame, least_ms: int) -> pd.DataFrame:
    """Find stalls: nothing was consumed while lag grew.

    Args:
        rows: the result of :func:`progress`.
        least_ms: the minimum duration of a stall in milliseconds.

    Returns:
        The columns :data:`STALL_COLUMNS`.
    """
    found: list[tuple[Any, ...]] = []
    for keys, part in rows.groupby(KEYS, sort=True):
        times, committed, lag = (part[name].to_numpy() for name in ("time", "committed", "lag"))
        for first, last in _runs(committed, lag):
            length = int(times[last] - times[first])
            if length >= least_ms and lag[last] > lag[first]:
                found.append(
                    (
                        *keys,
                        int(times[first]),
                        int(times[last]),
                        length / 1000,
                        int(committed[last]),
                        lag[first],
                        lag[last],
                    )
                )
    return pd.DataFrame(found, columns=STALL_COLUMNS)


def _runs(committed: Floats, lag: Floats) -> Sequence[tuple[int, int]]:
    """Return the first and last point of each period in which nothing is consumed although lag is not 0."""
    runs, first = [], None
    for at in range(1, len(committed)):
        still = committed[at] <= committed[at - 1] and lag[at] > 0
        if still and first is None:
            first = at - 1
        if not still and first is not None:
            runs.append((first, at - 1))
            first = None
    if first is not None:
        runs.append((first, len(committed) - 1))
    return runs


def totals(rows: pd.DataFrame) -> pd.DataFrame:
    """Aggregate rows by group, topic and time: the sums of lag and rates, and the maximum of lag_seconds."""
    how = {"lag": "sum", "lag_seconds": "max", "consumed_rate": "sum", "produced_rate": "sum"}
    return rows.groupby(["group", "topic", "time"], as_index=False, sort=True).agg(how)
