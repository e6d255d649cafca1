"""What this package adds to `barnabas`: commands that read the broker's files, and sentences for group events.

The program belongs to `barnabas_client`, which this package does not import. It finds :data:`COMMANDS` by the entry
point group ``barnabas.commands``. Each is a declaration as plain data, whose keys are the attributes of
``barnabas_client.cli.command.Command``; the program runs it with the parsed arguments and an :class:`output.Output`.
"""

from typing import Any, Final

from barnabas_broker.cli import dump_log, log_check

COMMANDS: Final[tuple[dict[str, Any], ...]] = (dump_log.COMMAND, log_check.COMMAND)
