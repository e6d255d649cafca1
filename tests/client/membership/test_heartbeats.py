"""When heartbeats are due, what they tell, and what their answers mean; the machines' tests cover what follows."""

import pytest

from barnabas_client.errors import KafkaConnectionError, UnsupportedVersionError
from barnabas_client.membership.consumer_member import TRANSITIONS
from barnabas_client.membership.effects import Coordinator, Disconnect, Note, Send
from barnabas_client.membership.heartbeats import JOIN_EPOCH, Heartbeats, Refusal, TopicIdPartition, is_valid
from barnabas_client.membership.member import MemberConfig, MemberState
from barnabas_client.membership.standing import Standing
from barnabas_protocol.backoff import no_jitter
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)

CONFIG = MemberConfig(group_id="g", heartbeat_interval=3.0, retry_backoff=0.1, retry_backoff_max=1.0)


class Part:
    """Heartbeats, and what they call of their machine."""

    def __init__(self) -> None:
        self.standing = Standing(CONFIG, TRANSITIONS, lambda: True, lambda: "", self.failed, no_jitter)
        self.beats: Heartbeats[str] = Heartbeats(CONFIG, self.standing, self.removed, self.final, no_jitter)
        self.errors: list[KafkaError] = []
        self.removals = 0
        self.ticket = 0
        self.standing.search.found(Coordinator(1, "h", 9092), 0.0)

    def failed(self, error: KafkaError) -> None:
        self.errors.append(error)

    def final(self, code: ErrorCode, message: str | None) -> KafkaError:
        return KafkaError(code, f"final: {message}")

    def removed(self) -> None:
        self.removals += 1
        self.beats.end()
        self.standing.to(MemberState.UNJOINED)

    def send(self, tells: str = "a", now: float = 0.0) -> Send:
        self.standing.out.take()
        self.beats.begin("m")
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=self.beats.epoch)
        self.beats.send(request, tells, now)
        send = next(effect for effect in self.standing.out.take() if isinstance(effect, Send))
        self.ticket = send.ticket
        return send

    def answer(self, code: ErrorCode = ErrorCode.NONE, now: float = 0.0, *, epoch: int = 1, interval: int = 0) -> bool:
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0, error_code=code, member_epoch=epoch, heartbeat_interval_ms=interval
        )
        succeeded = self.beats.answered(self.ticket, response, now)
        if succeeded:
            self.standing.to(MemberState.RECONCILING)
        return succeeded


@pytest.fixture
def joined() -> Part:
    """A member that has joined at 0 and told "a"; the coordinator's interval is 5 s."""
    part = Part()
    part.send()
    assert part.standing.state is MemberState.JOINING
    assert part.answer(interval=5_000)
    return part


def test_one_is_due_after_the_interval_or_with_news(joined: Part) -> None:
    beats = joined.beats
    assert (beats.told, beats.epoch) == ("a", 1)
    assert beats.due("a") == 5.0
    assert beats.due("b") == 0.0, "news"
    beats.hurry(2.0)
    assert beats.due("a") == 2.0
    joined.send("b", 2.0)
    assert beats.due("c") is None, "one at a time"


def test_a_join_is_due_at_once_if_the_coordinator_is_known() -> None:
    part = Part()
    assert part.beats.due("a") == 0.0
    part.standing.search.lose("gone", 0.0)
    assert part.beats.due("a") is None


def test_everything_is_told_again_after_an_error_and_a_pause(joined: Part) -> None:
    for now, at in ((5.0, 5.1), (6.0, 6.2)):
        joined.send(now=now)
        assert not joined.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, now)
        assert (joined.beats.told, joined.beats.due("a")) == (None, at)
    assert joined.standing.last_error == "a heartbeat was answered COORDINATOR_LOAD_IN_PROGRESS"


def test_only_a_heartbeat_after_the_join_ends_the_pauses_of_joins(joined: Part) -> None:
    joined.send()
    joined.answer(ErrorCode.UNKNOWN_MEMBER_ID, 1.0)
    assert joined.beats.due("a") == 1.0, "the first one at once"
    joined.send()
    joined.answer(now=1.0)
    joined.send()
    joined.answer(ErrorCode.UNKNOWN_MEMBER_ID, 2.0)
    assert joined.beats.due("a") == 2.2
    joined.send()
    joined.answer(now=3.0)
    joined.send()
    joined.answer(now=3.0)
    joined.send()
    joined.answer(ErrorCode.UNKNOWN_MEMBER_ID, 4.0)
    assert joined.beats.due("a") == 4.0


