"""The member's state machine: each answer, failure and passing of time, and what it does about them."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_client.assignors import (
    Assignments,
    MemberSubscription,
    RangeAssignor,
    RebalanceProtocol,
)
from barnabas_client.consumer_protocol import decode_assignment, decode_subscription
from barnabas_client.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from barnabas_client.group_types import (
    NO_GENERATION,
    AskCluster,
    Assign,
    Disconnect,
    Effect,
    Fail,
    Identity,
    MemberConfig,
    MemberState,
    Note,
    Revoke,
    Send,
)
from barnabas_client.structs import TopicPartition
from barnabas_protocol.apis.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.apis.heartbeat import HeartbeatRequest
from barnabas_protocol.apis.join_group import JoinGroupRequest
from barnabas_protocol.apis.leave_group import LeaveGroupRequest
from barnabas_protocol.apis.sync_group import SyncGroupRequest
from barnabas_protocol.errors import ErrorCode
from tests.client.group_driver import Driver, partitions


class Cooperative(RangeAssignor):
    name = "coop"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE})


def cooperative() -> Driver:
    driver = Driver(assignors=(Cooperative(),))
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(protocol="coop")
    driver.count()
    driver.sync()
    driver.take(Assign)
    return driver


# Joining.


def test_nothing_happens_before_a_subscription() -> None:
    driver = Driver()
    driver.wait(1000)
    assert driver.quiet()
    assert driver.machine.next_deadline() is None


def test_the_first_round_in_order() -> None:
    driver = Driver()
    driver.subscribe("t")
    assert driver.quiet() is False
    driver.find()
    assert driver.release() == Revoke(ticket=2, partitions=frozenset(), lost=True, generation=-1)
    first = driver.join(ErrorCode.MEMBER_ID_REQUIRED)
    assert (first.member_id, first.group_id, first.protocol_type) == ("", "g", "consumer")
    assert [protocol.name for protocol in first.protocols] == ["range", "roundrobin"]
    assert decode_subscription(first.protocols[0].metadata).topics == ("t",)
    assert (first.session_timeout_ms, first.rebalance_timeout_ms) == (10_000, 300_000)
    second = driver.join(generation=7)
    assert second.member_id == "m1"
    assert driver.count().topics == frozenset({"t"})
    sync = driver.sync(partitions(0, 1))
    assert (sync.generation_id, sync.member_id, sync.protocol_name) == (7, "m1", "range")
    assert driver.take(Assign) == Assign(partitions(0, 1), partitions(0, 1), 7)
    assert driver.machine.state is MemberState.STABLE
    assert driver.machine.commit_identity() == Identity(7, "m1", None)


def test_the_leader_assigns_for_all_members() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    driver.release()
    driver.join(members={"m1": ["t"], "m2": ["t", "u"]})
    assert driver.count(t=3, u=1).topics == frozenset({"t", "u"})
    shares = {one.member_id: decode_assignment(one.assignment) for one in driver.sync().assignments}
    assert shares == {
        "m1": (TopicPartition("t", 0), TopicPartition("t", 1)),
        "m2": (TopicPartition("t", 2), TopicPartition("u", 0)),
    }


def test_a_follower_syncs_at_once_with_nothing() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(leader="m2")
    assert driver.sync().assignments == []
    assert not driver.machine.leads


def test_a_skipped_assignment_is_not_made_but_topics_are_watched() -> None:
    driver = Driver(MemberConfig(group_id="g", instance_id="i"))
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(skip=True)
    driver.count(t=2)
    assert driver.sync().assignments == []
    driver.happened(driver.machine.metadata_changed({"t": 3}, driver.now))
    driver.release()
    assert driver.has_sent(JoinGroupRequest)


def test_a_broken_subscription_gets_nothing_and_stops_no_one() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    send = driver.sent(JoinGroupRequest)
    driver.effects.append(send)
    driver.join(members={"m1": ["t"], "m2": ["t"]})
    driver.count(t=2)
    shares = driver.sync().assignments
    assert [decode_assignment(one.assignment) for one in shares] == [
        (TopicPartition("t", 0),),
        (TopicPartition("t", 1),),
    ]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_a_refused_join_is_tried_again(code: ErrorCode) -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(code)
    driver.wait(1)
    if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        driver.find(node=2)
        driver.wait(1)
    assert driver.join().member_id == ""
    assert driver.machine.state is MemberState.SYNCING


def test_unknown_member_on_join_starts_with_a_new_id() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(ErrorCode.MEMBER_ID_REQUIRED)
    assert driver.join(ErrorCode.UNKNOWN_MEMBER_ID).member_id == "m1"
    driver.wait(1)
    assert driver.join().member_id == ""


@pytest.mark.parametrize("code", [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_coordinator_that_always_refuses_is_asked_ever_more_slowly(code: ErrorCode) -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    for _ in range(20):
        if driver.has_sent(JoinGroupRequest):
            driver.join(code)
    assert not driver.has_sent(JoinGroupRequest)
    assert driver.machine.next_deadline() == pytest.approx(0.2)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_a_join_that_cannot_succeed_fails_and_says_so(code: ErrorCode) -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(code)
    error = driver.take(Fail).error
    assert error.code == code
    assert "'g'" in str(error)
    assert driver.machine.state is MemberState.FAILED
    with pytest.raises(KafkaError):
        driver.machine.commit_identity()
    driver.wait(1000)
    assert driver.quiet()
    assert driver.machine.next_deadline() is None


def test_a_failed_member_starts_over_when_it_subscribes_again() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(ErrorCode.GROUP_MAX_SIZE_REACHED)
    driver.subscribe()
    driver.release()
    driver.wait(1)
    driver.join()
    assert driver.machine.state is MemberState.SYNCING


def test_an_unknown_strategy_fails() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(protocol="other")
    assert driver.take(Fail).error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_connection_that_breaks_during_the_join() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(ErrorCode.MEMBER_ID_REQUIRED)
    driver.drop(JoinGroupRequest)
    assert driver.take(Disconnect).coordinator.node_id == 1
    driver.wait(1)
    driver.find(node=2)
    assert driver.join().member_id == "m1"  # not released twice, and still the same member


@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID]
)
def test_a_refused_sync_joins_again(code: ErrorCode) -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(leader="m2")
    driver.sync(code=code)
    assert driver.join(leader="m2", generation=2).member_id == ("" if code == ErrorCode.UNKNOWN_MEMBER_ID else "m1")
    driver.sync()
    assert driver.take(Assign).generation == 2


def test_answers_to_old_requests_are_ignored() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    old = driver.sent(JoinGroupRequest)
    driver.happened(driver.machine.coordinator_lost("test", driver.now))
    driver.effects.append(old)
    driver.join()
    assert driver.machine.state is MemberState.UNJOINED


def test_an_assignment_that_cannot_be_read_fails() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(leader="m2")
    send = driver.sent(SyncGroupRequest)
    from barnabas_protocol.apis.sync_group import SyncGroupResponse

    broken = SyncGroupResponse(error_code=0, assignment=b"\x00\x01\xff")
    driver.happened(driver.machine.answered(send.ticket, broken, driver.now))
    assert "no assignment" in str(driver.take(Fail).error)


# Heartbeats.


def test_heartbeats_come_at_their_interval_one_at_a_time() -> None:
    driver = Driver().become_stable()
    assert driver.machine.next_deadline() == pytest.approx(3)
    driver.wait(2.9)
    assert driver.quiet()
    driver.wait(0.1)
    assert driver.has_sent(HeartbeatRequest)
    driver.wait(3)
    request = driver.beat()
    assert (request.group_id, request.member_id, request.generation_id) == ("g", "m1", 1)
    assert driver.has_sent(HeartbeatRequest)  # the second one is due as soon as the first is answered
    driver.beat()
    assert driver.quiet()


def test_no_heartbeats_while_joining() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.release()
    driver.sent(JoinGroupRequest)
    driver.wait(100)
    assert driver.quiet()


def test_a_leader_that_is_slow_to_assign_stays_alive_but_sends_none_behind_its_sync() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join()
    driver.wait(3)
    driver.beat()
    driver.count()
    driver.wait(100)
    assert not driver.has_sent(HeartbeatRequest)


def test_rebalance_in_progress_keeps_heartbeats_until_the_program_lets_go() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    revoke = driver.take(Revoke)
    assert (revoke.partitions, revoke.lost, revoke.generation) == (partitions(0, 1), False, 1)
    assert driver.machine.commit_identity().generation == 1  # what was read can still be committed
    driver.happened(driver.machine.released(revoke.ticket, driver.now))
    assert driver.join(generation=2).member_id == "m1"
    driver.count()
    driver.sync(partitions(0))
    assert driver.take(Assign) == Assign(partitions(0), partitions(0), 2)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_losing_the_membership_loses_the_partitions(code: ErrorCode) -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(code)
    revoke = driver.release()
    assert revoke.lost
    assert revoke.partitions == partitions(0, 1)
    assert driver.join().member_id == ("m1" if code == ErrorCode.ILLEGAL_GENERATION else "")


def test_a_fenced_member_fails_and_loses() -> None:
    driver = Driver(MemberConfig(group_id="g", instance_id="i"))
    driver.become_stable()
    driver.wait(3)
    driver.beat(ErrorCode.FENCED_INSTANCE_ID)
    assert driver.take(Revoke).lost
    assert "group_instance_id 'i'" in str(driver.take(Fail).error)


def test_authorization_withdrawn_fails() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert driver.machine.state is MemberState.FAILED


def test_a_loading_coordinator_is_no_matter() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert driver.machine.state is MemberState.STABLE
    driver.wait(3)
    driver.beat()


# The coordinator.


def test_finding_the_coordinator_backs_off() -> None:
    driver = Driver()
    driver.subscribe()
    pauses = []
    for _ in range(6):
        driver.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        deadline = driver.machine.next_deadline()
        assert deadline is not None
        pauses.append(round(deadline - driver.now, 3))
        driver.wait(deadline - driver.now)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    driver.drop(FindCoordinatorRequest)
    driver.wait(1)
    driver.find()
    driver.release()
    driver.join()


def test_no_access_to_the_group_fails() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert driver.take(Fail).error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_lost_coordinator_costs_nothing_but_is_looked_for() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.drop(HeartbeatRequest)
    assert driver.take(Disconnect).coordinator.node_id == 1
    assert driver.machine.state is MemberState.STABLE
    assert driver.machine.owned == partitions(0, 1)
    driver.wait(1)
    driver.find(node=2)
    heartbeat = driver.sent(HeartbeatRequest)
    assert heartbeat.to is not None
    assert heartbeat.to.node_id == 2


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_looked_for(code: ErrorCode) -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(code)
    driver.wait(1)
    assert driver.has_sent(FindCoordinatorRequest)
    assert driver.machine.owned == partitions(0, 1)


def test_a_silent_coordinator_is_given_up_when_the_session_ends() -> None:
    driver = Driver().become_stable()
    for _ in range(3):
        driver.wait(3)
    assert driver.machine.coordinator is not None
    driver.wait(1.1)
    assert "session" in driver.take(Disconnect).reason
    assert driver.machine.state is MemberState.STABLE
    driver.wait(1)
    driver.find()
    assert driver.has_sent(HeartbeatRequest)


def test_a_rebalance_without_a_coordinator_waits_and_keeps_the_partitions() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.drop(HeartbeatRequest)
    driver.subscribe("t", "u")
    assert driver.machine.owned == partitions(0, 1)
    driver.wait(1)
    driver.find()
    assert driver.take(Revoke).partitions == partitions(0, 1)


def test_a_coordinator_is_found_for_commits_alone() -> None:
    driver = Driver()
    driver.happened(driver.machine.want_coordinator(0))
    driver.find()
    driver.wait(1000)
    assert driver.quiet()
    assert driver.machine.state is MemberState.UNJOINED


# The program.


def test_a_program_that_does_not_poll_leaves_and_comes_back_when_it_polls() -> None:
    driver = Driver(MemberConfig(group_id="g", max_poll_interval=5))
    driver.become_stable()
    driver.wait(3, polls=False)
    driver.beat()
    driver.wait(2, polls=False)
    leave = driver.sent(LeaveGroupRequest).request
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].member_id == "m1"
    assert "max_poll_interval_ms (5000 ms)" in (leave.members[0].reason or "")
    assert any(isinstance(effect, Note) and effect.warns for effect in driver.effects)
    assert driver.machine.state is MemberState.UNJOINED
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        driver.machine.commit_identity()
    driver.wait(1000, polls=False)
    assert not driver.has_sent(JoinGroupRequest)  # not before the program lets go, which it does when it polls
    assert driver.release().lost
    assert driver.join().member_id == ""


def test_a_rebalance_that_the_program_does_not_let_happen_ends_in_leaving() -> None:
    driver = Driver(MemberConfig(group_id="g", max_poll_interval=5))
    driver.become_stable()
    driver.wait(3, polls=False)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    first = driver.take(Revoke)
    driver.wait(2, polls=False)
    assert driver.has_sent(LeaveGroupRequest)
    assert first.generation != driver.machine.generation  # so the shell knows that these are lost now
    driver.happened(driver.machine.released(first.ticket, driver.now))
    assert not driver.has_sent(JoinGroupRequest)
    driver.release()
    assert driver.has_sent(JoinGroupRequest)


def test_a_static_member_does_not_say_goodbye() -> None:
    driver = Driver(MemberConfig(group_id="g", instance_id="i"))
    driver.become_stable()
    driver.happened(driver.machine.leave("closed", driver.now))
    assert driver.quiet()


def test_leaving_says_why() -> None:
    driver = Driver().become_stable()
    driver.happened(driver.machine.leave("the consumer is being closed", driver.now))
    leave = driver.sent(LeaveGroupRequest).request
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].reason == "the consumer is being closed"
    assert driver.machine.next_deadline() is None
    driver.subscribe()
    driver.release()
    assert driver.join().member_id == ""


def test_a_new_subscription_rejoins() -> None:
    driver = Driver().become_stable()
    driver.subscribe("t")
    assert driver.quiet()
    driver.subscribe("t", "u")
    driver.release()
    assert decode_subscription(driver.join().protocols[0].metadata).topics == ("t", "u")


def test_a_subscription_that_changes_during_the_round_rejoins_after_it() -> None:
    driver = Driver()
    driver.subscribe("t")
    driver.find()
    driver.release()
    join = driver.sent(JoinGroupRequest)
    driver.subscribe("u")
    driver.effects.append(join)
    driver.join(leader="m2")
    driver.sync()
    driver.take(Assign)
    assert driver.take(Revoke).partitions == partitions(0, 1)


def test_the_leader_rejoins_when_partitions_are_added() -> None:
    driver = Driver().become_stable()
    driver.happened(driver.machine.metadata_changed({"t": 4, "other": 9}, driver.now))
    assert driver.quiet()
    driver.happened(driver.machine.metadata_changed({"t": 5}, driver.now))
    driver.release()
    assert "partitions of t changed" in (driver.join().reason or "")


def test_a_follower_leaves_that_to_the_leader() -> None:
    driver = Driver().become_stable(leads=False)
    driver.happened(driver.machine.metadata_changed({"t": 5}, driver.now))
    assert driver.quiet()


# Commits.


def test_commits_wait_for_the_end_of_a_rebalance() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.release()
    with pytest.raises(RebalanceInProgressError, match="commit again"):
        driver.machine.commit_identity()


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, MemberState.STABLE),
        (ErrorCode.ILLEGAL_GENERATION, MemberState.UNJOINED),
        (ErrorCode.UNKNOWN_MEMBER_ID, MemberState.UNJOINED),
        (ErrorCode.FENCED_INSTANCE_ID, MemberState.FAILED),
        (ErrorCode.NOT_COORDINATOR, MemberState.STABLE),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, MemberState.STABLE),
    ],
)
def test_what_a_refused_commit_tells(code: ErrorCode, state: MemberState) -> None:
    driver = Driver().become_stable()
    driver.happened(driver.machine.commit_refused(code, 1, driver.now))
    assert driver.machine.state is state
    assert (driver.machine.coordinator is None) == (code == ErrorCode.NOT_COORDINATOR)


def test_a_refused_commit_of_an_old_generation_tells_nothing() -> None:
    driver = Driver().become_stable()
    driver.happened(driver.machine.commit_refused(ErrorCode.ILLEGAL_GENERATION, 0, driver.now))
    assert driver.machine.state is MemberState.STABLE


# Cooperative rebalancing (KIP-429).


def test_a_cooperative_member_keeps_its_partitions_through_the_join() -> None:
    driver = cooperative()
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert driver.release().partitions == frozenset()
    join = driver.join(protocol="coop", generation=2)
    assert set(decode_subscription(join.protocols[0].metadata).owned) == partitions(0, 1)
    driver.count()
    driver.sync(partitions(1, 2))
    assert driver.take(Revoke).partitions == partitions(0)
    assert driver.take(Assign) == Assign(partitions(1, 2), partitions(2), 2)
    assert driver.release().partitions == frozenset()
    join = driver.join(protocol="coop", generation=3)
    assert set(decode_subscription(join.protocols[0].metadata).owned) == partitions(1, 2)


def test_a_cooperative_member_gives_up_topics_it_no_longer_wants_before_the_join() -> None:
    driver = cooperative()
    driver.subscribe("u")
    assert driver.release().partitions == partitions(0, 1)


def test_a_cooperative_member_that_loses_its_membership_in_a_round_loses_everything() -> None:
    driver = cooperative()
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.release()
    driver.join(ErrorCode.UNKNOWN_MEMBER_ID, protocol="coop")
    revoke = driver.release()
    assert revoke.lost
    assert revoke.partitions == partitions(0, 1)
    assert decode_subscription(driver.join(protocol="coop").protocols[0].metadata).owned == ()


# Assignors of the user's own.


class Failing(RangeAssignor):
    name = "failing"

    def __init__(self, at: str) -> None:
        self.at = at

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        if self.at == "user_data":
            raise RuntimeError("no user data")
        return b"mine"

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        if self.at == "assign":
            raise RuntimeError("no idea")
        return super().assign(partitions, members)

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        if self.at == "assigned":
            raise RuntimeError("no thanks")


@pytest.mark.parametrize("at", ["user_data", "assign"])
def test_an_assignor_that_raises_fails_by_name(at: str) -> None:
    driver = Driver(assignors=(Failing(at),))
    driver.subscribe()
    driver.find()
    driver.release()
    if at == "assign":
        driver.join(protocol="failing")
        driver.count()
    assert "assignor 'failing' raised RuntimeError" in str(driver.take(Fail).error)


def test_an_assignor_that_raises_when_told_is_noted() -> None:
    driver = Driver(assignors=(Failing("assigned"),))
    driver.subscribe()
    driver.find()
    driver.release()
    assert decode_subscription(driver.join(protocol="failing").protocols[0].metadata).user_data == b"mine"
    driver.count()
    driver.sync()
    assert driver.machine.state is MemberState.STABLE
    assert any(isinstance(effect, Note) and "no thanks" in effect.event for effect in driver.effects)


# Whatever happens.

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

    @precondition(lambda self: self.some(AskCluster))
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
        # Otherwise the shell would spin: a step must leave nothing that is due.
        deadline = self.driver.machine.next_deadline()
        assert deadline is None or deadline > self.driver.now

    @invariant()
    def a_member_knows_itself(self) -> None:
        machine = self.driver.machine
        if machine.state in (MemberState.SYNCING, MemberState.STABLE):
            assert machine.member_id
            assert machine.generation != NO_GENERATION
        if machine.state is MemberState.FAILED:
            assert machine.error is not None
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
        if self.driver.machine.state is MemberState.JOINING and not self.driver.machine.cooperative:
            assert not self.driver.machine.owned


class AnyOrderCooperative(AnyOrder):
    assignors = (Cooperative(),)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestAnyOrderCooperative = AnyOrderCooperative.TestCase
TestAnyOrderCooperative.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
