"""The state machine of a member of the consumer protocol, whatever happens."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_client.errors import KafkaConnectionError
from barnabas_client.membership.consumer_member import ConsumerMember
from barnabas_client.membership.effects import Assign, Effect, NameTopics, Revoke, Send
from barnabas_client.membership.member import NO_GENERATION, MemberConfig, MemberState
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

pytestmark = pytest.mark.broad

TOPIC = b"t" * 16
CODES = [
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


class AnyOrder(RuleBasedStateMachine):
    """Heartbeats are answered with any assignment or code, late or never; the program polls or does not.

    `given` is what the coordinator has assigned in this membership, `held` what the program has: assigned, and not
    revoked by a listener that has returned.
    """

    def __init__(self) -> None:
        super().__init__()
        config = MemberConfig(group_id="g", protocol="consumer", max_poll_interval=20)
        self.machine = ConsumerMember(config, "me")
        self.now = 0.0
        self.epoch = 0
        self.sends: list[Send] = []
        self.revokes: list[Revoke] = []
        self.naming: list[NameTopics] = []
        self.given: frozenset[int] = frozenset()
        self.held: frozenset[int] = frozenset()
        self.happened(self.machine.subscribe(["t"], self.now))
        self.answers(0, None, 0, ErrorCode.NONE)
        self.answers(0, frozenset({0, 1, 2}), 0, ErrorCode.NONE)
        self.names(known=True)
        assert self.held == {0, 1, 2}

    def happened(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sends.append(effect)
                if isinstance(effect.request, ConsumerGroupHeartbeatRequest):
                    self.reports_what_is_held(effect.request)
            elif isinstance(effect, Revoke):
                self.revokes.append(effect)
            elif isinstance(effect, NameTopics):
                self.naming.append(effect)
            elif isinstance(effect, Assign):
                assert {tp.partition for tp in effect.partitions} <= self.given | self.held
                assert {tp.partition for tp in effect.added} <= self.given
                self.held = frozenset(tp.partition for tp in effect.partitions)

    def reports_what_is_held(self, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.member_epoch == 0:
            assert request.topic_partitions == []
            assert request.subscribed_topic_names is not None
            assert not self.held, "joins while the program holds partitions of an earlier membership"
        elif request.member_epoch > 0:
            assert request.member_epoch == self.epoch
            if request.topic_partitions is not None:
                owned = {number for topic in request.topic_partitions for number in topic.partitions}
                assert owned == self.held, "acknowledges other partitions than the program holds"

    @precondition(lambda self: self.sends)
    @rule(
        at=st.integers(0, 3),
        assigned=st.none() | st.frozensets(st.integers(0, 3)),
        grows=st.integers(0, 2),
        code=st.sampled_from([ErrorCode.NONE] * len(CODES) + CODES),
    )
    def answer(self, at: int, assigned: frozenset[int] | None, grows: int, code: ErrorCode) -> None:
        self.answers(at, assigned, grows, code)

    def answers(self, at: int, assigned: frozenset[int] | None, grows: int, code: ErrorCode) -> None:
        send = self.sends.pop(at % len(self.sends))
        request = send.request
        if isinstance(request, FindCoordinatorRequest):
            found = Coordinator(key="g", node_id=1, host="h", port=9092)
            self.happened(self.machine.answered(send.ticket, FindCoordinatorResponse(coordinators=[found]), self.now))
            return
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if request.member_epoch == 0:
            assigned = assigned or frozenset()
        awaited = send.ticket == self.machine._beats.ticket
        if awaited and code == ErrorCode.NONE:
            self.epoch = max(self.epoch, 1) + grows
            self.given = self.given if assigned is None else assigned
        topics = [HeartbeatTopicPartitions(topic_id=TOPIC, partitions=sorted(assigned or ()))]
        response = ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=code,
            member_epoch=self.epoch if code == ErrorCode.NONE else 0,
            heartbeat_interval_ms=5000,
            assignment=None if assigned is None else HeartbeatAssignment(topic_partitions=topics),
        )
        self.happened(self.machine.answered(send.ticket, response, self.now))

    @precondition(lambda self: self.sends)
    @rule(at=st.integers(0, 3))
    def drop(self, at: int) -> None:
        send = self.sends.pop(at % len(self.sends))
        self.happened(self.machine.failed(send.ticket, KafkaConnectionError("broken"), self.now))

    @precondition(lambda self: self.naming)
    @rule(known=st.booleans())
    def name(self, known: bool) -> None:
        self.names(known=known)

    def names(self, *, known: bool) -> None:
        self.happened(self.machine.named(self.naming.pop(0).ticket, {TOPIC: "t"} if known else {}, self.now))

    @precondition(lambda self: self.revokes)
    @rule()
    def release(self) -> None:
        revoke = self.revokes.pop(0)
        self.held -= {tp.partition for tp in revoke.partitions}
        self.happened(self.machine.revoked(revoke.ticket, self.now))

    @rule(seconds=st.floats(0, 12), polls=st.booleans())
    def wait(self, seconds: float, polls: bool) -> None:
        self.now += seconds
        self.happened(self.machine.standing.polled(self.now) if polls else self.machine.standing.tick(self.now))

    @rule(topics=st.sampled_from([("t",), ("t", "u")]))
    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.happened(self.machine.subscribe(topics, self.now))

    @rule(code=st.sampled_from([ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR]))
    def commit_refused(self, code: ErrorCode) -> None:
        self.happened(self.machine.commit_refused(code, self.machine.epoch, self.now))

    @rule()
    def leave(self) -> None:
        """The session has revoked everything before."""
        while self.revokes:
            self.release()
        self.held = frozenset()
        self.happened(self.machine.leave("test", self.now))

    @invariant()
    def nothing_is_due_any_more(self) -> None:
        # A step must not leave anything that is due: the shell would spin.
        deadline = self.machine.standing.next_deadline()
        assert deadline is None or deadline > self.now

    @invariant()
    def owns_only_what_was_assigned(self) -> None:
        view = self.machine.view()
        if self.machine.standing.state in (MemberState.STABLE, MemberState.RECONCILING):
            assert view.generation == self.epoch
            assert {one.partition for one in self.machine.owned} == self.held
        else:
            assert view.generation == NO_GENERATION
        if self.machine.standing.state is MemberState.STABLE:
            assert self.held == self.given
        if self.machine.standing.state is MemberState.FAILED:
            assert self.machine.standing.error is not None


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=200, stateful_step_count=40)
