"""A member of a share group, as a pure machine."""

import pytest

from barnabas_client.errors import KafkaConnectionError, UnsupportedVersionError
from barnabas_client.membership.effects import Effect, Fail, Send
from barnabas_client.membership.heartbeats import TopicIdPartition
from barnabas_client.membership.member import MemberConfig, MemberState
from barnabas_client.shares.member import ShareMember
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.share_group_heartbeat import (
    ShareAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareTopicPartitions,
)

TOPIC = b"t" * 16


def sent(effects: list[Effect]) -> Send | None:
    sends = [one for one in effects if isinstance(one, Send)]
    assert len(sends) <= 1
    return sends[0] if sends else None


def heartbeat(send: Send | None) -> tuple[int, list[str] | None]:
    """The epoch and the topics of a heartbeat."""
    assert send is not None and isinstance(send.request, ShareGroupHeartbeatRequest)
    return send.request.member_epoch, send.request.subscribed_topic_names


def answer(
    epoch: int = 1, partitions: list[int] | None = None, code: ErrorCode = ErrorCode.NONE
) -> ShareGroupHeartbeatResponse:
    assigned = None
    if partitions is not None:
        assigned = ShareAssignment(topic_partitions=[ShareTopicPartitions(topic_id=TOPIC, partitions=partitions)])
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=code,
        member_id="member",
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=assigned,
    )


def found(code: ErrorCode = ErrorCode.NONE) -> FindCoordinatorResponse:
    one = Coordinator(key="group", node_id=1, host="host", port=9092, error_code=code, error_message=None)
    return FindCoordinatorResponse(coordinators=[one])


def finding() -> tuple[ShareMember, Send]:
    member = ShareMember(MemberConfig(group_id="group"), "member")
    search = sent(member.subscribe(["a"], 0.0))
    assert search is not None and isinstance(search.request, FindCoordinatorRequest)
    return member, search


def joining() -> tuple[ShareMember, Send]:
    member, search = finding()
    join = sent(member.answered(search.ticket, found(), 0.0))
    assert heartbeat(join) == (0, ["a"])
    assert join is not None and join.to is not None
    return member, join


def joined() -> ShareMember:
    member, join = joining()
    assert sent(member.answered(join.ticket, answer(1, [0, 1]), 0.0)) is None
    assert member.standing.state is MemberState.STABLE
    assert member.assigned == {TopicIdPartition(TOPIC, 0), TopicIdPartition(TOPIC, 1)}
    return member


def test_a_member_joins_and_sends_heartbeats_with_what_has_changed() -> None:
    member = joined()
    assert member.standing.next_deadline() == 5.0
    beat = sent(member.standing.tick(5.0))
    assert heartbeat(beat) == (1, None)
    assert beat is not None
    member.answered(beat.ticket, answer(2), 5.0)
    assert (member.epoch, len(member.assigned)) == (2, 2)
    news = sent(member.subscribe(["b"], 6.0))
    assert heartbeat(news) == (2, ["b"])
    assert news is not None
    member.answered(news.ticket, answer(3, []), 6.0)
    assert member.assigned == frozenset()


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_is_fenced_or_unknown_joins_again(code: ErrorCode) -> None:
    member = joined()
    beat = sent(member.standing.tick(5.0))
    assert beat is not None
    again = sent(member.answered(beat.ticket, answer(0, code=code), 5.0))
    assert (heartbeat(again), member.assigned) == ((0, ["a"]), frozenset())
    assert again is not None
    member.answered(again.ticket, answer(0, code=code), 5.0)
    assert (member.standing.next_deadline() or 0.0) > 5.0, "the second time after a pause"


def test_a_member_leaves() -> None:
    member = joined()
    leave = sent(member.leave(1.0))
    assert heartbeat(leave) == (-1, None)
    assert (member.standing.state, member.assigned, member.standing.next_deadline()) == (
        MemberState.UNJOINED,
        frozenset(),
        None,
    )
    assert leave is not None
    assert member.answered(leave.ticket, answer(-1), 1.0) == []


def test_a_join_in_flight_leaves_as_well() -> None:
    member, join = joining()
    assert heartbeat(sent(member.leave(0.0))) == (-1, None)
    assert sent(member.answered(join.ticket, answer(1, [0]), 0.0)) is None
    assert member.assigned == frozenset()


def test_the_coordinator_moves_and_the_assignment_stays() -> None:
    member = joined()
    beat = sent(member.standing.tick(5.0))
    assert beat is not None
    member.failed(beat.ticket, KafkaConnectionError("broke"), 5.0)
    assert (member.standing.coordinator, len(member.assigned)) == (None, 2)
    search = sent(member.standing.tick(member.standing.next_deadline() or 0.0))
    assert search is not None and isinstance(search.request, FindCoordinatorRequest)
    assert heartbeat(sent(member.answered(search.ticket, found(), 6.0))) == (1, ["a"])


@pytest.mark.parametrize(
    "response",
    [answer(0, [0]), answer(-5, [0]), answer(1, [-1]), answer(1, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_an_answer_that_does_not_help_is_asked_for_again_after_a_pause(response: ShareGroupHeartbeatResponse) -> None:
    member, join = joining()
    assert sent(member.answered(join.ticket, response, 0.0)) is None
    assert (member.standing.state, member.assigned) == (MemberState.JOINING, frozenset())
    at = member.standing.next_deadline()
    assert at is not None and at > 0.0
    assert heartbeat(sent(member.standing.tick(at))) == (0, ["a"])


def test_errors_that_stay_fail_the_membership_until_the_next_subscription() -> None:
    member, join = joining()
    effects = member.answered(join.ticket, answer(code=ErrorCode.GROUP_AUTHORIZATION_FAILED), 0.0)
    assert [one.error.code for one in effects if isinstance(one, Fail)] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert (member.standing.state, member.standing.next_deadline()) == (MemberState.FAILED, None)
    assert heartbeat(sent(member.subscribe(["a"], 1.0))) == (0, ["a"])


def test_a_broker_without_share_groups() -> None:
    member, join = joining()
    (failure,) = member.failed(join.ticket, UnsupportedVersionError("no such API"), 0.0)
    assert isinstance(failure, Fail)
    assert "share.version" in str(failure.error)


def test_answers_to_other_tickets_change_nothing() -> None:
    member, join = joining()
    assert member.answered(join.ticket + 1, answer(1, [0]), 0.0) == []
    assert member.answered(join.ticket, found(), 0.0) == []
    assert member.standing.state is MemberState.JOINING
