"""A Spark session for a command, as quiet as the command."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from barnabas_client.cli.failures import CommandError


def session(name: str, settings: Mapping[str, str]) -> Any:
    """The session there is, or a new one: on this machine, or where ``spark-submit`` or `settings` say.

    Args:
        name: what the cluster calls it.
        settings: Spark's own keys.

    Raises:
        CommandError: there is no PySpark, or no Java.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise CommandError(
            "this needs PySpark, which is not installed. To do: pip install 'barnabas[spark]', and Java 17 or 21"
        ) from None
    builder = SparkSession.builder.appName(name)
    defaults = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        why = str(error).strip().partition("\n")[0]
        raise CommandError(
            f"Spark does not start: {why}. To do: check that Java 17 or 21 is installed (java -version) or "
            "JAVA_HOME is set"
        ) from None
