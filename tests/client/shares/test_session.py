"""The share session with a leader, as a pure machine."""

import pytest

from barnabas_client.errors import KafkaConnectionError
from barnabas_client.membership.heartbeats import TopicIdPartition
from barnabas_client.shares.session import Acknowledgement, LeaderSession, Limits, Run, merged
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.share_acknowledge import (
    AcknowledgedPartition,
    ShareAcknowledgeLeader,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas_protocol.messages.share_fetch import (
    ShareFetchableTopicResponse,
    ShareFetchLeader,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)

ACCEPT, RELEASE, RENEW = Acknowledgement.ACCEPT, Acknowledgement.RELEASE, Acknowledgement.RENEW
A, B = TopicIdPartition(b"a" * 16, 0), TopicIdPartition(b"a" * 16, 1)
LIMITS = Limits(max_wait_ms=500, min_bytes=1, max_bytes=1_000, max_records=10, acquire_mode=0)


def said(request: ShareFetchRequest | ShareAcknowledgeRequest) -> dict[int, list[tuple[int, int, list[int]]]]:
    return {
        part.partition_index: [(one.first_offset, one.last_offset, one.acknowledge_types) for one in batches]
        for topic in request.topics
        for part in topic.partitions
        if (batches := part.acknowledgement_batches)
    }


def named(request: ShareFetchRequest) -> tuple[list[int], list[int]]:
    """The partitions that a fetch names, and forgets."""
    return (
        [part.partition_index for topic in request.topics for part in topic.partitions],
        [number for topic in request.forgotten_topics_data for number in topic.partitions],
    )


def fetched(code: ErrorCode = ErrorCode.NONE, **acknowledged: ErrorCode) -> ShareFetchResponse:
    parts = [
        SharePartitionData(
            partition_index=int(name[1:]),
            error_code=0,
            acknowledge_error_code=error,
            current_leader=ShareFetchLeader(leader_id=0, leader_epoch=0),
            records=b"",
            acquired_records=[],
        )
        for name, error in acknowledged.items()
    ]
    topics = [ShareFetchableTopicResponse(topic_id=b"a" * 16, partitions=parts)]
    return ShareFetchResponse(error_code=code, acquisition_lock_timeout_ms=1, responses=topics, node_endpoints=[])


def acknowledged(code: ErrorCode = ErrorCode.NONE, **partitions: ErrorCode) -> ShareAcknowledgeResponse:
    parts = [
        AcknowledgedPartition(
            partition_index=int(name[1:]),
            error_code=error,
            current_leader=ShareAcknowledgeLeader(leader_id=0, leader_epoch=0),
        )
        for name, error in partitions.items()
    ]
    topics = [ShareAcknowledgeTopicResponse(topic_id=b"a" * 16, partitions=parts)]
    return ShareAcknowledgeResponse(error_code=code, responses=topics, node_endpoints=[])


@pytest.fixture
def session() -> LeaderSession:
    """A session that has fetched from A and B."""
    session = LeaderSession("group", "member")
    first = session.fetch(frozenset({A, B}), LIMITS)
    assert (first.share_session_epoch, named(first)) == (0, ([0, 1], []))
    assert session.fetched(fetched()) == {}
    return session


def test_a_fetch_names_what_has_changed_and_takes_acknowledgements_along(session: LeaderSession) -> None:
    for offset in (3, 1, 2):
        session.acknowledge(A, Run(offset, offset, ACCEPT))
    session.acknowledge(A, Run(4, 4, RELEASE))
    request = session.fetch(frozenset({A, B}), LIMITS)
    assert (request.share_session_epoch, named(request)) == (1, ([0], []))
    assert said(request) == {0: [(1, 3, [1]), (4, 4, [2])]}
    assert (session.settled, session.handed) == (0, 4)
    session.acknowledge(B, Run(9, 9, ACCEPT))
    assert session.fetched(fetched(p0=ErrorCode.NONE)) == {}
    assert (session.settled, session.handed) == (4, 5)
    last = session.fetch(frozenset({A}), LIMITS)
    assert (last.share_session_epoch, named(last), said(last)) == (2, ([1], [1]), {1: [(9, 9, [1])]})


def test_a_later_acknowledgement_replaces_an_earlier_one(session: LeaderSession) -> None:
    session.acknowledge(A, Run(1, 1, RENEW))
    assert session.renews
    session.acknowledge(A, Run(1, 1, ACCEPT))
    request = session.flush()
    assert (said(request), request.is_renew_ack, session.renews) == ({0: [(1, 1, [1])]}, True, False)


def test_acknowledgements_that_are_refused_or_not_answered(session: LeaderSession) -> None:
    session.acknowledge(A, Run(1, 1, ACCEPT))
    session.acknowledge(B, Run(1, 1, ACCEPT))
    session.flush()
    refused = session.acknowledged(acknowledged(p0=ErrorCode.INVALID_RECORD_STATE))
    assert {where: error.code for where, error in refused.items()} == {
        A: ErrorCode.INVALID_RECORD_STATE,
        B: ErrorCode.INVALID_RECORD_STATE,
    }
    assert (session.epoch, session.settled) == (2, 2)


@pytest.mark.parametrize("code", [ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH])
def test_a_session_that_is_lost_begins_again(session: LeaderSession, code: ErrorCode) -> None:
    session.acknowledge(A, Run(1, 1, ACCEPT))
    session.fetch(frozenset({A, B}), LIMITS)
    session.acknowledge(B, Run(1, 1, ACCEPT))
    lost = session.fetched(fetched(code))
    assert {where: error.code for where, error in lost.items()} == {A: code, B: code}
    assert (session.number, session.pending, session.settled) == (2, False, 2)
    again = session.fetch(frozenset({A}), LIMITS)
    assert (again.share_session_epoch, named(again), said(again)) == (0, ([0], []), {})


def test_the_last_request_of_a_session(session: LeaderSession) -> None:
    session.acknowledge(A, Run(1, 1, ACCEPT))
    session.fetch(frozenset({A, B}), LIMITS)  # not answered any more
    session.acknowledge(A, Run(2, 2, ACCEPT))
    request = session.flush(final=True)
    assert (request.share_session_epoch, said(request)) == (-1, {0: [(2, 2, [1])]})


def test_a_second_request_in_flight_is_a_mistake(session: LeaderSession) -> None:
    session.flush()
    with pytest.raises(AssertionError):
        session.flush()
    assert session.lost(KafkaConnectionError("broke")) == {}
    session.fetch(frozenset(), LIMITS)


def test_epochs_begin_again_at_one(session: LeaderSession) -> None:
    session.epoch = 2**31 - 1
    session.flush()
    session.acknowledged(acknowledged())
    assert session.epoch == 1


def test_runs_are_merged_by_kind() -> None:
    runs = [Run(5, 9, ACCEPT), Run(1, 1, ACCEPT), Run(2, 4, ACCEPT), Run(10, 10, RELEASE), Run(12, 12, RELEASE)]
    assert merged(runs) == [Run(1, 9, ACCEPT), Run(10, 10, RELEASE), Run(12, 12, RELEASE)]
