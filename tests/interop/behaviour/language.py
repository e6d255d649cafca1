"""The language of scenarios: requests by API, version and content, sent over named connections, and what comes back.

A scenario is data. Contents are the fields of our message classes; what is left out has its schema's default, or zero.
Strings in them may name what an earlier answer held, or what every scenario is given:

    $topic, $group   names that no other scenario has; "$topic-b" is another one
    $member_id       what an earlier step saved under `member_id`

The same scenario is run against Apache Kafka and against Barnabas, and the answers are compared field by field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from barnabas_protocol.registry import ApiKey, api

#: When the records of scenarios were made, in ms since 1970.
START: Final = 1_700_000_000_000

Server = Literal["plain", "strict", "sharded", "expiring"]


@dataclass(frozen=True)
class Batch:
    """A record batch, built when it is sent: values, or (key, value), a second apart from each other."""

    values: tuple[str | tuple[str | None, str | None], ...] = ("v",)
    producer_id: int | str = -1
    epoch: int = -1
    sequence: int = -1
    compression: str = "none"
    start: int | None = START
    transactional: bool = False
    control: bool = False
    #: Bytes of the batch that are overwritten: (where, what).
    spoil: tuple[int, bytes] | None = None
    #: How often the batch stands in the request.
    times: int = 1


@dataclass(frozen=True)
class Subscription:
    """What a member of a group of type "consumer" says it wants."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Ask:
    """A request, and its answer unless `later`: then a `Hear` of the same connection takes the answer.

    Attributes:
        on: the connection; it is opened when it is first named.
        save: path in the answer by the name it is saved under.
        until: asked again until the answer has these values at these paths.
        quiet: the answer must have come, but is of no interest.
        only: of the list at a path, the elements that are told: those whose field has this value (path and field in
            one, as in ``{"topics.name": "$topic"}``).
        unanswered: there is no answer, as with acks=0.
        client_id: what the client calls itself.
    """

    api: ApiKey
    version: int
    content: Mapping[str, Any]
    on: str = "a"
    save: Mapping[str, str] = field(default_factory=dict)
    until: Mapping[str, Any] = field(default_factory=dict)
    later: bool = False
    quiet: bool = False
    client_id: str | None = "test"
    unanswered: bool = False
    only: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version}"


@dataclass(frozen=True)
class Hear:
    """The answer to the oldest request of this connection that was sent `later`."""

    on: str = "a"
    save: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False

    def __str__(self) -> str:
        return f"later, on {self.on}"


@dataclass(frozen=True)
class Raw:
    """Bytes instead of a message. What comes back is told as bytes, or that the connection was closed.

    `frame` is the whole request without its size; `size` overrides what is said to be its size.
    """

    frame: bytes
    on: str = "a"
    size: int | None = None

    def __str__(self) -> str:
        return "raw bytes"


@dataclass(frozen=True)
class Hang:
    """Close a connection without a word."""

    on: str = "a"

    def __str__(self) -> str:
        return f"hang up {self.on}"


Step = Ask | Hear | Raw | Hang


class Rule(Enum):
    """A behaviour of classic groups that implementers get wrong. Its value begins the names of its scenarios."""

    MEMBER_ID_FIRST = "Member id first (KIP-394)"
    PENDING_MEMBERS = "Pending members"
    UNKNOWN_MEMBERS = "Unknown members"
    FENCING = "Fencing (KIP-345)"
    STATIC_REJOIN = "Static member rejoins (KIP-345)"
    STATIC_LEADER_REJOIN = "Static leader rejoins (KIP-814)"
    INSTANCE_ID_FIRST = "Instance id before member id"
    INITIAL_DELAY = "Initial rebalance delay (KIP-134)"
    REBALANCE_TIMEOUT = "Rebalance timeout"
    END_OF_JOIN_PHASE = "End of the join phase"
    DEFERRED_JOIN = "Deferred JoinGroup"
    SESSION_TIMEOUT = "Session timeout bounds"
    JOIN_IN_COMPLETING = "JoinGroup in CompletingRebalance"
    JOIN_IN_STABLE = "JoinGroup in Stable"
    MEMBER_LIST = "Member list"
    PROTOCOL_SELECTION = "Protocol selection"
    MISSING_LEADER = "Missing leader"
    SYNC_PHASE = "Sync phase"
    SYNC_IN_STABLE = "SyncGroup in Stable"
    SYNC_TIMEOUT = "Sync timeout"
    HEARTBEATS = "Heartbeats"
    COMMIT_OUTSIDE_OF_GROUPS = "Commit outside of groups"
    COMMIT_OF_MEMBER = "Commit of a member"
    UNKNOWN_GROUP = "Unknown group"
    EMPTY_GROUP = "Empty group"
    OFFSET_EXPIRY = "Offset expiry"
    LEAVE_ERRORS = "LeaveGroup errors"
    FULL_GROUP = "Full group (KIP-389)"
    NO_PROTOCOL = "No protocol"
    COORDINATOR_PARTITION = "Coordinator partition"


@dataclass(frozen=True)
class Scenario:
    """Steps with a name, and the rule of classic groups that they show, if any."""

    name: str
    steps: tuple[Step, ...]
    rule: Rule | None = None
    server: Server = "plain"


@dataclass(frozen=True)
class Difference:
    """What is not as in Apache Kafka, and stays so.

    Attributes:
        title: what differs, from a user's point of view.
        reason: why it stays.
        where: pairs of patterns (as in shell file names) of a scenario's name and of a path in its answers.
    """

    title: str
    reason: str
    where: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """Scenarios about one thing, with the differences among them that stay."""

    title: str
    scenarios: tuple[Scenario, ...]
    differences: tuple[Difference, ...] = ()


def ask(
    api_key: ApiKey,
    version: int,
    /,
    *,
    on: str = "a",
    save: Mapping[str, str] | None = None,
    until: Mapping[str, Any] | None = None,
    later: bool = False,
    quiet: bool = False,
    unanswered: bool = False,
    only: Mapping[str, Any] | None = None,
    client_id: str | None = "test",
    **content: Any,
) -> Ask:
    """An `Ask` with its content as keyword arguments."""
    return Ask(api_key, version, content, on, save or {}, until or {}, later, quiet, client_id, unanswered, only or {})


def flat(*steps: Step | Sequence[Step]) -> tuple[Step, ...]:
    """Steps, out of steps and runs of steps."""
    return tuple(one for some in steps for one in ([some] if isinstance(some, Step) else some))


def spread(key: ApiKey, lowest: int | None = None) -> tuple[int, ...]:
    """An API's lowest version (or the lowest that Kafka 4 has), its highest, and one in the middle."""
    low, high = max(api(key).versions.low, lowest or 0), api(key).versions.high
    return tuple(sorted({low, (low + high + 1) // 2, high}))
