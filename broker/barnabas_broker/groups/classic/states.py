"""The states of a classic group, and the transitions between them.

Source: Kafka's ``ClassicGroupState``.
"""

from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """State of a classic group. The value is the name that DescribeGroups and ListGroups return."""

    EMPTY = "Empty"
    """The group has no members; it may have committed offsets.

    Responses: JoinGroup of a new member starts a rebalance; JoinGroup with a member id, SyncGroup, Heartbeat and
    LeaveGroup fail with UNKNOWN_MEMBER_ID; OffsetCommit with generation -1 is accepted, and so are OffsetFetch,
    OffsetDelete and DeleteGroups.
    Next: PREPARING_REBALANCE when a member is added; DEAD when the group is deleted, expires or is unloaded.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: the group waits for its members to rejoin, at most for the largest rebalance timeout.

    Responses: JoinGroup is deferred; SyncGroup and Heartbeat fail with REBALANCE_IN_PROGRESS, but the heartbeat extends
    the session; OffsetCommit of the old generation is accepted and extends the session.
    Next: COMPLETING_REBALANCE when all members have joined or the rebalance timeout is over; EMPTY when no member is
    left; DEAD.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: all members know the new generation, and the group waits for the leader's assignment.

    Responses: SyncGroup is deferred until the assignment is in the log; Heartbeat succeeds; OffsetCommit fails with
    REBALANCE_IN_PROGRESS; JoinGroup with unchanged protocols returns the current generation, with changed protocols it
    starts another rebalance.
    Next: STABLE when the assignment is in the log; PREPARING_REBALANCE when membership changes; DEAD.
    """

    STABLE = "Stable"
    """Every member has its assignment.

    Responses: Heartbeat succeeds; SyncGroup returns the stored assignment; OffsetCommit of the generation is accepted;
    JoinGroup of an unchanged follower returns the current generation, any other JoinGroup starts a rebalance.
    Next: PREPARING_REBALANCE when membership or a subscription changes; DEAD.
    """

    DEAD = "Dead"
    """The group was deleted, has expired, or is coordinated by another broker. This state is final.

    Responses: every request fails with COORDINATOR_NOT_AVAILABLE.
    """


#: The states that can follow each state.
TRANSITIONS: Final[dict[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset((ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD)),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY, ClassicGroupState.DEAD)
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD)
    ),
    ClassicGroupState.STABLE: frozenset((ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD)),
    ClassicGroupState.DEAD: frozenset(),
}
