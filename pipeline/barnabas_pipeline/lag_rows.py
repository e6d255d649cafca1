"""Lag over time out of commits and ends: a row for each group, topic, partition and point in time. Pure.

Points are evenly spaced, and that is what shows a stall: where nothing is committed there is no record of it. At a
point holds the last commit before it. Where the topic ended then is known from the timestamps of its records, by asking
the brokers for the first record after that time; with timestamps that producers set to something else than now, it is
known as badly as they are.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Points = NDArray[np.int64]

KEYS: Final = ["group", "topic", "partition"]
#: The columns of :func:`progress`. Times are ms since 1970, rates records a second since the point before.
COLUMNS: Final = [*KEYS, "time", "committed", "end", "lag", "lag_seconds", "consumed_rate", "produced_rate"]
STALL_COLUMNS: Final = [*KEYS, "since", "until", "seconds", "offset", "lag_before", "lag_after"]


def points(since: int, until: int, interval_ms: int) -> Points:
    """Evenly spaced times up to `until`, the first one at or before `since`; ms since 1970."""
    count = max(-(-(until - since) // interval_ms), 1)
    return until - interval_ms * np.arange(count, -1, -1, dtype=np.int64)


def progress(times: Points, commits: pd.DataFrame, ends: dict[tuple[str, int], Floats]) -> pd.DataFrame:
    """Progress and lag of every partition that a group has committed for.

    Args:
        times: the points.
        commits: columns group, topic, partition, `point` (the index of the first point at or after the commit) and
            committed, NaN where the offset was deleted; one row for each point at most.
        ends: for each topic and partition its end at each point, NaN where it is not known.

    Returns:
        The columns :data:`COLUMNS`, in that order; from a partition's first commit on, and where it has none deleted.
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
    # Clocks differ: what was consumed was there. A topic does not shrink at its end.
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
    """Records a second since the point before; a group that was set back consumed nothing."""
    steps = np.diff(offsets, prepend=np.nan) / (np.diff(times, prepend=times[0] - 1) / 1000)
    return np.where(np.isnan(steps), 0.0, np.maximum(steps, 0.0))


def _behind(times: Points, committed: Floats, end: Floats) -> Floats:
    """Seconds since the first record was written that is not consumed; since the first point at most."""
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
            share = (offset - known[first - 1]) / (known[first] - known[first - 1])
            written = times[first - 1] + share * (times[first] - times[first - 1])
        out[at] = (times[at] - written) / 1000
    return out


def stalls(rows: pd.DataFrame, least_ms: int) -> pd.DataFrame:
    """Where nothing was consumed while lag grew, for `least_ms` at least.

    Args:
        rows: of :func:`progress`.
        least_ms: milliseconds.

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
    """First and last point of each stretch in which nothing is consumed and something is left."""
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
    """Lag by group, topic and time: columns group, topic, time, lag, lag_seconds (the largest), rates."""
    how = {"lag": "sum", "lag_seconds": "max", "consumed_rate": "sum", "produced_rate": "sum"}
    return rows.groupby(["group", "topic", "time"], as_index=False, sort=True).agg(how)
