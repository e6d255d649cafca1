"""The frames of a stream do not depend on how it is split."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.framing import ROOM, Framer, FrameTooLarge

KIB = 1024
MIB = 1024 * KIB


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def feed(framer: Framer, data: bytes, steps: list[int]) -> list[bytes]:
    """Write `data` as a transport does: into the buffers, at most as many bytes at a time as a step says."""
    frames: list[bytes] = []
    at = turn = 0
    while at < len(data):
        room = framer.get_buffer()
        assert len(room) > 0
        count = min(steps[turn % len(steps)], len(room), len(data) - at)
        room[:count] = data[at : at + count]
        frames += [bytes(frame) for frame in framer.received(count)]
        at, turn = at + count, turn + 1
    return frames


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, 60, 4000, 65_531, 65_532, 65_533, 70_000, 200_000]), max_size=6),
    steps=st.lists(st.sampled_from([1, 2, 3, 5, 64, 1000, 65_536, 10**6]), min_size=1, max_size=4),
)
def test_any_split_gives_the_same_frames(sizes: list[int], steps: list[int]) -> None:
    if max(steps) < 1000 and sum(sizes) > 20_000:
        steps = [*steps, 30_000]
    rng = random.Random(len(sizes))
    frames = [rng.randbytes(size) for size in sizes]
    assert feed(Framer(10**6), framed(*frames), steps) == frames


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 60, 65_531, 65_533, 70_000]), max_size=12),
    steps=st.lists(st.sampled_from([5, 1000, 65_536]), min_size=1, max_size=4),
    most=st.integers(1, 4),
)
def test_as_many_frames_are_cut_as_are_asked_for_and_the_others_are_left(
    sizes: list[int], steps: list[int], most: int
) -> None:
    rng, framer = random.Random(len(sizes)), Framer(10**6)
    frames = [rng.randbytes(size) for size in sizes]
    data, found, at, turn = framed(*frames), [], 0, 0
    while at < len(data):
        room = framer.get_buffer()
        count = min(len(room), steps[turn % len(steps)] + 1000 * (len(data) > 50_000), len(data) - at)
        room[:count] = data[at : at + count]
        some = [bytes(frame) for frame in framer.received(count, most)]
        assert len(some) <= most
        assert not framer.left or len(some) == most
        found += some
        while framer.left and turn % 2:
            assert framer.pending
            some = [bytes(frame) for frame in framer.cut(most)]
            assert 1 <= len(some) <= most
            found += some
        at, turn = at + count, turn + 1
    while framer.left:
        found += [bytes(frame) for frame in framer.cut(most)]
    assert found == frames


def test_a_size_that_is_too_large_is_refused_when_it_is_cut() -> None:
    framer = Framer(1000)
    data = framed(b"1", b"2") + struct.pack(">i", 1001)
    framer.get_buffer()[: len(data)] = data
    assert list(framer.received(len(data), 1)) == [b"1"]
    with pytest.raises(FrameTooLarge):
        list(framer.cut(2))


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, 60, 4000, 65_531, 65_532, 65_533, 70_000, 200_000]), max_size=6),
    step=st.sampled_from([1000, 30_000, 65_536, 10**6]),
    framers=st.integers(2, 5),
    seed=st.integers(0, 2**32),
)
def test_framers_that_share_a_buffer_do_not_mix_their_bytes(
    sizes: list[int], step: int, framers: int, seed: int
) -> None:
    rng, shared = random.Random(seed), bytearray(ROOM)
    frames = [[rng.randbytes(size) for size in sizes] for _ in range(framers)]
    waiting = {Framer(10**6, shared): (framed(*each), each) for each in frames}
    received: dict[Framer, list[bytearray]] = {framer: [] for framer in waiting}
    left = {framer: data for framer, (data, _) in waiting.items() if data}
    while left:
        framer = rng.choice(list(left))
        room = framer.get_buffer()
        count = min(rng.randint(1, step), len(room), len(left[framer]))
        room[:count] = left[framer][:count]
        received[framer] += framer.received(count)
        left[framer] = left[framer][count:]
        if not left[framer]:
            del left[framer]
    # They are compared at the end: a frame may be used long after the buffer has other bytes.
    assert [received[framer] for framer in waiting] == frames


def test_byte_by_byte() -> None:
    frames = [b"a", b"", b"bcd" * 100]
    assert feed(Framer(1000), framed(*frames), [1]) == frames


def test_many_frames_in_one_read() -> None:
    frames = [bytes([n % 256]) * (n % 50) for n in range(1000)]
    assert feed(Framer(1000), framed(*frames), [65_536]) == frames


def test_a_frame_outlives_the_buffer() -> None:
    framer = Framer(1000)
    data = framed(b"first")
    framer.get_buffer()[: len(data)] = data
    (frame,) = framer.received(len(data))
    feed(framer, framed(b"other"), [100])
    assert frame == b"first"


def test_frames_can_be_written_to() -> None:
    framer = Framer(10**6)
    for payload in (b"small", b"large" * 50_000):
        data = framed(payload)
        frame = None
        while frame is None:
            room = framer.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            frame = next(iter(framer.received(count)), None)
        memoryview(frame)[0:1] = b"X"
        assert frame[0:2] == b"X" + payload[1:2]


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_sizes_that_are_refused(size: int) -> None:
    framer = Framer(1000)
    framer.get_buffer()[:4] = struct.pack(">i", size)
    with pytest.raises(FrameTooLarge, match="at most 1000"):
        list(framer.received(4))
    assert issubclass(FrameTooLarge, DecodeError)


def test_frames_before_a_bad_one_are_yielded() -> None:
    framer = Framer(1000)
    data = framed(b"good") + struct.pack(">i", 1001)
    framer.get_buffer()[: len(data)] = data
    received = iter(framer.received(len(data)))
    assert next(received) == b"good"
    with pytest.raises(FrameTooLarge):
        next(received)


def test_the_largest_frame_is_accepted() -> None:
    for size in (1000, 65_532, 65_533, 3 * MIB):
        assert feed(Framer(size), framed(b"x" * size), [100_000]) == [b"x" * size]


def test_announcing_a_large_frame_takes_no_memory() -> None:
    framer = Framer(100 * MIB)
    tracemalloc.start()
    try:
        feed(framer, struct.pack(">i", 100 * MIB) + b"x", [100])
        assert tracemalloc.get_traced_memory()[1] < 1.1 * MIB
        sent = 1
        for _ in range(60):
            room = framer.get_buffer()
            count = min(64 * KIB, len(room))
            assert list(framer.received(count)) == []
            sent += count
        assert tracemalloc.get_traced_memory()[0] < max(1.1 * MIB, 2.1 * sent)
    finally:
        tracemalloc.stop()


def test_a_large_frame_grows_while_the_transport_holds_its_buffer() -> None:
    framer = Framer(100 * MIB)
    payload = random.Random(1).randbytes(5 * MIB + 3)
    data = framed(payload, b"next")
    held, frames, at = [], [], 0
    while at < len(data):
        room = framer.get_buffer()
        held.append(room)
        count = min(len(room), 300_000, len(data) - at)
        room[:count] = data[at : at + count]
        frames += list(framer.received(count))
        at += count
    assert frames == [payload, b"next"]


def test_pending_bytes_move_to_the_front_when_room_is_short() -> None:
    framer = Framer(64 * KIB)
    first, second = b"a" * 40_000, b"b" * 40_000
    data = framed(first, second)
    cut = 64 * KIB - 100
    assert feed(framer, data[:cut], [cut]) == [first]
    assert len(framer.get_buffer()) > 30_000
    assert feed(framer, data[cut:], [cut]) == [second]
