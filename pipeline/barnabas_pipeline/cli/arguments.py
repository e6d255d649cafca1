"""Arguments that all commands share."""

from argparse import Namespace


def source_options(arguments: Namespace) -> dict[str, str]:
    """Return the options of the Spark source that ``--bootstrap-servers`` and ``--option`` give."""
    return {"kafka.bootstrap.servers": arguments.bootstrap, **dict(arguments.options)}
