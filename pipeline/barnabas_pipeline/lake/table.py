"""A table of the lake: Parquet files, and the log that says which of them are live.

A commit has three steps: Spark writes files to a staging folder, which readers ignore because of its name; the files
are renamed into the table; a rename creates the next entry of the log. A kill before the last rename leaves files that
the log does not name, and :meth:`Table.sweep` removes them. One process at a time writes to a table: if two create the
same entry, the second one fails. Before `sweep` deletes files it adds an entry, so that a process that is about to
commit them fails.
"""

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake import checkpoint, log
from barnabas_pipeline.lake.folder import folder_at
from barnabas_pipeline.lake.log import DATE, LOG, Action, DataFile
from barnabas_pipeline.lake.opening import opened

STAGING: Final = "_staging"
#: Small files of a date from which on they are merged.
LEAST_FILES: Final = 8
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


class Table:
    """One table, open for reading and writing.

    Args:
        spark: a classic session.
        path: the folder of the table, which may not exist yet.

    Attributes:
        state: the table at its last version.

    Raises:
        LakeError: its log cannot be read.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.folder = folder_at(spark, path)
        self.state = opened(self.folder)
        self._run = secrets.token_hex(4)

    @property
    def exists(self) -> bool:
        """Whether the table was created."""
        return self.state.version >= 0

    @property
    def schema(self) -> StructType:
        """The columns of the table."""
        return StructType.fromJson(json.loads(self.state.schema))

    def sweep(self) -> int:
        """Delete files that a killed process left behind; return how many.

        Raises:
            LakeError: another process writes to the table.
        """
        if self.exists and self._leftovers():
            self._commit([], "TAKE OVER", _now())
        left = self._leftovers()
        self.folder.delete([*left, STAGING])
        return len(left)

    def _leftovers(self) -> list[str]:
        """List files that the log does not name, unfinished files of the log included."""
        folders = [name for name in self.folder.names() if name == STAGING or name.startswith(f"{DATE}=")]
        data = [file.path for folder in folders for file in self.folder.files(folder)]
        unfinished = [name for name in self.folder.names(LOG) if name[0] == "." and not name.endswith(".crc")]
        return [*(path for path in data if path not in self.state.files), *(f"{LOG}/{name}" for name in unfinished)]

    def create(self, schema: StructType, configuration: Mapping[str, str]) -> None:
        """Create the table.

        Args:
            schema: the columns, the partition column included.
            configuration: settings that are fixed for the life of the table.

        Raises:
            LakeError: another process has created it.
        """
        now = _now()
        self._commit([log.protocol(), log.metadata(schema.json(), configuration, now)], "CREATE TABLE", now)

    def widen(self, schema: StructType) -> None:
        """Add columns, or fields in them; existing rows have nulls there."""
        now = _now()
        state = self.state
        action = log.metadata(schema.json(), state.configuration, now, state.table_id)
        self._commit([action], "CHANGE COLUMNS", now)

    def restart(self, configuration: Mapping[str, str], offsets: Mapping[int, int]) -> None:
        """Set the fixed settings and the next offset of each partition, without rows: the topic is another one."""
        now = _now()
        action = log.metadata(self.state.schema, configuration, now, self.state.table_id)
        self._commit([action, *log.advanced(offsets, now)], "RESTART", now)

    def stage(self, rows: DataFrame, target: int) -> str:
        """Write rows to the staging folder; return its path.

        Args:
            rows: rows with the table's columns.
            target: the approximate maximum size of a file in bytes; 0 for no limit.
        """
        staging = f"{STAGING}/{self._run}"
        # From small files the size of a row cannot be estimated.
        most = max(1, self.rows_in(target)) if self.state.rows and self._size() >= target > 0 else 0
        writer = rows.write.mode("overwrite").partitionBy(DATE).option("maxRecordsPerFile", most)
        writer.parquet(f"{self.folder.path}/{staging}")
        return staging

    def rows_in(self, size: int) -> int:
        """Estimate from the table's files how many rows `size` bytes hold; 0 if it has no files."""
        return size * self.state.rows // max(self._size(), 1)

    def _size(self) -> int:
        return sum(file.size for file in self.state.files.values())

    def append(self, staged: str, offsets: Mapping[int, int], count: int) -> int:
        """Add staged rows and advance the offsets, in one entry of the log.

        Args:
            staged: the result of :meth:`stage`.
            offsets: for each partition the next offset to archive.
            count: the number of rows.

        Returns:
            The bytes that were added.

        Raises:
            LakeError: another process writes to the table.
        """
        files = self._place(staged)
        now = _now()
        actions = [log.added(file, new_rows=True) for file in files]
        rows = log.counted(self.state.rows + count, now)
        self._commit([*actions, *log.advanced(offsets, now), rows], "WRITE", now, count)
        return sum(file.size for file in files)

    def compact(self, target: int, least: int = LEAST_FILES) -> int:
        """Merge small files, sorted by partition and offset; return how many were merged.

        Readers of the log see each row once at any moment. Merged files are deleted right after the commit, so that
        readers that list the folder see rows twice only in between.

        Args:
            target: the target size of files in bytes.
            least: merge the small files of a date if there are at least this many.
        """
        chosen = log.too_small(self.state.files.values(), target, least)
        old = [file for files in chosen.values() for file in files]
        if not old:
            return 0
        rows = self.read([file.path for file in old])
        # A single target file needs no shuffle, which would double the cost.
        rows = rows.coalesce(1) if len(chosen) == 1 else rows.repartition(min(len(chosen), 64), DATE)
        order = [name for name in (DATE, "partition", "offset") if name in rows.columns]
        files = self._place(self.stage(rows.sortWithinPartitions(*order), 0))
        now = _now()
        actions = [log.added(file, new_rows=False) for file in files]
        self._commit([*(log.removed(file, now) for file in old), *actions], "OPTIMIZE", now)
        self.folder.delete(file.path for file in old)
        return len(old)

    def read(self, paths: Iterable[str] | None = None) -> DataFrame:
        """Read the rows of some files; of all live files if None."""
        chosen = sorted(self.state.files if paths is None else paths)
        if not chosen:
            return self.spark.createDataFrame([], self.schema)
        reader = self.spark.read.schema(self.schema).option("basePath", self.folder.path)
        return reader.parquet(*(f"{self.folder.path}/{path}" for path in chosen))

    def _place(self, staging: str) -> list[DataFile]:
        """Move staged files into the table; afterwards they are on the disk."""
        placed, moves = [], []
        for number, file in enumerate(one for one in self.folder.files(staging) if one.path.endswith(".parquet")):
            part = file.path.removeprefix(f"{staging}/").partition("/")[0]
            date = part.removeprefix(f"{DATE}=")
            if date == _HIVE_NULL:
                raise LakeError(
                    f"{self.folder.path}: rows without a {DATE} cannot be written. To do: report this as a bug"
                )
            path = f"{part}/{self.state.version + 1:08d}-{self._run}-{number:05d}.parquet"
            moves.append((file.path, path))
            placed.append(DataFile(path, date, file.size, file.modified))
        self.folder.move(moves)
        self.folder.delete([STAGING])
        return placed

    def _commit(self, actions: list[Action], operation: str, now: int, rows: int | None = None) -> None:
        version = self.state.version + 1
        text = log.entry(actions, operation, now, rows)
        self.folder.write_once(f"{LOG}/{log.name_of(version)}", text.encode())
        self.state.apply(version, text)
        if version % log.EVERY == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Write the table to a checkpoint, and delete what it replaces."""
        version = self.state.version
        self.folder.replace(f"{LOG}/{log.checkpoint_name(version)}", checkpoint.written(self.state))
        self.folder.replace(f"{LOG}/{checkpoint.LAST}", checkpoint.pointer(self.state))
        self.folder.delete(f"{LOG}/{name}" for name in log.expired(self.folder.names(LOG), version))


def read(spark: SparkSession, path: str, topic: str) -> DataFrame:
    """Read a topic in a lake, each record once, also while an archive writes to it.

    ::

        read(spark, "s3a://bucket/lake", "flights").createOrReplaceTempView("flights")

    Raises:
        LakeError: there is no such table, or its log cannot be read.
    """
    table = Table(spark, log.table_path(path, topic))
    if not table.exists:
        raise LakeError(f"{path} has no table of topic {topic!r}. To do: archive it first, or check the path")
    return table.read()


def _now() -> int:
    return time.time_ns() // 1_000_000
