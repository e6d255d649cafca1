"""The exactly-once sink without Spark, for its own tests and those against Apache Kafka."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from barnabas_pipeline.sink.commit_plan import StagedFile
from barnabas_pipeline.sink.exactly_once import ExactlyOnceWriter
from barnabas_pipeline.sink.options import WriteOptions

SCHEMA = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
PARTITIONS = 3


def writer(checkpoint: Path | str, given: dict[str, str], topic: str) -> ExactlyOnceWriter:
    """The writer of a query with this checkpoint location."""
    options = {**given, "topic": topic, "exactlyOnce": "true", "checkpointLocation": str(checkpoint)}
    return ExactlyOnceWriter(WriteOptions.of(options, SCHEMA, streaming=True), str(checkpoint))


def rows(values: list[bytes]) -> pa.RecordBatch:
    """Rows for all partitions in turn."""
    partitions = pa.array([number % PARTITIONS for number in range(len(values))], pa.int32())
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary()), partitions], names=["value", "partition"])


def stage(one: ExactlyOnceWriter, values: list[bytes]) -> list[StagedFile]:
    """Stage values in two tasks, half of them each."""
    half = len(values) // 2
    staged = [one.write(iter([rows(part)])) for part in (values[:half], values[half:])]
    assert all(isinstance(message, StagedFile) for message in staged)
    return [message for message in staged if isinstance(message, StagedFile)]
