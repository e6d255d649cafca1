"""The language of scenarios: requests by API, version and content over named connections, and their responses.

A scenario is data. Contents are the fields of our message classes; omitted fields have the schema's default, or zero.
Strings in them may refer to saved values and to names that every scenario has:

    $topic, $group   names that no other scenario has; "$topic-b" is another one
    $member_id       the value that an earlier step saved as `member_id`

The same scenario runs against Apache Kafka and against Barnabas, and the responses are compared field by field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from barnabas_protocol.registry import ApiKey, api

#: The default timestamp of the first record of a batch, in ms since 1970.
START: Final = 1_700_000_000_000

Server = Literal["plain", "strict", "sharded", "expiring", "secured"]


@dataclass(frozen=True)
class Batch:
    """A record batch, built when it is sent: values, or (key, value) pairs, with timestamps one second apart."""

    values: tuple[str | tuple[str | None, str | None], ...] = ("v",)
    producer_id: int | str = -1
    epoch: int = -1
    sequence: int = -1
    compression: str = "none"
    start: int | None = START
    transactional: bool = False
    control: bool = False
    #: Bytes of the batch that are overwritten: (position, bytes).
    spoil: tuple[int, bytes] | None = None
    #: How often the request contains the batch.
    times: int = 1


@dataclass(frozen=True)
class Subscription:
    """The subscription of a member of a group of type "consumer"; version 1 has the partitions that it owns."""

    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    version: int = 0


@dataclass(frozen=True)
class Assignment:
    """The assignment of a member of a group of type "consumer": partitions by topic."""

    partitions: Mapping[str, tuple[int, ...]]
    user_data: bytes | None = None


@dataclass(frozen=True)
class Ask:
    """A request and its response. With `later`, a `Hear` of the same connection receives the response.

    Attributes:
        on: the connection; it is opened on first use.
        save: paths in the response by the names under which their values are saved.
        until: the request is repeated until the response has these values at these paths.
        quiet: the response must arrive, but is not compared.
        only: compare only the elements of a list whose field has this value (path of the list and field in one, as in
            ``{"topics.name": "$topic"}``).
        unanswered: the request has no response, as with acks=0.
        client_id: the client id of the request header.
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
    """The response to the oldest `later` request of this connection."""

    on: str = "a"
    save: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False

    def __str__(self) -> str:
        return f"later, on {self.on}"


@dataclass(frozen=True)
class Raw:
    """Bytes instead of a message. The result is the response as bytes, or that the connection was closed.

    `frame` is the whole request without its size; `size` overrides the size that is sent.
    """

    frame: bytes
    on: str = "a"
    size: int | None = None

    def __str__(self) -> str:
        return "raw bytes"


@dataclass(frozen=True)
class Hang:
    """Close a connection without a request."""

    on: str = "a"

    def __str__(self) -> str:
        return f"hang up {self.on}"


Step = Ask | Hear | Raw | Hang


class Rule(Enum):
    """A behaviour of classic groups that is easy to get wrong. The names of its scenarios begin with its value."""

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
    """Steps with a name, and the rule of classic groups that they test, if any.

    With `texts`, the wording of error messages is compared, too.
    """

    name: str
    steps: tuple[Step, ...]
    rule: Rule | None = None
    server: Server = "plain"
    texts: bool = False


@dataclass(frozen=True)
class Difference:
    """A permanent difference from Apache Kafka.

    Attributes:
        title: the difference, from a user's point of view.
        reason: why it stays.
        where: pairs of patterns (as in shell file names) of a scenario's name and of a path in its answers.
    """

    title: str
    reason: str
    where: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """Scenarios about one subject, with their permanent differences."""

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
    """Build an `Ask` with its content as keyword arguments."""
    return Ask(api_key, version, content, on, save or {}, until or {}, later, quiet, client_id, unanswered, only or {})


def flat(*steps: Step | Sequence[Step]) -> tuple[Step, ...]:
    """Flatten steps and sequences of steps."""
    return tuple(one for some in steps for one in ([some] if isinstance(some, Step) else some))


def spread(key: ApiKey, lowest: int | None = None) -> tuple[int, ...]:
    """Return an API's lowest version (or the lowest of Kafka 4), its highest, and one in the middle."""
    low, high = max(api(key).versions.low, lowest or 0), api(key).versions.high
    return tuple(sorted({low, (low + high + 1) // 2, high}))
