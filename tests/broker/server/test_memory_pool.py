"""The bytes of requests that arrive and of responses that are not sent: bounded for all connections together."""

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.server.server import FRAME_SECONDS
from tests.broker.server.test_server import Harness, feed, frame, harness

__all__ = ["harness"]

MEBIBYTE = 1 << 20


class Sender:
    """A client with one large request, which sends a piece when the broker reads."""

    def __init__(self, harness: Harness, size: int) -> None:
        self.connection, self.transport = harness.connect()
        self.left = frame(b"now" + bytes(size - 3))

    @property
    def can_send(self) -> bool:
        return bool(self.left) and self.transport.reading and not self.transport.is_closing()

    def send(self, size: int) -> None:
        """Send at most `size` bytes, in reads of at most 256 KiB like those of the system."""
        while size and self.can_send:
            piece = self.left[: min(size, len(self.connection.get_buffer(-1)), 256 * 1024)]
            self.left, size = self.left[len(piece) :], size - len(piece)
            feed(self.connection, piece)


async def test_requests_that_arrive_in_part_stay_within_the_budget() -> None:
    harness = Harness(queued_max_request_bytes=str(4 * MEBIBYTE))
    senders = [Sender(harness, 3 * MEBIBYTE) for _ in range(30)]
    for _ in range(50):
        for sender in senders[1:]:
            sender.send(MEBIBYTE // 4)
            if len(sender.left) < MEBIBYTE:
                sender.left = b""  # the last megabyte never comes
    held = [len(sender.connection._framer._large or b"") for sender in senders]
    assert 4 * MEBIBYTE <= harness.server.requests.used <= 7 * MEBIBYTE
    assert sum(held) <= 7 * MEBIBYTE + len(senders) * 65536
    small = harness.connect()
    feed(small[0], frame(b"now small"))
    assert small[1].written == b"<now small>"


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(70_000, 3 * MEBIBYTE), min_size=1, max_size=8),
    turns=st.lists(st.tuples(st.integers(0, 7), st.integers(1, MEBIBYTE)), max_size=60),
)
async def test_every_request_gets_through(sizes: list[int], turns: list[tuple[int, int]]) -> None:
    harness = Harness(queued_max_request_bytes=str(2 * MEBIBYTE))
    senders = [Sender(harness, size) for size in sizes]
    for number, size in turns:
        senders[number % len(senders)].send(size)
        assert harness.server.requests.used <= 2 * MEBIBYTE + 2 * max(sizes)
    while any(sender.left for sender in senders):
        ready = [sender for sender in senders if sender.can_send]
        assert ready, "the connections block each other"
        for sender in ready:
            sender.send(100_000)
        assert harness.server.requests.used <= 2 * MEBIBYTE + 2 * max(sizes)
    assert sorted(len(data) for data in harness.script.seen) == sorted(sizes)
    assert harness.server.requests.used == 0
    assert harness.server.requests.ahead is None


async def test_a_request_that_does_not_arrive_is_given_up_while_others_wait() -> None:
    harness = Harness(queued_max_request_bytes=str(2 * MEBIBYTE))
    slow, other = Sender(harness, 3 * MEBIBYTE), Sender(harness, 3 * MEBIBYTE)
    slow.send(2 * MEBIBYTE + 1000)
    other.send(3 * MEBIBYTE)
    harness.server.sweep()
    assert [each.can_send for each in (slow, other)] == [True, False]
    harness.clock += FRAME_SECONDS + 1
    slow.send(1)
    harness.server.sweep()
    assert slow.transport.aborted
    slow.connection.connection_lost(None)
    other.send(3 * MEBIBYTE)
    assert other.transport.written
    assert harness.server.requests.used == 0


async def test_a_request_must_arrive_within_the_idle_time(harness: Harness) -> None:
    sender, idle = Sender(harness, MEBIBYTE), 600
    for _ in range(4):
        sender.send(1000)
        harness.server.sweep()
        assert not sender.transport.aborted
        harness.clock += idle / 4
    sender.send(1000)
    harness.clock += 1
    harness.server.sweep()
    assert sender.transport.aborted


async def test_nothing_is_started_behind_a_request_of_unknown_size(harness: Harness) -> None:
    harness.feed(frame(b"later") + frame(b"alone") + b"".join(frame(b"now%d" % n) for n in range(100)))
    assert harness.script.seen == [b"later", b"alone"]
    harness.script.later[b"alone"].give([b"!"])
    assert len(harness.script.seen) == 102
    harness.script.later[b"later"].give([b"?"])
    assert harness.answered().startswith(b"?!<now0>")


async def test_responses_that_wait_for_an_earlier_one_are_bounded() -> None:
    harness = Harness(connection_max_response_bytes="1000")
    harness.script.size = 100
    harness.feed(frame(b"later") + b"".join(frame(b"now%d" % n) for n in range(100)))
    assert len(harness.script.seen) == 1 + 3  # of 400 bytes each
    assert harness.server.responses.used == 1200 + 6
    harness.script.later[b"later"].give([b"?"])
    assert len(harness.script.seen) == 101
    assert harness.server.responses.used == 0


async def test_a_connection_that_holds_no_response_goes_on_when_the_budget_is_used_up() -> None:
    """Otherwise a JoinGroup would wait for ever for a SyncGroup that is not started."""
    harness = Harness(queued_max_response_bytes="1000")
    harness.script.size = 1000
    harness.feed(frame(b"later") + frame(b"now1") + frame(b"now2"))
    assert harness.script.seen == [b"later", b"now1"]
    other, transport = harness.connect()
    feed(other, frame(b"now3"))
    assert transport.written
    feed(other, frame(b"later2") + frame(b"now4"))
    assert harness.script.seen[2:] == [b"now3", b"later2", b"now4"]
    harness.connection.connection_lost(None)
    other.connection_lost(None)
    assert harness.server.responses.used == 0


async def test_what_the_peer_does_not_read_counts() -> None:
    harness = Harness()
    harness.transport.full = harness.connection.pause_writing
    harness.script.size = 1000
    harness.feed(frame(b"now"))
    assert harness.server.responses.used == 3002
    harness.transport.full = lambda: None
    harness.connection.resume_writing()
    assert harness.server.responses.used == 0
