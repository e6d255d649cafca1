"""The examples of docs/spark.md, pasted one after the other."""

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from barnabas_broker.testing import Broker
from barnabas_pipeline.progress import GroupProgress
from tests.pipeline.support import admin, committed, consume, numbered, produce

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_the_examples_work(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("flights", partitions=2)
    broker.create_topic("copies", partitions=1)
    produce(broker.bootstrap_servers, "flights", numbered(0, 20))
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    # test_declarative.py runs the declarative pipeline.
    blocks = [block for block in found if "pyspark import pipelines" not in block]
    assert len(blocks) == 5
    scope: dict[str, object] = {}
    for block in blocks:
        code = block.replace("localhost:9092", broker.bootstrap_servers)
        exec(re.sub(r'"(lake|copies)/', rf'"{tmp_path}/\1/', code), scope)
    listener, query = scope["listener"], scope["query"]
    assert isinstance(listener, GroupProgress) and isinstance(query, StreamingQuery)
    spark.streams.removeListener(listener)
    query.processAllAvailable()
    query.stop()
    assert sum(committed(broker.bootstrap_servers, "to-the-lake").values()) == 20
    assert spark.read.parquet(f"{tmp_path}/lake/flights").count() == 20
    assert len(consume(broker.bootstrap_servers, "copies", 1)) == 20
    admin(broker.bootstrap_servers, lambda one: one.delete_topics(["flights", "copies"]))


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_sparks_default_mode_is_refused_by_spark(spark: SparkSession, broker: Broker, topic: str) -> None:
    writer = spark.sql("SELECT 'x' AS value").write.format("barnabas").option("topic", topic)
    with pytest.raises(PySparkException, match=r"(?i)mode"):
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).save()
