"""Reads the log of a table: the latest checkpoint, and the entries after it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from barnabas_client.logs import logger
from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake import checkpoint
from barnabas_pipeline.lake.local import LocalFolder
from barnabas_pipeline.lake.log import LOG, Snapshot, checkpoint_name, checkpoint_version, name_of, version_of

_log: Final = logger("barnabas_pipeline")


class Readable(Protocol):
    """The part of a folder that a reader needs."""

    def names(self, path: str = "") -> list[str]: ...
    def read(self, path: str) -> bytes: ...
    def read_all(self, paths: Sequence[str]) -> Iterator[bytes]: ...


def opened(folder: Readable) -> Snapshot:
    """Read a table; its version is -1 if there is none.

    Raises:
        LakeError: its log cannot be read.
    """
    names = folder.names(LOG)
    versions = sorted(one for name in names if (one := version_of(name)) is not None)
    checkpoints = sorted((one for name in names if (one := checkpoint_version(name)) is not None), reverse=True)
    state = Snapshot()
    for version in checkpoints:
        try:
            state = checkpoint.loaded(version, folder.read(f"{LOG}/{checkpoint_name(version)}"))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            # Entries, or an earlier checkpoint, may do.
            _log.warning("a checkpoint cannot be read", name=checkpoint_name(version), error=str(error))
        else:
            break
    after = [version for version in versions if version > state.version]
    for version, text in zip(after, folder.read_all([f"{LOG}/{name_of(one)}" for one in after]), strict=True):
        state.apply(version, text)
    return state


def snapshot(table: str | Path) -> Snapshot:
    """Read a table's log from a local or mounted folder, without Spark.

    Raises:
        LakeError: there is no table, or its log cannot be read.
    """
    state = opened(LocalFolder(Path(table), str(table)))
    if state.version < 0:
        raise LakeError(f"{table} is not a table of a lake: it has no {LOG}. To do: name LAKE/topic=TOPIC")
    return state


def live_files(table: str | Path) -> list[str]:
    """Return the Parquet files that hold each record of a table once, for pandas, DuckDB or Arrow.

    ::

        pandas.read_parquet(live_files("lake/topic=flights"))

    Raises:
        LakeError: there is no table, or its log cannot be read.
    """
    return [str(Path(table, path)) for path in sorted(snapshot(table).files)]
