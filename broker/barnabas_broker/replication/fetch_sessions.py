"""Fetch sessions (KIP-227, Kafka's ``FetchSession``). Pure.

A client names its partitions once, and then only those that change; the broker returns only partitions with news. A
session that is unknown or out of step is answered with an error, and the client starts a new one with a full request,
so the broker may drop a session at any time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas_broker.steps import Steps
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

#: Seconds after which an idle session may be evicted (``min.incremental.fetch.session.eviction.ms``).
EVICTION_SECONDS: Final = 120.0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0


class TopicKey(NamedTuple):
    """A topic as a Fetch request names it: by name up to version 12, by id from version 13 on. The other is empty."""

    topic: str
    topic_id: bytes


@dataclass(slots=True)
class CachedPartition:
    """Request of a client about one partition, and the last answer to it."""

    partition: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    #: The log start offset of the follower that fetches.
    follower_log_start: int = -1
    #: The id of the follower's data directory; zeros if it sends none.
    follower_directory: bytes = bytes(16)
    high_watermark: int = -1
    log_start_offset: int = -1

    def news(self, answer: PartitionData) -> bool:
        """Whether `answer` holds anything new for the client; it counts as sent from now on."""
        new = (
            bool(answer.records)
            or answer.error_code != ErrorCode.NONE
            or answer.diverging_epoch is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        if answer.error_code == ErrorCode.NONE and answer.diverging_epoch is None:
            self.high_watermark = answer.high_watermark
            self.log_start_offset = answer.log_start_offset
        else:
            # Of such an answer the client takes nothing else: the next one without an error counts as new.
            self.high_watermark = -1
        return new


@dataclass(slots=True)
class FetchSession:
    """The partitions that a client fetches, in the order in which they are served."""

    session_id: int
    by_id: bool
    used: float
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[tuple[TopicKey, int], CachedPartition] = field(default_factory=dict)


@dataclass(slots=True)
class FetchContext:
    """One request with its session: which partitions to read, and how to trim the response."""

    wanted: dict[tuple[TopicKey, int], CachedPartition]
    session: FetchSession | None = None
    incremental: bool = False
    error: ErrorCode = ErrorCode.NONE

    def trim(self, response: FetchResponse) -> None:
        """Set the session id; remove partitions without news from an incremental response."""
        if self.session is None:
            return
        response.session_id = self.session.session_id
        partitions = self.session.partitions
        for topic in response.responses:
            topic_key = TopicKey(topic.topic, topic.topic_id)
            kept = []
            for answer in topic.partitions:
                key = (topic_key, answer.partition_index)
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


class FetchSessionCache:
    """The fetch sessions of a broker.

    Args:
        slots: the most sessions to keep.
        partitions: the most partitions that they have together.
        new_id: creates session ids, positive int32.
    """

    def __init__(self, slots: int, partitions: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._most = partitions
        #: Partitions of all sessions.
        self._partitions = 0
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resolve(self, request: FetchRequest, version: int, now: float) -> Steps[FetchContext]:
        """Resolve a request with its session to the partitions to read, one per step.

        Args:
            request: the request.
            version: of the request; from 13 on topics are named by id.
            now: the time, in seconds.
        """
        by_id = version >= 13
        requested: dict[tuple[TopicKey, int], CachedPartition] = {}
        for topic in request.topics:
            topic_key = TopicKey(topic.topic, topic.topic_id)
            if not topic.partitions:
                yield
            for p in topic.partitions:
                if requested:
                    yield
                requested[topic_key, p.partition] = CachedPartition(
                    p.partition,
                    p.fetch_offset,
                    p.partition_max_bytes,
                    p.current_leader_epoch,
                    p.last_fetched_epoch,
                    p.log_start_offset,
                    p.replica_directory_id,
                )
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._drop(self._sessions.get(request.session_id))
            if request.session_epoch == FINAL_EPOCH or not requested:
                return FetchContext(requested)
            return FetchContext(requested, self._open(requested, by_id, now))
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id is not by_id:
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            return FetchContext({}, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        before = len(session.partitions)
        for key, wanted_now in requested.items():
            known = session.partitions.get(key)
            # What was sent in another leader epoch does not count: the follower may have skipped it.
            if known is not None and known.leader_epoch == wanted_now.leader_epoch:
                wanted_now.high_watermark, wanted_now.log_start_offset = known.high_watermark, known.log_start_offset
            session.partitions[key] = wanted_now
        for forgotten in request.forgotten_topics_data:
            for partition in forgotten.partitions:
                session.partitions.pop((TopicKey(forgotten.topic, forgotten.topic_id), partition), None)
        self._partitions += len(session.partitions) - before
        if not session.partitions:
            self._drop(session)
            return FetchContext({})
        if self._partitions > self._most and len(session.partitions) > before:
            self._drop(session)
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        session.used = now
        # Keep the least recently used first: that is the one to evict.
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return FetchContext(dict(session.partitions), session, incremental=True)

    def held_back(self, fetch: FetchContext) -> int:
        """The id of the session for a response without partitions, because of a quota.

        As in Kafka, such a response begins no session: the client sends its full request again.
        """
        if fetch.session is None or fetch.incremental:
            return 0 if fetch.session is None else fetch.session.session_id
        if self._sessions.get(fetch.session.session_id) is fetch.session:
            self._drop(fetch.session)
        return 0

    def _open(
        self, wanted: dict[tuple[TopicKey, int], CachedPartition], by_id: bool, now: float
    ) -> FetchSession | None:
        """A new session; None if there is no room for it, and then the client sends full requests."""
        if self._slots <= 0 or len(wanted) > self._most:
            return None
        while len(self._sessions) >= self._slots or self._partitions + len(wanted) > self._most:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used < EVICTION_SECONDS:
                return None
            self._drop(oldest)
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, by_id, now, partitions=dict(wanted))
        self._sessions[session_id] = session
        self._partitions += len(wanted)
        return session

    def _drop(self, session: FetchSession | None) -> None:
        if session is not None:
            del self._sessions[session.session_id]
            self._partitions -= len(session.partitions)
