"""The lake's commit log: which Parquet files belong to a table, and up to which offsets they hold a topic. Pure.

A table is the archive of one topic. Its log is that of Delta Lake (protocol: reader version 1, writer version 2): files
``_delta_log/00000000000000000000.json``, ..., each written whole or not at all, each an atomic step from one state of
the table to the next. Whatever reads Delta tables therefore reads the lake, and :func:`live_files` reads the log for
everything else. A step that adds files also moves the topic's offsets on, one ``txn`` action a partition, whose
`version` is the next offset to archive: files and offsets become visible together, and that is all there is to "exactly
once". Source: Delta's ``PROTOCOL.md``.
"""

import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

LOG: Final = "_delta_log"
#: The column that tables are partitioned by: the day of the event, in UTC.
DATE: Final = "date"
_ENTRY: Final = re.compile(r"(\d{20})\.json")
#: The application id of the ``txn`` action of a partition.
_APP: Final = "barnabas/"

Action = dict[str, Any]


class LakeError(Exception):
    """The lake cannot be read or written; the text says what, why, and what to do."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table.

    Attributes:
        path: relative to the table, such as ``date=2013-01-01/00000003-00000.parquet``.
        date: its value of :data:`DATE`.
        size: bytes.
        modified: ms since 1970.
    """

    path: str
    date: str
    size: int
    modified: int


