"""The settings of groups of the consumer protocol. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas_broker.groups.consumer.classic_members import MigrationPolicy
from barnabas_broker.groups.consumer.topics import TopicCatalog


class GroupTimes(NamedTuple):
    """The times that a group may have of its own.

    Attributes:
        session_timeout: seconds without a heartbeat after which a member is removed.
        heartbeat_interval: ms that a member waits between two heartbeats.
        assignment_interval: seconds between two target assignments at least.
    """

    session_timeout: float = 45.0
    heartbeat_interval: int = 5000
    assignment_interval: float = 1.0


DEFAULT_TIMES: Final = GroupTimes()


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The settings of all groups of a coordinator.

    Attributes:
        new_id: makes the member id of a client that has none (ConsumerGroupHeartbeat 0).
        assignors: the names of the assignors, the default first.
        topics: the topics of the cluster.
        times: of the groups that have none of their own.
        own_times: of the groups that have, by group id; after a change :meth:`ConsumerGroup.times_changed` is called.
        regex_interval: seconds after which regular expressions are matched again, even without new topics.
        max_size: maximum number of members.
        max_record_bytes: of a record; a larger one does not fit into a batch.
        max_migration_bytes: of the records that change a group's protocol, before they are compressed: replays read
            batches of up to twice this size.
        migration: whether groups change their protocol while they have members.
        classic_max_size: maximum number of members of the classic group that this one may become.
    """

    new_id: Callable[[], str]
    assignors: tuple[str, ...]
    topics: TopicCatalog
    times: GroupTimes = DEFAULT_TIMES
    own_times: Mapping[str, GroupTimes] = field(default_factory=dict)
    regex_interval: float = 600.0
    max_size: int = 2**31 - 1
    max_record_bytes: int = 900 * 1024
    max_migration_bytes: int = 8 * 1024 * 1024
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic_max_size: int = 2**31 - 1
