"""The share session with one leader, and the acknowledgements on their way to it. Pure.

A session begins with a ShareFetch of epoch 0 that names all partitions. Each later request has the next epoch and
names only what has changed. ShareFetch takes along what was acknowledged meanwhile; ShareAcknowledge sends it without
fetching, renews locks, and ends the session with epoch -1. One request is in flight at a time, because the epochs put
them in order.

A session ends with its connection, or when the broker refuses a request. Then records that were acquired in it cannot
be acknowledged any more: the broker gives them to others, at once or when their locks expire. Every session has a
number, so that a late acknowledgement is not taken for one of the next session's records.

Source: ``ShareSessionHandler.java``; KIP-932.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_client.errors import error_for
from barnabas_client.membership.heartbeats import Partitions, TopicIdPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from barnabas_protocol.messages.share_fetch import (
    FetchAcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    ShareForgottenTopic,
)

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
#: The answer for a partition that a response leaves out, as in Kafka's client.
_NOT_ANSWERED: Final = ErrorCode.INVALID_RECORD_STATE, "the response does not mention the partition"


class Acknowledgement(IntEnum):
    """Types of acknowledgements."""

    #: There is no record at this offset.
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Run(NamedTuple):
    """Acknowledgement of the offsets from `first` to `last`."""

    first: int
    last: int
    kind: Acknowledgement


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of a fetch, as ShareFetch has them."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    acquire_mode: int


class LeaderSession:
    """The share session with one leader.

    Args:
        group: the group.
        member: the member id.

    Attributes:
        number: of this session; grows when it is lost.
        epoch: of the next request.
        handed: counts what was acknowledged by the program.
        settled: how much of it the broker has answered, or was lost.
    """

    def __init__(self, group: str, member: str) -> None:
        self.number = 1
        self.epoch = INITIAL_EPOCH
        self.handed = self.settled = 0
        self._group = group
        self._member = member
        self._partitions: Partitions = frozenset()  # what the broker has in the session
        self._pending: dict[TopicIdPartition, dict[int, Run]] = {}  # by first offset
        self._renews = False
        self._sending: dict[TopicIdPartition, list[Run]] | None = None  # in flight
        self._next_partitions: Partitions = frozenset()  # when the request in flight has succeeded
        self._sent = 0  # `handed` when the request in flight was made

    @property
    def pending(self) -> bool:
        """Whether there are acknowledgements to send."""
        return bool(self._pending)

    @property
    def renews(self) -> bool:
        """Whether one of them renews a lock: no fetch may carry it."""
        return self._renews

    def acknowledge(self, where: TopicIdPartition, run: Run) -> int:
        """Note an acknowledgement for the next request; a later one of the same offset replaces it.

        Returns:
            The value of :attr:`settled` at which it is answered.
        """
        self._pending.setdefault(where, {})[run.first] = run
        self._renews = self._renews or run.kind is Acknowledgement.RENEW
        self.handed += 1
        return self.handed

    # Requests.

    def fetch(self, wanted: Partitions, limits: Limits) -> ShareFetchRequest:
        """A request for records of the partitions `wanted`, with what is pending.

        A session of epoch 0 has nothing pending, see :meth:`lost`.
        """
        runs = self._take()
        named = (wanted - self._partitions) | runs.keys()
        forgotten = (self._partitions | runs.keys()) - wanted
        self._next_partitions = wanted
        topics = [
            ShareFetchTopic(
                topic_id=topic_id,
                partitions=[
                    ShareFetchPartition(
                        partition_index=one.partition,
                        acknowledgement_batches=[
                            FetchAcknowledgementBatch(
                                first_offset=run.first, last_offset=run.last, acknowledge_types=[run.kind]
                            )
                            for run in runs.get(one, ())
                        ],
                    )
                    for one in ones
                ],
            )
            for topic_id, ones in _by_topic(named).items()
        ]
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self.epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=limits.acquire_mode,
            topics=topics,
            forgotten_topics_data=[
                ShareForgottenTopic(topic_id=topic_id, partitions=[one.partition for one in ones])
                for topic_id, ones in _by_topic(forgotten).items()
            ],
        )

    def flush(self, *, final: bool = False) -> ShareAcknowledgeRequest:
        """A request that sends what is pending; the last one of the session if `final`: a request that is still in
        flight is forgotten."""
        if final:
            self._sending = None
        renews, runs = self._renews, self._take()
        self._next_partitions = self._partitions
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=FINAL_EPOCH if final else self.epoch,
            is_renew_ack=renews,
            topics=[
                AcknowledgeTopic(
                    topic_id=topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=one.partition,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=run.first, last_offset=run.last, acknowledge_types=[run.kind]
                                )
                                for run in runs[one]
                            ],
                        )
                        for one in ones
                    ],
                )
                for topic_id, ones in _by_topic(runs).items()
            ],
        )

    def _take(self) -> dict[TopicIdPartition, list[Run]]:
        """Take the pending acknowledgements: they are in flight from now on."""
        if self._sending is not None:
            raise AssertionError("a request of this session is in flight")
        self._sending = {where: merged(runs.values()) for where, runs in self._pending.items()}
        self._pending, self._renews, self._sent = {}, False, self.handed
        return self._sending

    # Responses.

    def fetched(self, response: ShareFetchResponse) -> dict[TopicIdPartition, KafkaError]:
        """ShareFetch was answered; returns which acknowledgements were refused."""
        if response.error_code != ErrorCode.NONE:
            return self.lost(error_for(response.error_code, "fetch from the share group", response.error_message))
        return self._settle(
            {
                TopicIdPartition(bytes(topic.topic_id), part.partition_index): (
                    part.acknowledge_error_code,
                    part.acknowledge_error_message,
                )
                for topic in response.responses
                for part in topic.partitions
            }
        )

    def acknowledged(self, response: ShareAcknowledgeResponse) -> dict[TopicIdPartition, KafkaError]:
        """ShareAcknowledge was answered; returns which acknowledgements were refused."""
        if response.error_code != ErrorCode.NONE:
            return self.lost(error_for(response.error_code, "acknowledge records", response.error_message))
        return self._settle(
            {
                TopicIdPartition(bytes(topic.topic_id), part.partition_index): (part.error_code, part.error_message)
                for topic in response.responses
                for part in topic.partitions
            }
        )

    def _settle(self, answers: Mapping[TopicIdPartition, tuple[int, str | None]]) -> dict[TopicIdPartition, KafkaError]:
        sent, self._sending = self._sending or {}, None
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else INITIAL_EPOCH + 1
        self._partitions = self._next_partitions
        self.settled = self._sent
        refused = {}
        for where in sent:
            code, message = answers.get(where, _NOT_ANSWERED)
            if code != ErrorCode.NONE:
                refused[where] = error_for(code, "acknowledge records", message)
        return refused

    def lost(self, error: KafkaError) -> dict[TopicIdPartition, KafkaError]:
        """The session has ended; returns the partitions with acknowledgements that are lost. The next fetch begins
        another session."""
        lost = dict.fromkeys((*(self._sending or ()), *self._pending), error)
        self.number += 1
        self.epoch, self._partitions = INITIAL_EPOCH, frozenset()
        self._sending, self._pending, self._renews = None, {}, False
        self.settled = self.handed
        return lost


def merged(runs: Iterable[Run]) -> list[Run]:
    """Runs in ascending order, with neighbours of one kind in one. They do not overlap."""
    made: list[Run] = []
    for run in sorted(runs):
        if made and made[-1].kind is run.kind and made[-1].last + 1 == run.first:
            made[-1] = made[-1]._replace(last=run.last)
        else:
            made.append(run)
    return made


def _by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, list[TopicIdPartition]]:
    topics: dict[bytes, list[TopicIdPartition]] = {}
    for one in sorted(partitions):
        topics.setdefault(one.topic_id, []).append(one)
    return topics
