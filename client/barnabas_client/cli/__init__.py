"""The `barnabas` program: topics, records and groups of Barnabas and Apache Kafka from a terminal or a script.

Each module that implements commands declares them as :class:`command.Command`, and :mod:`commands` lists them.
:mod:`command_line` reads arguments and runs a command, for `barnabas-pipeline` too. The rest of this package must not
import from here; `barnabas_pipeline` may.
"""

import sys
from collections.abc import Sequence

from barnabas_client.cli.commands import COMMAND_LINE

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status: 0 done, 1 failed, 2 the command line is not valid, 130 after Ctrl-C, 143 after SIGTERM.
    """
    return COMMAND_LINE.run(sys.argv[1:] if argv is None else argv)
