"""The columns of the source: those of Spark's Kafka connector, as Spark's types."""

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


def source_schema(*, headers: bool = False) -> StructType:
    """Return the columns; :func:`barnabas_pipeline.source.columns.arrow_schema` returns them as Arrow's types.

    Args:
        headers: with the column `headers` (option ``includeHeaders``).
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


def check_schema(given: StructType, fixed: StructType) -> None:
    """Check that a schema given with ``.schema(...)`` is that of the source.

    Raises:
        ValueError: it is another one.
    """
    if [(field.name, field.dataType) for field in given] != [(field.name, field.dataType) for field in fixed]:
        raise ValueError(
            f"the source has a fixed schema, {fixed.simpleString()}: it cannot be read with {given.simpleString()}. "
            "To do: leave out .schema(...), and cast or parse the columns"
        )
