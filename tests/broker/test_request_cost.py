"""The functions that the broker calls for a request: what it costs, counted, so that no test depends on speed.

The bounds are a little above what was measured with Python 3.11. A request that takes a longer way than it has to, for
instance because a condition is always true, exceeds them. If a change has to make a request more expensive, measure it
(``make bench``), and raise its bound.
"""

import asyncio
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final

import pytest

from barnabas_broker import slicer
from barnabas_broker.groups.effects import Caller
from barnabas_broker.handlers import groups as handlers_of_groups
from tests.bench.loads.requests import KINDS, Shot, offset_commit
from tests.bench.wire import Link
from tests.broker.conftest import StartBroker

#: Calls of the broker's own functions for a request of each kind, while 16 are in flight.
MOST: Final = {
    "Heartbeat v4": 31,
    "OffsetCommit v8": 57,
    "OffsetCommit v8 of no member": 62,
    "Fetch v11, empty": 46,
    "Produce v9": 75,
    "Metadata v8": 60,
}
_KINDS: Final = KINDS | {"OffsetCommit v8 of no member": (partial(offset_commit, of_member=False), 8)}
DEPTH: Final = 16
REQUESTS: Final = 20 * DEPTH


def shoot(connection: socket.socket, shot: Shot, count: int) -> None:
    """Send a request `count` times, :data:`DEPTH` at a time, and read the answers."""
    with connection.makefile("rb") as answers:
        for _ in range(count // DEPTH):
            connection.sendall(shot.frame * DEPTH)
            for _ in range(DEPTH):
                (size,) = struct.unpack(">i", answers.read(4))
                assert shot.fine(answers.read(size))


@contextmanager
def counted() -> Iterator[list[int]]:
    """Count the calls of the project's functions in this thread; the number is the only item."""
    calls = [0]

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "barnabas_" in frame.f_code.co_filename:
            calls[0] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(("kind", "most"), MOST.items())
async def test_a_request_takes_the_short_way(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, kind: str, most: int
) -> None:
    for name in ("SLICE", "QUANTUM"):  # A slow machine gets through in one turn, too.
        monkeypatch.setattr(slicer, name, 100.0)
    broker = await start_broker()
    address = f"127.0.0.1:{broker.port}"
    make, version = _KINDS[kind]
    shot = await asyncio.to_thread(make, address, version)
    connection = await asyncio.to_thread(lambda: Link(address).detach())
    try:
        connection.setblocking(True)
        await asyncio.to_thread(shoot, connection, shot, 4 * DEPTH)
        with counted() as calls:
            await asyncio.to_thread(shoot, connection, shot, REQUESTS)
    finally:
        connection.close()
    assert calls[0] / REQUESTS <= most, f"{kind}: {calls[0] / REQUESTS:.1f} calls"


async def test_a_client_is_looked_at_once_whatever_the_versions_of_its_requests(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Caller] = []

    def caller(*args: Any) -> Caller:
        looked_at.append(Caller(*args))
        return looked_at[-1]

    broker = await start_broker()
    address = f"127.0.0.1:{broker.port}"
    shots = [
        await asyncio.to_thread(make, address, version)
        for make, version in (KINDS["Heartbeat v4"], KINDS["OffsetCommit v8"])
    ]
    connection = await asyncio.to_thread(lambda: Link(address).detach())
    monkeypatch.setattr(handlers_of_groups, "Caller", caller)
    try:
        connection.setblocking(True)
        for shot in (*shots, *shots):
            await asyncio.to_thread(shoot, connection, shot, DEPTH)
    finally:
        connection.close()
    assert len(looked_at) == 1
