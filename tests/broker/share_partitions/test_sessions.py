"""Share sessions: epochs, partitions, bounds."""

import pytest

from barnabas_broker.share_partitions.sessions import ShareSessions, Where
from barnabas_explain.members import Member
from barnabas_protocol.errors import ErrorCode, KafkaError

ONE, TWO, THREE = (Where(bytes(16), n) for n in range(3))


def test_epochs_follow_each_other() -> None:
    sessions = ShareSessions(10, 10)
    session = sessions.open("g", Member("ann"), [ONE])
    assert sessions.find("g", "ann", 1) is session
    with pytest.raises(KafkaError) as wrong:
        sessions.find("g", "ann", 1)
    assert wrong.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.find("g", "ann", 2) is session
    session.epoch = 2**31 - 1
    sessions.find("g", "ann", 2**31 - 1)
    assert session.epoch == 1


def test_a_session_that_is_not_there() -> None:
    sessions = ShareSessions(10, 10)
    session = sessions.open("g", Member("ann"), [ONE])
    assert sessions.find("g", "ann", -1) is session
    sessions.close(session)
    sessions.close(session)
    for epoch in (1, -1):
        with pytest.raises(KafkaError) as missing:
            sessions.find("g", "ann", epoch)
        assert missing.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_partitions_are_added_forgotten_and_take_turns() -> None:
    sessions = ShareSessions(10, 10)
    session = sessions.open("g", Member("ann"), [ONE, TWO])
    session.rotate()
    assert list(session.partitions) == [TWO, ONE]
    sessions.update(session, [THREE, TWO], [ONE])
    assert list(session.partitions) == [TWO, THREE]


@pytest.mark.parametrize(("slots", "partitions"), [(1, 10), (10, 3)])
def test_sessions_are_bounded(slots: int, partitions: int) -> None:
    sessions = ShareSessions(slots, partitions)
    first = sessions.open("g", Member("ann"), [ONE, TWO])
    with pytest.raises(KafkaError) as full:
        sessions.open("g", Member("bob"), [ONE, TWO])
    assert full.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.close(first)
    assert sessions.open("g", Member("bob"), [ONE, TWO]) is not first
    assert len(sessions) == 1


def test_a_session_cannot_grow_beyond_the_bound() -> None:
    sessions = ShareSessions(10, 2)
    session = sessions.open("g", Member("ann"), [ONE])
    with pytest.raises(KafkaError) as full:
        sessions.update(session, [TWO, THREE], [])
    assert full.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert list(session.partitions) == [ONE]
