"""The heartbeats of a member whose coordinator computes the assignment (KIP-848, KIP-932). Pure.

A part of two machines (:mod:`barnabas_client.membership.consumer_member`, :mod:`barnabas_client.shares.member`): one
request joins, tells what has changed, returns the assignment and leaves. After an error, or without an answer, the next
heartbeat tells everything, because the coordinator may have processed the one before or not. Times are those of the
machine, which builds the requests and changes its state.
"""

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas_client.membership.member import MemberConfig
from barnabas_client.membership.search import COORDINATOR_GONE
from barnabas_protocol.backoff import Backoff, Jitter
from barnabas_protocol.errors import ErrorCode

#: The epochs of a heartbeat that joins, and that leaves for good.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

#: Minimum seconds that the coordinator has to answer: it never holds a heartbeat back.
_LEAST_PATIENCE: Final = 10.0

#: What a machine tells about its member.
T = TypeVar("T")


class TopicIdPartition(NamedTuple):
    """A partition as the coordinator names it: a topic that was deleted and created again is another one."""

    topic_id: bytes
    partition: int


Partitions = frozenset[TopicIdPartition]


class TopicPartitions(Protocol):
    """Partitions of one topic in the response to a heartbeat."""

    topic_id: bytes
    partitions: list[int]


def assigned_partitions(topics: Iterable[TopicPartitions]) -> Partitions:
    """Read the assignment in the response to a heartbeat."""
    return frozenset(TopicIdPartition(bytes(topic.topic_id), number) for topic in topics for number in topic.partitions)


def is_valid(epoch: int, assigned: Partitions | None) -> bool:
    """Whether a response has the epoch of a member, and partitions that can exist."""
    return epoch > JOIN_EPOCH and all(one.partition >= 0 for one in assigned or ())


class Refusal(Enum):
    """The meaning of an error code in the response to a heartbeat."""

    #: The coordinator has removed this member, or does not know it.
    REMOVED = auto()
    #: The coordinator is another broker, or unknown.
    COORDINATOR_GONE = auto()
    #: The broker does not have this protocol.
    UNSUPPORTED = auto()
    #: The same heartbeat may succeed later.
    RETRIABLE = auto()
    #: No heartbeat of this member will succeed.
    FINAL = auto()

    @classmethod
    def of(cls, code: ErrorCode, *, member: bool) -> "Refusal":
        """Classify an error code; `member` is whether the heartbeat was that of a member, not of a join."""
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            return cls.REMOVED
        if code == ErrorCode.GROUP_ID_NOT_FOUND and member:
            return cls.REMOVED
        if code in COORDINATOR_GONE:
            return cls.COORDINATOR_GONE
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return cls.UNSUPPORTED
        return cls.RETRIABLE if code.retriable else cls.FINAL


class Heartbeats(Generic[T]):
    """When the next heartbeat is due, and what it has to tell.

    Args:
        config: the back-offs, and the interval until the coordinator gives one.
        jitter: for the back-offs.
    """

    def __init__(self, config: MemberConfig, jitter: Jitter) -> None:
        #: The ticket of the heartbeat in flight; one at a time.
        self.ticket: int | None = None
        #: What the coordinator knows; None: everything must be told.
        self.told: T | None = None
        self._config = config
        self._telling: T | None = None  # in the heartbeat in flight
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max, jitter)
        self._join_backoff = Backoff(config.retry_backoff, config.retry_backoff_max, jitter)
        self._interval = config.heartbeat_interval
        self._at = 0.0  # the next one if there is nothing to tell
        self._earliest = 0.0  # none before

    def due(self, tells: T, *, member: bool) -> float:
        """When the next one is due: as soon as there is something to tell, or after the interval."""
        news = not member or self.told != tells
        return self._earliest if news else max(self._at, self._earliest)

    @property
    def patience(self) -> float:
        """Seconds to wait for the answer, so that another heartbeat follows before the session expires."""
        return min(self._config.request_timeout, max(_LEAST_PATIENCE, 2 * self._interval))

    def sent(self, ticket: int, tells: T, now: float) -> None:
        """A heartbeat is in flight."""
        self.ticket, self._telling = ticket, tells
        self._at = now + self._interval

    def succeeded(self, interval_ms: int, now: float, *, joined: bool) -> None:
        """The heartbeat in flight succeeded; `joined`: it made this a member."""
        self.told = self._telling
        self._backoff.succeeded()
        if interval_ms > 0:
            self._interval = max(interval_ms / 1000, self._config.retry_backoff)
        self._at = now + self._interval
        if not joined:
            self._join_backoff.succeeded()  # only now: a join that succeeds may be followed by a fence for ever

    def hurry(self, now: float) -> None:
        """The next one is due now, although there is nothing to tell."""
        self._at = min(self._at, now)

    def try_again(self, now: float) -> None:
        """Tell everything again, after a pause."""
        self.told = None
        self._earliest = now + self._backoff.failed()

    def removed(self, now: float) -> None:
        """This is not a member any more: join again, the second time in a row after a pause."""
        first, pause = self._join_backoff.failures == 0, self._join_backoff.failed()
        self._earliest = now if first else now + pause

    def left(self, now: float) -> None:
        """The program has left the group; it may join again at once."""
        self._earliest = now

    def forget(self) -> None:
        """The answer to the one in flight does not count, and the coordinator knows nothing."""
        self.ticket = self.told = None
