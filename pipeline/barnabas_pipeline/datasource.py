"""What Spark finds under the name ``barnabas``: ``spark.read.format("barnabas")`` and its three siblings.

Each part is imported where it is needed: Spark imports this module in many short-lived processes, some of which only
ask for a name or a schema. Source: PySpark's ``pyspark.sql.datasource``.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas_pipeline.options import Given, ReadOptions

if TYPE_CHECKING:
    from barnabas_pipeline.exactly_once import ExactlyOnceWriter
    from barnabas_pipeline.reader import BatchReader
    from barnabas_pipeline.stream import StreamReader
    from barnabas_pipeline.writer import BatchWriter, StreamWriter


def source_schema(*, headers: bool = False) -> StructType:
    """The columns of Spark's Kafka connector.

    Args:
        headers: with the column of that name (``includeHeaders``).
    """
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


class BarnabasDataSource(DataSource):
    """Kafka topics as tables and streams, without a jar."""

    @classmethod
    def name(cls) -> str:
        """Its short name."""
        return "barnabas"

    def schema(self) -> StructType:
        """Its columns."""
        return source_schema(headers=Given(self.options).boolean("includeHeaders", default=False))

    def reader(self, schema: StructType) -> "BatchReader":
        """For ``spark.read``."""
        from barnabas_pipeline.reader import BatchReader

        _check(schema, self.schema())
        return BatchReader(ReadOptions.of(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> "StreamReader":
        """For ``spark.readStream``."""
        from barnabas_pipeline.stream import StreamReader

        _check(schema, self.schema())
        return StreamReader(ReadOptions.of(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """For ``df.write``."""
        from barnabas_pipeline.rows import WriteOptions
        from barnabas_pipeline.writer import BatchWriter

        if overwrite:
            raise ValueError(
                "save mode overwrite is not allowed: records are only ever added. To do: use mode('append')"
            )
        return BatchWriter(WriteOptions.of(self.options, schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter | ExactlyOnceWriter":
        """For ``df.writeStream``."""
        from barnabas_pipeline.exactly_once import ExactlyOnceWriter
        from barnabas_pipeline.rows import WriteOptions
        from barnabas_pipeline.writer import StreamWriter

        options = WriteOptions.of(self.options, schema, streaming=True)
        return ExactlyOnceWriter(options) if options.exactly_once else StreamWriter(options)


def _check(given: StructType, fixed: StructType) -> None:
    if [(field.name, field.dataType) for field in given] != [(field.name, field.dataType) for field in fixed]:
        raise ValueError(
            f"the source has a fixed schema, {fixed.simpleString()}: it cannot be read with {given.simpleString()}. "
            "To do: leave out .schema(...), and cast or parse the columns"
        )
