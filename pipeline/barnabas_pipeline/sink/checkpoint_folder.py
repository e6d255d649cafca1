"""Durable files of the exactly-once sink in the query's checkpoint location.

A file gets its name once it is complete, and does not change afterwards. The location is a path, or a URI of a file
system that ``pyarrow.fs`` supports (``file``, ``hdfs``, ``s3`` or ``s3a``, ``gs``, ``abfss``).
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from pyarrow import fs


class CheckpointFolder:
    """A folder, created with its first file.

    Args:
        location: a path or a URI.

    Raises:
        ValueError: the file system is not supported.
    """

    def __init__(self, location: str) -> None:
        try:
            self._fs, self._path = _resolve(location)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"checkpointLocation '{location}' cannot be reached from Python: {error}. To do: give a path, or a "
                "URI of a file system that pyarrow supports (file, hdfs, s3, gs, abfss)"
            ) from error
        self._local = isinstance(self._fs, fs.LocalFileSystem)

    def __str__(self) -> str:
        return self._path

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Open a file for writing. It exists, and is on disk, once the context ends without an error."""
        self._fs.create_dir(self._path, recursive=True)
        temporary, final = f"{self._path}/.{uuid.uuid4().hex}.tmp", f"{self._path}/{name}"
        try:
            with self._fs.open_output_stream(temporary) as file:
                yield cast(BinaryIO, file)
        except BaseException:
            self._fs.delete_file(temporary)
            raise
        if self._local:
            _flush(Path(temporary))
        self._fs.move(temporary, final)
        if self._local:
            _flush(Path(self._path))

    def opened(self, name: str) -> Any:
        """Open a file for random access; the caller closes it. Raises FileNotFoundError."""
        return self._fs.open_input_file(f"{self._path}/{name}")

    def read(self, name: str) -> bytes:
        """Read a whole file. Raises FileNotFoundError."""
        with self._fs.open_input_stream(f"{self._path}/{name}") as file:
            return bytes(file.read())

    def names(self) -> list[str]:
        """List the names of all files, ascending."""
        found = self._fs.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.File)

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        try:
            self._fs.delete_file(f"{self._path}/{name}")
        except FileNotFoundError:
            return


def _resolve(location: str) -> tuple[Any, str]:
    if "://" not in location and not location.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(location).absolute())
    uri = location.replace("s3a://", "s3://", 1)
    if uri.startswith("file:") and not uri.startswith("file://"):
        uri = uri.replace("file:", "file://", 1)
    found, path = fs.FileSystem.from_uri(uri)
    return found, path.rstrip("/")


def _flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
