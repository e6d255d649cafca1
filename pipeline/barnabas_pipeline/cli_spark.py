"""A Spark session for a command, as quiet as the command."""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from barnabas_client.cli.failures import CommandError

#: Instead of Spark's own: what it tells of its start and the traces of what fails are no news to who runs a command.
_QUIET: Final = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


def session(name: str, settings: Mapping[str, str]) -> Any:
    """The session there is, or a new one: on this machine, or where ``spark-submit`` or `settings` say.

    A new JVM says nothing but what is fatal; ``spark.log.level`` in `settings` lets it say more. Ctrl-C stays what it
    was: PySpark would answer it with a call to the JVM in the middle of another one, which fails with two tracebacks.

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
