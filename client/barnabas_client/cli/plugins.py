"""Finds what other packages add to `barnabas` by entry points: commands, and the explanation of group events."""

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from barnabas_client.cli.command import Command

COMMANDS_GROUP: Final = "barnabas.commands"
EXPLAINERS_GROUP: Final = "barnabas.explainers"

#: What happened to a group, as data: `time` (ms since 1970), `generation`, `text`, `remedy` (or None), `details`
#: (sentences) and `data` (the events).
Explanation = dict[str, Any]


class ExplainEvents(Protocol):
    """Explains the events of a group."""

    def __call__(
        self, values: Iterable[bytes], *, since: int | None = None, generation: int | None = None
    ) -> list[Explanation]:
        """Explain events, oldest first.

        Args:
            values: the values of the group's records in ``__group_events``, oldest first.
            since: only events at or after this time, in ms since 1970.
            generation: only the events that led to this generation.
        """


def plugin_commands() -> list[Command]:
    """The commands that other packages add by an entry point of the group ``barnabas.commands``.

    The entry point is an iterable of mappings, whose keys are the attributes of :class:`Command`. `barnabas dump log`
    comes from the broker's package in this way, which this package does not import.
    """
    return [Command(**declaration) for point in entry_points(group=COMMANDS_GROUP) for declaration in point.load()]


def find_explainer() -> ExplainEvents | None:
    """The function that explains group events, None if it is not installed.

    It is an entry point of the group ``barnabas.explainers`` in the package that writes the events.
    """
    for point in entry_points(group=EXPLAINERS_GROUP):
        explainer: ExplainEvents = point.load()
        return explainer
    return None
