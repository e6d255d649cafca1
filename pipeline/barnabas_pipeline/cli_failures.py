"""What Spark, the lake and the broker say when something fails, in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from barnabas_client.cli.failures import CommandError
from barnabas_pipeline.lake import LakeError

#: Characters of an error that are worth a line.
_MOST: Final = 600


@contextmanager
def failures() -> Iterator[None]:
    """Turn errors of the lake and of Spark, and a missing optional dependency, into a :class:`CommandError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("barnabas"):
            raise
        raise CommandError(f"{error.name} is not installed. To do: pip install 'barnabas[spark]'") from error
    except LakeError as error:
        raise CommandError(str(error)) from error
    except ValueError as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        text = spark_error(error)
        if text is None:
            raise
        raise CommandError(text) from error


def spark_error(error: BaseException) -> str | None:
    """The line of a Spark error that says what went wrong; None if it is none of Spark's."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    if not kinds & {"pyspark.errors.exceptions.base.PySparkException", "py4j.protocol.Py4JError"}:
        return None
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    # What a Python worker raised stands at the end of its traceback, deep in the text.
    ours = [text for text in lines if text.startswith(("barnabas_", "pyspark.errors")) and ": " in text]
    if ours:
        return ours[-1].partition(": ")[2][:_MOST]
    causes = [text for text in lines if text.startswith("Caused by:")]
    return f"Spark: {(causes[-1] if causes else lines[0] if lines else type(error).__name__)[:_MOST]}"
