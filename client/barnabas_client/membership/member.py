"""Settings and states of a group member, and the snapshot that other threads read. Pure."""

from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas_client.config import GroupProtocol
from barnabas_client.errors import CommitFailedError, FencedInstanceIdError, RebalanceInProgressError
from barnabas_client.membership.effects import Coordinator, Revoke
from barnabas_protocol.errors import KafkaError

#: The generation of a member that has not joined, and of commits from outside of the group protocol.
NO_GENERATION: Final = -1


class MemberConfig(NamedTuple):
    """Names, and times in seconds; see :class:`~barnabas_client.config.ConsumerConfig` for what they mean."""

    group_id: str
    instance_id: str | None = None
    session_timeout: float = 10.0
    heartbeat_interval: float = 3.0
    max_poll_interval: float = 300.0
    rebalance_timeout: float = 300.0
    request_timeout: float = 40.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0
    rack: str | None = None
    protocol: GroupProtocol = "classic"
    remote_assignor: str | None = None

    @property
    def join_timeout(self) -> float:
        """Seconds to wait for JoinGroup and SyncGroup: they take as long as the slowest member, plus a margin for the
        network, as in Kafka."""
        return max(self.request_timeout, self.rebalance_timeout + 5.0)

    def fenced(self) -> KafkaError:
        """The error of a static member whose instance id another consumer has now."""
        return FencedInstanceIdError(
            f"another consumer of group {self.group_id!r} has taken over group_instance_id {self.instance_id!r}. "
            "To do: give each running consumer a group_instance_id of its own"
        )


class MemberState(Enum):
    """Where a member stands. The machines, :mod:`barnabas_client.membership.classic` and
    :mod:`barnabas_client.membership.consumer_member`, check their own transitions.

    SYNCING is a state of the classic protocol only, RECONCILING of the consumer protocol only, where JOINING lasts from
    the first heartbeat with epoch 0 until one is answered.
    """

    #: Not a member, or between two attempts to join. No heartbeats. Goes to JOINING, or FAILED.
    UNJOINED = auto()
    #: JoinGroup is in flight: the coordinator waits for the other members and expects no heartbeats. Goes to SYNCING;
    #: to UNJOINED if the request is refused or the connection breaks; or FAILED.
    JOINING = auto()
    #: Has a generation and waits for its assignment, which the leader computes. Heartbeats until SyncGroup is sent.
    #: Goes to STABLE; to UNJOINED if SyncGroup is refused, the connection breaks or the program does not poll; or
    #: FAILED.
    SYNCING = auto()
    #: Has an assignment from the coordinator that the program does not have yet: partitions are being revoked, or the
    #: names of topics are not known. Heartbeats, and may commit. Goes to STABLE; to UNJOINED when the membership is
    #: lost or left; or FAILED.
    RECONCILING = auto()
    #: Has its assignment and sends heartbeats, also while the program's partitions are revoked for the next rebalance.
    #: Goes to JOINING, or RECONCILING, for that rebalance; to UNJOINED when the membership is lost or left; or FAILED.
    STABLE = auto()
    #: Gave up, for the reason in `error`: fenced, not authorized, no common assignor. Goes to UNJOINED by a new
    #: subscription.
    FAILED = auto()


class CommitIdentity(NamedTuple):
    """The member that commits, as OffsetCommit carries it. Generation -1 and no member id: it is not in the group."""

    generation: int
    member_id: str
    instance_id: str | None


#: Commits as no member: the coordinator accepts them while the group has no members.
NOT_A_MEMBER: Final = CommitIdentity(NO_GENERATION, "", None)


class MemberView(NamedTuple):
    """A member at one moment. Immutable, so the membership's thread can hand it to the program's loop.

    Attributes:
        protocol: of the group.
        generation: of the group, in the consumer protocol the member epoch; -1 while it is not a member.
        member_id: given by the coordinator, or generated; empty while there is none.
        is_leader: whether it computes the assignment.
        coordinator: None while it is not known.
        error: why the membership failed for good.
        heartbeats: how many were answered.
        heartbeat_at: when the last one was answered, in seconds of the machine's clock; None before the first.
        obstacle: what the member waits for, and the last error; empty for one that has its assignment.
    """

    group_id: str
    instance_id: str | None = None
    protocol: GroupProtocol = "classic"
    state: MemberState = MemberState.UNJOINED
    generation: int = NO_GENERATION
    member_id: str = ""
    is_leader: bool = False
    coordinator: Coordinator | None = None
    error: KafkaError | None = None
    heartbeats: int = 0
    heartbeat_at: float | None = None
    obstacle: str = ""

    def has_lost(self, revoke: Revoke) -> bool:
        """Whether another member may own the partitions of `revoke` by now.

        A generation of the classic protocol ends together with the right to its partitions. A member epoch grows while
        partitions stay; they are lost only when the membership ends, and it does not begin again before they are given
        up.
        """
        ended = (
            self.generation == NO_GENERATION if self.protocol == "consumer" else self.generation != revoke.generation
        )
        return revoke.lost or ended

    def commit_identity(self) -> CommitIdentity:
        """The identity that this member's commits carry.

        While the member waits for the others to join, its generation still holds: the coordinator accepts commits with
        it until the join phase ends. In the sync phase it accepts none.

        Raises:
            RebalanceInProgressError: a rebalance is in progress; commit after it.
            CommitFailedError: this is not a member (any more).
            KafkaError: the membership failed for good.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.generation != NO_GENERATION and self.state is not MemberState.SYNCING:
            return CommitIdentity(self.generation, self.member_id, self.instance_id)
        if self.state in (MemberState.JOINING, MemberState.SYNCING):
            raise RebalanceInProgressError(
                f"commit to group {self.group_id!r}: the group is rebalancing. To do: poll until the rebalance is "
                "over, then commit again"
            )
        raise CommitFailedError(
            f"commit to group {self.group_id!r}: this consumer is not a member of the group now, and its partitions "
            "may be assigned to another member. To do: poll to rejoin; if processing took longer than "
            "max_poll_interval_ms, raise it or lower max_poll_records"
        )
