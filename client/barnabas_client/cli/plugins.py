"""Finds what other packages add to `barnabas` by entry points: commands, and the explanation of group events."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from barnabas_client.admin.types import MemberDescription
from barnabas_client.cli.command import Command
from barnabas_client.structs import ConsumerRecord

COMMANDS_GROUP: Final = "barnabas.commands"
EXPLAINERS_GROUP: Final = "barnabas.explainers"

#: What happened to a group, as data: `time` (ms since 1970), `generation`, `text`, `remedy` (or None), `details`
#: (sentences) and `data` (the events).
Explanation = dict[str, Any]


class RebuiltMember(Protocol):
    """A member of a group as its records describe it."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def topics(self) -> Iterable[str] | None: ...
    @property
    def partitions(self) -> Iterable[tuple[str, int]]: ...


class RebuiltEvents(Protocol):
    """The events of a group that are rebuilt from ``__consumer_offsets``, as values of ``__group_events``.

    The properties are what is known of the group after the newest record.
    """

    @property
    def generation(self) -> int | None:
        """The generation or group epoch; None if none was read."""

    @property
    def state(self) -> str:
        """Stable, Reconciling or Empty."""

    @property
    def protocol(self) -> str:
        """The name of the assignor, "" if it is not recorded."""

    @property
    def members(self) -> Sequence[RebuiltMember]:
        """The members."""

    @property
    def offsets(self) -> Mapping[tuple[str, int], int]:
        """The committed offsets by topic and partition."""

    @property
    def holes(self) -> int:
        """The number of offsets without a readable record."""

    def add(self, records: Iterable[ConsumerRecord]) -> list[bytes]:
        """Read further records of the group's partition, of all groups; returns the events that they tell."""

    def unstable_from(self, offset: int, records: int) -> list[bytes]:
        """So many records from `offset` on follow the beginning of an open transaction."""

    def finish(self) -> list[bytes]:
        """The events of what is open at the end of the records."""

    def observe(self, time: int, state: str, members: Iterable[MemberDescription]) -> list[bytes]:
        """Compare a described group with how it was at the last look; `time` is in ms since 1970."""


class ExplainEvents(Protocol):
    """Explains events of groups and transactions, and rebuilds those of groups where brokers do not record them."""

    def __call__(
        self, values: Iterable[bytes], *, since: int | None = None, generation: int | None = None
    ) -> list[Explanation]:
        """Explain events, oldest first.

        Args:
            values: the values of the group's records in ``__group_events``, oldest first.
            since: only events at or after this time, in ms since 1970.
            generation: only the events that led to this generation.
        """

    def transactions(
        self,
        values: Iterable[bytes],
        *,
        since: int | None = None,
        transactional_ids: Collection[str] | None = None,
        partitions: Collection[tuple[str, int]] | None = None,
    ) -> list[Explanation]:
        """Explain the events of transactions.

        Args:
            values: the values of records of ``__transaction_events``, in any order.
            since: only events at or after this time, in ms since 1970.
            transactional_ids: only events of these ids; None for all.
            partitions: only events of transactions with one of these partitions; None for all.
        """

    def rebuild(self, group: str, topic_name: Callable[[bytes], str | None]) -> RebuiltEvents:
        """Rebuild the events of a group.

        Args:
            group: the group.
            topic_name: returns the name of a topic by its id, None if it is not known.
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
