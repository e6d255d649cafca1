"""Files that outlive the processes that write them: what the exactly-once sink keeps in the query's checkpoint
location.

Files get their names when they are whole, and are never changed afterwards. A path, or a URI of a file system that
``pyarrow.fs`` knows (``file``, ``hdfs``, ``s3`` or ``s3a``, ``gs``, ``abfss``).
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from pyarrow import fs


class Folder:
    """A folder, made when the first file is written into it."""

    def __init__(self, location: str) -> None:
        """Nothing is looked at yet.

        Args:
            location: a path or a URI.

        Raises:
            ValueError: no such file system is known.
        """
        try:
            self._fs, self._path = _resolve(location)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"checkpointLocation '{location}' cannot be reached from Python: {error}. To do: give a path, or a "
                "URI of a file system that pyarrow knows (file, hdfs, s3, gs, abfss)"
            ) from error
        self._local = isinstance(self._fs, fs.LocalFileSystem)

    def __str__(self) -> str:
        return self._path

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """A file to write. It is there, and on disk, when the context ends without an error; else it never was."""
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
        """A file to read at any place, to be closed. Raises FileNotFoundError."""
        return self._fs.open_input_file(f"{self._path}/{name}")

    def read(self, name: str) -> bytes:
        """A whole file. Raises FileNotFoundError."""
        with self._fs.open_input_stream(f"{self._path}/{name}") as file:
            return bytes(file.read())

    def names(self) -> list[str]:
        """All files, ascending."""
        found = self._fs.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.File)

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
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
    """Bring a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
