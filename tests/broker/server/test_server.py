"""Connections, fed by hand: bytes in, answers out, no socket and no waiting."""

import asyncio
import gc
import struct
import tracemalloc
import weakref
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pytest

from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.config.keys import QUEUED_MAX_RESPONSE_BYTES
from barnabas_broker.quotas.connections import Admitted, ConnectionLimits, ConnectionQuotas, RefusedSocket
from barnabas_broker.quotas.rates import Window
from barnabas_broker.server import limits
from barnabas_broker.server.connection import (
    CUT,
    FLUSH_BYTES,
    MAX_IN_FLIGHT,
    PIECE,
    Answer,
    CloseConnection,
    Connection,
    DeferredResponse,
    Peer,
)
from barnabas_broker.server.memory_pool import Budget
from barnabas_broker.server.refusals import Refusals
from barnabas_broker.server.server import SocketServer
from barnabas_broker.slicer import QUANTUM, SLICE, Slicer
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.wire import Buffer


class Transport(asyncio.Transport):
    """Remembers what is written, and the notifications it received."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.writes = 0
        self.reading = True
        self.closed = False
        self.aborted = False
        self.full: Callable[[], None] = lambda: None

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 40000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def write(self, data: Buffer) -> None:
        self.written += data
        self.writes += 1
        self.full()

    def writelines(self, list_of_data: object) -> None:
        assert isinstance(list_of_data, list)
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class InFile:
    """Bytes that are not read yet; from `broken` on they cannot be."""

    def __init__(self, data: bytes, broken: int = -1) -> None:
        self.left = data
        self.sizes: list[int] = []
        self.broken = broken

    def __len__(self) -> int:
        return len(self.left)

    def read(self, size: int, /) -> bytes:
        if len(self.sizes) == self.broken:
            raise OSError("the disk is gone")
        self.sizes.append(size)
        piece, self.left = self.left[:size], self.left[size:]
        return piece

    def send(self, socket: int, size: int, /) -> int:
        raise AssertionError("there is no socket")


class Script:
    """Answers frames by their content: b"now..." at once, b"later..." by hand, b"file" with the first of `files` or
    `file`, others as echo."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.file = InFile(b"")
        self.files: deque[InFile] = deque()
        self.later: dict[bytes, DeferredResponse] = {}
        self.size = 1
        self.on_give: Callable[[], None] = lambda: None
        self.on_request: Callable[[], None] = lambda: None

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        data = bytes(frame)
        self.seen.append(data)
        self.on_request()
        if data.startswith((b"later", b"alone")):
            self.later[data] = DeferredResponse()
            self.later[data].alone = data.startswith(b"alone")
            return self.later[data]
        if data.startswith(b"give"):
            self.on_give()
        if data.startswith(b"none"):
            return None
        if data.startswith(b"file"):
            return [b"<", self.files.popleft() if self.files else self.file, b">"]
        if data.startswith(b"close"):
            raise CloseConnection("asked to")
        if data.startswith(b"broken"):
            raise DecodeError("no request")
        return [b"<", data * self.size, b">"]


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def feed(connection: Connection, data: bytes) -> None:
    """Have a connection receive bytes, whether it reads or not."""
    while data:
        room = connection.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


