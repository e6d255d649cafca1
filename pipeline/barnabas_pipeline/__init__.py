"""PySpark source and sink for Kafka topics, and pipelines on top of them: archive, lag report, replay.

Nothing imports this package but the user's Spark jobs and the command ``barnabas-pipeline``. It imports
:mod:`barnabas_client` and :mod:`barnabas_protocol`, and needs the extra ``barnabas[spark]``.

- :mod:`~barnabas_pipeline.datasource`: ``spark.read.format("barnabas")`` and its siblings
- :mod:`~barnabas_pipeline.source`: reading topics, in batches and streams
- :mod:`~barnabas_pipeline.sink`: writing topics, at least once and exactly once
- :mod:`~barnabas_pipeline.brokers`: connections to brokers from Spark's processes, which are not async
- :mod:`~barnabas_pipeline.progress`: a streaming query's progress as offsets of a consumer group
- :mod:`~barnabas_pipeline.lake`: topics as Parquet tables, with each record stored once
- :mod:`~barnabas_pipeline.lag`: lag of consumer groups over time, as tables, charts and a report
- :mod:`~barnabas_pipeline.replay`: a Parquet table back into a topic
- :mod:`~barnabas_pipeline.cli`: the command ``barnabas-pipeline``

Imports run one way: `cli`, then `datasource`, `progress`, `lag` and `replay`, then `lake`, then `source` and `sink`,
then `brokers`.

Importing it before the first Spark session sets ``PYSPARK_PYTHON`` to this interpreter, if it is not set.
"""

import os
import sys

# Without PYSPARK_PYTHON Spark starts the first `python3` of the PATH for its Python processes. If a virtual environment
# is not activated, that one does not have our packages, and Spark says "Failed to find the data source: barnabas".
# Under spark-submit, Spark has chosen the interpreter before.
if "PYSPARK_GATEWAY_PORT" not in os.environ:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
