"""A Spark session for a command, without Spark's log output."""

import shlex
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas_client.cli.failures import CommandError

#: Replaces Spark's own configuration, which logs Spark's start and a stack trace for each failure.
_QUIET: Final = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


def session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the active session, or start one: on this machine, or where ``spark-submit`` or `settings` say.

    A new JVM logs fatal errors only; ``spark.log.level`` in `settings` changes that. The handler of Ctrl-C stays
    Python's: PySpark's handler calls the JVM in the middle of another call, which fails with two tracebacks.

    Args:
        name: the name of the application on the cluster.
        settings: Spark's settings.

    Raises:
        CommandError: Spark does not start.
    """
    builder = SparkSession.builder.appName(name)
    defaults = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
    }
    quiet = shlex.quote(f"-Dlog4j2.configurationFile={_QUIET}")
    java = f"{quiet} {settings.get(_JAVA_OPTIONS, '')}".strip()
    for key, value in {**defaults, **settings, _JAVA_OPTIONS: java}.items():
        builder = builder.config(key, value)
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        return builder.getOrCreate()
    except (PySparkException, OSError) as error:
        why = str(error).strip().partition("\n")[0]
        raise CommandError(
            f"Spark does not start: {why}. To do: check that Java 17 or 21 is installed (java -version) or "
            "JAVA_HOME is set"
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupted)
