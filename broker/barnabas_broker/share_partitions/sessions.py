"""Share sessions (Kafka's ``ShareSession``): the partitions from which a member fetches, without naming them each time.
Pure.

A member opens its session with epoch 0, adds and forgets partitions with the epochs that follow, and closes it with -1.
A session belongs to the connection that opened it, and ends with it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from barnabas_explain.members import Member
from barnabas_protocol.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1


class Waiting(Protocol):
    """A fetch that waits."""

    def wake(self) -> None:
        """Stop waiting."""


def nothing() -> None:
    """Do nothing."""


class Where(NamedTuple):
    """A partition as requests name it."""

    topic_id: bytes
    partition: int


@dataclass(eq=False, slots=True)
class ShareSession:
    """A session of a member.

    Attributes:
        group: its group.
        member: its id.
        identity: the member, as group events name it.
        epoch: of the next request.
        partitions: what it fetches, the one to begin with first.
        closed: whether it has ended.
        acknowledged: whether the member has acknowledged a record of this broker: accepted, released, rejected or
            renewed it.
        waiting: its fetches that wait; the end of the session wakes them.
        ended: called at its end.
    """

    group: str
    member: str
    identity: Member
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[Where, None] = field(default_factory=dict)
    closed: bool = False
    acknowledged: bool = False
    waiting: set[Waiting] = field(default_factory=set)
    ended: Callable[[], object] = nothing

    def rotate(self) -> None:
        """Begin with the next partition the next time, so that all get their turn."""
        if self.partitions:
            first = next(iter(self.partitions))
            del self.partitions[first]
            self.partitions[first] = None


class ShareSessions:
    """The share sessions of a broker.

    Args:
        slots: the most sessions.
        partitions: the most partitions that they have together.
    """

    def __init__(self, slots: int, partitions: int) -> None:
        self._slots = slots
        self._most = partitions
        self._partitions = 0
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, group: str, member: str, epoch: int) -> ShareSession:
        """Find the session of a request that opens none. Its epoch grows, unless the request ends it.

        Raises:
            KafkaError: SHARE_SESSION_NOT_FOUND; INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group, member))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = session.epoch + 1 if session.epoch < _LAST_EPOCH else INITIAL_EPOCH + 1
        return session

    def of(self, group: str, member: str) -> ShareSession | None:
        """The session of a member; None without."""
        return self._sessions.get((group, member))

    def open(self, group: str, identity: Member, partitions: Iterable[Where]) -> ShareSession:
        """Open a session for a member that has none.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        member = identity.member_id or ""
        session = ShareSession(group, member, identity, partitions=dict.fromkeys(partitions))
        if len(self._sessions) >= self._slots or self._partitions + len(session.partitions) > self._most:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._sessions[group, member] = session
        self._partitions += len(session.partitions)
        return session

    def update(self, session: ShareSession, added: Iterable[Where], forgotten: Iterable[Where]) -> None:
        """Add and forget partitions.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED; nothing was added.
        """
        new = [where for where in dict.fromkeys(added) if where not in session.partitions]
        if self._partitions + len(new) > self._most:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        before = len(session.partitions)
        session.partitions.update(dict.fromkeys(new))
        for where in forgotten:
            session.partitions.pop(where, None)
        self._partitions += len(session.partitions) - before

    def close(self, session: ShareSession) -> None:
        """End a session; nothing happens if it has ended."""
        if not session.closed:
            session.closed = True
            self._partitions -= len(session.partitions)
            del self._sessions[session.group, session.member]

    def of_group(self, group: str) -> bool:
        """Whether a member of the group has a session."""
        return any(session.group == group for session in self._sessions.values())
