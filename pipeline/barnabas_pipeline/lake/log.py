"""The commit log of a table: which Parquet files belong to it, and up to which offsets it holds a topic. Pure.

A table is the archive of one topic. Its log has the format of Delta Lake (reader version 1, writer version 2): files
``_delta_log/00000000000000000000.json``, ..., each written completely or not at all, each an atomic step from one
version of the table to the next. Any reader of Delta tables can therefore read the lake, and :func:`live_files` reads
the log for programs without one. An entry that adds files also advances the topic's offsets, with one ``txn`` action
for each partition whose `version` is the next offset to archive. Files and offsets become visible together: that makes
the archive exactly-once. Source: Delta's ``PROTOCOL.md``.

Reading the log takes time for each entry, so every :data:`EVERY` versions a checkpoint (:mod:`.checkpoint`) holds the
whole table, and :func:`expired` entries are deleted.
"""

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from barnabas_pipeline.errors import LakeError

LOG: Final = "_delta_log"
#: The column that tables are partitioned by: the UTC day of the event.
DATE: Final = "date"
#: Versions from one checkpoint to the next.
EVERY: Final = 100
#: Versions whose entries are kept: a day of an archive that commits every ten seconds.
KEPT: Final = 10_000
#: The maximum of files of the log that are deleted after a checkpoint.
_MOST_DELETED: Final = 1_000
_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
#: The prefix of the application id of a partition's ``txn`` action.
_APP: Final = "barnabas/"
#: The application id of the ``txn`` action whose `version` is the number of rows that were added.
_ROWS: Final = "barnabas.rows"

