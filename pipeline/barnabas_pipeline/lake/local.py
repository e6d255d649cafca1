"""A folder on a local or mounted disk, whose changes survive a power failure, and in which one of two writers wins."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_pipeline.errors import LakeError

#: What a file system without hard links says.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})


class FileStatus(NamedTuple):
    """A file: its path relative to the folder, its size in bytes, and its modification time in ms since 1970."""

    path: str
    size: int
    modified: int


def taken(path: str) -> LakeError:
    """Return the error of a writer that finds the file of another writer in its place."""
    return LakeError(
        f"another process has written {path} meanwhile. To do: let one archive at a time write to a lake, and start "
        "this one again"
    )


class LocalFolder:
    """A folder of this machine, which may not exist yet.

    Python accesses it directly: a call through the JVM takes about a millisecond, and Hadoop's local file system
    neither flushes files to the disk nor refuses to rename over a file that appears at the same time.

    Args:
        root: the folder.
        path: the path as Spark knows it.
    """

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self.path = path

    def names(self, path: str = "") -> list[str]:
        """List the names of the files and folders in `path`; none if there is no such folder."""
        try:
            return sorted(os.listdir(self._root / path))
        except FileNotFoundError:
            return []

    def files(self, path: str = "") -> list[FileStatus]:
        """List all files below `path`, at any depth, except Hadoop's checksums; none if there is no such folder."""
        found = []
        for folder, _, names in os.walk(self._root / path):
            for name in names:
                if not name.endswith(".crc"):
                    file = Path(folder, name)
                    status = file.stat()
                    relative = file.relative_to(self._root).as_posix()
                    found.append(FileStatus(relative, status.st_size, status.st_mtime_ns // 1_000_000))
        return sorted(found)

    def read(self, path: str) -> bytes:
        """Read a file."""
        return (self._root / path).read_bytes()

    def read_all(self, paths: Sequence[str]) -> Iterator[bytes]:
        """Read files, in the given order."""
        return map(self.read, paths)

    def write_once(self, path: str, data: bytes) -> None:
        """Create a file with its complete content, or fail if it exists. Of two writers at the same time one fails.

        Raises:
            LakeError: the file exists already.
        """
        beside, target = self._write_beside(path, data), self._root / path
        try:
            os.link(beside, target)
        except FileExistsError:
            raise taken(f"{self.path}/{path}") from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # An empty entry is one without effect: a kill between the two steps does no harm.
            try:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                raise taken(f"{self.path}/{path}") from None
            os.replace(beside, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
        _sync(target.parent)

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace a file at once."""
        target = self._root / path
        os.replace(self._write_beside(path, data), target)
        _sync(target.parent)

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        """Rename files to names that do not exist yet. Afterwards the files and their names are on the disk."""
        folders = set()
        for source, target in moves:
            _sync(self._root / source)
            at = self._root / target
            _make(at.parent)
            os.rename(self._root / source, at)
            folders.add(at.parent)
        for folder in sorted(folders):
            _sync(folder)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files or folders, if they exist."""
        for path in paths:
            at = self._root / path
            # Spark's checksum of a file.
            for file in (at, at.with_name(f".{at.name}.crc")):
                try:
                    os.unlink(file)
                except FileNotFoundError:
                    continue
                except (IsADirectoryError, PermissionError):
                    if not file.is_dir():
                        raise
                    _delete_folder(file)

    def _write_beside(self, path: str, data: bytes) -> Path:
        target = self._root / path
        _make(target.parent)
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return beside


def _delete_folder(folder: Path) -> None:
    for path, folders, names in os.walk(folder, topdown=False):
        for name in names:
            os.unlink(Path(path, name))
        for name in folders:
            os.rmdir(Path(path, name))
    os.rmdir(folder)


def _make(folder: Path) -> None:
    """Create a folder with its parents, all of them on the disk."""
    if folder.is_dir():
        return
    _make(folder.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
