"""What others than the machine itself may know of a member: a snapshot. Pure and immutable, so that it can be handed
from the membership's thread to the program's loop."""

from dataclasses import dataclass

from barnabas_client.errors import CommitFailedError, RebalanceInProgressError
from barnabas_client.membership.types import NO_GENERATION, Coordinator, Identity, MemberState
from barnabas_protocol.errors import KafkaError


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberView:
    """A member at one moment.

    Attributes:
        state: where it stands.
        generation: of the group, -1 while it is no member.
        member_id: the coordinator's name for it, empty while it has none.
        leads: whether it makes the assignments.
        coordinator: None while it is looked for.
        error: why the membership failed for good.
        heartbeats: how many were answered.
        heartbeat_at: when the last of them was, in seconds of the machine's clock; None before the first.
    """

    group_id: str
    instance_id: str | None = None
    state: MemberState = MemberState.UNJOINED
    generation: int = NO_GENERATION
    member_id: str = ""
    leads: bool = False
    coordinator: Coordinator | None = None
    error: KafkaError | None = None
    heartbeats: int = 0
    heartbeat_at: float | None = None

    def commit_identity(self) -> Identity:
        """With what a commit of this member goes out.

        Raises:
            RebalanceInProgressError: not before the rebalance is over.
            CommitFailedError: this is no member (any more).
            KafkaError: the membership failed for good.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.state is MemberState.STABLE:
            return Identity(self.generation, self.member_id, self.instance_id)
        if self.generation != NO_GENERATION or self.state is MemberState.JOINING:
            raise RebalanceInProgressError(
                f"commit to group {self.group_id!r}: it is rebalancing. To do: poll until it is over, then commit again"
            )
        raise CommitFailedError(
            f"commit to group {self.group_id!r}: this consumer is no member of it now, and its partitions may have "
            "gone to another one. To do: poll to rejoin; if records took longer to process than max_poll_interval_ms, "
            "raise it or lower max_poll_records"
        )