class Harness:
    def __init__(self, **settings: str) -> None:
        self.script = Script()
        self.clock = 0.0
        config = Config(BROKER_KEYS, {key.replace("_", "."): value for key, value in settings.items()})
        responses = Budget(config[QUEUED_MAX_RESPONSE_BYTES])
        self.server = SocketServer(
            config,
            self.script,
            lambda: self.clock,
            Refusals(),
            responses,
            ConnectionQuotas(ConnectionLimits(), Window()),
            Slicer(lambda: self.clock),
        )
        self.connection, self.transport = self.connect()

    def connect(self) -> tuple[Connection, Transport]:
        connection, transport = Connection(self.server), Transport()
        connection.connection_made(transport)
        return connection, transport

    def costs(self, seconds: float, requests: bytes = b"") -> None:
        """Let each request take as long, or those that begin with `requests`."""

        def on_request() -> None:
            if self.script.seen[-1].startswith(requests):
                self.clock += seconds

        self.script.on_request = on_request

    def takes(self, transport: Transport, seconds: float) -> None:
        """Let each write to a transport take as long."""

        def full() -> None:
            self.clock += seconds

        transport.full = full

    def feed(self, data: bytes) -> None:
        feed(self.connection, data)

    def answered(self) -> bytes:
        written, self.transport.written = self.transport.written, b""
        return written


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def test_answers_leave_in_the_order_of_their_requests(harness: Harness) -> None:
    harness.feed(frame(b"later1") + frame(b"now2") + frame(b"later3") + frame(b"now4"))
    assert harness.answered() == b""
    harness.script.later[b"later3"].give([b"three"])
    assert harness.answered() == b""
    harness.script.later[b"later1"].give([b"one"])
    assert harness.answered() == b"one<now2>three<now4>"


async def test_answers_that_waited_for_one_leave_with_it_in_one_write(harness: Harness) -> None:
    harness.feed(b"".join(frame(b"later%d" % n) for n in range(4)) + frame(b"now4"))
    for n in (3, 1, 2):
        harness.script.later[b"later%d" % n].give([b"%d" % n])
    assert harness.transport.writes == 0
    harness.script.later[b"later0"].give([b"0"])
    assert harness.transport.writes == 1
    assert harness.answered() == b"0123<now4>"


async def test_an_answer_that_becomes_ready_while_a_request_is_started_keeps_its_place(harness: Harness) -> None:
    harness.script.on_give = lambda: harness.script.later[b"later1"].give([b"one"])
    harness.feed(frame(b"now0") + frame(b"later1") + frame(b"give2") + frame(b"now3"))
    assert harness.answered() == b"<now0>one<give2><now3>"


async def test_ready_answers_leave_in_one_write(harness: Harness) -> None:
    harness.feed(b"".join(frame(b"now%d" % n) for n in range(10)))
    assert harness.transport.writes == 1


async def test_a_request_without_an_answer_takes_no_place(harness: Harness) -> None:
    harness.feed(frame(b"none") + frame(b"now"))
    assert harness.answered() == b"<now>"


async def test_split_anywhere_the_stream_gives_the_same_answers(harness: Harness) -> None:
    for byte in frame(b"now1") + frame(b"now2"):
        harness.feed(bytes((byte,)))
    assert harness.answered() == b"<now1><now2>"


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
async def test_a_frame_over_the_limit_closes_the_connection_before_it_is_kept(size: int) -> None:
    harness = Harness(socket_request_max_bytes="1000")
    harness.feed(struct.pack(">i", size))
    assert harness.transport.closed
    assert harness.script.seen == []


async def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    harness = Harness(socket_request_max_bytes="1000")
    harness.feed(frame(b"now".ljust(1000)))
    assert len(harness.answered()) == 1002


@pytest.mark.parametrize("request_", [b"close", b"broken"])
async def test_what_cannot_be_answered_closes_after_earlier_answers(harness: Harness, request_: bytes) -> None:
    harness.feed(frame(b"now") + frame(request_) + frame(b"now, too late"))
    assert harness.answered() == b"<now>"
    assert harness.transport.closed
    assert harness.script.seen == [b"now", request_]


async def test_a_failed_answer_closes_its_connection(harness: Harness) -> None:
    harness.feed(frame(b"later"))
    harness.script.later[b"later"].refuse("failed")
    assert harness.transport.closed


async def test_a_slow_reader_is_not_read_from(harness: Harness) -> None:
    harness.connection.pause_writing()
    harness.feed(frame(b"now1"))
    assert harness.script.seen == []
    assert not harness.transport.reading
    harness.connection.resume_writing()
    assert harness.answered() == b"<now1>"
    assert harness.transport.reading


