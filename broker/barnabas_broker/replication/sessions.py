"""Fetch sessions (KIP-227). Pure: a client names its partitions once and then only what changed; the broker answers
only the partitions that have something to say.

Kafka's FetchSession and FetchContext do the same. A session that is not found or out of step is answered with an
error, and the client starts a new one with a full request, so a session may be dropped at any time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

#: Seconds after which an idle session gives way to a new one (min.incremental.fetch.session.eviction.ms).
EVICTION_SECONDS: Final = 120.0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0


class Target(NamedTuple):
    """A topic as a request names it: by name up to version 12, by id from 13 on. Only one of the two counts."""

    topic: str
    topic_id: bytes


@dataclass(slots=True)
class Wanted:
    """What is asked of one partition, and what was last answered."""

    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    #: Where the log of a follower that asks begins.
    follower_log_start: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1

    def news(self, answer: PartitionData) -> bool:
        """Whether `answer` says anything that the client does not know; remembers it as said."""
        told = (
            bool(answer.records)
            or answer.error_code != ErrorCode.NONE
            or answer.diverging_epoch is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        if answer.error_code == ErrorCode.NONE:
            self.high_watermark = answer.high_watermark
            self.log_start_offset = answer.log_start_offset
        else:
            self.high_watermark = -1  # so that the recovery is told as well
        return told


@dataclass(slots=True)
class Session:
    """A client's standing request. `partitions` are in the order in which they are served."""

    session_id: int
    by_id: bool
    used: float
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[tuple[Target, int], Wanted] = field(default_factory=dict)


@dataclass(slots=True)
class Fetch:
    """One request with its session resolved: what to read, and how to trim the answer."""

    wanted: dict[tuple[Target, int], Wanted]
    session: Session | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

    def trim(self, response: FetchResponse) -> None:
        """Name the session, and leave out of an incremental answer what says nothing new."""
        if self.session is None:
            return
        response.session_id = self.session.session_id
        partitions = self.session.partitions
        for topic in response.responses:
            target = Target(topic.topic, topic.topic_id)
            kept = []
            for answer in topic.partitions:
                key = (target, answer.partition_index)
                wanted = partitions.get(key)
                if wanted is None:
                    kept.append(answer)
                    continue
                news = wanted.news(answer)
                if news or not self.incremental:
                    kept.append(answer)
                if answer.records:
                    partitions[key] = partitions.pop(key)
            topic.partitions = kept
        if self.incremental:
            response.responses = [topic for topic in response.responses if topic.partitions]


class SessionCache:
    """The sessions of a broker.

    Args:
        slots: how many are kept.
        new_id: makes session ids, positive int32.
    """

    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, version: int, now: float) -> Fetch:
        """Turn a request into what is to be read.

        Args:
            request: the request.
            version: its version; from 13 on topics are named by id.
            now: seconds.
        """
        by_id = version >= 13
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                self._sessions.pop(request.session_id, None)
            wanted = _wanted(request)
            if request.session_epoch == FINAL_EPOCH or not wanted:
                return Fetch(wanted)
            return Fetch(wanted, self._open(wanted, by_id, now))
        session = self._sessions.get(request.session_id)
        if session is None:
            return Fetch({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id is not by_id:
            return Fetch({}, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            return Fetch({}, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        for key, wanted_now in _wanted(request).items():
            known = session.partitions.get(key)
            # A follower may not have looked at what it was told by the leader of another epoch.
            if known is not None and known.leader_epoch == wanted_now.leader_epoch:
                wanted_now.high_watermark, wanted_now.log_start_offset = known.high_watermark, known.log_start_offset
            session.partitions[key] = wanted_now
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                session.partitions.pop((Target(topic.topic, topic.topic_id), partition), None)
        if not session.partitions:
            del self._sessions[session.session_id]
            return Fetch({})
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        session.used = now
        # The least recently used first, so that the front is what may be evicted.
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return Fetch(dict(session.partitions), session, incremental=True)

    def _open(self, wanted: dict[tuple[Target, int], Wanted], by_id: bool, now: float) -> Session | None:
        """A new session, or None where all slots are in use: the client then goes on without."""
        if self._slots <= 0:
            return None
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used < EVICTION_SECONDS:
                return None
            del self._sessions[oldest.session_id]
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = Session(session_id, by_id, now, partitions=dict(wanted))
        self._sessions[session_id] = session
        return session


def _wanted(request: FetchRequest) -> dict[tuple[Target, int], Wanted]:
    return {
        (Target(topic.topic, topic.topic_id), p.partition): Wanted(
            p.partition,
            p.fetch_offset,
            p.partition_max_bytes,
            p.current_leader_epoch,
            p.last_fetched_epoch,
            p.log_start_offset,
        )
        for topic in request.topics
        for p in topic.partitions
    }
