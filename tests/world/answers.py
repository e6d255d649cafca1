"""Answers that a test may have a broker give."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.schema import Request, Response


class Drop:
    """Close the connection without an answer; the request was not carried out."""


class Lose:
    """Carry the request out, and close the connection instead of answering."""


class Silence:
    """Never answer, and keep the connection: later requests on it are not answered either."""


@dataclass(frozen=True)
class Held:
    """Carry the request out, and answer, once `go` is set."""

    go: asyncio.Event


class NoAnswer:
    """There is none to be sent: acks=0."""


@dataclass(frozen=True)
class Raw:
    """Send these bytes."""

    data: bytes


@dataclass(frozen=True)
class Refused:
    """Refuse the request, or all topics, partitions or groups in it, with this code."""

    code: ErrorCode


Answer = Response | Refused | Drop | Lose | Silence | Held | NoAnswer | Raw | None
#: Answers one request; None leaves it to the default handler.
Action = Callable[[Request], Answer]


def refused(code: ErrorCode) -> Action:
    return lambda request: Refused(code)


def drop(request: Request) -> Answer:
    return Drop()


def lose(request: Request) -> Answer:
    return Lose()


def silence(request: Request) -> Answer:
    return Silence()


def held(go: asyncio.Event) -> Action:
    return lambda request: Held(go)


def default(request: Request) -> Answer:
    return None
