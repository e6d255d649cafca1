"""Finds the commands that other packages add to `barnabas` by entry points."""

from importlib.metadata import entry_points
from typing import Final

from barnabas_client.cli.command import Command

COMMANDS_GROUP: Final = "barnabas.commands"


def plugin_commands() -> list[Command]:
    """The commands that other packages add by an entry point of the group ``barnabas.commands``.

    The entry point is an iterable of mappings, whose keys are the attributes of :class:`Command`. `barnabas dump log`
    comes from the broker's package in this way, which this package does not import.
    """
    return [Command(**declaration) for point in entry_points(group=COMMANDS_GROUP) for declaration in point.load()]
