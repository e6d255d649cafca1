"""The states of a group of the consumer protocol.

Source: Kafka's ``ConsumerGroupState``. The state follows from the members and the two epochs: it is never set.
"""

from enum import Enum


class ConsumerGroupState(Enum):
    """State of a consumer group. The value is the name that ConsumerGroupDescribe and ListGroups return."""

    EMPTY = "Empty"
    """The group has no members; it may have committed offsets. OffsetCommit without a member and DeleteGroups succeed.
    """

    ASSIGNING = "Assigning"
    """The group epoch is newer than the target assignment: the next heartbeat has it computed."""

    RECONCILING = "Reconciling"
    """There is a target, and at least one member has to revoke partitions, or waits for others to do so."""

    STABLE = "Stable"
    """Every member owns its target."""

    DEAD = "Dead"
    """The group was deleted, has expired, or is coordinated by another broker. This state is final."""
