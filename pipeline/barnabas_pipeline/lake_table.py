"""A table of the lake: Parquet files, the log that says which of them count, and nothing half-done that anybody sees.

A step is: Spark writes files to a staging folder, whose name hides it from every reader; they are renamed into place;
one rename makes the log's next entry appear. A kill before the last rename leaves files that no log names, and
:meth:`Table.sweep` removes them. One process at a time writes to a table: of two that add the same entry the second
fails, and before something is swept an entry is added, so that whoever was about to name it fails.
"""

import json
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from barnabas_pipeline import lake
from barnabas_pipeline.lake import DATE, LOG, Action, DataFile, LakeError, Snapshot
from barnabas_pipeline.lake_fs import Folder

STAGING: Final = "_staging"
#: Files of a date from which on merging is worth it.
LEAST_FILES: Final = 8
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


class Table:
    """One table, open for writing.

    Args:
        spark: the session.
        path: where it is or is to be.

    Attributes:
        state: the table as of its last step.

    Raises:
        LakeError: its log is broken.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.folder = Folder(spark, path)
        self.state = Snapshot()
        self._run = secrets.token_hex(4)
        for file in self.folder.files(LOG):
            version = lake.version_of(file.path.removeprefix(f"{LOG}/"))
            if version is not None:
                self.state.apply(version, self.folder.read(file.path))

    @property
    def exists(self) -> bool:
        """Whether it has a first step."""
        return self.state.version >= 0

    @property
    def schema(self) -> StructType:
        """Its columns."""
        return StructType.fromJson(json.loads(self.state.schema))

    def sweep(self) -> int:
        """Remove what a killed step left behind; how many files that was.

        Raises:
            LakeError: somebody else writes to the table.
        """
        if self.exists and self._left():
            self._commit([], "TAKE OVER", _now())
        left = self._left()
        self.folder.delete([*left, STAGING])
        return len(left)

    def _left(self) -> list[str]:
        """Files that no step names. The log's own unfinished entries count: they tell of a kill too."""
        return [
            file.path
            for file in self.folder.files()
            if file.path not in self.state.files and lake.version_of(file.path.removeprefix(f"{LOG}/")) is None
        ]

    def create(self, schema: StructType, configuration: Mapping[str, str]) -> None:
        """Pin the columns, the partition column among them, and the configuration: the first step.

        Raises:
            LakeError: somebody else has created it.
        """
        now = _now()
        self._commit([lake.protocol(), lake.metadata(schema.json(), configuration, now)], "CREATE TABLE", now)

    def widen(self, schema: StructType) -> None:
        """Let it have more columns, or more fields in them, from here on; rows before that have nulls there."""
        now = _now()
        state = self.state
        action = lake.metadata(schema.json(), state.configuration, now, state.table_id)
        self._commit([action], "CHANGE COLUMNS", now)

    def stage(self, rows: DataFrame, target: int) -> str:
        """Write rows, with the table's columns, to where nobody sees them; where that is.

        Args:
            rows: to write.
            target: the bytes that a file should have at most, as far as that can be told beforehand; 0 for any.
        """
        staging = f"{STAGING}/{self._run}"
        # Small files say little about how many bytes a row takes.
        most = max(1, self.rows_in(target)) if self.state.rows and self._size() >= target > 0 else 0
        writer = rows.write.mode("overwrite").partitionBy(DATE).option("maxRecordsPerFile", most)
        writer.parquet(f"{self.folder.path}/{staging}")
        return staging

    def rows_in(self, size: int) -> int:
        """About how many rows so many bytes hold, going by the table's files; 0 if it has none."""
        return size * self.state.rows // max(self._size(), 1)

    def _size(self) -> int:
        return sum(file.size for file in self.state.files.values())

    def append(self, staged: str, offsets: Mapping[int, int], count: int) -> int:
        """Add staged rows, and move the offsets on, in one step.

        Args:
            staged: what :meth:`stage` returned.
            offsets: for each partition the next offset to archive.
            count: how many rows there are.

        Returns:
            The bytes that were written.

        Raises:
            LakeError: somebody else writes to the table.
        """
        files = self._place(staged)
        now = _now()
        actions = [lake.added(file, new_rows=True) for file in files]
        self._commit([*actions, *lake.moved_on(offsets, now)], "WRITE", now, count)
        return sum(file.size for file in files)

    def compact(self, target: int, least: int = LEAST_FILES) -> int:
        """Merge small files, sorted by partition and offset; how many of them.

        Whoever reads by the log sees each row once, before, after and in between. Merged files are deleted right
        after the step, so that whoever lists folders instead is right too, but for that moment.

        Args:
            target: the bytes that files should have.
            least: files of a date from which on merging is worth it.
        """
        chosen = lake.too_small(self.state.files.values(), target, least)
        old = [file for files in chosen.values() for file in files]
        if not old:
            return 0
        rows = self.read([file.path for file in old])
        # What goes into one file need not be shuffled, which costs as much again.
        rows = rows.coalesce(1) if len(chosen) == 1 else rows.repartition(min(len(chosen), 64), DATE)
        order = [name for name in (DATE, "partition", "offset") if name in rows.columns]
        files = self._place(self.stage(rows.sortWithinPartitions(*order), 0))
        now = _now()
        actions = [lake.added(file, new_rows=False) for file in files]
        self._commit([*(lake.removed(file, now) for file in old), *actions], "OPTIMIZE", now)
        self.folder.delete(file.path for file in old)
        return len(old)

    def read(self, paths: Iterable[str] | None = None) -> DataFrame:
        """The rows of some files; of all that are live if None."""
        chosen = sorted(self.state.files if paths is None else paths)
        if not chosen:
            return self.spark.createDataFrame([], self.schema)
        reader = self.spark.read.schema(self.schema).option("basePath", self.folder.path)
        return reader.parquet(*(f"{self.folder.path}/{path}" for path in chosen))

    def _place(self, staging: str) -> list[DataFile]:
        placed = []
        for number, file in enumerate(one for one in self.folder.files(staging) if one.path.endswith(".parquet")):
            part = file.path.removeprefix(f"{staging}/").partition("/")[0]
            date = part.removeprefix(f"{DATE}=")
            if date == _HIVE_NULL:
                raise LakeError(
                    f"{self.folder.path}: rows without a {DATE} were to be written. To do: report this as a bug"
                )
            path = f"{part}/{self.state.version + 1:08d}-{self._run}-{number:05d}.parquet"
            self.folder.move(file.path, path)
            placed.append(DataFile(path, date, file.size, file.modified))
        self.folder.delete([STAGING])
        return placed

    def _commit(self, actions: list[Action], operation: str, now: int, rows: int | None = None) -> None:
        version = self.state.version + 1
        text = lake.entry(actions, operation, now, rows)
        self.folder.write_once(f"{LOG}/{lake.name_of(version)}", text)
        self.state.apply(version, text)


def read(spark: SparkSession, path: str, topic: str) -> DataFrame:
    """The rows of a topic in a lake, each once, whatever goes on there meanwhile.

    ::

        read(spark, "s3a://bucket/lake", "flights").createOrReplaceTempView("flights")

    Raises:
        LakeError: there is no such table, or its log is broken.
    """
    table = Table(spark, lake.table_path(path, topic))
    if not table.exists:
        raise LakeError(f"{path} holds no topic {topic!r}. To do: archive it first, or check the path")
    return table.read()


def _now() -> int:
    return time.time_ns() // 1_000_000