async def test_a_slow_reader_is_noticed_between_two_large_answers(harness: Harness) -> None:
    harness.script.size = FLUSH_BYTES
    harness.transport.full = harness.connection.pause_writing
    harness.feed(frame(b"n") + frame(b"n"))
    assert len(harness.script.seen) == 1
    harness.connection.resume_writing()
    assert len(harness.script.seen) == 2


async def test_only_so_many_requests_wait_for_their_answers(harness: Harness) -> None:
    harness.feed(b"".join(frame(b"later%d" % n) for n in range(MAX_IN_FLIGHT + 3)))
    assert len(harness.script.seen) == MAX_IN_FLIGHT
    assert not harness.transport.reading
    for n in range(3):
        harness.script.later[b"later%d" % n].give([b"."])
    assert len(harness.script.seen) == MAX_IN_FLIGHT + 3
    assert harness.transport.reading


async def turn() -> None:
    """Wait for the next turn of the event loop."""
    await asyncio.sleep(0)


async def test_requests_that_do_not_fit_into_a_turn_wait_for_the_next_one(harness: Harness) -> None:
    harness.costs(SLICE * 0.3)
    harness.feed(b"".join(frame(b"now%d" % n) for n in range(11)))
    seen, reading = [len(harness.script.seen)], [harness.transport.reading]
    while harness.connection.busy:
        await turn()
        seen.append(len(harness.script.seen))
        reading.append(harness.transport.reading)
    assert reading == [False] * (len(reading) - 1) + [True]
    assert harness.answered() == b"".join(b"<now%d>" % n for n in range(11))
    assert seen[0] == 4
    assert all(after - before <= 4 for before, after in pairwise(seen))


async def test_the_requests_of_all_connections_share_a_turn(harness: Harness) -> None:
    cost = QUANTUM / 5
    harness.costs(cost)
    others = [harness.connect() for _ in range(50)]
    seen = [0]
    for connection, _ in others:
        feed(connection, b"".join(frame(b"now%d" % n) for n in range(20)))
    seen.append(len(harness.script.seen))
    while any(connection.busy for connection, _ in others):
        await turn()
        seen.append(len(harness.script.seen))
    assert max(after - before for before, after in pairwise(seen)) <= round(SLICE / cost) + 1
    assert all(transport.written == b"".join(b"<now%d>" % n for n in range(20)) for _, transport in others)


async def test_a_quiet_connection_is_answered_in_the_turn_after_its_request_whatever_others_send(
    harness: Harness,
) -> None:
    harness.costs(QUANTUM, b"flood")
    others = [harness.connect() for _ in range(100)]
    for connection, _ in others:
        feed(connection, b"".join(frame(b"flood") for _ in range(100)))
    while harness.script.seen.count(b"flood") < 200:
        await turn()
    for n in range(50):
        harness.feed(frame(b"quiet%d" % n))
        await turn()
        assert harness.answered() == b"<quiet%d>" % n
    assert all(connection.busy for connection, _ in others)
    for connection, _ in others:
        connection.close()


async def test_a_connection_whose_turn_it_is_starts_a_request_however_late_it_is(harness: Harness) -> None:
    """Its thread may have had no processor since the turn began, again and again."""
    ticking = iter(range(10**9))
    harness.server.slicer = slicer = Slicer(lambda: 1.0 * next(ticking))
    connection, transport = harness.connect()
    feed(connection, frame(b"now1") + frame(b"now2"))
    turns = 0
    while connection.busy:
        await turn()
        turns += 1
        assert turns <= 3
    assert transport.written == b"<now1><now2>"
    assert slicer.until < slicer.now()


async def test_tiny_frames_are_cut_a_hundred_at_a_time(harness: Harness) -> None:
    """64 KiB may have thousands of them, and many connections may have sent some in one turn of the event loop."""
    connection, work = harness.connection, asyncio.get_running_loop().create_future()
    connection.peer.hold(work)
    requests = [b"now%d" % number for number in range(5 * CUT)]
    harness.feed(b"".join(map(frame, requests)))
    assert len(connection._backlog) == CUT
    assert (connection.busy, connection.reading) == (True, False)
    work.set_result(None)
    while connection.busy:
        await turn()
    assert harness.answered() == b"".join(b"<%s>" % request for request in requests)
    assert connection.reading


