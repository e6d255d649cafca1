"""Topics as Parquet tables, with each record stored once.

`log` and `checkpoint` are the commit log of a table, and `opening` reads it, without Spark; `folder` and `local` access
files; `table` writes and reads a table with Spark, `schema` separates records that do not fit, `archive` moves topics
into tables. Imported by replay and the command line.
"""

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake.log import LOG, DataFile, Snapshot
from barnabas_pipeline.lake.opening import live_files, snapshot

__all__ = ["LOG", "DataFile", "LakeError", "Snapshot", "live_files", "snapshot"]
