"""The folder of a table: on a local disk, or on any file system that Hadoop has a driver for.

Hadoop resolves the path, so the driver and the executors resolve it alike.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pyspark.sql import SparkSession

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake.local import FileStatus, LocalFolder, taken

#: From this many files on one Spark job reads them all: reading one through the JVM takes some milliseconds.
_BULK: Final = 20
#: The option that creates a file only if there is none when it is complete, and the capability of paths that have it.
_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
#: Exceptions of Hadoop's file systems for a file that exists already.
_EXISTS: Final = ("FileAlreadyExistsException", "RemoteFileChangedException")


class Folder(Protocol):
    """A folder, which may not exist yet. Paths of files are relative to it. :class:`LocalFolder` says what each does.

    Attributes:
        path: the path as Spark knows it.
    """

    path: str

    def names(self, path: str = "") -> list[str]: ...
    def files(self, path: str = "") -> list[FileStatus]: ...
    def read(self, path: str) -> bytes: ...
    def read_all(self, paths: Sequence[str]) -> Iterator[bytes]: ...
    def write_once(self, path: str, data: bytes) -> None: ...
    def replace(self, path: str, data: bytes) -> None: ...
    def move(self, moves: Iterable[tuple[str, str]]) -> None: ...
    def delete(self, paths: Iterable[str]) -> None: ...


def folder_at(spark: SparkSession, path: str) -> Folder:
    """Return the folder at a path or a URI.

    Raises:
        LakeError: the session is not a classic one.
    """
    folder = HadoopFolder(spark, path)
    if not folder.path.startswith("file:"):
        return folder
    return LocalFolder(Path("/", folder.path.removeprefix("file:").lstrip("/")), folder.path)


class HadoopFolder:
    """A folder on a file system of Hadoop, accessed through the JVM of a classic session.

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
        self._spark = spark
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
        self._new_array: Any = gateway.new_array
        self._no_overwrite: Any = gateway.new_array(options, 0)
        self._overwrite: Any = gateway.new_array(options, 1)
        self._overwrite[0] = options.OVERWRITE

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

    def names(self, path: str = "") -> list[str]:
        """List the names of the files and folders in `path`; none if there is no such folder."""
        at = self.at(path)
        if not self._fs.exists(at):
            return []
        statuses = (self._fs.listStatus(at), "[Lorg.apache.hadoop.fs.FileStatus;")
        paths = (self._static("org.apache.hadoop.fs.FileUtil", "stat2Paths", statuses), "[Ljava.lang.Object;")
        lines = self._static("org.apache.commons.lang3.StringUtils", "join", paths, ("\n", "java.lang.String"))
        return sorted(one.rpartition("/")[2] for one in str(lines).splitlines())

    def _static(self, owner: str, method: str, *arguments: tuple[Any, str]) -> Any:
        """Call a static method with arguments, each with the name of the parameter's type.

        One call for each element of an array would take a millisecond. Py4J does not pass an array of a subclass, such
        as S3A's `FileStatus`, to a method that takes an array of its base class, but Java does.
        """
        jvm, find = self._jvm, self._jvm.java.lang.Class.forName
        values = self._new_array(jvm.java.lang.Object, len(arguments))
        types = self._new_array(jvm.java.lang.Class, len(arguments))
        for number, (value, name) in enumerate(arguments):
            values[number], types[number] = value, find(name)
        return jvm.org.apache.commons.lang3.reflect.MethodUtils.invokeStaticMethod(find(owner), method, values, types)

    def read(self, path: str) -> bytes:
        """Read a file."""
        stream = self._fs.open(self.at(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def read_all(self, paths: Sequence[str]) -> Iterator[bytes]:
        """Read files, in the given order."""
        if len(paths) < _BULK:
            yield from map(self.read, paths)
            return
        found = self._spark.read.format("binaryFile").load([str(self.at(path).toString()) for path in paths])
        contents = {row[0].rpartition("/")[2]: bytes(row[1]) for row in found.select("path", "content").collect()}
        for path in paths:
            yield contents[path.rpartition("/")[2]]

    def write_once(self, path: str, data: bytes) -> None:
        """Create a file with its complete content, or fail if it exists.

        A store with conditional writes, such as S3, does so itself. Elsewhere it is written under another name and
        renamed, which is atomic on HDFS, but not on other object stores.

        Raises:
            LakeError: the file exists already.
        """
        at = self.at(path)
        try:
            if self._fs.hasPathCapability(at, _CONDITIONAL):
                _fill(self._fs.createFile(at).must(_CONDITIONAL, True).recursive().build(), data)
                return
            beside = self._write_beside(path, data)
            try:
                self._context.rename(beside, at, self._no_overwrite)
            except Exception:
                self._fs.delete(beside, False)
                raise
        except Exception as error:
            if not any(name in str(error) for name in _EXISTS):
                raise
            raise taken(f"{self.path}/{path}") from None

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace a file."""
        self._context.rename(self._write_beside(path, data), self.at(path), self._overwrite)

    def _write_beside(self, path: str, data: bytes) -> Any:
        head, _, name = path.rpartition("/")
        beside = self.at(f"{head}/.{name}.{secrets.token_hex(4)}")
        _fill(self._fs.create(beside, True), data)
        return beside

    def move(self, moves: Iterable[tuple[str, str]]) -> None:
        """Rename files to names that do not exist yet."""
        for source, target in moves:
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


def _fill(stream: Any, data: bytes) -> None:
    try:
        stream.write(bytearray(data))
    finally:
        stream.close()