async def test_what_is_no_frame_closes_the_connection_after_the_requests_before_it(harness: Harness) -> None:
    harness.feed(frame(b"now") * (CUT + 10) + struct.pack(">i", -1))
    while harness.connection.busy:
        await turn()
    assert harness.transport.is_closing()
    assert harness.answered() == b"<now>" * CUT


async def test_deferred_responses_start_no_more_requests_than_fit_into_a_turn(harness: Harness) -> None:
    others = [harness.connect() for _ in range(50)]
    for number, (connection, _) in enumerate(others):
        feed(connection, frame(b"alone%d" % number) + frame(b"now") * 10)
    harness.costs(SLICE * 0.3)
    seen = [len(harness.script.seen)]
    for deferred in list(harness.script.later.values()):
        deferred.give([b"."])
    seen.append(len(harness.script.seen))
    while any(connection.busy for connection, _ in others):
        await turn()
        seen.append(len(harness.script.seen))
    assert max(after - before for before, after in pairwise(seen)) <= 4
    assert all(transport.written == b"." + b"<now>" * 10 for _, transport in others)


async def test_a_connection_that_is_lost_while_its_requests_wait_starts_none(harness: Harness) -> None:
    harness.costs(SLICE)
    other = harness.connect()[0]
    harness.feed(frame(b"now") * 3)
    feed(other, frame(b"other") * 3)
    other.connection_lost(None)
    while harness.connection.busy:
        await turn()
    assert harness.script.seen == [b"now"] * 3


async def test_a_stop_drops_requests_that_wait_for_their_turn(harness: Harness) -> None:
    harness.costs(SLICE)
    harness.feed(frame(b"now1") + frame(b"now2"))
    harness.connection.end()
    await turn()
    assert harness.answered() == b"<now1>"
    assert harness.transport.closed


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    harness = Harness(connections_max_idle_ms="10000")
    busy, busy_transport = harness.connect()
    harness.connection, idle = busy, harness.connection
    idle_transport = harness.transport
    harness.feed(frame(b"later"))
    harness.clock = 10.5
    harness.server.sweep()
    assert idle_transport.closed
    assert not busy_transport.closed
    assert idle.peer.host == "127.0.0.1"


async def test_a_peer_that_reads_nothing_is_given_up_and_a_slow_one_is_not() -> None:
    harness = Harness(connections_max_idle_ms="10000")
    harness.script.file = InFile(DATA)
    harness.transport.full = harness.connection.pause_writing
    harness.feed(frame(b"file"))
    await asyncio.sleep(0)
    harness.clock = 10.5
    harness.connection.resume_writing()
    harness.clock = 20.0
    harness.server.sweep()
    assert not harness.transport.is_closing()
    harness.clock = 21.0
    harness.server.sweep()
    assert harness.transport.aborted


async def test_a_stop_answers_what_was_asked(harness: Harness) -> None:
    harness.feed(frame(b"later"))
    stopping = asyncio.ensure_future(harness.server.stop(5.0))
    await asyncio.sleep(0)
    assert not harness.transport.is_closing()
    harness.feed(frame(b"now, too late"))
    harness.script.later[b"later"].give([b"done"])
    assert harness.answered() == b"done"
    assert harness.transport.closed
    harness.connection.connection_lost(None)
    await asyncio.wait_for(stopping, 60)
    assert harness.script.seen == [b"later"]


