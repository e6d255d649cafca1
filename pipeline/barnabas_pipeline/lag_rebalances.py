"""Rebalances of groups out of ``__group_events``, with their cause in words. Pure.

Who puts events into words is found by the entry point group ``barnabas.tellers``; Barnabas' broker brings one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas_client.cli.plugins import ExplainEvents

#: Times are ms since 1970.
COLUMNS: Final = ["group", "time", "until", "generation", "cause", "text", "remedy", "details"]
_STARTED: Final = "rebalance_started"
_ENDS: Final = ("rebalance_over", "group_empty")


def rebalances(
    values: Mapping[str, Sequence[bytes]], tell: ExplainEvents, since: int, until: int
) -> list[dict[str, Any]]:
    """The rebalances of groups, oldest first, as rows of :data:`COLUMNS`.

    Args:
        values: the values of each group's records, oldest first.
        tell: puts them into words.
        since: ms since 1970; those that were over before are left out.
        until: those that began later are left out.
    """
    rows = []
    for group, events in values.items():
        for told in tell(events, since=since):
            row = _row(group, told)
            if row is not None and row["time"] <= until:
                rows.append(row)
    return sorted(rows, key=lambda row: (row["time"], row["group"]))


def _row(group: str, told: Mapping[str, Any]) -> dict[str, Any] | None:
    data = told["data"]
    started = next((event for event in data if event["type"] == _STARTED), None)
    if started is None:
        return None
    # A storm tells of its first and its last rebalance only.
    over = [event["time"] for event in data if event["type"] in _ENDS or event["type"] == _STARTED]
    return {
        "group": group,
        "time": started["time"],
        "until": max(over),
        "generation": told["generation"],
        "cause": str(started.get("cause", "")),
        "text": told["text"],
        "remedy": told.get("remedy") or "",
        "details": " ".join(told.get("details", ())),
    }


def by_group(records: Sequence[tuple[bytes | None, bytes | None]]) -> dict[str, list[bytes]]:
    """Keys and values of ``__group_events`` as values by group; what is no event is left to the teller."""
    found: dict[str, list[bytes]] = {}
    for key, value in records:
        if key is not None and value is not None:
            found.setdefault(key.decode(errors="replace"), []).append(value)
    return found
