"""The `barnabas` command: topics, records and groups of Barnabas and Apache Kafka from a terminal or a script.

Nothing heavy is imported before it is known what to do: the command line is read by :mod:`barnabas_client.cli.parser`
alone, and the module that does the work is loaded after that.
"""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status: 0 if all went well, 1 if something failed, 2 if the command line makes no sense.
    """
    import sys

    from barnabas_client.cli.run import run

    return run(sys.argv[1:] if argv is None else list(argv))
