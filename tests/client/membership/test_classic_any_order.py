"""The member's state machine, whatever happens."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_client.assignors import (
    RangeAssignor,
)
from barnabas_client.membership.effects import CountPartitions, Effect, Revoke, Send
from barnabas_client.membership.member import NO_GENERATION, MemberConfig, MemberState
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest
from barnabas_protocol.messages.sync_group import SyncGroupRequest
from tests.client.member_driver import Cooperative, Driver, partitions

pytestmark = pytest.mark.broad

CODES = [
    ErrorCode.NONE,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


class AnyOrder(RuleBasedStateMachine):
    """Requests are answered in any order, with any code, or never; time passes; the program polls or does not."""

    assignors: Sequence[RangeAssignor] = (RangeAssignor(),)

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(MemberConfig(group_id="g", max_poll_interval=20), self.assignors)
        self.generation = 0
        self.driver.subscribe()

    def some(self, kind: type[Effect]) -> bool:
        return any(isinstance(effect, kind) for effect in self.driver.effects)

    @precondition(lambda self: self.driver.has_sent(FindCoordinatorRequest))
    @rule(code=st.sampled_from([ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def find(self, code: ErrorCode) -> None:
        self.driver.find(code)

    @precondition(lambda self: self.driver.has_sent(JoinGroupRequest))
    @rule(code=st.sampled_from(CODES), leads=st.booleans())
    def join(self, code: ErrorCode, leads: bool) -> None:
        self.generation += 1
        leader, name = "m1" if leads else "m2", self.assignors[0].name
        self.driver.join(code, leader=leader, generation=self.generation, protocol=name)

    @precondition(lambda self: self.driver.has_sent(SyncGroupRequest))
    @rule(code=st.sampled_from(CODES), mine=st.sets(st.integers(0, 3)))
    def sync(self, code: ErrorCode, mine: set[int]) -> None:
        self.driver.sync(partitions(*mine), code)

    @precondition(lambda self: self.driver.has_sent(HeartbeatRequest))
    @rule(code=st.sampled_from(CODES))
    def beat(self, code: ErrorCode) -> None:
        self.driver.beat(code)

    @precondition(lambda self: self.some(CountPartitions))
    @rule(count=st.integers(0, 5))
    def count(self, count: int) -> None:
        self.driver.count(t=count)

    @precondition(lambda self: self.some(Revoke))
    @rule()
    def release(self) -> None:
        self.driver.release()

    @precondition(lambda self: self.some(Send))
    @rule(at=st.integers(0, 5))
    def drop(self, at: int) -> None:
        sends = [effect for effect in self.driver.effects if isinstance(effect, Send)]
        self.driver.drop(type(sends[at % len(sends)].request))

    @rule(seconds=st.floats(0, 12), polls=st.booleans())
    def wait(self, seconds: float, polls: bool) -> None:
        self.driver.wait(seconds, polls=polls)

    @rule(count=st.integers(1, 5))
    def metadata(self, count: int) -> None:
        self.driver.happened(self.driver.machine.metadata_changed({"t": count}, self.driver.now))

    @rule(topics=st.sampled_from([("t",), ("t", "u")]))
    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.driver.subscribe(*topics)

    @rule()
    def leave(self) -> None:
        self.driver.happened(self.driver.machine.leave("test", self.driver.now))

    @invariant()
    def nothing_is_due_any_more(self) -> None:
        # A step must not leave anything that is due: the shell would spin.
        deadline = self.driver.machine.standing.next_deadline()
        assert deadline is None or deadline > self.driver.now

    @invariant()
    def a_member_knows_itself(self) -> None:
        machine = self.driver.machine
        if machine.standing.state in (MemberState.SYNCING, MemberState.STABLE):
            assert machine.member_id
            assert machine.generation != NO_GENERATION
        if machine.standing.state is MemberState.FAILED:
            assert machine.standing.error is not None
            assert not machine.owned

    @invariant()
    def requests_fit_their_state(self) -> None:
        for effect in self.driver.effects:
            if isinstance(effect, Send) and isinstance(effect.request, HeartbeatRequest):
                assert effect.request.generation_id != NO_GENERATION
                assert effect.to is not None
            if isinstance(effect, Send) and isinstance(effect.request, JoinGroupRequest):
                assert effect.to is not None

    @invariant()
    def an_eager_member_joins_with_empty_hands(self) -> None:
        if self.driver.machine.standing.state is MemberState.JOINING and not self.driver.machine.cooperative:
            assert not self.driver.machine.owned


class AnyOrderCooperative(AnyOrder):
    assignors = (Cooperative(),)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=30)
TestAnyOrderCooperative = AnyOrderCooperative.TestCase
TestAnyOrderCooperative.settings = settings(max_examples=100, stateful_step_count=30)
