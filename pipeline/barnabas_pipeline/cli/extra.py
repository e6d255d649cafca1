"""The optional packages of the pipeline."""

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas_client.cli.failures import CommandError


@contextmanager
def spark_extra() -> Iterator[None]:
    """Import modules that need the extra ``barnabas[spark]`` within this context.

    Raises:
        CommandError: a package of the extra is not installed; the text names it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("barnabas"):
            raise
        raise CommandError(f"{error.name} is not installed. To do: pip install 'barnabas[spark]'") from None
