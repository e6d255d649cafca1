"""The Fetch requests of a follower, and where it truncates its log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.replication.fetch_sessions import FetchSessionCache
from barnabas_broker.replication.following import (
    FetchSessionHandler,
    PartitionFetchState,
    TopicIdPartition,
    truncation_offset,
)
from barnabas_broker.steps import finish
from barnabas_broker.storage.epochs import LeaderEpochs
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchRequest

TOPIC, OTHER = b"t" * 16, b"o" * 16


def session_handler() -> FetchSessionHandler:
    return FetchSessionHandler(2, bytes(16), 500, 1, 10_000, 1000)


def state(offset: int, epoch: int = 3) -> PartitionFetchState:
    return PartitionFetchState(epoch, offset, epoch - 1, 0)


def asked(request: FetchRequest) -> dict[TopicIdPartition, int]:
    return {TopicIdPartition(t.topic_id, p.partition): p.fetch_offset for t in request.topics for p in t.partitions}


def test_the_first_request_names_all_partitions() -> None:
    request = session_handler().request(
        {TopicIdPartition(TOPIC, 0): state(5), TopicIdPartition(OTHER, 1): state(6)}, 77
    )
    assert asked(request) == {TopicIdPartition(TOPIC, 0): 5, TopicIdPartition(OTHER, 1): 6}
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 77)


def test_later_requests_name_changed_partitions() -> None:
    session = session_handler()
    session.request({TopicIdPartition(TOPIC, 0): state(5), TopicIdPartition(TOPIC, 1): state(6)}, 77)
    session.handle_response(ErrorCode.NONE, 9)
    request = session.request({TopicIdPartition(TOPIC, 0): state(8), TopicIdPartition(TOPIC, 1): state(6)}, 77)
    assert asked(request) == {TopicIdPartition(TOPIC, 0): 8}
    assert (request.session_id, request.session_epoch) == (9, 1)
    session.handle_response(ErrorCode.NONE, 9)
    assert (
        session.request({TopicIdPartition(TOPIC, 0): state(8), TopicIdPartition(TOPIC, 1): state(6)}, 77).session_epoch
        == 2
    )


def test_partitions_that_are_no_longer_followed_are_forgotten() -> None:
    session = session_handler()
    session.request(
        {
            TopicIdPartition(TOPIC, 0): state(5),
            TopicIdPartition(TOPIC, 1): state(6),
            TopicIdPartition(OTHER, 0): state(1),
        },
        77,
    )
    session.handle_response(ErrorCode.NONE, 9)
    request = session.request({TopicIdPartition(TOPIC, 0): state(5)}, 77)
    assert {(t.topic_id, tuple(t.partitions)) for t in request.forgotten_topics_data} == {(TOPIC, (1,)), (OTHER, (0,))}


def test_a_new_session_follows_a_lost_one() -> None:
    session = session_handler()
    session.request({TopicIdPartition(TOPIC, 0): state(5)}, 77)
    session.handle_response(ErrorCode.NONE, 9)
    session.request({TopicIdPartition(TOPIC, 0): state(5)}, 77)
    assert not session.handle_response(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    request = session.request({TopicIdPartition(TOPIC, 0): state(5)}, 77)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {TopicIdPartition(TOPIC, 0): 5}


def test_without_a_session_each_request_names_all_partitions() -> None:
    session = session_handler()
    for _ in range(3):
        assert asked(session.request({TopicIdPartition(TOPIC, 0): state(5)}, 77)) == {TopicIdPartition(TOPIC, 0): 5}
        assert session.handle_response(ErrorCode.NONE, 0)


def test_the_leader_understands_the_session() -> None:
    leader, session = FetchSessionCache(10, 1000, lambda: 41), session_handler()
    wanted = {TopicIdPartition(TOPIC, n): state(n) for n in range(3)}
    for offset in (10, 20, 30):
        wanted[TopicIdPartition(TOPIC, 1)] = state(offset)
        fetch = finish(leader.resolve(session.request(wanted, 77), 17, 0.0))
        assert fetch.error is ErrorCode.NONE
        assert {w.partition: w.fetch_offset for w in fetch.wanted.values()} == {0: 0, 1: offset, 2: 2}
        assert session.handle_response(ErrorCode.NONE, 41)


def test_a_paused_partition_is_forgotten() -> None:
    session = session_handler()
    session.request({TopicIdPartition(TOPIC, 0): state(5), TopicIdPartition(TOPIC, 1): state(6)}, 77)
    session.handle_response(ErrorCode.NONE, 9)
    session.repeat(TopicIdPartition(TOPIC, 1))
    request = session.request({TopicIdPartition(TOPIC, 0): state(5)}, 77)
    assert [(t.topic_id, t.partitions) for t in request.forgotten_topics_data] == [(TOPIC, [1])]


#: Followed partitions with their offsets, and the partitions that fail.
ROUND = st.tuples(st.dictionaries(st.integers(0, 3), st.integers(0, 2), min_size=1), st.sets(st.integers(0, 3)))


@given(st.lists(ROUND, max_size=12), st.sampled_from([0, 10]))
def test_the_leader_reads_exactly_the_followed_partitions(
    rounds: list[tuple[dict[int, int], set[int]]], slots: int
) -> None:
    leader, session = FetchSessionCache(slots, 1000, lambda: 41), session_handler()
    for followed, failed in rounds:
        request = session.request({TopicIdPartition(TOPIC, n): state(offset) for n, offset in followed.items()}, 77)
        fetch = finish(leader.resolve(request, 17, 0.0))
        assert fetch.error is ErrorCode.NONE
        assert {w.partition: w.fetch_offset for w in fetch.wanted.values()} == followed
        assert session.handle_response(ErrorCode.NONE, 0 if fetch.session is None else 41)
        for n in failed:
            session.repeat(TopicIdPartition(TOPIC, n))


EPOCHS = [(1, 0), (3, 10), (5, 20)]


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "offset"),
    [
        pytest.param(5, 25, 25, id="the leader has less of the same epoch"),
        pytest.param(3, 15, 15, id="the leader has less of an epoch before"),
        pytest.param(3, 30, 20, id="the leader has more of an epoch before"),
        pytest.param(4, 30, 20, id="the follower lacks the leader's epoch and has a later one"),
        pytest.param(2, 12, 10, id="the follower lacks the leader's epoch, which is before all later ones"),
        pytest.param(-1, -1, 12, id="the leader knows no epoch: truncate to the high watermark"),
    ],
)
def test_truncation_offset(leader_epoch: int, leader_end: int, offset: int) -> None:
    assert truncation_offset(LeaderEpochs(EPOCHS), 28, 12, leader_epoch, leader_end) == offset