@dataclass(slots=True)
class Snapshot:
    """A table after some number of steps.

    Attributes:
        version: the last step; -1 if there is none.
        table_id: the table's own id.
        schema: Spark's JSON of the columns, :data:`DATE` included; "" before the first step.
        configuration: what is pinned for the table's life, such as its format.
        files: the files that are live, by path.
        offsets: for each partition the next offset to archive.
        rows: records that were added, if every step says so.
    """

    version: int = -1
    table_id: str = ""
    schema: str = ""
    configuration: dict[str, str] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    rows: int = 0

    def apply(self, version: int, entry: str) -> None:
        """Take the next step.

        Args:
            version: its number.
            entry: the text of its file.

        Raises:
            LakeError: a step is missing before it, or it cannot be read.
        """
        if version != self.version + 1:
            raise LakeError(
                f"{LOG} lacks step {self.version + 1}: {name_of(version)} is there, the one before it is not"
            )
        try:
            for line in entry.splitlines():
                if line.strip():
                    self._act(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeError(f"{LOG}/{name_of(version)} cannot be read: {error!r}") from None
        self.version = version

    def _act(self, action: Action) -> None:
        for kind, body in action.items():
            if kind == "add":
                path = unquote(body["path"])
                date = body["partitionValues"].get(DATE) or ""
                self.files[path] = DataFile(path, date, int(body["size"]), int(body["modificationTime"]))
            elif kind == "remove":
                self.files.pop(unquote(body["path"]), None)
            elif kind == "txn" and body["appId"].startswith(_APP):
                self.offsets[int(body["appId"].removeprefix(_APP))] = int(body["version"])
            elif kind == "metaData":
                self.table_id, self.schema = body["id"], body["schemaString"]
                self.configuration = dict(body["configuration"])
            elif kind == "protocol" and (body["minReaderVersion"] > 1 or body["minWriterVersion"] > 2):
                raise LakeError(
                    f"the table needs Delta reader {body['minReaderVersion']} and writer "
                    f"{body['minWriterVersion']}, which "
                    "something else has raised; here are 1 and 2. To do: archive to another path"
                )
            elif kind == "commitInfo":
                self.rows += int((body.get("operationMetrics") or {}).get("numOutputRows") or 0)


def name_of(version: int) -> str:
    """The file name of a step."""
    return f"{version:020d}.json"


def version_of(name: str) -> int | None:
    """The step that a file of the log is; None if it is none."""
    found = _ENTRY.fullmatch(name)
    return int(found[1]) if found else None


def entry(actions: Iterable[Action], operation: str, now: int, rows: int | None = None) -> str:
    """The text of a step.

    Args:
        actions: what it does.
        operation: its name, for people.
        now: ms since 1970.
        rows: records that it adds.
    """
    info: Action = {"timestamp": now, "operation": operation, "engineInfo": "barnabas-pipeline"}
    if rows is not None:
        info["operationMetrics"] = {"numOutputRows": str(rows)}
    return "".join(
        json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n"
        for action in ({"commitInfo": info}, *actions)
    )


def protocol() -> Action:
    """The versions of Delta's protocol that the log needs: the oldest ones."""
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(schema: str, configuration: Mapping[str, str], now: int, table_id: str | None = None) -> Action:
    """What the table looks like from here on.

    Args:
        schema: Spark's JSON of the columns.
        configuration: what is pinned.
        now: ms since 1970.
        table_id: the table's id; a new one if None.
    """
    return {
        "metaData": {
            "id": table_id or str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [DATE],
            "configuration": dict(configuration),
            "createdTime": now,
        }
    }


def added(file: DataFile, *, new_rows: bool) -> Action:
    """A file comes; `new_rows` unless it holds what other files held."""
    return {
        "add": {
            "path": quote(file.path, safe="/=-_.~"),
            "partitionValues": {DATE: file.date},
            "size": file.size,
            "modificationTime": file.modified,
            "dataChange": new_rows,
        }
    }


def removed(file: DataFile, now: int) -> Action:
    """A file goes: its rows are in another one."""
    return {
        "remove": {
            "path": quote(file.path, safe="/=-_.~"),
            "deletionTimestamp": now,
            "dataChange": False,
            "partitionValues": {DATE: file.date},
            "size": file.size,
            "extendedFileMetadata": True,
        }
    }


def moved_on(offsets: Mapping[int, int], now: int) -> list[Action]:
    """The next offsets to archive, by partition."""
    return [
        {"txn": {"appId": f"{_APP}{partition}", "version": offset, "lastUpdated": now}}
        for partition, offset in sorted(offsets.items())
    ]


def too_small(files: Iterable[DataFile], target: int, least: int) -> dict[str, list[DataFile]]:
    """What is worth being merged: by date, files below half of `target` bytes, where there are at least `least`.

    What is taken of a date becomes one file, of at most one and a half times `target` bytes, so a merge is a small task
    and there are fewer files after it.
    """
    by_date: dict[str, list[DataFile]] = {}
    for file in sorted(files, key=lambda one: one.path):
        if file.size < target // 2:
            by_date.setdefault(file.date, []).append(file)
    chosen = {}
    for date, small in by_date.items():
        if len(small) >= max(least, 2):
            total, taken = 0, []
            for file in small:
                if total + file.size > target * 3 // 2:
                    break
                taken.append(file)
                total += file.size
            chosen[date] = taken
    return chosen


def table_path(lake: str, topic: str) -> str:
    """Where the table of a topic is."""
    return f"{lake.rstrip('/')}/topic={topic}"


def snapshot(table: str | Path) -> Snapshot:
    """Read a table's log from a folder of this machine (or a mounted one), without Spark.

    Raises:
        LakeError: there is no table, or its log is broken.
    """
    log = Path(table, LOG)
    state = Snapshot()
    names = sorted(name.name for name in log.iterdir()) if log.is_dir() else []
    for name in names:
        version = version_of(name)
        if version is not None:
            state.apply(version, (log / name).read_text())
    if state.version < 0:
        raise LakeError(f"{table} is no table of a lake: it has no {LOG}. To do: name LAKE/topic=TOPIC")
    return state


def live_files(table: str | Path) -> list[str]:
    """The Parquet files that hold a table, each record once: what to give to pandas, DuckDB or Arrow.

    ::

        pandas.read_parquet(live_files("lake/topic=flights"))

    Raises:
        LakeError: there is no table, or its log is broken.
    """
    files: Sequence[str] = sorted(snapshot(table).files)
    return [str(Path(table, path)) for path in files]
