"""Rebuilt events as values of records of ``__group_events``, for readers that also read those of a broker. Pure."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from barnabas_explain.catalog import GroupEvent
from barnabas_explain.members import Partition
from barnabas_explain.rebuild.history import RebuiltMember
from barnabas_explain.rebuild.rebuilder import GroupRebuilder, LogRecord
from barnabas_explain.records import encode_event


class DescribedMember(Protocol):
    """A member of a group, as the response to DescribeGroups has it."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def topics(self) -> Sequence[str]: ...
    @property
    def partitions(self) -> Sequence[Partition]: ...


class RebuiltEvents:
    """The events of a group that are rebuilt, as values of records of ``__group_events``.

    Args:
        group: the group.
        topic_name: the name of a topic by its id, None if it is not known.
    """

    def __init__(self, group: str, topic_name: Callable[[bytes], str | None]) -> None:
        self._rebuilder = GroupRebuilder(group, topic_name)

    @property
    def generation(self) -> int | None:
        """The generation or group epoch after the newest record; None if none was read."""
        return self._rebuilder.generation

    @property
    def state(self) -> str:
        """The state of the group after the newest record: Stable, Reconciling or Empty."""
        return self._rebuilder.state

    @property
    def protocol(self) -> str:
        """The name of the assignor after the newest record, "" if it is not recorded."""
        return self._rebuilder.protocol

    @property
    def members(self) -> list[RebuiltMember]:
        """The members after the newest record."""
        return self._rebuilder.members

    @property
    def offsets(self) -> dict[Partition, int]:
        """The committed offsets after the newest record."""
        return {name: committed.offset for name, committed in self._rebuilder.offsets.items()}

    @property
    def holes(self) -> int:
        """The number of offsets without a readable record so far: compacted records, and markers of transactions."""
        return self._rebuilder.holes

    def add(self, records: Iterable[LogRecord]) -> list[bytes]:
        """Read further records of the group's partition of ``__consumer_offsets``; the events that they tell."""
        return _encoded(self._rebuilder.add(records))

    def unstable_from(self, offset: int, records: int) -> list[bytes]:
        """So many records from `offset` on follow the beginning of an open transaction."""
        return _encoded(self._rebuilder.unstable_from(offset, records))

    def finish(self) -> list[bytes]:
        """The events of what is open at the end of the records."""
        return _encoded(self._rebuilder.finish())

    def observe(self, time: int, state: str, members: Iterable[DescribedMember]) -> list[bytes]:
        """Compare the group with how it was at the last look; `time` is in ms since 1970."""
        seen = [
            RebuiltMember(
                one.member_id,
                one.instance_id,
                one.client_id,
                one.host,
                topics=frozenset(one.topics),
                partitions=frozenset((topic, partition) for topic, partition in one.partitions),
            )
            for one in members
        ]
        return _encoded(self._rebuilder.observe(time, state, seen))


def _encoded(events: Iterable[GroupEvent]) -> list[bytes]:
    return [encode_event(event) for event in events]
