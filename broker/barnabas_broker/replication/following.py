"""The Fetch requests of a follower, where it truncates its log, and whether its leader's process has ended. Pure.

Fetches use a session (KIP-227): after the first, a request names only the partitions that have changed. A partition
whose response carries a diverging epoch is truncated to where both logs agree (KIP-595), in several rounds if there
were several leaders since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas_broker.storage.epochs import UNDEFINED, LeaderEpochs
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

#: The version of Fetch: 15 is the first with the broker epoch (KIP-903), 18 belongs to KIP-1166.
VERSION: Final = 17

_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class TopicIdPartition(NamedTuple):
    """A partition by topic id and index."""

    topic_id: bytes
    partition: int


class Finding(Enum):
    """Evidence of a failed connection about the process of a leader."""

    #: Nothing.
    UNKNOWN = auto()
    #: Another attempt soon shows whether it has ended.
    UNDECIDED = auto()
    #: It has ended.
    ENDED = auto()


class LeaderProcess:
    """Whether the process of a leader has ended, by its connections.

    A kernel refuses connections to the port of a process that has ended, and of no other: a broker listens before it
    registers, until it has shut down; if its process is frozen or overloaded, the kernel accepts for it. So refusals
    count, and timeouts and unreachable networks do not. They count for the broker epoch in which the attempt began, and
    only if a connection was accepted in that one. If a firewall refuses connections to a broker that lives, and it
    registers again, then the new registration stays, as no connection was ever accepted.
    """

    #: Refused attempts in a row after which the process has ended.
    REFUSALS: Final = 2
    #: Attempts that follow each other soon, after the last answer. A kernel closes the sockets of a process one
    #: by one, so it may still accept some connections, and reset them.
    ATTEMPTS: Final = 5

    def __init__(self) -> None:
        self._epoch = -1
        self._failed = 0
        self._refused = 0

    def accepted(self, epoch: int) -> None:
        """A connection was accepted; the attempt began while `epoch` was the broker epoch."""
        if epoch != self._epoch:
            self._epoch, self._failed = epoch, 0
        self._refused = 0

    def answered(self, epoch: int) -> None:
        """The process has answered a request that was sent while `epoch` was the broker epoch."""
        self._epoch, self._failed, self._refused = epoch, 0, 0

    def failed(self, epoch: int, *, refused: bool) -> Finding:
        """A connection was refused, or was closed by the other end.

        Args:
            epoch: the broker epoch when it was attempted.
            refused: it was refused.
        """
        if epoch != self._epoch:
            return Finding.UNKNOWN
        self._failed += 1
        self._refused = self._refused + 1 if refused else 0
        if self._refused >= self.REFUSALS:
            return Finding.ENDED
        return Finding.UNDECIDED if self._failed < self.ATTEMPTS else Finding.UNKNOWN


class PartitionFetchState(NamedTuple):
    """Request of a follower to its leader: records from `offset` on, in the leader epoch that it knows."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int


@dataclass(slots=True)
class FetchSessionHandler:
    """The follower's side of the fetch session with one leader.

    Attributes:
        node_id: this broker.
        directory: the id of its data directory.
        max_wait_ms: how long the leader may wait for data (``replica.fetch.wait.max.ms``).
        min_bytes: how much data it waits for (``replica.fetch.min.bytes``).
        max_bytes: the size of a response (``replica.fetch.response.max.bytes``).
        partition_max_bytes: the size of one partition in it (``replica.fetch.max.bytes``).
    """

    node_id: int
    directory: bytes
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    _session_id: int = field(init=False, default=0)
    _epoch: int = field(init=False, default=0)
    #: What the leader's session holds; None for a partition that the next request names in any case.
    _sent: dict[TopicIdPartition, PartitionFetchState | None] = field(init=False, default_factory=dict)

    def request(self, states: Mapping[TopicIdPartition, PartitionFetchState], broker_epoch: int) -> FetchRequest:
        """The next Fetch, for exactly these partitions."""
        changed = [key for key, state in states.items() if self._sent.get(key) != state]
        forgotten = [key for key in self._sent if key not in states]
        topics: dict[bytes, FetchTopic] = {}
        for key in changed:
            state = states[key]
            topic = topics.setdefault(key.topic_id, FetchTopic(topic_id=key.topic_id, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=key.partition,
                    current_leader_epoch=state.leader_epoch,
                    fetch_offset=state.offset,
                    last_fetched_epoch=state.last_epoch,
                    log_start_offset=state.log_start_offset,
                    partition_max_bytes=self.partition_max_bytes,
                    replica_directory_id=self.directory,
                )
            )
        gone: dict[bytes, ForgottenTopic] = {}
        for key in forgotten:
            gone.setdefault(key.topic_id, ForgottenTopic(topic_id=key.topic_id)).partitions = [
                other.partition for other in forgotten if other.topic_id == key.topic_id
            ]
        self._sent = dict(states)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self.node_id, replica_epoch=broker_epoch),
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(gone.values()),
        )

    def handle_response(self, error: ErrorCode, session_id: int) -> bool:
        """Update the session from a response.

        Returns:
            False if the leader has lost the session: skip the response, the next request starts a new session.
        """
        if error in _LOST:
            self.reset()
            return False
        if session_id != self._session_id:
            self._session_id, self._epoch = session_id, 0
        if not session_id:
            self.reset()  # the leader keeps no session, so each request names all partitions
        else:
            self._epoch = self._epoch % 0x7FFFFFFF + 1
        return True

    def reset(self) -> None:
        """Start a new session, for instance after reconnecting."""
        self._session_id = self._epoch = 0
        self._sent = {}

    def repeat(self, key: TopicIdPartition) -> None:
        """Name a partition in the next request even if its state has not changed."""
        if key in self._sent:
            self._sent[key] = None


def truncation_offset(
    epochs: LeaderEpochs, log_end: int, high_watermark: int, leader_epoch: int, leader_end: int
) -> int:
    """The offset to truncate a follower's log to, after a diverging epoch (Kafka's ``getOffsetTruncationState``).

    Args:
        epochs: the follower's leader epochs.
        log_end: its log end offset.
        high_watermark: its high watermark.
        leader_epoch: the leader's largest epoch up to the follower's last one; -1 if it has none.
        leader_end: the end offset of that epoch at the leader.
    """
    if leader_end == UNDEFINED or leader_epoch == UNDEFINED:
        return high_watermark
    epoch, end = epochs.end_offset(leader_epoch, log_end)
    if epoch == UNDEFINED or epoch != leader_epoch:
        # The follower has an epoch that the leader lacks: cut it, and ask again with the epoch before.
        return min(leader_end, log_end) if end == UNDEFINED else min(end, log_end)
    return min(leader_end, end, log_end)
