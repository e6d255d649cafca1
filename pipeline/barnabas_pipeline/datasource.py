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
    from barnabas_pipeline.sink.transactional import TransactionalWriter
    from barnabas_pipeline.sink.writer import BatchWriter, StreamWriter
    from barnabas_pipeline.source.reader import BatchReader
    from barnabas_pipeline.source.stream import StreamReader


class BarnabasDataSource(DataSource):
    """Kafka topics as tables and streams, without a jar.

    ::

        spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "flights")

    A source needs one of `subscribe`, `subscribePattern` and `assign`. Names, defaults and checks are those of Spark's
    Kafka connector; names may be in any case. The options of connections, ``kafka.*``, are the attributes of
    :class:`~barnabas_pipeline.brokers.settings.Settings`.

    Options:
        subscribe (text): the topics to read, ``a,b``. Default: None.
        subscribePattern (text): reads the topics whose whole name matches this regular expression (Python's, not
            Java's); internal topics are excluded. Default: None.
        assign (JSON): the partitions to read, ``{"a": [0, 1]}``. Default: None.
        startingOffsets (text or JSON): where a batch, or a stream without a checkpoint, starts: ``earliest``,
            ``latest``, or an offset for each partition, ``{"a": {"0": 23, "1": -2}}``, with -2 for the earliest and -1
            for the latest. Default: "latest" for a stream, "earliest" for a batch.
        startingTimestamp (integer): starts at the first record at or after this time, in ms since 1970, in all
            partitions. Overrides `startingOffsetsByTimestamp` and `startingOffsets`. Default: None.
        startingOffsetsByTimestamp (JSON): the same with a time for each partition, in ms since 1970,
            ``{"a": {"0": 1700000000000}}``. Overrides `startingOffsets`. Default: None.
        startingOffsetsByTimestampStrategy (text): what happens if no record is at or after the starting time:
            ``error``, or ``latest`` to start at the latest offset. Default: "error".
        endingOffsets (text or JSON): where a batch ends: ``latest``, or an offset for each partition, with -1 for the
            latest. Not for streams. Default: "latest".
        endingTimestamp (integer): ends a batch before the first record at or after this time, in ms since 1970, in all
            partitions. Overrides `endingOffsetsByTimestamp` and `endingOffsets`. Default: None.
        endingOffsetsByTimestamp (JSON): the same with a time for each partition, in ms since 1970. Overrides
            `endingOffsets`. Default: None.
        failOnDataLoss (boolean): fail if unread records were deleted; false logs a warning and continues after them.
            Default: True.
        maxOffsetsPerTrigger (integer): the maximum of offsets in a micro-batch, split in proportion to the unread
            offsets of the partitions. Default: None offsets, which is no limit.
        minOffsetsPerTrigger (integer): a micro-batch waits for this many offsets, but no longer than `maxTriggerDelay`.
            Default: None offsets, which does not wait.
        maxTriggerDelay (duration): how long a micro-batch waits for `minOffsetsPerTrigger`, such as ``30s`` or ``15m``;
            a number alone is in ms. Default: "15m".
        minPartitions (integer): splits large partitions into several tasks, so that there are about this many. Default:
            None tasks, which is one for each partition.
        maxRecordsPerPartition (integer): splits partitions into tasks of at most this many offsets. Default: None
            offsets, which is no limit.
        includeHeaders (boolean): adds the column `headers`. Default: False.
        kafkaConsumer.pollTimeoutMs (integer): how long a task waits for records that should exist. Default: 120000 ms.
        topic (text): of the sink: the topic of all records. Default: None, which takes the column `topic`.
        exactlyOnce (text): of the sink, for streams: ``true`` writes each micro-batch once, and stages its records in
            `checkpointLocation`; ``transactional`` writes it once, in Kafka's transactions, and stages nothing.
            Default: "false".
        transactionalIdPrefix (text): of the sink with ``exactlyOnce=transactional``: what its transactional ids and
            groups begin with; the query's id and a task's number follow. Default: "barnabas-spark".
        checkpointLocation (text): of the sink with `exactlyOnce`: the folder of the query's checkpoint. Default: None.
        groupIdPrefix (text): accepted for Spark's connector and without effect: reading joins no group. Default: None.
        fetchOffset.numRetries (integer): accepted and without effect, in retries: calls are repeated until
            ``kafka.default.api.timeout.ms``. Default: None.
        fetchOffset.retryIntervalMs (integer): accepted and without effect, in ms: see ``kafka.retry.backoff.ms``.
            Default: None.
    """

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
        """Return the reader of ``spark.readStream``. Its first method raises ValueError if an option is wrong.

        An error of this method would be lost: PySpark then fails with UnboundLocalError, because it stops the reader
        that it did not get.
        """
        from barnabas_pipeline.source.options import ReadOptions
        from barnabas_pipeline.source.stream import StreamReader

        def checked() -> ReadOptions:
            check_schema(schema, self.schema())
            return ReadOptions.of(self.options, streaming=True)

        return StreamReader(checked)

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

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> "StreamWriter | ExactlyOnceWriter | TransactionalWriter":
        """Return the writer of ``df.writeStream``."""
        from barnabas_pipeline.sink.exactly_once import ExactlyOnceWriter
        from barnabas_pipeline.sink.options import WriteOptions
        from barnabas_pipeline.sink.transactional import TransactionalWriter
        from barnabas_pipeline.sink.writer import StreamWriter

        options = WriteOptions.of(self.options, schema, streaming=True)
        if options.checkpoint is None:
            return StreamWriter(options)
        if options.transactional:
            return TransactionalWriter(options, options.checkpoint)
        return ExactlyOnceWriter(options, options.checkpoint)
