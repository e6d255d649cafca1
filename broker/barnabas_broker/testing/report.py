"""The sections of a failed test's report about the broker that it used."""

from collections.abc import Iterator
from typing import Final

from barnabas_broker.testing.broker import Broker
from barnabas_broker.testing.requests import listing

#: Lines of a section at most.
_MOST_LINES: Final = 60


def sections(broker: Broker, since: float) -> Iterator[tuple[str, str]]:
    """Titles and texts: the requests, the explanations of the groups that they name, the broker's log lines.

    Args:
        broker: the broker that the test used.
        since: the start of the test, in seconds since 1970.
    """
    requests = [request for request in broker.requests if request.time >= since]
    state = "" if broker.running else " (the broker is not running)"
    if requests:
        yield f"kafka requests{state}", listing(requests)
    else:
        yield f"kafka requests{state}", "The broker received no request from this test."
    for group in sorted({request.group for request in requests if request.group is not None}):
        explanation = broker.explain(group, since)
        if explanation:
            yield f"kafka group {group}", _last(explanation)
    if broker.log_lines:
        yield "kafka broker log", _last("\n".join(broker.log_lines))


def _last(text: str) -> str:
    return "\n".join(text.splitlines()[-_MOST_LINES:])
