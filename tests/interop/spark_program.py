"""A Spark program that reads and writes topics through Spark's own Kafka connector, and prints the results.

python -m tests.interop.spark_program <folder of the connector's jars> <bootstrap servers> <topic> <folder to work in>

It runs in a new process, because a process has one JVM, whose class path is fixed at its start.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Topics:
    """Reads and writes topics with Spark's Kafka connector."""

    def __init__(self, spark: Any, servers: str) -> None:
        self._spark = spark
        self._servers = servers

    def write(self, topic: str, first: int, count: int) -> None:
        """Write records with keys and a header, numbered from `first`."""
        header = "array(named_struct('key', 'number', 'value', cast(cast(id as string) as binary))) as headers"
        numbers = self._spark.range(first, first + count)
        rows = numbers.selectExpr("concat('k', id) as key", "concat('v', id) as value", header)
        rows.write.format("kafka").option("kafka.bootstrap.servers", self._servers).option("topic", topic).save()

    def read(self, topic: str, options: Mapping[str, str] | None = None) -> list[list[Any]]:
        """Return key, value, header, partition and offset of each record."""
        found = self._source(self._spark.read, topic).options(**(options or {})).load()
        columns = ("cast(key as string)", "cast(value as string)", "cast(headers[0].value as string)")
        return sorted(list(row) for row in found.selectExpr(*columns, "partition", "offset").collect())

    def copy(self, topic: str, to: str, checkpoint: Path) -> int:
        """Run a query until it has read all available records; return the number of its batches."""
        source = self._source(self._spark.readStream, topic).option("maxOffsetsPerTrigger", "60").load()
        query = (
            source.selectExpr("key", "value", "headers", f"'{to}' as topic")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self._servers)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(1 for progress in query.recentProgress if progress["numInputRows"])

    def _source(self, reader: Any, topic: str) -> Any:
        options = {"kafka.bootstrap.servers": self._servers, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.format("kafka").options(**options, includeHeaders="true")


def main(connector: Path, servers: str, topic: str, folder: Path) -> None:
    """Read a batch, a range of offsets, and a stream that is stopped and resumed."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("connector")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(connector.glob("*.jar"))))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -Dderby.system.home={folder}")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    topics, to = Topics(spark, servers), f"{topic}-copy"
    topics.write(topic, 0, 100)
    results: dict[str, Any] = {"all": topics.read(topic)}
    part = {"startingOffsets": json.dumps({topic: {"0": 10}}), "endingOffsets": json.dumps({topic: {"0": 20}})}
    results["part"] = topics.read(topic, part)
    results["batches"] = [topics.copy(topic, to, folder / "checkpoint")]
    topics.write(topic, 100, 50)
    results["batches"].append(topics.copy(topic, to, folder / "checkpoint"))
    results["copy"] = topics.read(to)
    spark.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))
