"""Checkpoints of the commit log: one Parquet file with all actions of a version, in Delta's format. Pure.

A reader begins with the latest checkpoint and applies the entries after it. Source: Delta's ``PROTOCOL.md``, classic
checkpoints (V1).
"""

import io
import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_pipeline.lake.log import Snapshot

#: The file that names the latest checkpoint, for readers that do not list the log.
LAST: Final = "_last_checkpoint"
_TEXTS: Final = pa.map_(pa.string(), pa.string())
_SCHEMA: Final = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
            }
        ),
        # Removed files are deleted at once, so there is never one to list.
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)
#: The fields that are maps.
_MAPS: Final = frozenset({"partitionValues", "configuration", "options"})
#: Rows that are converted to Python's objects at once.
_ROWS: Final = 10_000


def written(state: Snapshot) -> bytes:
    """Return the content of the checkpoint of a table at its version."""
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([_with_pairs(action) for action in state.actions()], schema=_SCHEMA), out)
    return out.getvalue()


def pointer(state: Snapshot) -> bytes:
    """Return the content of the file that names the checkpoint of a table at its version."""
    return json.dumps({"version": state.version, "size": len(state.actions())}).encode()


def loaded(version: int, data: bytes) -> Snapshot:
    """Return the table that a checkpoint holds.

    Args:
        version: its version.
        data: its content.

    Raises:
        LakeError: another program has upgraded the table.
        ValueError, KeyError, TypeError, ArrowException: it is damaged.
    """
    state = Snapshot()
    with pq.ParquetFile(io.BytesIO(data)) as file:
        names = [name for name in _SCHEMA.names if name != "remove" and name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS, columns=names):
            for action in batch.to_pylist():
                state.act({kind: _with_dicts(body) for kind, body in action.items() if body is not None})
    if not state.table_id:
        raise ValueError("it has no metaData")
    state.version = version
    return state


def _with_pairs(body: Any) -> Any:
    """Convert the dicts that are maps to lists of pairs, as Arrow reads them."""
    if not isinstance(body, dict):
        return body
    return {name: list(one.items()) if name in _MAPS else _with_pairs(one) for name, one in body.items()}


def _with_dicts(body: dict[str, Any]) -> dict[str, Any]:
    """Convert Arrow's maps, which are lists of pairs."""
    return {name: dict(one or ()) if name in _MAPS else one for name, one in body.items()}