Action = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table.

    Attributes:
        path: the path relative to the table, such as ``date=2013-01-01/00000003-00000.parquet``.
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
    """A table at one version.

    Attributes:
        version: the last version; -1 if the table does not exist.
        table_id: the table's id.
        schema: Spark's JSON of the columns, :data:`DATE` included; "" before the first version.
        configuration: settings that are fixed for the life of the table, such as its format.
        files: the live files by path.
        offsets: for each partition the next offset to archive.
        rows: the number of records that were added, as far as entries say it.
        created: when the columns were last set, in ms since 1970.
    """

    version: int = -1
    table_id: str = ""
    schema: str = ""
    configuration: dict[str, str] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    rows: int = 0
    created: int = 0

    def apply(self, version: int, entry: str | bytes) -> None:
        """Apply the next entry of the log.

        Args:
            version: the version of the entry.
            entry: the text of its file.

        Raises:
            LakeError: an entry before it is missing, or it cannot be read.
        """
        if version != self.version + 1:
            raise LakeError(
                f"{LOG} lacks version {self.version + 1}: {name_of(version)} exists, the file before it does not"
            )
        try:
            for line in entry.splitlines():
                if line.strip():
                    self.act(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeError(f"{LOG}/{name_of(version)} cannot be read: {error!r}") from None
        self.version = version

    def actions(self) -> list[Action]:
        """Return the actions that lead to this version from nothing: the content of a checkpoint."""
        return [
            protocol(),
            metadata(self.schema, self.configuration, self.created, self.table_id),
            *advanced(self.offsets, self.created),
            counted(self.rows, self.created),
            *(added(file, new_rows=False) for file in self.files.values()),
        ]

    def act(self, action: Action) -> None:
        """Apply one action."""
        for kind, body in action.items():
            if kind == "add":
                path = unquote(body["path"])
                date = body["partitionValues"].get(DATE) or ""
                self.files[path] = DataFile(path, date, int(body["size"]), int(body["modificationTime"]))
            elif kind == "remove":
                self.files.pop(unquote(body["path"]), None)
            elif kind == "txn" and body["appId"].startswith(_APP):
                self.offsets[int(body["appId"].removeprefix(_APP))] = int(body["version"])
            elif kind == "txn" and body["appId"] == _ROWS:
                self.rows = int(body["version"])
            elif kind == "metaData":
                self.table_id, self.schema = body["id"], body["schemaString"]
                self.configuration = dict(body["configuration"])
                self.created = int(body.get("createdTime") or 0)
            elif kind == "protocol" and (body["minReaderVersion"] > 1 or body["minWriterVersion"] > 2):
                raise LakeError(
                    f"the table needs Delta reader {body['minReaderVersion']} and writer {body['minWriterVersion']}, "
                    "but supported are 1 and 2: another program has upgraded it. To do: archive to another path"
                )
            elif kind == "commitInfo":
                self.rows += int((body.get("operationMetrics") or {}).get("numOutputRows") or 0)


def name_of(version: int) -> str:
    """Return the file name of a version."""
    return f"{version:020d}.json"


def version_of(name: str) -> int | None:
    """Return the version of a file of the log; None if the file is not an entry."""
    found = _ENTRY.fullmatch(name)
    return int(found[1]) if found else None


def checkpoint_name(version: int) -> str:
    """Return the file name of the checkpoint of a version."""
    return f"{version:020d}.checkpoint.parquet"


def checkpoint_version(name: str) -> int | None:
    """Return the version of a checkpoint; None if the file is not one."""
    found = _CHECKPOINT.fullmatch(name)
    return int(found[1]) if found else None


def expired(names: Iterable[str], version: int) -> list[str]:
    """Return files of the log to delete after a checkpoint, the oldest first: old entries, and all older checkpoints
    except the latest, for readers that have just opened it.

    Args:
        names: the names of all files of the log.
        version: the version of the checkpoint.
    """
    checkpoints = sorted(one for name in names if (one := checkpoint_version(name)) is not None and one < version)
    entries = (one for name in names if (one := version_of(name)) is not None and one <= version - KEPT)
    old = [name_of(one) for one in sorted(entries)]
    return [*map(checkpoint_name, checkpoints[:-1]), *old][:_MOST_DELETED]


def entry(actions: Iterable[Action], operation: str, now: int, rows: int | None = None) -> str:
    """Return the text of an entry.

    Args:
        actions: its actions.
        operation: its name, for people.
        now: ms since 1970.
        rows: the number of records that it adds.
    """
    info: Action = {"timestamp": now, "operation": operation, "engineInfo": "barnabas-pipeline"}
    if rows is not None:
        info["operationMetrics"] = {"numOutputRows": str(rows)}
    return "".join(
        json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n"
        for action in ({"commitInfo": info}, *actions)
    )


def protocol() -> Action:
    """Return the action that sets the versions of Delta's protocol: the oldest ones."""
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(schema: str, configuration: Mapping[str, str], now: int, table_id: str | None = None) -> Action:
    """Return the action that sets the columns and the configuration of the table.

    Args:
        schema: Spark's JSON of the columns.
        configuration: the fixed settings.
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
    """Return the action that adds a file; `new_rows` is false if its rows come from other files."""
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
    """Return the action that removes a file whose rows are in another one."""
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


def advanced(offsets: Mapping[int, int], now: int) -> list[Action]:
    """Return the actions that set the next offset to archive of each partition."""
    return [
        {"txn": {"appId": f"{_APP}{partition}", "version": offset, "lastUpdated": now}}
        for partition, offset in sorted(offsets.items())
    ]


def counted(rows: int, now: int) -> Action:
    """Return the action that sets the number of rows that were added."""
    return {"txn": {"appId": _ROWS, "version": rows, "lastUpdated": now}}


def too_small(files: Iterable[DataFile], target: int, least: int) -> dict[str, list[DataFile]]:
    """Return the files to merge, by date: those below half of `target` bytes, if a date has at least `least` of them.

    The chosen files of a date become one file of at most one and a half times `target` bytes. A merge is therefore a
    small task.
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
    """Return the path of a topic's table."""
    return f"{lake.rstrip('/')}/topic={topic}"
