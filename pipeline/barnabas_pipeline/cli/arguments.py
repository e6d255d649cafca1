"""Arguments that all commands share."""

from argparse import Namespace


def source_options(arguments: Namespace) -> dict[str, str]:
    """Return the options of the Spark source that the brokers and ``--option`` give."""
    return {"kafka.bootstrap.servers": arguments.servers.text, **dict(arguments.options)}
