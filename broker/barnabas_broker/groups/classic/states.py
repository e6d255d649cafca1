"""The states of a group of the classic protocol, and the ways between them.

Source: Kafka's ``ClassicGroupState``.
"""

from enum import Enum
from typing import Final


class GroupState(Enum):
    """What a group is doing. The value is the name that DescribeGroups and ListGroups print."""

    EMPTY = "Empty"
    """No members; the group may hold committed offsets.

    Answers: JoinGroup of an unknown member starts a rebalance, of a known one UNKNOWN_MEMBER_ID; SyncGroup, Heartbeat
    and LeaveGroup UNKNOWN_MEMBER_ID; OffsetCommit with generation -1 is accepted; OffsetFetch, OffsetDelete,
    DeleteGroups too. Next: PREPARING_REBALANCE when a member is added, DEAD when the group is deleted, expires or
    moves away.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for all members to rejoin, at most for the largest rebalance timeout among them.

    Answers: JoinGroup is parked; SyncGroup and Heartbeat REBALANCE_IN_PROGRESS, but the heartbeat extends the session;
    OffsetCommit of the old generation is accepted and extends the session.
    Next: COMPLETING_REBALANCE when all have joined or the time is over, EMPTY when nobody is left, DEAD.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """All know the new generation; waits for the leader's assignment.

    Answers: SyncGroup is parked until the leader's assignment is in the log; Heartbeat NONE; OffsetCommit
    REBALANCE_IN_PROGRESS; JoinGroup with unchanged protocols the current generation, with changed ones a new rebalance.
    Next: STABLE when the assignment is persisted, PREPARING_REBALANCE when membership changes, DEAD.
    """

    STABLE = "Stable"
    """Every member has its share.

    Answers: Heartbeat NONE; SyncGroup the stored assignment; OffsetCommit of the generation is accepted; JoinGroup of
    an unchanged follower the current generation, any other a rebalance. Next: PREPARING_REBALANCE when membership or
    a subscription changes, DEAD.
    """

    DEAD = "Dead"
    """Deleted, expired, or coordinated elsewhere. Answers COORDINATOR_NOT_AVAILABLE. Next: nothing."""


#: Where a group can go from each state.
TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset((GroupState.PREPARING_REBALANCE, GroupState.DEAD)),
    GroupState.PREPARING_REBALANCE: frozenset((GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD)),
    GroupState.COMPLETING_REBALANCE: frozenset((GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD)),
    GroupState.STABLE: frozenset((GroupState.PREPARING_REBALANCE, GroupState.DEAD)),
    GroupState.DEAD: frozenset(),
}


class IllegalTransition(Exception):
    """A way between states that there is not: a bug in the machine, never a client's doing."""
