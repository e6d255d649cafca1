"""The topic `flights` as a streaming table: each run adds the new records."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()


@dp.table
def flights() -> DataFrame:
    """A row for each record."""
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", os.environ.get("BARNABAS_BOOTSTRAP_SERVERS", "localhost:9092"))
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .load()
    )
    flight = sf.from_json(sf.col("value").cast("string"), "carrier STRING, hour INT, dep_delay DOUBLE")
    return records.select(flight.alias("flight"), "partition", "offset").select("flight.*", "partition", "offset")
