"""Large reads stay in their file until they are sent."""

import contextlib
import errno
import os
import socket
from pathlib import Path

import pytest

from barnabas_broker.files import RealFiles
from barnabas_broker.memory_files import MemoryFiles
from barnabas_broker.storage.log import Log
from barnabas_broker.storage.slices import FileSlice, OpenFile, joined
from barnabas_protocol.records import iter_batches
from tests.broker.storage.support import TOPIC_ID, TP, batch, close, new_log, open_directory, topic_config

#: Bytes of a batch: several times the size from which batches stay in the file.
MANY = 40


def filled() -> Log:
    return fill(new_log())


def fill(log: Log) -> Log:
    for n in range(MANY):
        log.append_as_leader(batch(bytes([n]) * 50_000), leader_epoch=0, now_ms=n)
    log.set_high_watermark(log.log_end_offset)
    return log


def offsets(data: bytes) -> list[int]:
    return [header.base_offset for header, _ in iter_batches(memoryview(data))]


@pytest.mark.parametrize("start", [0, 1, 7])
@pytest.mark.parametrize("max_bytes", [300_000, 333_333, 1_000_000, 10**9])
def test_whole_batches_whatever_the_limit(start: int, max_bytes: int) -> None:
    log = filled()
    (part,) = log.read(start, max_bytes, MANY, min_one=True)
    assert isinstance(part, FileSlice)
    size = len(part)
    assert size <= max_bytes
    data = joined([part])
    assert len(data) == size
    assert len(part) == 0
    fit = min(max_bytes // (log.size // MANY), MANY - start)
    assert offsets(data) == list(range(start, start + fit))


def test_reads_end_at_the_high_watermark() -> None:
    assert offsets(joined(filled().read(3, 10**9, 20, min_one=True))) == list(range(3, 20))


def test_small_reads_are_in_memory() -> None:
    (part,) = filled().read(0, 200_000, MANY, min_one=True)
    assert isinstance(part, memoryview)


def test_a_batch_larger_than_the_limit_is_complete() -> None:
    log = new_log()
    for n in range(2):
        log.append_as_leader(batch(bytes([n]) * 900_000), leader_epoch=0, now_ms=n)
    assert offsets(joined(log.read(0, 400_000, 2, min_one=True))) == [0]
    assert log.read(0, 400_000, 2, min_one=False) == []


def test_pieces_make_up_the_whole() -> None:
    log = filled()
    whole = joined(log.read(0, 10**9, MANY, min_one=True))
    (part,) = log.read(0, 10**9, MANY, min_one=True)
    assert isinstance(part, FileSlice)
    pieces = []
    while len(part):
        pieces.append(part.read(99_999))
    assert b"".join(pieces) == whole


def test_a_slice_outlives_its_segment() -> None:
    files = MemoryFiles()
    log = fill(new_log(files))
    (part,) = log.read(0, 10**9, MANY, min_one=True)
    close(log)
    before = len(files._open)
    assert offsets(joined([part])) == list(range(MANY))
    del part
    assert len(files._open) == before - 1


def test_reading_a_truncated_file_fails() -> None:
    log = filled()
    (part,) = log.read(0, 10**9, MANY, min_one=True)
    log.truncate_to(MANY // 2)
    with pytest.raises(OSError, match="bytes too early"):
        joined([part])


def test_batches_from_before_a_restart_are_checked_before_they_are_sent() -> None:
    files = MemoryFiles()
    directory = open_directory(files)
    fill(directory.create(TP, TOPIC_ID, topic_config(), 0))
    directory.close(0)
    log = open_directory(files).logs[TP]
    (part,) = log.read(0, 10**9, MANY, min_one=True)
    assert isinstance(part, memoryview)
    (part,) = log.read(0, 10**9, MANY, min_one=True)
    assert isinstance(part, FileSlice)


def test_it_is_sent_without_being_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(range(100)))
    files = RealFiles()
    part = FileSlice(OpenFile(files, files.open(tmp_path / "x")), 10, 50)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert part.send(ours.fileno(), 20) == 20
        assert part.send(ours.fileno(), 1000) == 30
        assert theirs.recv(1000) == bytes(range(10, 60))
    assert len(part) == 0


def test_what_the_socket_does_not_take_is_left(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(10_000_000))
    files = RealFiles()
    part = FileSlice(OpenFile(files, files.open(tmp_path / "x")), 0, 10_000_000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 10_000_000:
                sent += part.send(ours.fileno(), 10_000_000)
    assert 0 < sent == 10_000_000 - len(part) < 10_000_000


def test_a_file_system_without_sendfile_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "sendfile", cannot)
    (tmp_path / "x").write_bytes(bytes(range(100)))
    files = RealFiles()
    part = FileSlice(OpenFile(files, files.open(tmp_path / "x")), 10, 50)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert part.send(ours.fileno(), 1000) == 50
        assert theirs.recv(1000) == bytes(range(10, 60))


def test_sending_a_truncated_file_fails(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(10))
    files = RealFiles()
    part = FileSlice(OpenFile(files, files.open(tmp_path / "x")), 10, 5)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(OSError, match="5 bytes too early"):
        part.send(ours.fileno(), 5)


def test_the_handle_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    files = RealFiles()
    file = OpenFile(files, files.open(path))
    handle, part = file.handle, FileSlice(file, 1, 2)
    del file
    assert part.read(10) == b"bc"
    del part
    with pytest.raises(OSError, match="Bad file"):
        files.size(handle)