def test_a_short_interval_leaves_time_for_the_answer(joined: Part) -> None:
    assert joined.send().timeout == 10.0
    joined.answer(interval=60_000)
    assert joined.send().timeout == CONFIG.request_timeout


def test_answers_to_other_requests_change_nothing(joined: Part) -> None:
    joined.send(now=5.0)
    other = ConsumerGroupHeartbeatResponse(throttle_time_ms=0, error_code=0, member_epoch=7, heartbeat_interval_ms=0)
    assert not joined.beats.answered(joined.ticket + 1, other, 6.0)
    joined.beats.failed(joined.ticket + 1, KafkaConnectionError("broken"), 6.0)
    assert (joined.beats.epoch, joined.beats.ticket) == (1, joined.ticket)
    assert joined.standing.coordinator is not None


def test_a_member_that_the_coordinator_has_removed(joined: Part) -> None:
    joined.send()
    assert not joined.answer(ErrorCode.FENCED_MEMBER_EPOCH)
    assert (joined.removals, joined.beats.epoch, joined.beats.told) == (1, JOIN_EPOCH, None)
    (note,) = joined.standing.out.take()
    assert note == Note("lost the membership", {"epoch": 1, "reason": "FENCED_MEMBER_EPOCH"}, warns=True)


def test_without_an_answer_the_coordinator_is_looked_for(joined: Part) -> None:
    joined.send()
    joined.beats.failed(joined.ticket, KafkaConnectionError("broken"), 1.0)
    assert (joined.standing.coordinator, joined.beats.told, joined.beats.epoch) == (None, None, 1)
    assert isinstance(joined.standing.out.take()[0], Disconnect)
    assert "broken" in joined.standing.last_error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnsupportedVersionError("no such API"), "final: no such API"),
        (KafkaError(ErrorCode.INVALID_REQUEST, "not for this broker"), "not for this broker"),
    ],
)
def test_requests_that_the_broker_does_not_take(joined: Part, error: KafkaError, said: str) -> None:
    joined.send()
    joined.beats.failed(joined.ticket, error, 1.0)
    (given_up,) = joined.errors
    assert given_up.code == error.code
    assert said in str(given_up)


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_errors_that_do_not_pass(joined: Part, code: ErrorCode) -> None:
    joined.send()
    assert not joined.answer(code)
    assert [error.code for error in joined.errors] == [code]


@pytest.mark.parametrize(
    ("code", "member", "refusal"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, False, Refusal.REMOVED),
        (ErrorCode.GROUP_ID_NOT_FOUND, True, Refusal.REMOVED),
        (ErrorCode.GROUP_ID_NOT_FOUND, False, Refusal.FINAL),
        (ErrorCode.NOT_COORDINATOR, True, Refusal.COORDINATOR_GONE),
        (ErrorCode.UNSUPPORTED_VERSION, False, Refusal.FINAL),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, Refusal.RETRIABLE),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, True, Refusal.FINAL),
    ],
)
def test_errors_are_classified(code: ErrorCode, member: bool, refusal: Refusal) -> None:
    assert Refusal.of(code, member=member) is refusal


def test_an_answer_without_the_epoch_of_a_member_is_invalid(joined: Part) -> None:
    assert not is_valid(0, None)
    assert not is_valid(1, frozenset({TopicIdPartition(bytes(16), -1)}))
    assert is_valid(1, frozenset())
    joined.send()
    topics = [HeartbeatTopicPartitions(topic_id=bytes(16), partitions=[-1])]
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_epoch=2,
        heartbeat_interval_ms=0,
        assignment=HeartbeatAssignment(topic_partitions=topics),
    )
    assert not joined.beats.answered(joined.ticket, response, 1.0)
    assert (joined.beats.epoch, joined.beats.told, joined.beats.due("a")) == (1, None, 1.1)
