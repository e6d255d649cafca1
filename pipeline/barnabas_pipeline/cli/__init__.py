"""The program ``barnabas-pipeline``.

`commands` declares the commands; `archive`, `lag` and `replay` run them with Spark and are imported when a command
runs. Nothing else imports this package, except for a demo in ``examples``.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from barnabas_pipeline.cli.commands import COMMAND_LINE

__all__ = ["COMMAND_LINE", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status: 0 done, 1 failed, 2 invalid command line, 130 after Ctrl-C, 143 after SIGTERM.
    """
    with _other_loggers_silent():
        return COMMAND_LINE.run(sys.argv[1:] if argv is None else argv)


@contextmanager
def _other_loggers_silent() -> Iterator[None]:
    """Discard log records of other packages: Py4J logs each interrupted call with its traceback."""
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
