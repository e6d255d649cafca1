"""Topics as Parquet tables, with each record stored once.

`log` is the commit log of a table, which can be read without Spark; `table` writes and reads a table with Spark,
`schema` separates records that do not fit, `archive` moves topics into tables. Imported by replay and the command line.
"""

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake.log import LOG, DataFile, Snapshot, live_files, snapshot

__all__ = ["LOG", "DataFile", "LakeError", "Snapshot", "live_files", "snapshot"]
