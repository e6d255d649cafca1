"""The Spark data source ``barnabas``: ``spark.read``, ``readStream``, ``df.write`` and ``writeStream``.

Reader and writers are imported by the methods that return them. Spark imports this module in short-lived processes that
only ask for a name or a schema; readers and writers need numpy, pyarrow and the client, which would cost each of these
0.9 s of CPU time and 50 MiB. Source: PySpark's ``pyspark.sql.datasource``.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from barnabas_pipeline.options import OptionMap
from barnabas_pipeline.source.schema import check_schema, source_schema

if TYPE_CHECKING:
    from barnabas_pipeline.sink.exactly_once import ExactlyOnceWriter
    from barnabas_pipeline.sink.writer import BatchWriter, StreamWriter
    from barnabas_pipeline.source.reader import BatchReader
    from barnabas_pipeline.source.stream import StreamReader


class BarnabasDataSource(DataSource):
    """Kafka topics as tables and streams, without a jar."""

    @classmethod
    def name(cls) -> str:
        """Return the short name for ``format(...)``."""
        return "barnabas"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        return source_schema(headers=OptionMap(self.options).boolean("includeHeaders", default=False))

    def reader(self, schema: StructType) -> "BatchReader":
        """Return the reader of ``spark.read``."""
        from barnabas_pipeline.source.options import ReadOptions
        from barnabas_pipeline.source.reader import BatchReader

        check_schema(schema, self.schema())
        return BatchReader(ReadOptions.of(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> "StreamReader":
        """Return the reader of ``spark.readStream``."""
        from barnabas_pipeline.source.options import ReadOptions
        from barnabas_pipeline.source.stream import StreamReader

        check_schema(schema, self.schema())
        return StreamReader(ReadOptions.of(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Return the writer of ``df.write``.

        Raises:
            ValueError: the save mode is overwrite, or an option or column is wrong.
        """
        from barnabas_pipeline.sink.options import WriteOptions
        from barnabas_pipeline.sink.writer import BatchWriter

        if overwrite:
            raise ValueError("save mode overwrite is not allowed: a topic only grows. To do: use mode('append')")
        return BatchWriter(WriteOptions.of(self.options, schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter | ExactlyOnceWriter":
        """Return the writer of ``df.writeStream``."""
        from barnabas_pipeline.sink.exactly_once import ExactlyOnceWriter
        from barnabas_pipeline.sink.options import WriteOptions
        from barnabas_pipeline.sink.writer import StreamWriter

        options = WriteOptions.of(self.options, schema, streaming=True)
        return StreamWriter(options) if options.checkpoint is None else ExactlyOnceWriter(options, options.checkpoint)
