"""Tables on a local disk: kills and power failures at every step of a commit, and two archives at once."""

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake import LOG, checkpoint, live_files, log, snapshot
from barnabas_pipeline.lake.local import LocalFolder
from barnabas_pipeline.lake.opening import opened
from barnabas_pipeline.lake.table import STAGING
from tests.pipeline.lake.plain import SCHEMA, PlainTable, add, filled, numbers_in, table_at

#: The calls that change what is on the disk.
CHANGES = ("link", "mkdir", "rename", "replace", "rmdir", "unlink")


class Killed(BaseException):
    """The process is killed."""


@pytest.fixture(autouse=True)
def every_five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "EVERY", 5)


def stored(path: Path) -> list[int]:
    return sorted(number for file in live_files(path) for number in numbers_in("", file))


def counted(monkeypatch: pytest.MonkeyPatch, at: int, before: Callable[[str, Sequence[Any]], None]) -> list[int]:
    """Call `before` before each change of the disk; a kill at the one with number `at`."""
    seen = [0]
    for name in CHANGES:
        real = getattr(os, name)

        def change(*args: Any, name: str = name, real: Any = real, **more: Any) -> Any:
            if seen[0] == at:
                raise Killed
            seen[0] += 1
            before(name, args)
            return real(*args, **more)

        monkeypatch.setattr(os, name, change)
    return seen


WORKS: list[tuple[str, Callable[[PlainTable], Any]]] = [
    ("append", add),
    ("merge", lambda table: table.compact(1 << 20, 2)),
]


@pytest.mark.parametrize(("name", "work"), WORKS)
def test_a_kill_at_every_step_leaves_the_table_before_or_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[[PlainTable], Any]
) -> None:
    """The work includes a checkpoint."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    at, finished = 0, False
    while not finished:
        path = tmp_path / str(at)
        table = filled(path, log.EVERY - 1)
        before = stored(path)
        with pytest.MonkeyPatch.context() as patched:
            counted(patched, at, lambda name, args: None)
            try:
                work(table)
                finished = True
            except Killed:
                pass
        # Readers see either state even before the next run.
        after = stored(path)
        assert after in (before, [*before, *range(len(before), len(before) + 3 * (name == "append"))])
        # The next run, which may be killed as well.
        for again in range(at, at + 2):
            with pytest.MonkeyPatch.context() as patched:
                counted(patched, again, lambda name, args: None)
                try:
                    table_at(path).sweep()
                except Killed:
                    assert stored(path) == after
        table = table_at(path)
        table.sweep()
        assert stored(path) == after
        assert table.state.rows == len(after)
        assert {file.path for file in table.folder.files("date=2020-01-01")} == set(table.state.files)
        assert not [one for one in os.listdir(path / LOG) if one.startswith(".")]
        assert not (path / STAGING).exists()
        work(table)
        assert stored(path) == list(range(table.state.offsets[0]))
        at += 1
    assert at > 6


@pytest.mark.parametrize(("name", "work"), WORKS)
def test_what_an_entry_names_is_on_the_disk_before_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[[PlainTable], Any]
) -> None:
    """A power failure keeps what was flushed: files first, then the entry, and only then files are deleted."""
    table = filled(tmp_path / "t", 4)
    synced: list[Path] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    log_folder, data_folder = tmp_path / "t" / LOG, tmp_path / "t" / "date=2020-01-01"
    moved: set[str] = set()
    entries: list[Path] = []

    def check(name: str, args: Sequence[Any]) -> None:
        paths = [Path(one) for one in args if not isinstance(one, int)]
        if name == "rename":
            assert paths[0] in synced
            moved.add(paths[1].name)
            synced.append(paths[1])
        elif name == "link":
            assert paths[0] in synced
            assert moved and data_folder == synced[-2]
            entries.append(paths[1])
        elif name == "unlink" and paths[0].parent == data_folder:
            assert entries and log_folder in synced[synced.index(data_folder) :]

    counted(monkeypatch, -1, check)
    work(table)
    assert len(entries) == 1


def test_of_two_archives_that_add_the_same_entry_one_wins(tmp_path: Path) -> None:
    """The second one does so between any two steps of the first one."""
    for at in range(9):
        path, step = tmp_path / str(at), 0
        won: list[bytes] = []

        def write(content: bytes, path: Path = path, won: list[bytes] = won) -> None:
            with contextlib.suppress(LakeError):
                LocalFolder(path, str(path)).write_once(f"{LOG}/entry", content)
                won.append(content)

        def meanwhile(name: str, args: Sequence[Any], at: int = at, write: Callable[[bytes], None] = write) -> None:
            nonlocal step
            step += 1
            if step == at:
                write(b"second")

        with pytest.MonkeyPatch.context() as patched:
            counted(patched, -1, meanwhile)
            write(b"first")
        assert won == [(path / LOG / "entry").read_bytes()]
        assert os.listdir(path / LOG) == ["entry"]
    assert step < at, "there are more steps than were tried"


def test_a_disk_without_hard_links_has_one_winner_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    folder = LocalFolder(tmp_path, str(tmp_path))
    folder.write_once("a/b", b"1")
    with pytest.raises(LakeError, match="another process has written"):
        folder.write_once("a/b", b"2")
    assert folder.read("a/b") == b"1"
    assert folder.names("a") == ["b"]


def test_checkpoints_replace_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "KEPT", 7)
    path = tmp_path / "t"
    table = filled(path, 3)
    for _ in range(30):
        add(table)
        table.compact(1 << 20, 4)
    names = os.listdir(path / LOG)
    assert len([one for one in names if log.version_of(one) is not None]) < 7 + 5
    assert len([one for one in names if log.checkpoint_version(one) is not None]) == 2
    read = snapshot(path)
    assert read == table.state
    assert stored(path) == list(range(99))
    assert (read.rows, read.offsets) == (99, {0: 99})

    # A damaged checkpoint is not the end: the one before it and the entries after it say the same.
    last = max(one for one in names if log.checkpoint_version(one) is not None)
    (path / LOG / last).write_bytes(b"damaged")
    assert snapshot(path) == read


def test_opening_a_table_reads_a_checkpoint_and_the_entries_after_it(tmp_path: Path) -> None:
    """However many entries there are: here a month of them, of which only the last ones exist."""
    state = log.Snapshot()
    state.apply(0, log.entry([log.protocol(), log.metadata(SCHEMA, {}, 7, "id")], "CREATE TABLE", 7))
    state.version = version = 30 * 8_640
    (tmp_path / LOG).mkdir()
    for number in range(version - log.KEPT, version):
        (tmp_path / LOG / log.name_of(number)).touch()
    (tmp_path / LOG / log.checkpoint_name(version)).write_bytes(checkpoint.written(state))
    folder = Counting(tmp_path, str(tmp_path))
    assert opened(folder) == state
    assert folder.count == 1


class Counting(LocalFolder):
    count = 0

    def read(self, path: str) -> bytes:
        self.count += 1
        return super().read(path)
