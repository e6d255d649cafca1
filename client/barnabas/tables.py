"""Topics as Arrow tables: see :mod:`barnabas_client.tables`."""

from barnabas_client.tables import read_batches, read_table

__all__ = ["read_batches", "read_table"]
