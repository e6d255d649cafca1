"""`ConsumerMember`, the state machine of a member of the consumer protocol, step by step."""

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

from barnabas_client.errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    KafkaConnectionError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from barnabas_client.membership.consumer_member import ConsumerMember
from barnabas_client.membership.effects import Assign, Disconnect, Effect, Fail, NameTopics, Note, Revoke, Send
from barnabas_client.membership.effects import Coordinator as Address
from barnabas_client.membership.member import NO_GENERATION, MemberConfig, MemberState
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

E = TypeVar("E")
T, U = b"t" * 16, b"u" * 16
NAMES = {T: "t", U: "u"}


def partitions(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


class Driver:
    """A member, its clock and what it asked for so far."""

    def __init__(self, **config: Any) -> None:
        self.machine = ConsumerMember(MemberConfig(group_id="g", protocol="consumer", **config), "me")
        self.now = 0.0
        self.effects: list[Effect] = []

    def happened(self, effects: list[Effect]) -> None:
        self.effects += [effect for effect in effects if not isinstance(effect, Note)]

    def take(self, kind: type[E]) -> E:
        """Remove the oldest effect of a kind; fail if there is none."""
        for at, effect in enumerate(self.effects):
            if isinstance(effect, kind):
                del self.effects[at]
                return effect
        raise AssertionError(f"no {kind.__name__} in {self.effects}")

    def find(self) -> None:
        send = self.take(Send)
        assert isinstance(send.request, FindCoordinatorRequest)
        found = Coordinator(key="g", node_id=1, host="h", port=9092)
        self.happened(self.machine.answered(send.ticket, FindCoordinatorResponse(coordinators=[found]), self.now))

    def beats(self) -> tuple[Send, ConsumerGroupHeartbeatRequest]:
        send = self.take(Send)
        assert isinstance(send.request, ConsumerGroupHeartbeatRequest), send
        return send, send.request

    def beat(
        self,
        epoch: int = 1,
        assigned: Iterable[int] | None = None,
        code: ErrorCode = ErrorCode.NONE,
        *,
        topic: bytes = T,
        message: str | None = None,
    ) -> ConsumerGroupHeartbeatRequest:
        """Answer the heartbeat that was sent, and return it."""
        send, request = self.beats()
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=code,
            error_message=message,
            member_id="me",
            member_epoch=epoch,
            heartbeat_interval_ms=5000,
            assignment=None
            if assigned is None
            else HeartbeatAssignment(
                topic_partitions=[HeartbeatTopicPartitions(topic_id=topic, partitions=list(assigned))]
            ),
        )
        self.happened(self.machine.answered(send.ticket, response, self.now))
        return request

    def name(self) -> NameTopics:
        asked = self.take(NameTopics)
        names = {topic_id: NAMES[topic_id] for topic_id in asked.topic_ids}
        self.happened(self.machine.named(asked.ticket, names, self.now))
        return asked

    def release(self) -> Revoke:
        revoke = self.take(Revoke)
        self.happened(self.machine.revoked(revoke.ticket, self.now))
        return revoke

    def wait(self, seconds: float, *, polls: bool = True) -> None:
        self.now += seconds
        self.happened(self.machine.standing.polled(self.now) if polls else self.machine.standing.tick(self.now))

    def stable(self, *numbers: int) -> "Driver":
        """A member with epoch 1 that owns and has reported these partitions of topic "t"."""
        self.happened(self.machine.subscribe(["t"], self.now))
        self.find()
        self.beat(1, numbers)
        self.name()
        assert self.take(Assign).added == partitions(*numbers)
        assert owned(self.beat(1)) == {(T, number) for number in numbers}
        assert self.machine.view().state is MemberState.STABLE
        assert not self.effects
        return self


def owned(request: ConsumerGroupHeartbeatRequest) -> set[tuple[bytes, int]] | None:
    if request.topic_partitions is None:
        return None
    return {(topic.topic_id, number) for topic in request.topic_partitions for number in topic.partitions}


