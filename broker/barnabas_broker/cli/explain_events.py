"""The entry point of the group ``barnabas.explainers``: explains the records of ``__group_events``."""

from collections.abc import Iterable
from typing import Any

from barnabas_broker.groups.events.events import decode_event
from barnabas_broker.groups.events.explain import explain


def explain_events(
    values: Iterable[bytes], *, since: int | None = None, generation: int | None = None
) -> list[dict[str, Any]]:
    """Explain the events of a group.

    Args:
        values: the values of its records, oldest first; values that are not events are left out.
        since: only events at or after this time, in ms since 1970.
        generation: only the rebalance that led to this generation.
    """
    events = [event for event in map(decode_event, values) if event is not None]
    return [explanation.as_data() for explanation in explain(events, since=since, generation=generation)]
