"""The heartbeats of a member whose coordinator computes the assignment (KIP-848, KIP-932). Pure.

A part of two machines (:mod:`barnabas_client.membership.consumer_member`, :mod:`barnabas_client.shares.member`): one
request joins, tells what has changed, returns the assignment and leaves. After an error, or without an answer, the next
heartbeat tells everything, because the coordinator may have processed the one before or not. The machine builds the
requests, and does what follows from an assignment or from the end of its membership.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

from barnabas_client.membership.member import MemberConfig, MemberState
from barnabas_client.membership.search import COORDINATOR_GONE, HOPELESS
from barnabas_client.membership.standing import Standing
from barnabas_protocol.backoff import Backoff, Jitter
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.schema import Request

if TYPE_CHECKING:
    # A machine needs one of them only.
    from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

Answer: TypeAlias = "ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse"

#: The epochs of a heartbeat that joins, and that leaves for good.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
#: The states of a member that has an epoch.
MEMBER: Final = (MemberState.STABLE, MemberState.RECONCILING)

#: Minimum seconds that the coordinator has to answer: it never holds a heartbeat back.
_LEAST_PATIENCE: Final = 10.0

#: What a machine tells about its member.
T = TypeVar("T")


class TopicIdPartition(NamedTuple):
    """A partition as the coordinator names it: a topic that was deleted and created again is another one."""

    topic_id: bytes
    partition: int


Partitions = frozenset[TopicIdPartition]


def assigned_partitions(response: Answer) -> Partitions | None:
    """Read the assignment in the response to a heartbeat; None if it has not changed."""
    if response.assignment is None:
        return None
    topics = response.assignment.topic_partitions
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
        return cls.RETRIABLE if code.retriable else cls.FINAL


class Heartbeats(Generic[T]):
    """The epoch of a member, when its next heartbeat is due, what that has to tell, and what follows from the answer.

    Args:
        config: the back-offs, and the interval until the coordinator gives one.
        standing: of the machine.
        removed: ends the membership, because the coordinator has.
        final: makes the error of a heartbeat that cannot succeed, from the broker's error and message.
        jitter: for the back-offs.
    """

    def __init__(
        self,
        config: MemberConfig,
        standing: Standing,
        removed: Callable[[], None],
        final: Callable[[ErrorCode, str | None], KafkaError],
        jitter: Jitter,
    ) -> None:
        self.epoch = JOIN_EPOCH
        #: The ticket of the heartbeat in flight; one at a time.
        self.ticket: int | None = None
        #: What the coordinator knows; None: everything must be told.
        self.told: T | None = None
        self._config = config
        self._standing = standing
        self._removed = removed
        self._final = final
        self._telling: T | None = None  # in the heartbeat in flight
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max, jitter)
        self._join_backoff = Backoff(config.retry_backoff, config.retry_backoff_max, jitter)
        self._interval = config.heartbeat_interval
        self._at = 0.0  # the next one if there is nothing to tell
        self._earliest = 0.0  # none before

    def due(self, tells: T) -> float | None:
        """When the next one is due: as soon as there is something to tell, or after the interval; None while one is in
        flight, or the coordinator is not known."""
        if self.ticket is not None or self._standing.coordinator is None:
            return None
        news = self._standing.state not in MEMBER or self.told != tells
        return self._earliest if news else max(self._at, self._earliest)

    def begin(self, member_id: str) -> None:
        """The next one is about to be sent: it joins, if this is not a member."""
        if self._standing.state is MemberState.UNJOINED:
            self._standing.to(MemberState.JOINING)
            self.told = None
            self._standing.out.note("joining the group", member=member_id)

    def send(self, request: Request, tells: T, now: float) -> None:
        """Send one."""
        # So that another one follows before the session expires.
        patience = min(self._config.request_timeout, max(_LEAST_PATIENCE, 2 * self._interval))
        self.ticket = self._standing.out.send(request, self._standing.coordinator, patience)
        self._telling = tells
        self._at = now + self._interval

    def answered(self, ticket: int, response: Answer, now: float) -> bool:
        """A heartbeat was answered; whether it was the one in flight, and succeeded. If it did not, what follows has
        been done."""
        if ticket != self.ticket:
            return False
        self.ticket = None
        code = ErrorCode.of(response.error_code)
        if code != ErrorCode.NONE:
            self._refused(code, response.error_message, now)
            return False
        if not is_valid(response.member_epoch, assigned_partitions(response)):
            self._standing.last_error = "the heartbeat was answered with an invalid member epoch or assignment"
            self._try_again(now)
            return False
        self._standing.beaten(now)
        self.epoch, self.told = response.member_epoch, self._telling
        self._backoff.succeeded()
        if response.heartbeat_interval_ms > 0:
            self._interval = max(response.heartbeat_interval_ms / 1000, self._config.retry_backoff)
        self._at = now + self._interval
        if self._standing.state is not MemberState.JOINING:
            self._join_backoff.succeeded()  # only now: a join that succeeds may be followed by a fence for ever
        return True

    def _refused(self, code: ErrorCode, message: str | None, now: float) -> None:
        self._standing.last_error = f"a heartbeat was answered {code.name}"
        refusal = Refusal.of(code, member=self._standing.state in MEMBER)
        if refusal is Refusal.REMOVED:
            # It joins again, the second time in a row after a pause.
            first, pause = self._join_backoff.failures == 0, self._join_backoff.failed()
            self._earliest = now if first else now + pause
            self._standing.out.warn("lost the membership", epoch=self.epoch, reason=code.name)
            self._removed()
        elif refusal is Refusal.COORDINATOR_GONE:
            self.lose_coordinator(self._standing.last_error, now)
        elif refusal is Refusal.RETRIABLE:
            self._try_again(now)
        else:
            self._standing.give_up(self._final(code, message))

    def failed(self, ticket: int, error: KafkaError, now: float) -> None:
        """A request got no response: do what follows, if it was the heartbeat in flight."""
        if ticket != self.ticket:
            return
        if error.code not in HOPELESS:
            self.lose_coordinator(str(error), now)
        elif error.code == ErrorCode.UNSUPPORTED_VERSION:
            self._standing.give_up(self._final(error.code, str(error)))
        else:
            self._standing.give_up(error)

    def lose_coordinator(self, reason: str, now: float) -> None:
        """Look for the coordinator again. The membership and the assignment stay."""
        self._standing.last_error = reason
        self.forget()
        self._standing.search.lose(reason, now)

    def hurry(self, now: float) -> None:
        """The next one is due now, although there is nothing to tell."""
        self._at = min(self._at, now)

    def _try_again(self, now: float) -> None:
        """Tell everything again, after a pause."""
        self.told = None
        self._earliest = now + self._backoff.failed()

    def left(self, now: float) -> None:
        """The program has left the group; it may join again at once."""
        self._earliest = now

    def forget(self) -> None:
        """The answer to the one in flight does not count, and the coordinator knows nothing."""
        self.ticket = self.told = None

    def end(self) -> None:
        """This is not a member any more."""
        self.epoch = JOIN_EPOCH
        self.forget()
