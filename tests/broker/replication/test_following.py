"""What a follower asks, and where it cuts its log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.replication.following import Asking, Key, Position, truncation_offset
from barnabas_broker.replication.sessions import SessionCache
from barnabas_broker.storage.epochs import LeaderEpochs
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchRequest

TOPIC, OTHER = b"t" * 16, b"o" * 16


def asking() -> Asking:
    return Asking(2, 500, 1, 10_000, 1000)


def position(offset: int, epoch: int = 3) -> Position:
    return Position(epoch, offset, epoch - 1, 0)


def asked(request: FetchRequest) -> dict[Key, int]:
    return {Key(t.topic_id, p.partition): p.fetch_offset for t in request.topics for p in t.partitions}


def test_the_first_request_names_everything() -> None:
    request = asking().request({Key(TOPIC, 0): position(5), Key(OTHER, 1): position(6)}, 77)
    assert asked(request) == {Key(TOPIC, 0): 5, Key(OTHER, 1): 6}
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 77)


def test_later_requests_name_what_changed() -> None:
    session = asking()
    session.request({Key(TOPIC, 0): position(5), Key(TOPIC, 1): position(6)}, 77)
    session.answered(ErrorCode.NONE, 9)
    request = session.request({Key(TOPIC, 0): position(8), Key(TOPIC, 1): position(6)}, 77)
    assert asked(request) == {Key(TOPIC, 0): 8}
    assert (request.session_id, request.session_epoch) == (9, 1)
    session.answered(ErrorCode.NONE, 9)
    assert session.request({Key(TOPIC, 0): position(8), Key(TOPIC, 1): position(6)}, 77).session_epoch == 2


def test_what_is_not_followed_any_more_is_forgotten() -> None:
    session = asking()
    session.request({Key(TOPIC, 0): position(5), Key(TOPIC, 1): position(6), Key(OTHER, 0): position(1)}, 77)
    session.answered(ErrorCode.NONE, 9)
    request = session.request({Key(TOPIC, 0): position(5)}, 77)
    assert {(t.topic_id, tuple(t.partitions)) for t in request.forgotten_topics_data} == {(TOPIC, (1,)), (OTHER, (0,))}


def test_a_lost_session_starts_anew() -> None:
    session = asking()
    session.request({Key(TOPIC, 0): position(5)}, 77)
    session.answered(ErrorCode.NONE, 9)
    session.request({Key(TOPIC, 0): position(5)}, 77)
    assert not session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    request = session.request({Key(TOPIC, 0): position(5)}, 77)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {Key(TOPIC, 0): 5}


def test_without_a_session_every_request_names_everything() -> None:
    session = asking()
    for _ in range(3):
        assert asked(session.request({Key(TOPIC, 0): position(5)}, 77)) == {Key(TOPIC, 0): 5}
        assert session.answered(ErrorCode.NONE, 0)


def test_the_leader_understands_the_session() -> None:
    leader, session = SessionCache(10, lambda: 41), asking()
    wanted = {Key(TOPIC, n): position(n) for n in range(3)}
    for offset in (10, 20, 30):
        wanted[Key(TOPIC, 1)] = position(offset)
        fetch = leader.resolve(session.request(wanted, 77), 17, 0.0)
        assert fetch.error is ErrorCode.NONE
        assert {w.partition: w.fetch_offset for w in fetch.wanted.values()} == {0: 0, 1: offset, 2: 2}
        assert session.answered(ErrorCode.NONE, 41)


def test_what_failed_and_rests_is_forgotten() -> None:
    session = asking()
    session.request({Key(TOPIC, 0): position(5), Key(TOPIC, 1): position(6)}, 77)
    session.answered(ErrorCode.NONE, 9)
    session.repeat(Key(TOPIC, 1))
    request = session.request({Key(TOPIC, 0): position(5)}, 77)
    assert [(t.topic_id, t.partitions) for t in request.forgotten_topics_data] == [(TOPIC, [1])]


#: What is followed, at which offset; and which of it failed.
ROUND = st.tuples(st.dictionaries(st.integers(0, 3), st.integers(0, 2), min_size=1), st.sets(st.integers(0, 3)))


@given(st.lists(ROUND, max_size=12), st.sampled_from([0, 10]))
def test_the_leader_reads_what_is_followed_and_nothing_else(
    rounds: list[tuple[dict[int, int], set[int]]], slots: int
) -> None:
    leader, session = SessionCache(slots, lambda: 41), asking()
    for followed, failed in rounds:
        request = session.request({Key(TOPIC, n): position(offset) for n, offset in followed.items()}, 77)
        fetch = leader.resolve(request, 17, 0.0)
        assert fetch.error is ErrorCode.NONE
        assert {w.partition: w.fetch_offset for w in fetch.wanted.values()} == followed
        assert session.answered(ErrorCode.NONE, 0 if fetch.session is None else 41)
        for n in failed:
            session.repeat(Key(TOPIC, n))


EPOCHS = [(1, 0), (3, 10), (5, 20)]


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "offset"),
    [
        pytest.param(5, 25, 25, id="the leader has less of the same epoch"),
        pytest.param(3, 15, 15, id="the leader has less of an epoch before"),
        pytest.param(3, 30, 20, id="the leader has more of an epoch before"),
        pytest.param(4, 30, 20, id="the leader has an epoch between that is not here"),
        pytest.param(2, 12, 10, id="the leader's epoch is not here, so the one before ends"),
        pytest.param(-1, -1, 12, id="the leader knows none: back to what is committed"),
    ],
)
def test_where_the_logs_can_agree(leader_epoch: int, leader_end: int, offset: int) -> None:
    assert truncation_offset(LeaderEpochs(EPOCHS), 28, 12, leader_epoch, leader_end) == offset
