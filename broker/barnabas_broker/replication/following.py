"""What a follower asks its leader, and what it does with the answer. Pure.

Fetches use a session (KIP-227): after the first, only what changed is named. A partition whose answer carries a
diverging epoch is cut back to where both logs agree (KIP-595); several rounds may be needed where several leaders came
and went.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
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

#: Of Fetch: the first with the replica's epoch is 15; 17 is Kafka's before KIP-1166.
VERSION: Final = 17

_LOST: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class Key(NamedTuple):
    """A partition as a Fetch names it."""

    topic_id: bytes
    partition: int


class Position(NamedTuple):
    """What is asked of a partition."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int


@dataclass(slots=True)
class Asking:
    """The session of one follower with one leader.

    Attributes:
        node_id: this broker.
        max_wait_ms: how long the leader may wait (``replica.fetch.wait.max.ms``).
        min_bytes: for how much (``replica.fetch.min.bytes``).
        max_bytes: of an answer (``replica.fetch.response.max.bytes``).
        partition_max_bytes: of a partition (``replica.fetch.max.bytes``).
    """

    node_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    _session_id: int = field(init=False, default=0)
    _epoch: int = field(init=False, default=0)
    #: What the leader's session holds; None where it is to be named again.
    _sent: dict[Key, Position | None] = field(init=False, default_factory=dict)

    def request(self, positions: Mapping[Key, Position], broker_epoch: int) -> FetchRequest:
        """The next Fetch, for these partitions and no others."""
        changed = [key for key, position in positions.items() if self._sent.get(key) != position]
        forgotten = [key for key in self._sent if key not in positions]
        topics: dict[bytes, FetchTopic] = {}
        for key in changed:
            position = positions[key]
            topic = topics.setdefault(key.topic_id, FetchTopic(topic_id=key.topic_id, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=key.partition,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self.partition_max_bytes,
                )
            )
        gone: dict[bytes, ForgottenTopic] = {}
        for key in forgotten:
            gone.setdefault(key.topic_id, ForgottenTopic(topic_id=key.topic_id)).partitions = [
                other.partition for other in forgotten if other.topic_id == key.topic_id
            ]
        self._sent = dict(positions)
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

    def answered(self, error: ErrorCode, session_id: int) -> bool:
        """Follow the session.

        Returns:
            False: the leader does not know it; the next request starts a new one, and this answer says nothing.
        """
        if error in _LOST:
            self.reset()
            return False
        if session_id != self._session_id:
            self._session_id, self._epoch = session_id, 0
        if not session_id:
            self.reset()  # the leader keeps none: every request names everything
        else:
            self._epoch = self._epoch % 0x7FFFFFFF + 1
        return True

    def reset(self) -> None:
        """Start anew, for instance on another connection."""
        self._session_id = self._epoch = 0
        self._sent = {}

    def repeat(self, key: Key) -> None:
        """Name a partition in the next request even if nothing changed, also if that request is to forget it."""
        if key in self._sent:
            self._sent[key] = None


def truncation_offset(
    epochs: LeaderEpochs, log_end: int, high_watermark: int, leader_epoch: int, leader_end: int
) -> int:
    """Up to where a follower's log can be its leader's (Kafka's ``getOffsetTruncationState``).

    Args:
        epochs: the follower's.
        log_end: where its log ends.
        high_watermark: what it knows to be committed.
        leader_epoch: the largest epoch that the leader has up to the follower's last, -1 if none.
        leader_end: where that epoch ends at the leader.
    """
    if leader_end == UNDEFINED or leader_epoch == UNDEFINED:
        return high_watermark
    epoch, end = epochs.end_offset(leader_epoch, log_end)
    if epoch == UNDEFINED or epoch != leader_epoch:
        # An epoch between that the leader has not: cut it, and ask again with what is then the last.
        return min(leader_end, log_end) if end == UNDEFINED else min(end, log_end)
    return min(leader_end, end, log_end)
