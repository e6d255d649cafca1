"""The first documented name of :func:`barnabas_pipeline.lake.table.read`."""

from barnabas_pipeline.lake.table import read

__all__ = ["read"]
