"""A folder of a file system that Spark knows: local, HDFS, or whatever Hadoop has a driver for.

Spark's executors and the driver see the same path this way. It goes through the JVM of a classic Spark session.
"""

import secrets
from collections.abc import Iterable
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from barnabas_pipeline.lake import LakeError


class Listed(NamedTuple):
    """A file: its path relative to the folder, its bytes, and when it was written in ms since 1970."""

    path: str
    size: int
    modified: int


class Folder:
    """A folder that may not exist yet.

    Args:
        spark: a classic session, not one of Spark Connect.
        path: a path or a URI.

    Attributes:
        path: its whole path. Known without the JVM, which does not answer once a call to it was broken off.

    Raises:
        LakeError: the session has no JVM to go through.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise LakeError(
                "this session is one of Spark Connect, which gives no access to files. To do: use a classic one"
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
        """A path in it, for Hadoop."""
        return self._hadoop.Path(self._root, path) if path else self._root

    def files(self, path: str = "") -> list[Listed]:
        """All files below `path`, at any depth, but not Hadoop's checksums; none if there is no such folder."""
        at = self.at(path)
        if not self._fs.exists(at):
            return []
        out = []
        listing = self._fs.listFiles(at, True)
        start = len(self.path) + 1
        while listing.hasNext():
            status = listing.next()
            whole = str(status.getPath().toString())
            out.append(Listed(whole[start:], int(status.getLen()), int(status.getModificationTime())))
        return sorted(one for one in out if not one.path.endswith(".crc"))

    def read(self, path: str) -> str:
        """A file's text."""
        stream = self._fs.open(self.at(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_once(self, path: str, text: str) -> None:
        """Make a file appear with all of its text, or fail if there is one.

        On HDFS and local disks the step is a rename, which is atomic. (On object stores it is not.)

        Raises:
            LakeError: there is one already.
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
                f"{self.path}/{path} was written by somebody else meanwhile. To do: let one archive at a time "
                "write to a "
                "lake, and start this one again"
            ) from None

    def move(self, source: str, target: str) -> None:
        """Rename a file to a name that is free."""
        at = self.at(target)
        self._fs.mkdirs(at.getParent())
        if not self._fs.rename(self.at(source), at):
            raise LakeError(
                f"{self.path}/{source} could not be renamed to {target}. To do: look at the file system's rights"
            )

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files or folders, whether or not they are there."""
        for path in paths:
            self._fs.delete(self.at(path), True)
