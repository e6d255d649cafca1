"""Errors of Spark, of pipelines and of options, as one line for the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from barnabas_client.cli.failures import CommandError
from barnabas_pipeline.errors import PipelineError

#: The maximum characters of an error message.
_MAX_LENGTH: Final = 600
_JVM_LOST: Final = (
    "Spark's Java process has ended: it was killed, or is out of memory. To do: start the command again, with more "
    "memory if it happens again (--conf spark.driver.memory=4g)"
)
_WORKER_LOST: Final = (
    "a Python process of Spark was killed, perhaps because the machine is out of memory. To do: start the command "
    "again, with fewer tasks at a time if it happens again (--conf spark.master=local[2])"
)


@contextmanager
def command_errors() -> Iterator[None]:
    """Turn errors of pipelines, of options and of Spark into a :class:`CommandError`.

    Commands also import what needs the extra ``barnabas[spark]`` within this context: if a package of the extra is not
    installed, the error names it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package.startswith("barnabas"):
            raise
        raise CommandError(f"{package} is not installed. To do: pip install 'barnabas[spark]'") from error
    except (PipelineError, ValueError) as error:
        raise CommandError(str(error)) from error
    except ConnectionError as error:
        # py4j raises it; errors of connections to brokers are KafkaErrors.
        raise CommandError(_JVM_LOST) from error
    except Exception as error:
        text = spark_error(error)
        if text is None:
            raise
        raise CommandError(text) from error


def spark_error(error: BaseException) -> str | None:
    """Return the line of a Spark error that names the cause; None if the error is not Spark's.

    Classes are compared by name: PySpark may not be installed.
    """
    names = {f"{base.__module__}.{base.__name__}" for base in type(error).__mro__}
    if not names & {"pyspark.errors.exceptions.base.PySparkException", "py4j.protocol.Py4JError"}:
        return None
    if "py4j.protocol.Py4JNetworkError" in names:
        return _JVM_LOST
    if "Python worker exited unexpectedly" in str(error):
        return _WORKER_LOST
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    # An error of a Python worker is at the end of its traceback, inside the text.
    ours = [text for text in lines if text.startswith(("barnabas_", "pyspark.errors")) and ": " in text]
    if ours:
        return ours[-1].partition(": ")[2][:_MAX_LENGTH]
    causes = [text for text in lines if text.startswith("Caused by:")]
    return f"Spark: {(causes[-1] if causes else lines[0] if lines else type(error).__name__)[:_MAX_LENGTH]}"
