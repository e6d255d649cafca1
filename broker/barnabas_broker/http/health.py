"""The health of a group in one word, and the reason. Pure."""

from typing import Final, NamedTuple

#: A rebalance that lasts longer than this many seconds is stuck.
STUCK_SECONDS: Final = 30.0
#: A group with lag that has not committed for this many seconds is stuck.
COMMIT_SECONDS: Final = 60.0
#: A lag of more records than this is shown as such; the alert on lag in the docs has the same number.
LAG: Final = 1_000


class Health(NamedTuple):
    """The health of a group.

    Attributes:
        status: "stuck", "flapping", "waiting", "lagging", "no members" or "ok", the worst that applies.
        reason: one sentence; "" if the group is ok.
    """

    status: str
    reason: str


def health(
    *,
    members: int,
    lag: int | None,
    unstable_lag: int | None,
    rebalancing: float | None,
    since_commit: float | None,
    flapping: bool,
    storm: str = "",
    oldest: float | None = None,
) -> Health:
    """Judge a group.

    Args:
        members: their number.
        lag: records that are not consumed, None if not known.
        unstable_lag: records of the lag that wait for the end of a transaction, None if not known.
        rebalancing: seconds since the rebalance began; None if there is none.
        since_commit: seconds since the newest commit; None if there is none.
        flapping: whether the group is in a rebalance storm, or has a high storm score.
        storm: this score in a sentence.
        oldest: seconds since the oldest record that is not consumed was written; None if not known.
    """
    behind = f"{lag or 0:,} {'record is' if lag == 1 else 'records are'} not consumed"
    age = "" if not oldest else f", the oldest for {duration(oldest)}"
    if rebalancing is not None and rebalancing > STUCK_SECONDS:
        return Health("stuck", f"Its rebalance lasts for {duration(rebalancing)}.")
    if flapping:
        return Health("flapping", f"It rebalances again and again. {storm}".rstrip())
    if not members:
        return Health("no members", f"{behind}{age}." if lag else "")
    if unstable_lag and unstable_lag == lag:
        return Health("waiting", f"read_committed consumers wait for a transaction: {behind}{age}.")
    if lag and since_commit is not None and since_commit > COMMIT_SECONDS:
        return Health("stuck", f"{behind}, and the last commit was {duration(since_commit)} ago.")
    if lag is not None and lag > LAG:
        return Health("lagging", f"{behind}{age}.")
    return Health("ok", "")


def duration(seconds: float) -> str:
    """A duration in a sentence."""
    for limit, divisor, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"
