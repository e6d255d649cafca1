"""Additions to `barnabas`: commands for the broker's files and metadata, and sentences for group events.

The program belongs to `barnabas_client`, which this package does not import. It finds :data:`COMMANDS` by the entry
point group ``barnabas.commands``. Each is a declaration as plain data, whose keys are the attributes of
``barnabas_client.cli.command.Command``; the program runs it with the parsed arguments and an :class:`output.Output`.
"""

from typing import Any, Final

from barnabas_broker.cli import certs, cluster_images, dev, dump_log, log_check, log_strays

COMMANDS: Final[tuple[dict[str, Any], ...]] = (
    dev.COMMAND,
    certs.COMMAND,
    cluster_images.EXPORT,
    cluster_images.RESTORE,
    dump_log.COMMAND,
    log_check.COMMAND,
    log_strays.COMMAND,
)
