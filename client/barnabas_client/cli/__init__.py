"""The `barnabas` program: topics, records and groups of Barnabas and Apache Kafka from a terminal or a script.

One module per command, or per group of commands on the same thing, declares its :class:`command.Command`;
:mod:`commands` lists them. :mod:`command_line` reads the command line and runs the command, for `barnabas-pipeline` too.
Only `barnabas_pipeline` may import modules from here: the rest of this package must not know that there is a terminal.
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