def test_the_first_heartbeat_joins_and_carries_everything() -> None:
    driver = Driver(rack="r1", remote_assignor="range", instance_id="i", rebalance_timeout=300.0)
    driver.happened(driver.machine.subscribe(["u", "t"], driver.now))
    driver.find()
    request = driver.beat(1, ())
    assert request == ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="me",
        member_epoch=0,
        instance_id="i",
        rack_id="r1",
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["t", "u"],
        subscribed_topic_regex="",
        server_assignor="range",
        topic_partitions=[],
    )
    assert driver.take(Assign) == Assign(frozenset(), frozenset(), 1)
    assert driver.machine.view().generation == 1


def test_a_coordinator_that_the_shell_has_found_is_not_searched_for() -> None:
    driver = Driver()
    there = Address(1, "h", 9092)
    driver.happened(driver.machine.standing.coordinator_found(there, driver.now))
    driver.happened(driver.machine.subscribe(["t"], driver.now))
    send, request = driver.beats()
    assert (send.to, request.member_epoch) == (there, 0)


def test_heartbeats_carry_only_changes() -> None:
    driver = Driver().stable(0)
    driver.wait(4.9)
    assert not driver.effects
    driver.wait(0.1)
    assert driver.beat() == ConsumerGroupHeartbeatRequest(group_id="g", member_id="me", member_epoch=1)
    driver.happened(driver.machine.subscribe(["t", "u"], driver.now))
    request = driver.beat(2)  # at once
    assert request.subscribed_topic_names == ["t", "u"]
    assert (owned(request), request.subscribed_topic_regex, request.rebalance_timeout_ms) == (None, None, -1)
    driver.wait(5)
    assert driver.beat(2).member_epoch == 2


def test_a_pattern_replaces_names_and_the_other_way_round() -> None:
    driver = Driver().stable(0)
    driver.happened(driver.machine.subscribe((), driver.now, "t.*"))
    request = driver.beat(1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "t.*")
    driver.happened(driver.machine.subscribe(["t"], driver.now))
    request = driver.beat(1)
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")


def test_revokes_first_then_acknowledges() -> None:
    driver = Driver().stable(0, 1)
    driver.wait(5)
    driver.beat(1, [1])
    assert driver.machine.view().state is MemberState.RECONCILING
    driver.wait(5)
    assert owned(driver.beat(1)) is None  # heartbeats go on while the program has not polled
    revoke = driver.release()
    assert (revoke.partitions, revoke.lost) == (partitions(0), False)
    assert owned(driver.beat(2)) == {(T, 1)}
    assert driver.machine.view().state is MemberState.STABLE
    assert not driver.effects  # nothing was added


def test_a_target_that_changes_during_a_revocation() -> None:
    driver = Driver().stable(0, 1)
    driver.wait(5)
    driver.beat(1, [1])
    driver.wait(5)
    driver.beat(1, [0, 2])
    assert driver.release().partitions == partitions(0)
    assert driver.release().partitions == partitions(1)
    assign = driver.take(Assign)
    assert (assign.partitions, assign.added) == (partitions(0, 2), partitions(0, 2))


def test_topics_without_a_name_are_not_assigned() -> None:
    driver = Driver()
    driver.happened(driver.machine.subscribe(["t"], driver.now))
    driver.find()
    driver.beat(1, [0], topic=U)
    asked = driver.take(NameTopics)
    assert asked.topic_ids == {U}
    driver.happened(driver.machine.named(asked.ticket, {}, driver.now))
    assert not driver.effects
    driver.wait(1)
    driver.name()
    assert driver.take(Assign).added == partitions(0, topic="u")
    assert owned(driver.beat()) == {(U, 0)}


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_removed_loses_its_partitions_and_joins_again(code: ErrorCode) -> None:
    driver = Driver().stable(0)
    driver.wait(5)
    driver.beat(code=code)
    assert driver.machine.view().generation == NO_GENERATION
    assert not any(isinstance(effect, Send) for effect in driver.effects)
    revoke = driver.release()
    assert (revoke.partitions, revoke.lost) == (partitions(0), True)
    request = driver.beat(7, [0])
    assert (request.member_epoch, request.member_id, owned(request)) == (0, "me", set())
    assert driver.take(Assign).added == partitions(0)


