"""Events that a test writes down as records."""

from collections.abc import Iterable

from barnabas_explain.catalog import GroupEvent, HistoryGap
from barnabas_explain.records import EventRecord, read_event


def read(records: Iterable[EventRecord]) -> list[GroupEvent]:
    """The events of records, each of which has the fields of its type."""
    events = []
    for record in records:
        event = read_event(record)
        assert event is not None, record
        assert not (isinstance(event, HistoryGap) and "is left out" in str(event.reason)), event.reason
        events.append(event)
    return events
