"""Reading topics with ``spark.read`` and ``spark.readStream``.

`options` reads and checks the options, `planning` finds partitions and offsets on the driver, `reader` and `columns`
turn ranges of offsets into Arrow batches in Spark's workers, `stream` plans the micro-batches of a streaming query.
Imported by :mod:`barnabas_pipeline.datasource`; the lake and the progress listener use `offsets`.
"""
