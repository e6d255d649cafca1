"""Rebalances of groups from ``__group_events``, with a description of their cause. Pure.

:mod:`barnabas_explain` describes them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas_explain.explain import explain_values

#: Times are ms since 1970.
COLUMNS: Final = ["group", "time", "until", "generation", "cause", "text", "remedy", "details"]
_STARTED: Final = "rebalance_started"
_ENDS: Final = ("rebalance_over", "group_empty")


def rebalances(values: Mapping[str, Sequence[bytes]], since: int, until: int) -> list[dict[str, Any]]:
    """Return the rebalances of groups, oldest first, as rows of :data:`COLUMNS`.

    Args:
        values: the values of each group's records, oldest first.
        since: ms since 1970; rebalances that ended before are left out.
        until: ms since 1970; rebalances that began later are left out.
    """
    rows = []
    for group, events in values.items():
        for described in explain_values(events, since=since):
            row = _row(group, described)
            if row is not None and row["time"] <= until:
                rows.append(row)
    return sorted(rows, key=lambda row: (row["time"], row["group"]))


def _row(group: str, described: Mapping[str, Any]) -> dict[str, Any] | None:
    data = described["data"]
    started = next((event for event in data if event["type"] == _STARTED), None)
    if started is None:
        return None
    # The events of a rebalance storm are those of its first and its last rebalance.
    over = [event["time"] for event in data if event["type"] in _ENDS or event["type"] == _STARTED]
    return {
        "group": group,
        "time": started["time"],
        "until": max(over),
        "generation": described["generation"],
        "cause": str(started.get("cause", "")),
        "text": described["text"],
        "remedy": described.get("remedy") or "",
        "details": " ".join(described.get("details", ())),
    }


def by_group(records: Sequence[tuple[bytes | None, bytes | None]]) -> dict[str, list[bytes]]:
    """Group the values of records of ``__group_events`` by their key; records without key or value are left out."""
    found: dict[str, list[bytes]] = {}
    for key, value in records:
        if key is not None and value is not None:
            found.setdefault(key.decode(errors="replace"), []).append(value)
    return found
