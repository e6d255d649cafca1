"""The sections of a failed test's report about the broker that it used, and the timelines of its groups as files."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from barnabas_broker.http.report import report
from barnabas_broker.testing.broker import BEGIN, Broker, Moment
from barnabas_broker.testing.requests import listing
from barnabas_explain.chart import chart
from barnabas_explain.doctor import examine_past
from barnabas_explain.records import read_event

#: Maximum number of lines of a section.
_MOST_LINES: Final = 60
#: Groups whose timeline is written to a file.
_MOST_FILES: Final = 20
#: Maximum characters of a group's name in the name of its file.
_MOST_CHARACTERS: Final = 60


def sections(broker: Broker, since: Moment | None, file: Path | None) -> Iterator[tuple[str, str]]:
    """Titles and texts: the requests, the explanations of the groups that they name, the broker's log lines.

    Args:
        broker: the broker that the test used.
        since: the start of the test; None if the broker was started after it.
        file: what the names of the files with timelines begin with; None to write none.
    """
    since = since or BEGIN
    requests = [request for request in broker.requests if request.time >= since.time]
    state = "" if broker.running else " (the broker is not running)"
    if requests:
        yield f"kafka requests{state}", listing(requests)
    else:
        yield f"kafka requests{state}", "The broker received no request from this test."
    histories = broker.group_history
    groups = sorted({request.group for request in requests if request.group is not None})
    for number, group in enumerate(groups):
        explanation = broker.explain(group, since.broker_time)
        if explanation:
            text = _ahead(broker.clock.ahead) + _last(explanation)
            if file is not None and number < _MOST_FILES:
                name = re.sub(r"[^a-zA-Z0-9._-]+", "-", group).strip("-.")[:_MOST_CHARACTERS]
                text += "\n" + _timeline(
                    broker, group, histories.get(group, []), since.broker_time, file, f"{number}-{name}"
                )
            yield f"kafka group {group}", text
    lines = broker.log_lines_since(since)
    if lines:
        yield "kafka broker log", _last("\n".join(lines))


def _ahead(seconds: float) -> str:
    """A line that says why events seem to be later than requests; "" if a test has not advanced the clock."""
    return f"These are times of the broker, whose clock was advanced by {seconds:,.0f} s.\n" if seconds else ""


def _timeline(broker: Broker, group: str, events: list[dict[str, Any]], since: float, file: Path, name: str) -> str:
    """Write the timeline of a group; the line about it."""
    start = int(since * 1000)
    shown = [event for event in map(read_event, events) if event is not None and event.time >= start]
    now = int((time.time() + broker.clock.ahead) * 1000)
    findings = [each.as_data() for each in examine_past(group, shown, now, start)]
    made = {"since": start, **chart(shown), "findings": findings}
    target = file.with_name(f"{file.name}-{name}.html")
    try:
        requests = broker.group_requests(group)
        target.write_text(report(group, made, time_ms=now, requests=requests), encoding="utf-8")
    except OSError as error:
        return f"Its timeline cannot be written to {target}: {error.strerror}"
    return f"Its timeline, for a browser: {target}"


def _last(text: str) -> str:
    return "\n".join(text.splitlines()[-_MOST_LINES:])
