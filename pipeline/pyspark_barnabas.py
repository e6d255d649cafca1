"""Found by Spark itself, by its name: the data source ``barnabas`` needs no registration."""

from barnabas_pipeline.datasource import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