def test_a_revocation_that_was_in_progress_is_lost_as_well() -> None:
    driver = Driver().stable(0, 1)
    driver.wait(5)
    driver.beat(1, [1])
    first = driver.take(Revoke)
    assert not driver.machine.view().has_lost(first)
    driver.wait(5)
    driver.beat(code=ErrorCode.FENCED_MEMBER_EPOCH)
    assert driver.machine.view().has_lost(first)
    driver.happened(driver.machine.revoked(first.ticket, driver.now))
    assert driver.release().partitions == partitions(0, 1)
    assert driver.beats()[1].member_epoch == 0


def test_a_grown_epoch_loses_nothing() -> None:
    driver = Driver().stable(0, 1)
    driver.wait(5)
    driver.beat(1, [1])
    revoke = driver.take(Revoke)
    driver.wait(5)
    driver.beat(2)
    assert not driver.machine.view().has_lost(revoke)


def test_after_a_lost_answer_everything_is_sent_again() -> None:
    driver = Driver().stable(0)
    driver.wait(5)
    send, _ = driver.beats()
    driver.happened(driver.machine.failed(send.ticket, KafkaConnectionError("broken"), driver.now))
    driver.take(Disconnect)
    driver.wait(1)
    driver.find()
    request = driver.beat(1)
    assert (request.member_epoch, owned(request)) == (1, {(T, 0)})
    assert (request.subscribed_topic_names, request.rebalance_timeout_ms) == (["t"], 300_000)


def test_a_lost_answer_to_a_join_is_the_same_join_again() -> None:
    driver = Driver()
    driver.happened(driver.machine.subscribe(["t"], driver.now))
    driver.find()
    send, request = driver.beats()
    driver.happened(driver.machine.failed(send.ticket, KafkaConnectionError("broken"), driver.now))
    driver.take(Disconnect)
    driver.wait(1)
    driver.find()
    assert driver.beat(1, ()) == request


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NETWORK_EXCEPTION])
def test_retriable_errors_back_off_and_send_everything(code: ErrorCode) -> None:
    driver = Driver().stable(0)
    driver.wait(5)
    driver.beat(code=code)
    assert not driver.effects
    driver.wait(0.1)
    assert owned(driver.beat(code=code)) == {(T, 0)}
    driver.wait(0.1)
    assert not driver.effects
    driver.wait(0.15)
    assert owned(driver.beat()) == {(T, 0)}
    assert driver.machine.view().generation == 1


def test_another_coordinator() -> None:
    driver = Driver().stable(0)
    driver.wait(5)
    driver.beat(code=ErrorCode.NOT_COORDINATOR)
    driver.take(Disconnect)
    driver.wait(1)
    driver.find()
    assert owned(driver.beat()) == {(T, 0)}
    assert not driver.effects


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, UnreleasedInstanceIdError),
        (ErrorCode.FENCED_INSTANCE_ID, FencedInstanceIdError),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, UnsupportedAssignorError),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, InvalidRegularExpressionError),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, GroupMaxSizeReachedError),
        (ErrorCode.UNSUPPORTED_VERSION, UnsupportedVersionError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, KafkaError),
    ],
)
def test_errors_that_end_the_membership(code: ErrorCode, error: type[KafkaError]) -> None:
    driver = Driver().stable(0)
    driver.wait(5)
    driver.beat(code=code, message="the broker's reason")
    revoke = driver.release()
    assert (revoke.partitions, revoke.lost) == (partitions(0), True)
    failure = driver.take(Fail).error
    assert type(failure) is error or error is KafkaError
    assert "To do: " in str(failure)
    driver.wait(1000)
    assert not driver.effects
    driver.happened(driver.machine.subscribe(["t"], driver.now))
    assert driver.beats()[1].member_epoch == 0


