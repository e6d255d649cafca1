"""The file system as the log uses it: a port, and the real one.

Everything the log does to a disk goes through :class:`Files`, so that a test can lose writes, tear them and crash
between any two steps (:mod:`barnabas_broker.storage.memory_files`). Handles are ints, as the operating system's are.
Every method raises :class:`OSError` when the disk does not do it.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from barnabas_protocol.wire import Buffer

#: What one system call takes at most (IOV_MAX of Linux).
MOST_BUFFERS: Final = 1024
#: Read from the page cache or not at all; other systems than Linux have no such thing, and always read.
_NO_WAIT: Final = getattr(os, "RWF_NOWAIT", 0)
#: How a file system says that it has no part in sendfile; what it has is read and written in pieces then.
_CANNOT: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_PIECE: Final = 256 * 1024


class Files(Protocol):
    """What the log asks of a file system."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """A handle to read and write `path`; FileNotFoundError unless `create`."""

    def close(self, handle: int) -> None:
        """Give the handle back. Nothing is synced by that."""

    def duplicate(self, handle: int) -> int:
        """Another handle to the same open file: a thread can sync it while the first is closed."""

    def read(self, handle: int, size: int, position: int) -> bytes:
        """At most `size` bytes from `position`; fewer only where the file ends."""

    def send(self, handle: int, size: int, position: int, socket: int) -> int:
        """Send up to `size` bytes from `position` on to a socket's descriptor; how many, 0 at the end of the file.

        Raises:
            BlockingIOError: the socket takes none at the moment.
        """

    def is_cached(self, handle: int, size: int, position: int) -> bool:
        """Whether a read would not wait for the disk, as far as both ends and the middle of the range tell."""

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all of `buffers`, one after another, at `position`."""

    def size(self, handle: int) -> int:
        """The file's size in bytes."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file at `size` bytes."""

    def sync(self, handle: int) -> None:
        """Return when the file's content will survive the machine."""

    def view(self, handle: int) -> memoryview:
        """The whole file, read only, in memory as far as it is looked at. It must not be cut while the view lives."""

    def names(self, path: Path) -> list[str]:
        """What a directory holds, sorted."""

    def is_directory(self, path: Path) -> bool:
        """Whether `path` is there, and a directory."""

    def exists(self, path: Path) -> bool:
        """Whether `path` is there."""

    def make_directory(self, path: Path) -> None:
        """Make a directory, and those above it."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory another name; a file there is replaced in the same instant."""

    def remove(self, path: Path) -> None:
        """Remove a file. One that is not there is no error."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory will survive the machine."""

    def lock(self, path: Path) -> int | None:
        """Make `path` and lock it against every other open log directory; the handle, or None if somebody has it."""


class RealFiles:
    """The operating system's files."""

    def open(self, path: Path, *, create: bool = False) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def close(self, handle: int) -> None:
        os.close(handle)

    def duplicate(self, handle: int) -> int:
        return os.dup(handle)

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = os.pread(handle, size, position)
        if len(data) == size or not data:
            return data
        # Short: the end of the file, as a rule, but Linux also stops at 2 GiB and at signals.
        parts, got = [data], len(data)
        while got < size and (data := os.pread(handle, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def send(self, handle: int, size: int, position: int, socket: int) -> int:
        try:
            return os.sendfile(socket, handle, position, size)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
        data = os.pread(handle, min(size, _PIECE), position)
        return os.write(socket, data) if data else 0

    def is_cached(self, handle: int, size: int, position: int) -> bool:
        probe = bytearray(1)
        try:
            for at in (position, position + size // 2, position + size - 1):
                os.preadv(handle, [probe], at, _NO_WAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass  # a file system that cannot tell
        return True

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        if len(buffers) > MOST_BUFFERS:
            for at in range(0, len(buffers), MOST_BUFFERS):
                part = buffers[at : at + MOST_BUFFERS]
                self.write(handle, part, position)
                position += sum(map(len, part))
            return
        size = sum(map(len, buffers))
        written = os.pwritev(handle, buffers, position)
        while written < size:
            # A short write: the disk is nearly full or a signal came. The rest tells which.
            rest = memoryview(b"".join(buffers))[written:]
            written += os.pwrite(handle, rest, position + written)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def view(self, handle: int) -> memoryview:
        size = os.fstat(handle).st_size
        if not size:
            return memoryview(b"")
        return memoryview(mmap.mmap(handle, size, prot=mmap.PROT_READ))

    def names(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def is_directory(self, path: Path) -> bool:
        return os.path.isdir(path)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def make_directory(self, path: Path) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def sync_directory(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, path: Path) -> int | None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # flock keeps out a second Barnabas, in this process too; lockf is what Apache Kafka takes.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:
            os.close(handle)
            raise
        return handle


def read_all(files: Files, path: Path) -> bytes:
    """A whole file. FileNotFoundError when there is none."""
    handle = files.open(path)
    try:
        return files.read(handle, files.size(handle), 0)
    finally:
        files.close(handle)


def write_file(files: Files, path: Path, content: bytes) -> None:
    """Write a whole file and sync it. A crash may leave a part of it."""
    handle = files.open(path, create=True)
    try:
        files.truncate(handle, 0)
        if content:
            files.write(handle, [content], 0)
        files.sync(handle)
    finally:
        files.close(handle)


def replace_file(files: Files, path: Path, content: bytes) -> None:
    """Write a file so that, whatever happens, it holds the old content or the new: temporary, sync, rename, sync."""
    put_file(files, path, content)
    files.sync_directory(path.parent)


def put_file(files: Files, path: Path, content: bytes) -> None:
    """As :func:`replace_file`, but it may be the old content that survives the machine until the directory is synced.

    The temporary has the suffix that Apache Kafka gives its own.
    """
    temporary = path.with_name(path.name + ".tmp")
    write_file(files, temporary, content)
    files.rename(temporary, path)