async def test_a_mistake_of_ours_ends_its_connection(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.feed(frame(b"later"))
    harness.script.later[b"later"].give(cast(Answer, [b"<", 5, b">"]))
    assert harness.transport.aborted
    assert "connection failed" in caplog.text


async def test_answers_to_a_lost_connection_go_nowhere(harness: Harness) -> None:
    harness.feed(frame(b"later"))
    harness.connection.connection_lost(None)
    harness.script.later[b"later"].give([b"late"])
    assert harness.answered() == b""
    assert harness.server.connections == 0


DATA = bytes(range(256)) * 16 * 1024


async def test_what_is_in_a_file_is_read_as_the_peer_takes_it(harness: Harness) -> None:
    harness.script.file = file = InFile(DATA)
    harness.transport.full = harness.connection.pause_writing
    harness.feed(frame(b"file"))
    taken = []
    while not harness.connection._writable:
        taken.append(len(DATA) - len(file))
        harness.connection.resume_writing()
    assert harness.answered() == b"<" + DATA + b">"
    assert taken[:3] == [PIECE - 1, 2 * PIECE - 1, 3 * PIECE - 1]
    assert max(file.sizes) == PIECE
    assert not harness.connection.busy


async def test_little_in_a_file_is_sent_too(harness: Harness) -> None:
    harness.script.file = InFile(b"little")
    harness.feed(frame(b"now") + frame(b"file") + frame(b"now"))
    assert harness.answered() == b"<now><little><now>"
    assert not harness.connection.busy


async def test_later_responses_wait_for_it(harness: Harness) -> None:
    harness.script.file = InFile(DATA)
    harness.transport.full = harness.connection.pause_writing
    harness.feed(frame(b"later1") + frame(b"file") + frame(b"later2") + frame(b"now3"))
    harness.script.later[b"later1"].give([b"one"])
    assert len(harness.transport.written) < len(DATA)
    harness.script.later[b"later2"].give([b"two"])
    while harness.connection.busy:
        harness.connection.resume_writing()
    assert harness.answered() == b"one<" + DATA + b">two<now3>"


async def test_no_request_is_started_while_the_peer_takes_it(harness: Harness) -> None:
    harness.script.file = InFile(DATA)
    harness.transport.full = harness.connection.pause_writing
    harness.feed(frame(b"file"))
    harness.feed(frame(b"now"))
    assert harness.script.seen == [b"file"]
    assert not harness.transport.reading


async def test_a_large_response_does_not_hold_up_other_connections(harness: Harness) -> None:
    harness.script.file = InFile(DATA + DATA)
    harness.takes(harness.transport, SLICE / 4)
    harness.feed(frame(b"file") + frame(b"now"))
    assert len(harness.transport.written) == 4 * PIECE
    for _ in range(100):
        await asyncio.sleep(0)
    assert harness.answered() == b"<" + DATA + DATA + b"><now>"


async def test_a_flood_of_large_responses_is_sent_a_little_in_each_turn(harness: Harness) -> None:
    others = [harness.connect() for _ in range(20)]
    for connection, transport in others:
        harness.script.files.append(InFile(DATA))
        harness.takes(transport, QUANTUM)
        feed(connection, frame(b"file"))
    sent, turns, asked = [sum(len(transport.written) for _, transport in others)], 0, 0
    while any(connection.busy for connection, _ in others):
        await asyncio.sleep(0)
        sent.append(sum(len(transport.written) for _, transport in others))
        turns += 1
        if turns % 2:
            harness.feed(frame(b"now"))
            asked += 1
        assert turns < 1000
    assert turns - 2 * asked <= 1
    await turn()  # the last one has arrived when the budget was used up
    assert harness.answered() == b"<now>" * asked
    steps = [after - before for before, after in pairwise([0, *sent])]
    assert max(steps) <= (SLICE / QUANTUM + 1) * PIECE
    assert all(transport.written == b"<" + DATA + b">" for _, transport in others)


async def test_a_connection_that_is_lost_while_it_waits_for_its_turn_is_left_out(harness: Harness) -> None:
    others = [harness.connect() for _ in range(3)]
    for connection, _ in others:
        harness.script.file = InFile(DATA + DATA)
        feed(connection, frame(b"file"))
    others[1][0].connection_lost(None)
    for _ in range(10):
        await asyncio.sleep(0)
    for connection, transport in (others[0], others[2]):
        assert transport.written == b"<" + DATA + DATA + b">"
        assert not connection.busy


async def test_a_file_that_cannot_be_read_ends_its_connection_at_once(harness: Harness) -> None:
    harness.script.file = InFile(DATA, broken=2)
    harness.feed(frame(b"file") + frame(b"now"))
    assert harness.transport.aborted
    assert harness.transport.written == b"<" + DATA[: 2 * PIECE - 1]


async def test_what_cannot_be_answered_closes_after_a_large_answer(harness: Harness) -> None:
    harness.script.file = InFile(DATA)
    harness.transport.full = harness.connection.pause_writing
    harness.feed(frame(b"file"))
    harness.feed(struct.pack(">i", -1))
    assert not harness.transport.is_closing()
    assert not harness.transport.reading
    while not harness.transport.is_closing():
        harness.connection.resume_writing()
    assert harness.answered() == b"<" + DATA + b">"


async def test_a_peer_that_says_no_more_still_gets_a_large_answer(harness: Harness) -> None:
    harness.script.file = InFile(DATA)
    harness.transport.full = harness.connection.pause_writing
    harness.feed(frame(b"file"))
    harness.connection.eof_received()
    while not harness.transport.closed:
        harness.connection.resume_writing()
    assert harness.answered() == b"<" + DATA + b">"


async def test_a_lost_connection_releases_its_unsent_parts(harness: Harness) -> None:
    harness.script.file = InFile(DATA)
    harness.transport.full = harness.connection.pause_writing
    harness.feed(frame(b"file"))
    gone = weakref.ref(harness.script.file)
    harness.script.file = InFile(b"")
    assert gone() is not None
    harness.connection.connection_lost(None)
    assert gone() is None


@pytest.mark.parametrize(
    "last",
    [b"", frame(b"now"), frame(b"later"), frame(b"close"), frame(b"broken"), b"\0\0", frame(bytes(200_000))[:-1]],
    ids=["nothing", "answered", "waiting", "refused", "broken", "a part", "a part of a large one"],
)
async def test_a_lost_connection_is_freed_at_once(harness: Harness, last: bytes) -> None:
    """Its buffers take 64 KiB and more: they do not wait until the collector runs."""
    gc.disable()
    try:
        connection = harness.connect()[0]
        gone = weakref.ref(connection)
        feed(connection, last)
        connection.connection_lost(None)
        harness.script.later.clear()
        del connection
        assert gone() is None
    finally:
        gc.enable()


async def test_an_idle_connection_takes_less_than_8_kib(harness: Harness) -> None:
    """Of any kind: before its first request, after it, and with a part of the next one."""
    for data in (b"", frame(b"now"), frame(b"now") + b"\0\0"):
        tracemalloc.start()
        try:
            connections = [harness.connect()[0] for _ in range(200)]
            for each in connections:
                feed(each, data)
            assert tracemalloc.get_traced_memory()[0] / len(connections) < 8 * 1024
        finally:
            tracemalloc.stop()


async def test_a_request_that_waits_is_not_changed_by_what_others_send(harness: Harness) -> None:
    """All connections read into one buffer."""
    other = harness.connect()[0]
    harness.feed(frame(b"later" + bytes(1000)) + frame(b"now")[:5])
    feed(other, frame(b"now" + b"x" * 60_000))
    harness.feed(frame(b"now")[5:])
    harness.script.later[b"later" + bytes(1000)].give([b"first"])
    assert harness.answered() == b"first<now>"


async def test_connections_leave_descriptors_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "most_descriptors", lambda: 5)
    config = Config(BROKER_KEYS, {})
    quotas = ConnectionQuotas(limits.Limits(config, ["PLAINTEXT"]).of(config), Window())
    first, second, third = (quotas.open("PLAINTEXT", "127.0.0.1", 0.0) for _ in range(3))
    assert [type(first), type(second), type(third)] == [Admitted, Admitted, RefusedSocket]
    assert quotas.total == 2
