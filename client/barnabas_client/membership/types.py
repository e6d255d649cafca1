"""The words of :mod:`barnabas_client.membership.classic`: settings, states and effects. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.schema import Request

NO_GENERATION: Final = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberConfig:
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

    @property
    def round_timeout(self) -> float:
        """JoinGroup and SyncGroup wait for the slowest member, and a little for the network, as in Kafka."""
        return max(self.request_timeout, self.rebalance_timeout + 5.0)


class MemberState(Enum):
    """Where a member stands (K2)."""

    UNJOINED = "no member, or a member between two attempts to join. No heartbeats. To JOINING, or FAILED."
    JOINING = (
        "JoinGroup is under way, the coordinator waits for the other members and needs no heartbeats. To SYNCING; to "
        "UNJOINED if "
        "it is refused or the connection breaks; or FAILED."
    )
    SYNCING = (
        "has a generation, waits for its share; the leader decides. Heartbeats until SyncGroup is sent. To STABLE; to "
        "UNJOINED if "
        "it is refused, the connection breaks or the program does not poll; or FAILED."
    )
    STABLE = (
        "has its partitions and sends heartbeats, also while it waits for the program to let go of them for a new "
        "round. To "
        "JOINING for that; to UNJOINED when the membership is lost or left; or FAILED."
    )
    FAILED = (
        "gave up, `error` says why: fenced, not authorized, no assignor in common. To UNJOINED by subscribing again."
    )


TRANSITIONS: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    MemberState.UNJOINED: frozenset({MemberState.UNJOINED, MemberState.JOINING, MemberState.FAILED}),
    MemberState.JOINING: frozenset({MemberState.SYNCING, MemberState.UNJOINED, MemberState.FAILED}),
    MemberState.SYNCING: frozenset({MemberState.STABLE, MemberState.UNJOINED, MemberState.FAILED}),
    MemberState.STABLE: frozenset({MemberState.JOINING, MemberState.UNJOINED, MemberState.FAILED}),
    MemberState.FAILED: frozenset({MemberState.UNJOINED, MemberState.FAILED}),
}


class Coordinator(NamedTuple):
    """The broker that coordinates the group."""

    node_id: int
    host: str
    port: int


class Identity(NamedTuple):
    """What a commit says about who sends it; generation -1 and no member id is a commit from outside of the group."""

    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send this, in its newest form, to the coordinator; to any broker if `to` is None. `timeout` in seconds."""

    ticket: int
    request: Request
    to: Coordinator | None
    timeout: float


@dataclass(frozen=True, slots=True)
class Revoke:
    """Take these partitions from the program: when it polls next, commit (unless `lost`) and call its listener.

    They are `lost` if others may have them already; so they are if the member's generation is not `generation` any more
    when the program comes.
    """

    ticket: int
    partitions: frozenset[TopicPartition]
    lost: bool
    generation: int


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions are this member's in `generation`; `added` are those it did not have until now."""

    partitions: frozenset[TopicPartition]
    added: frozenset[TopicPartition]
    generation: int


@dataclass(frozen=True, slots=True)
class AskCluster:
    """Find out how many partitions these topics have, and watch them from now on."""

    ticket: int
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Nothing that waits on the connection to this coordinator will be answered."""

    coordinator: Coordinator
    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The program must know: its next poll raises this."""

    error: KafkaError


@dataclass(frozen=True, slots=True)
class Note:
    """For the log."""

    event: str
    fields: Mapping[str, object] = field(default_factory=dict)
    warns: bool = False


Effect = Send | Revoke | Assign | AskCluster | Disconnect | Fail | Note
