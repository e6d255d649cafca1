"""Requests that a broker received, and their text in a report. Pure."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

#: Maximum number of lines of requests in a report.
MOST_LINES: Final = 50


@dataclass(slots=True)
class SeenRequest:
    """A request that the broker received.

    Attributes:
        number: its number, from 1 on; restarts do not reset it.
        time: when it arrived, in seconds since 1970.
        api: the API's name as Kafka writes it, "JoinGroup" for instance.
        version: the version of the API.
        client_id: the client id in its header, "" if there is none.
        peer: the client's address, HOST:PORT.
        group: the group that it names, if any.
        topics: the topics that it names, if any.
        error: the name of the first error in the response, or why the connection was closed; None for no error.
        seconds: the time until its response; None if it is not answered yet.
        fault: the faults that it met, "" for none.
    """

    number: int
    time: float
    api: str
    version: int
    client_id: str
    peer: str
    group: str | None = None
    topics: Sequence[str] = ()
    error: str | None = None
    seconds: float | None = None
    fault: str = ""

    def __str__(self) -> str:
        return f"{_clock(self.time)}  {_what(self)}  {_took(self.seconds)}"


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}"


def _took(seconds: float | None) -> str:
    return "not answered yet" if seconds is None else f"{seconds * 1000:.1f} ms"


def _what(request: SeenRequest) -> str:
    """A request without its times."""
    parts = [f"{request.client_id or '-':<20} {request.api} v{request.version}"]
    if request.group is not None:
        parts.append(f"group={request.group}")
    if request.topics:
        more = f" and {len(request.topics) - 3} more" if len(request.topics) > 3 else ""
        parts.append(f"topics={','.join(request.topics[:3])}{more}")
    if request.error is not None:
        parts.append(f"-> {request.error}")
    if request.fault:
        parts.append(f"[fault: {request.fault}]")
    return "  ".join(parts)


def listing(requests: Iterable[SeenRequest]) -> str:
    """Requests, one line each; repeated requests share a line, and only the last lines are shown."""
    lines: list[str] = []
    last, times = "", 0
    for request in requests:
        what = _what(request)
        times = times + 1 if what == last and request.seconds is not None else 1
        if times > 1:
            lines[-1] = f"{request}  ({times} times, this is the last)"
        else:
            lines.append(str(request))
        last = what
    if len(lines) > MOST_LINES:
        lines = [f"({len(lines) - MOST_LINES} lines before these)", *lines[-MOST_LINES:]]
    return "\n".join(lines)
