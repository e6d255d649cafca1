"""A folder on a file system of Hadoop: local, HDFS, or any other that Hadoop has a driver for.

Access goes through the JVM of a classic Spark session, so the driver and the executors resolve a path alike.
"""

import secrets
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from barnabas_pipeline.errors import LakeError


class FileStatus(NamedTuple):
    """A file: its path relative to the folder, its size in bytes, and its modification time in ms since 1970."""

    path: str
    size: int
    modified: int


class HadoopFolder:
    """A folder, which may not exist yet.

    Args:
        spark: a classic session, not one of Spark Connect.
        path: a path or a URI.

    Attributes:
        path: the qualified path. It needs no call to the JVM, which does not answer after an interrupted call.

    Raises:
        LakeError: the session is not a classic one.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise LakeError(
                "this session is a Spark Connect session, which has no access to files. To do: use a classic session"
            )
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._hadoop: Any = jvm.org.apache.hadoop.fs
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        given = self._hadoop.Path(path)
        self._fs: Any = given.getFileSystem(configuration)
        self._root: Any = self._fs.makeQualified(given)
        self.path = str(self._root.toString())
        self._context: Any = self._hadoop.FileContext.getFileContext(self._root.toUri(), configuration)
        options = getattr(self._hadoop, "Options$Rename")
        gateway: Any = spark.sparkContext._gateway
        self._no_overwrite: Any = gateway.new_array(options, 0)

    def at(self, path: str) -> Any:
        """Return a path in the folder as Hadoop's `Path`."""
        return self._hadoop.Path(self._root, path) if path else self._root

    def files(self, path: str = "") -> list[FileStatus]:
        """List all files below `path`, at any depth, except Hadoop's checksums; none if there is no such folder."""
        at = self.at(path)
        if not self._fs.exists(at):
            return []
        out = []
        listing = self._fs.listFiles(at, True)
        start = len(self.path) + 1
        while listing.hasNext():
            status = listing.next()
            whole = str(status.getPath().toString())
            out.append(FileStatus(whole[start:], int(status.getLen()), int(status.getModificationTime())))
        return sorted(one for one in out if not one.path.endswith(".crc"))

    def read(self, path: str) -> str:
        """Read the text of a file."""
        stream = self._fs.open(self.at(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_once(self, path: str, text: str) -> None:
        """Create a file with its complete text, or fail if it exists.

        It is written under another name and renamed, which is atomic on HDFS and local disks, but not on object stores.

        Raises:
            LakeError: the file exists already.
        """
        head, _, name = path.rpartition("/")
        beside = f"{head}/.{name}.{secrets.token_hex(4)}"
        stream = self._fs.create(self.at(beside), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        try:
            self._context.rename(self.at(beside), self.at(path), self._no_overwrite)
        except Exception as error:
            self._fs.delete(self.at(beside), False)
            if "FileAlreadyExistsException" not in str(error):
                raise
            raise LakeError(
                f"another process has written {self.path}/{path} meanwhile. To do: let one archive at a time write to "
                "a lake, and start this one again"
            ) from None

    def move(self, source: str, target: str) -> None:
        """Rename a file to a name that does not exist yet."""
        at = self.at(target)
        self._fs.mkdirs(at.getParent())
        if not self._fs.rename(self.at(source), at):
            raise LakeError(
                f"{self.path}/{source} could not be renamed to {target}. "
                "To do: check the permissions of the file system"
            )

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files or folders, if they exist."""
        for path in paths:
            self._fs.delete(self.at(path), True)
