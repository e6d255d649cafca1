"""Members of the classic protocol in a group of the consumer protocol: what they bring, and what they get. Pure.

Such a member has a session timeout of its own, and its subscription and its assignment are bytes of the embedded
consumer protocol (:mod:`~barnabas_broker.groups.embedded_protocol`).
"""

from enum import Enum
from typing import NamedTuple

from barnabas_broker.groups.classic.members import Protocols
from barnabas_broker.groups.embedded_protocol import version_of


class MigrationPolicy(Enum):
    """Whether groups change their protocol while they have members: ``group.consumer.migration.policy``."""

    DISABLED = "disabled"
    """They do not, and members of the classic protocol may not join groups of the consumer protocol."""

    UPGRADE = "upgrade"
    """A classic group becomes one of the consumer protocol when the first such member joins."""

    DOWNGRADE = "downgrade"
    """A group becomes classic when its last member of the consumer protocol is gone."""

    BIDIRECTIONAL = "bidirectional"
    """Both."""

    @property
    def upgrades(self) -> bool:
        """Whether classic groups are upgraded."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether groups of the consumer protocol are downgraded."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ClassicMetadata(NamedTuple):
    """The part of a member's state that only members of the classic protocol have.

    Attributes:
        session_timeout_ms: its session timeout.
        protocols: the assignors that it supports, each with its subscription, in order of preference.
    """

    session_timeout_ms: int
    protocols: Protocols

    @property
    def protocol(self) -> str:
        """The assignor that its responses name: the first one."""
        return self.protocols[0][0]

    @property
    def version(self) -> int:
        """The version of its subscription, in which it gets its assignments, too."""
        return version_of(self.protocols[0][1])
