"""The file system: the port that logs and metadata use, and the operating system's adapter.

All disk access to a log directory goes through :class:`Files`, so that a test can lose writes, tear them and crash
between any two steps (:mod:`barnabas_broker.memory_files`). Handles are ints, like file descriptors. Every method
raises :class:`OSError` if the disk fails.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from barnabas_protocol.wire import Buffer

#: The most buffers of one system call (IOV_MAX of Linux).
MOST_BUFFERS: Final = 1024
#: Read only from the page cache; without this flag (not Linux) a read always succeeds.
_NO_WAIT: Final = getattr(os, "RWF_NOWAIT", 0)
#: Errors of file systems that do not support sendfile; their files are read and written in pieces.
_CANNOT: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_PIECE: Final = 256 * 1024


class Files(Protocol):
    """The file system operations of a log directory."""

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> int:
        """Open `path` to read, and to write unless `write` is false.

        Raises:
            FileNotFoundError: it does not exist, and `create` is false.
        """

    def close(self, handle: int) -> None:
        """Close the handle, without a sync."""

    def read(self, handle: int, size: int, position: int) -> bytes:
        """Read `size` bytes from `position`; fewer only at the end of the file."""

    def send(self, handle: int, size: int, position: int, socket: int) -> int:
        """Send up to `size` bytes from `position` on to a socket's descriptor; how many, 0 at the end of the file.

        Raises:
            BlockingIOError: the socket's buffer is full.
        """

    def is_cached(self, handle: int, size: int, position: int) -> bool:
        """Whether both ends and the middle of a range are in the page cache."""

    def write(self, handle: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all of `buffers`, one after another, at `position`."""

    def size(self, handle: int) -> int:
        """The file's size in bytes."""

    def truncate(self, handle: int, size: int) -> None:
        """Truncate the file to `size` bytes."""

    def sync(self, handle: int) -> None:
        """Return when the file's content is on the disk (fsync)."""

    def view(self, handle: int) -> memoryview:
        """Map the whole file, read only. It must not be truncated while the view exists."""

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""

    def is_directory(self, path: Path) -> bool:
        """Whether `path` is a directory."""

    def is_link(self, path: Path) -> bool:
        """Whether `path` is a symbolic link."""

    def exists(self, path: Path) -> bool:
        """Whether `path` exists."""

    def identity(self, path: Path) -> int:
        """A number that `path` keeps when it is renamed, and that its copies do not have (its inode)."""

    def make_directory(self, path: Path) -> bool:
        """Create a directory, and its parents; False if it exists."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory; an existing target file is replaced atomically."""

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on the disk (fsync)."""

    def lock(self, path: Path) -> int | None:
        """Create `path` and lock it against other processes; the handle, or None if it is locked already."""


class RealFiles:
    """The operating system's files.

    Args:
        mode: of new folders; new files get its bits without the executable ones. The umask removes more.
    """

    def __init__(self, mode: int = 0o700) -> None:
        self._mode = mode

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> int:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return os.open(path, flags | os.O_CLOEXEC, self._mode & 0o666)

    def close(self, handle: int) -> None:
        os.close(handle)

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = os.pread(handle, size, position)
        if len(data) == size or not data:
            return data
        # Fewer bytes: usually the end of the file, but Linux also stops at 2 GiB and at signals.
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
            pass  # the file system does not support the flag
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
            # A short write, from a nearly full disk or a signal: write the rest, which fails if the disk is full.
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

    def is_link(self, path: Path) -> bool:
        return os.path.islink(path)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def identity(self, path: Path) -> int:
        return os.stat(path).st_ino

    def make_directory(self, path: Path) -> bool:
        try:
            os.mkdir(path, self._mode)
        except FileNotFoundError:
            os.makedirs(path, self._mode)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return False
        return True

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
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode & 0o666)
        try:
            # flock excludes another Barnabas, also in this process; lockf excludes Apache Kafka.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:
            os.close(handle)
            raise
        return handle


#: Real files that only their owner can read.
REAL_FILES: Final = RealFiles()


def read_all(files: Files, path: Path, most: int | None = None) -> bytes:
    """Read a whole file, or the first `most` bytes of a larger one; FileNotFoundError if it does not exist."""
    handle = files.open(path, write=False)
    try:
        size = files.size(handle)
        return files.read(handle, size if most is None else min(size, most), 0)
    finally:
        files.close(handle)


def write_file(files: Files, path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a whole file, and sync it unless `sync` is false. A crash may leave only a part of it."""
    handle = files.open(path, create=True)
    try:
        if files.size(handle):
            files.truncate(handle, 0)
        if content:
            files.write(handle, [content], 0)
        if sync:
            files.sync(handle)
    finally:
        files.close(handle)


def replace_file(files: Files, path: Path, content: bytes) -> None:
    """Replace a file atomically, also across a crash: write a temporary file, sync, rename, sync the directory."""
    put_file(files, path, content)
    files.sync_directory(path.parent)


def put_file(files: Files, path: Path, content: bytes) -> None:
    """As :func:`replace_file` without the last step: until the directory is synced a crash may restore the old file.

    The temporary file has Apache Kafka's suffix.
    """
    temporary = path.with_name(path.name + ".tmp")
    write_file(files, temporary, content)
    files.rename(temporary, path)
