"""A file system in memory that injects the faults of real ones: the twin of
:class:`~barnabas_broker.files.RealFiles` for tests.

It separates what programs see from what is on the disk. Writes between two fsyncs of a file may reach the disk in any
order, each completely, in part (sectors of 512 bytes) or not at all. The same applies to names between two fsyncs of
their directory, but these keep their order. :meth:`MemoryFiles.crash` chooses what is left after a crash,
:attr:`MemoryFiles.crash_at` when it happens, and :attr:`MemoryFiles.fault` makes a call fail.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from barnabas_protocol.wire import Buffer

_T = TypeVar("_T")

SECTOR: Final = 512


class Crash(BaseException):
    """The machine has stopped. A BaseException, so that no handler of ordinary errors catches it."""


@dataclass(eq=False, slots=True)
class _Node:
    """A file: what programs see, what is on the disk, the writes (position, bytes) and truncations (size) between."""

    seen: bytearray = field(default_factory=bytearray)
    kept: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)


_Entry = _Node | None  # None: a directory
#: A change of a name: the path, and its new entry; `False` removes it.
_Change = tuple[str, _Node | bool | None]


class MemoryFiles:
    """A file system in memory; see the module.

    Attributes:
        crash_at: the number of the step at which the machine stops; None for never.
        steps: the number of steps so far: writes, truncations, syncs, changes of names.
        fault: called before each step with the operation ("write", "sync", ...) and the path; it may raise OSError.
        cached: the result of :meth:`is_cached`.
        log: the steps, for the messages of failing tests.
    """

    def __init__(self) -> None:
        self.crash_at: int | None = None
        self.steps = 0
        self.fault: Callable[[str, Path], None] | None = None
        self.log: list[str] = []
        self.cached = True
        self._names: dict[str, _Entry] = {"/": None}
        self._kept_names = dict(self._names)
        self._changes: list[tuple[str, list[_Change]]] = []
        self._open: dict[int, tuple[_Node, Path]] = {}
        self._next = 3
        self._locked: dict[int, Path] = {}
        self._stopped = False

    # Faults

    def crash(self, rng: random.Random, *, lose_all: bool = False) -> "MemoryFiles":
        """The file system after a crash of the machine: a random part of what was not synced is left.

        Args:
            rng: chooses that part.
            lose_all: nothing of it is left.
        """
        after = MemoryFiles()
        names = dict(self._kept_names)
        stopped: set[str] = set()
        for directory, changes in self._changes:
            # A journal keeps the order within a directory: once a change is lost, so are all later ones there.
            if directory in stopped or lose_all or rng.random() < 0.3:
                stopped.add(directory)
                continue
            _apply(names, changes)
        copies: dict[int, _Node] = {}
        for name, node in names.items():
            if node is None:
                after._names[name] = None
                continue
            if id(node) not in copies:
                content = bytes(_after_crash(node, rng, lose_all))
                copies[id(node)] = _Node(bytearray(content), content)
            after._names[name] = copies[id(node)]
        # A file is lost with its directory. Sorted, so that parents come first.
        for name in sorted(after._names):
            if name != "/" and (name.rpartition("/")[0] or "/") not in after._names:
                del after._names[name]
        after._kept_names = dict(after._names)
        return after

    def kill(self) -> "MemoryFiles":
        """The file system after a kill of the process: all writes are left."""
        after = MemoryFiles()
        # `copy.deepcopy` takes ten times as long, and tests kill thousands of times.
        copies: dict[_Node, _Node] = {}

        def same(entry: _T) -> _T | _Node:
            if not isinstance(entry, _Node):
                return entry
            if entry not in copies:
                copies[entry] = _Node(bytearray(entry.seen), entry.kept, entry.pending.copy())
            return copies[entry]

        after._names = {name: same(entry) for name, entry in self._names.items()}
        after._kept_names = {name: same(entry) for name, entry in self._kept_names.items()}
        after._changes = [
            (directory, [(name, same(entry)) for name, entry in changes]) for directory, changes in self._changes
        ]
        return after

    def content(self, path: Path) -> bytes:
        """The bytes of a file, as programs see them."""
        return bytes(self._file(path).seen)

    def damage(self, path: Path, content: bytes) -> None:
        """Give a file another content, also on the disk, as a failing disk does; files that are open stay open."""
        node = self._file(path)
        node.seen[:] = content
        node.kept = content
        node.pending.clear()

    def lose(self, path: Path) -> None:
        """Remove a file, or a directory with its content, also from the disk."""
        lost = str(path)
        for known in (self._names, self._kept_names):
            for name in [name for name in known if name == lost or name.startswith(lost + "/")]:
                del known[name]

    def _file(self, path: Path) -> _Node:
        node = self._names.get(str(path))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def _step(self, what: str, path: Path) -> bool:
        """Count a step; True if the machine stops at it."""
        if self._stopped:
            raise Crash(f"{what} {path} after the crash")
        if self.fault is not None:
            self.fault(what, path)
        self.steps += 1
        self.log.append(f"{self.steps} {what} {path.name}")
        if self.crash_at is not None and self.steps >= self.crash_at:
            self._stopped = True
            return True
        return False

    # Files

    def _node(self, handle: int) -> tuple[_Node, Path]:
        try:
            return self._open[handle]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> int:
        name = str(path)
        if name not in self._names:
            if not create or not self.is_directory(path.parent):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            last = self._step("create", path)
            self._change(str(path.parent), [(name, _Node())])
            if last:
                raise Crash
        node = self._names[name]
        if node is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        return self._handle(node, path)

    def _handle(self, node: _Node, path: Path) -> int:
        handle = self._next
        self._next += 1
        self._open[handle] = node, path
        return handle

    def close(self, handle: int) -> None:
        if handle in self._locked:
            del self._locked[handle]
            return
        self._node(handle)
        del self._open[handle]

    def read(self, handle: int, size: int, position: int) -> bytes:
        node, path = self._node(handle)
        if self.fault is not None:
            self.fault("read", path)
        return bytes(node.seen[position : position + size])

    def send(self, handle: int, size: int, position: int, socket: int) -> int:
        data = self.read(handle, size, position)
        return os.write(socket, data) if data else 0

    def is_cached(self, handle: int, size: int, position: int) -> bool:
        return self.cached

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        node, path = self._node(handle)
        data = b"".join(buffers)
        last = self._step(f"write {len(data)} at {position}", path)
        _write(node.seen, position, data)
        node.pending.append((position, data))
        if last:
            raise Crash

    def size(self, handle: int) -> int:
        return len(self._node(handle)[0].seen)

    def truncate(self, handle: int, size: int) -> None:
        node, path = self._node(handle)
        if len(node.seen) == size:
            return
        last = self._step(f"truncate to {size}", path)
        _cut(node.seen, size)
        node.pending.append(size)
        if last:
            raise Crash

    def sync(self, handle: int) -> None:
        node, path = self._node(handle)
        if self._step("sync", path):
            raise Crash
        node.kept = bytes(node.seen)
        node.pending.clear()

    def view(self, handle: int) -> memoryview:
        return memoryview(bytes(self._node(handle)[0].seen))

    # Names, as text: comparing paths is slow

    def _change(self, directory: str, changes: list[_Change]) -> None:
        _apply(self._names, changes)
        self._changes.append((directory, changes))

    def _children(self, directory: str) -> list[str]:
        start = len(directory) + 1
        return [each[start:] for each in self._names if each.rpartition("/")[0] == directory and len(each) > start]

    def names(self, path: Path) -> list[str]:
        if not self.is_directory(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return sorted(self._children(str(path)))

    def is_directory(self, path: Path) -> bool:
        return self._names.get(str(path), False) is None

    def is_link(self, path: Path) -> bool:
        return False

    def exists(self, path: Path) -> bool:
        return str(path) in self._names

    def identity(self, path: Path) -> int:
        return 1

    def make_directory(self, path: Path) -> bool:
        new = not self.exists(path)
        for each in (*reversed(path.parents), path):
            if str(each) not in self._names:
                last = self._step("mkdir", each)
                self._change(str(each.parent), [(str(each), None)])
                if last:
                    raise Crash
        return new

    def rename(self, source: Path, target: Path) -> None:
        if not self.exists(source):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        last = self._step(f"rename to {target.name}", source)
        old, new = str(source), str(target)
        changes: list[_Change] = []
        for name, node in self._names.items():
            if name == old or name.startswith(old + "/"):
                changes += [(name, False), (new + name[len(old) :], node)]
        self._change(str(source.parent), changes)
        if last:
            raise Crash

    def remove(self, path: Path) -> None:
        if not self.exists(path):
            return
        last = self._step("remove", path)
        self._change(str(path.parent), [(str(path), False)])
        if last:
            raise Crash

    def remove_directory(self, path: Path) -> None:
        if self._children(str(path)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        last = self._step("rmdir", path)
        self._change(str(path.parent), [(str(path), False)])
        if last:
            raise Crash

    def sync_directory(self, path: Path) -> None:
        if self._step("sync directory", path):
            raise Crash
        kept = []
        for directory, changes in self._changes:
            if directory == str(path):
                _apply(self._kept_names, changes)
            else:
                kept.append((directory, changes))
        self._changes = kept

    def lock(self, path: Path) -> int | None:
        if path in self._locked.values():
            return None
        if not self.exists(path):
            self._change(str(path.parent), [(str(path), _Node())])
        handle = self._next
        self._next += 1
        self._locked[handle] = path
        return handle


def _apply(names: dict[str, _Entry], changes: Sequence[_Change]) -> None:
    for name, entry in changes:
        if isinstance(entry, bool):
            names.pop(name, None)
        else:
            names[name] = entry


def _write(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        content += bytes(position - len(content))
    content[position : position + len(data)] = data


def _cut(content: bytearray, size: int) -> None:
    if len(content) > size:
        del content[size:]
    else:
        content += bytes(size - len(content))


def _after_crash(node: _Node, rng: random.Random, lose_all: bool) -> bytearray:
    """The content after a crash: each pending write is there completely, in part or not at all."""
    content = bytearray(node.kept)
    if lose_all:
        return content
    fate = rng.random()
    for pending in node.pending:
        if isinstance(pending, int):
            _cut(content, pending)
            continue
        position, data = pending
        luck = rng.random()
        if luck < fate:
            _write(content, position, data)
        elif luck < fate + 0.2:
            # Torn: some sectors of it, not always the first ones.
            for at in range(0, len(data), SECTOR):
                if rng.random() < 0.5:
                    _write(content, position + at, data[at : at + SECTOR])
    return content
