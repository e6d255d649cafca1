"""The real file system and its twin in memory behave the same; the twin injects faults."""

import errno
import random
from pathlib import Path

import pytest

from barnabas_broker.files import Files, RealFiles, read_all, replace_file
from barnabas_broker.memory_files import Crash, MemoryFiles


@pytest.fixture(params=["real", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Path]:
    if request.param == "real":
        return RealFiles(), tmp_path
    files = MemoryFiles()
    files.make_directory(tmp_path)
    return files, tmp_path


def test_both_behave_the_same(place: tuple[Files, Path]) -> None:
    files, root = place
    path = root / "a" / "b"
    files.make_directory(path)
    files.make_directory(path)
    with pytest.raises(FileNotFoundError):
        files.open(path / "file")
    with pytest.raises(FileNotFoundError):
        files.open(root / "nowhere" / "file", create=True)
    handle = files.open(path / "file", create=True)
    files.write(handle, [b"one", bytearray(b"two"), memoryview(b"three")], 4)
    files.write(handle, [b"%d" % (n % 10) for n in range(3000)], 100)
    other = files.open(path / "file")
    files.close(handle)
    assert files.read(other, 11, 4) == b"onetwothree"
    assert files.read(other, 4, 0) == bytes(4)
    assert files.size(other) == 3100
    assert files.read(other, 100, 3095) == b"56789"
    files.truncate(other, 15)
    assert files.read(other, 100, 10) == b"three"
    assert bytes(files.view(other)) == bytes(4) + b"onetwothree"
    files.truncate(other, 0)
    assert bytes(files.view(other)) == b""
    files.sync(other)
    files.close(other)
    with pytest.raises(OSError, match="Bad file"):
        files.read(other, 1, 0)
    files.sync_directory(path)
    files.rename(root / "a", root / "c")
    assert files.names(root) == ["c"]
    assert files.names(root / "c" / "b") == ["file"]
    assert (files.exists(path), files.is_directory(root / "c" / "b")) == (False, True)
    replace_file(files, root / "c" / "b" / "file", b"new")
    assert read_all(files, root / "c" / "b" / "file") == b"new"
    assert files.names(root / "c" / "b") == ["file"]
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(root / "c")
    files.remove(root / "c" / "b" / "file")
    files.remove(root / "c" / "b" / "file")
    files.remove_directory(root / "c" / "b")
    lock = files.lock(root / "lock")
    assert lock is not None
    assert files.lock(root / "lock") is None
    files.close(lock)
    assert files.lock(root / "lock") is not None


def written(files: MemoryFiles, name: str, content: bytes, *, sync: bool) -> int:
    handle = files.open(Path("/") / name, create=True)
    files.write(handle, [content], 0)
    if sync:
        files.sync(handle)
        files.sync_directory(Path("/"))
    return handle


def test_synced_data_survives_and_other_writes_may_be_lost_torn_or_reordered() -> None:
    files = MemoryFiles()
    handle = written(files, "file", b"a" * 2048, sync=True)
    files.write(handle, [b"b" * 1024], 0)
    files.write(handle, [b"c" * 1024], 1024)
    seen = set()
    for seed in range(300):
        content = read_all(files.crash(random.Random(seed)), Path("/file"))
        assert len(content) == 2048
        assert set(content[:1024]) <= set(b"ab")
        assert set(content[1024:]) <= set(b"ac")
        seen.add((content[:1024].count(b"b"), content[1024:].count(b"c")))
    assert {(0, 0), (1024, 1024), (0, 1024), (1024, 0), (512, 0)} <= seen
    assert read_all(files.crash(random.Random(0), lose_all=True), Path("/file")) == b"a" * 2048
    assert read_all(files.kill(), Path("/file")) == b"b" * 1024 + b"c" * 1024


def test_unsynced_names_may_be_lost() -> None:
    files = MemoryFiles()
    handle = written(files, "file", b"x", sync=False)
    files.sync(handle)  # its content, not its name
    outcomes = {files.crash(random.Random(seed)).exists(Path("/file")) for seed in range(30)}
    assert outcomes == {True, False}
    files.rename(Path("/file"), Path("/other"))
    found = set()
    for seed in range(60):
        after = files.crash(random.Random(seed))
        found.add(tuple(name for name in ("file", "other") if after.exists(Path("/") / name)))
    assert found == {(), ("file",), ("other",)}


def test_nothing_works_after_a_crash() -> None:
    files = MemoryFiles()
    files.crash_at = 2
    handle = files.open(Path("/file"), create=True)
    with pytest.raises(Crash):
        files.write(handle, [b"x"], 0)
    with pytest.raises(Crash):
        files.sync(handle)


def test_a_fault_is_raised_before_the_operation() -> None:
    files = MemoryFiles()
    handle = written(files, "file", b"x", sync=True)

    def full(what: str, path: Path) -> None:
        if what.startswith("write"):
            raise OSError(errno.ENOSPC, "no space")

    files.fault = full
    with pytest.raises(OSError, match="no space"):
        files.write(handle, [b"y"], 0)
    assert files.read(handle, 10, 0) == b"x"