def test_a_broker_without_the_protocol() -> None:
    driver = Driver()
    driver.happened(driver.machine.subscribe(["t"], driver.now))
    driver.find()
    error = UnsupportedVersionError("the broker does not have CONSUMER_GROUP_HEARTBEAT")
    driver.happened(driver.machine.failed(driver.beats()[0].ticket, error, driver.now))
    message = str(driver.take(Fail).error)
    assert "h:9092: the broker does not have CONSUMER_GROUP_HEARTBEAT" in message
    assert "group_protocol='classic'" in message


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving(instance_id: str | None, epoch: int) -> None:
    driver = Driver(instance_id=instance_id).stable(0)
    driver.happened(driver.machine.leave("enough", driver.now))
    request = driver.beats()[1]
    assert (request.member_id, request.member_epoch, request.instance_id) == ("me", epoch, instance_id)
    driver.wait(1000)
    assert not driver.effects
    assert driver.machine.standing.next_deadline() is None


def test_leaving_while_the_join_is_in_flight() -> None:
    driver = Driver()
    driver.happened(driver.machine.subscribe(["t"], driver.now))
    driver.find()
    driver.beats()
    driver.happened(driver.machine.leave("enough", driver.now))
    assert driver.beats()[1].member_epoch == -1


def test_a_program_that_does_not_poll() -> None:
    driver = Driver(max_poll_interval=12.0).stable(0)
    driver.wait(5, polls=False)
    driver.beat()
    driver.wait(5, polls=False)
    driver.beat()
    driver.wait(5, polls=False)
    assert driver.beats()[1].member_epoch == -1
    driver.wait(100, polls=False)
    revoke = driver.release()
    assert (revoke.partitions, revoke.lost) == (partitions(0), True)
    assert driver.beats()[1].member_epoch == 0


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_refused_commit_brings_the_heartbeat_forward(code: ErrorCode) -> None:
    driver = Driver().stable(0)
    driver.happened(driver.machine.commit_refused(code, 0, driver.now))
    assert not driver.effects  # it had an older epoch
    driver.happened(driver.machine.commit_refused(code, 1, driver.now))
    driver.beat(2)
    assert driver.machine.view().commit_identity().generation == 2


@pytest.mark.parametrize(("epoch", "number"), [(0, 0), (-1, 0), (1, -1)])
def test_invalid_answers_are_retried(epoch: int, number: int) -> None:
    driver = Driver().stable(0)
    driver.wait(5)
    driver.beat(epoch, [number])
    assert not driver.effects
    driver.wait(0.1)
    assert owned(driver.beat()) == {(T, 0)}


def test_a_topic_that_was_created_again_is_another_one() -> None:
    driver = Driver().stable(0)
    NAMES[b"n" * 16] = "t"
    driver.wait(5)
    driver.beat(2, [0], topic=b"n" * 16)
    assert driver.release().partitions == partitions(0)
    driver.name()
    assert driver.take(Assign).added == partitions(0)


def test_fenced_for_ever_backs_off() -> None:
    """A coordinator that accepts each join and then fences the member does not keep it busy."""
    driver = Driver()
    driver.happened(driver.machine.subscribe(["t"], driver.now))
    driver.find()
    joins = 0
    while driver.now < 20:
        for effect in list(driver.effects):
            if isinstance(effect, Revoke):
                driver.release()
            elif isinstance(effect, NameTopics):
                driver.name()
            elif isinstance(effect, Assign):
                driver.take(Assign)
        if any(isinstance(effect, Send) for effect in driver.effects):
            send = next(effect for effect in driver.effects if isinstance(effect, Send))
            assert isinstance(send.request, ConsumerGroupHeartbeatRequest)
            joins += send.request.member_epoch == 0
            driver.beat(1, [0], ErrorCode.NONE if send.request.member_epoch == 0 else ErrorCode.FENCED_MEMBER_EPOCH)
        else:
            deadline = driver.machine.standing.next_deadline()
            assert deadline is None or deadline > driver.now or driver.effects
            driver.wait(max(0.0, (deadline or driver.now) - driver.now) or 0.01)
    assert joins <= 30


def test_a_late_answer_is_ignored() -> None:
    driver = Driver().stable(0)
    driver.wait(5)
    send, _ = driver.beats()
    driver.happened(driver.machine.leave("enough", driver.now))
    driver.beats()
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=0, member_epoch=9, heartbeat_interval_ms=5000
    )
    driver.happened(driver.machine.answered(send.ticket, response, driver.now))
    assert driver.machine.view().generation == NO_GENERATION
    assert not driver.effects
