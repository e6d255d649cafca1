"""The data source ``barnabas`` under the name by which Spark finds it without registration."""

from barnabas_pipeline.datasource import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
