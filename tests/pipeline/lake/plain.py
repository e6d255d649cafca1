"""A table of the lake without Spark, for tests of its log and its files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas_pipeline.lake.local import LocalFolder
from barnabas_pipeline.lake.table import STAGING, Table

SCHEMA = (
    '{"type":"struct","fields":[{"name":"n","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"date","type":"date","nullable":true,"metadata":{}}]}'
)


class PlainTable(Table):
    """A table whose rows are numbers. pyarrow writes and reads them instead of Spark."""

    def stage(self, rows: Any, target: int) -> str:
        folder = Path(self.folder.path, STAGING, self._run, "date=2020-01-01")
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": pa.array(rows, pa.int32())}), folder / "part-0.parquet")
        (folder / ".part-0.parquet.crc").write_bytes(b"crc")
        return f"{STAGING}/{self._run}"

    def read(self, paths: Any = None) -> Any:
        return Rows(number for path in paths or self.state.files for number in numbers_in(self.folder.path, path))


class Rows(list[int]):
    """Rows that can be merged."""

    columns = ()

    def coalesce(self, count: int) -> "Rows":
        return self

    def sortWithinPartitions(self, *names: str) -> "Rows":  # noqa: N802
        return self


def numbers_in(table: str, path: str) -> list[int]:
    return pq.ParquetFile(Path(table, path)).read()["n"].to_pylist()  # type: ignore[no-any-return]


def table_at(path: Path) -> PlainTable:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("barnabas_pipeline.lake.table.folder_at", lambda spark, path: LocalFolder(Path(path), path))
        return PlainTable(None, str(path))  # type: ignore[arg-type]


def add(table: PlainTable, count: int = 3) -> None:
    """Archive the next numbers: those from the table's offset on."""
    start = table.state.offsets.get(0, 0)
    table.append(table.stage(range(start, start + count), 0), {0: start + count}, count)


def filled(path: Path, entries: int) -> PlainTable:
    table = table_at(path)
    table.create(SparkSchema(), {"k": "v"})  # type: ignore[arg-type]
    for _ in range(entries):
        add(table)
    return table


class SparkSchema:
    def json(self) -> str:
        return SCHEMA
