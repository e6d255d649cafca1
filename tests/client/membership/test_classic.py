"""The member's state machine: each answer, failure and passing of time, and what it does about them."""

import pytest

from barnabas_client.errors import KafkaError
from barnabas_client.membership.effects import Assign, Coordinator, Disconnect, Fail, Revoke
from barnabas_client.membership.member import CommitIdentity, MemberConfig, MemberState
from barnabas_client.membership.member_data import decode_assignment, decode_subscription
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest
from barnabas_protocol.messages.sync_group import SyncGroupRequest
from tests.client.member_driver import Driver, partitions

# Joining.


def test_nothing_happens_before_a_subscription() -> None:
    driver = Driver()
    driver.wait(1000)
    assert driver.quiet()
    assert driver.machine.standing.next_deadline() is None


def test_the_first_rebalance_step_by_step() -> None:
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
    assert driver.machine.standing.state is MemberState.STABLE
    assert driver.machine.commit_identity() == CommitIdentity(7, "m1", None)


def test_a_coordinator_that_the_shell_has_found_is_not_searched_for() -> None:
    driver = Driver()
    there = Coordinator(1, "h", 9092)
    driver.happened(driver.machine.standing.coordinator_found(there, 0.0))
    driver.subscribe()
    assert not driver.has_sent(FindCoordinatorRequest)
    driver.release()
    assert driver.sent(JoinGroupRequest).to == there


def test_a_member_whose_program_waits_for_its_first_assignment_joins_at_once() -> None:
    driver = Driver()
    driver.happened(driver.machine.standing.coordinator_found(Coordinator(1, "h", 9092), 0.0))
    driver.happened(driver.machine.subscribe(("t",), driver.now, waits=True))
    driver.join()
    driver.count()
    driver.sync()
    driver.happened(driver.machine.rejoin("more memory", driver.now))
    assert not driver.has_sent(JoinGroupRequest)
    assert driver.release().partitions == partitions(0, 1)
    assert driver.has_sent(JoinGroupRequest)


def test_a_program_that_waits_while_partitions_are_revoked_has_to_give_them_up_first() -> None:
    driver = Driver()
    driver.happened(driver.machine.standing.coordinator_found(Coordinator(1, "h", 9092), 0.0))
    driver.subscribe()
    driver.happened(driver.machine.subscribe(("t", "u"), driver.now, waits=True))
    assert not driver.has_sent(JoinGroupRequest)
    driver.release()
    assert driver.has_sent(JoinGroupRequest)


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


def test_a_follower_syncs_at_once_without_an_assignment() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(leader="m2")
    assert driver.sync().assignments == []
    assert not driver.machine.is_leader


def test_a_skipped_assignment_is_not_computed_but_topics_are_watched() -> None:
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


def test_a_member_with_a_broken_subscription_receives_no_partitions() -> None:
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
def test_a_join_is_retried_after_retriable_errors(code: ErrorCode) -> None:
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
    assert driver.machine.standing.state is MemberState.SYNCING


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
def test_joins_back_off(code: ErrorCode) -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    for _ in range(20):
        if driver.has_sent(JoinGroupRequest):
            driver.join(code)
    assert not driver.has_sent(JoinGroupRequest)
    assert driver.machine.standing.next_deadline() == pytest.approx(0.2)


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
def test_a_join_that_cannot_succeed_fails_with_the_reason(code: ErrorCode) -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(code)
    error = driver.take(Fail).error
    assert error.code == code
    assert "'g'" in str(error)
    assert driver.machine.standing.state is MemberState.FAILED
    with pytest.raises(KafkaError):
        driver.machine.commit_identity()
    driver.wait(1000)
    assert driver.quiet()
    assert driver.machine.standing.next_deadline() is None


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
    assert driver.machine.standing.state is MemberState.SYNCING


def test_an_unknown_strategy_fails() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(protocol="other")
    assert driver.take(Fail).error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_broken_connection_during_the_join() -> None:
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
    assert driver.machine.standing.state is MemberState.UNJOINED


def test_an_assignment_that_cannot_be_decoded_fails() -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(leader="m2")
    send = driver.sent(SyncGroupRequest)
    from barnabas_protocol.messages.sync_group import SyncGroupResponse

    broken = SyncGroupResponse(error_code=0, assignment=b"\x00\x01\xff")
    driver.happened(driver.machine.answered(send.ticket, broken, driver.now))
    assert "the assignment from the leader of group 'g' cannot be decoded" in str(driver.take(Fail).error)


# Heartbeats.


def test_heartbeats_come_at_their_interval_one_at_a_time() -> None:
    driver = Driver().become_stable()
    assert driver.machine.standing.next_deadline() == pytest.approx(3)
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


def test_a_leader_sends_heartbeats_while_it_assigns_but_not_after_its_sync() -> None:
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


def test_heartbeats_continue_until_the_partitions_are_revoked() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    revoke = driver.take(Revoke)
    assert (revoke.partitions, revoke.lost, revoke.generation) == (partitions(0, 1), False, 1)
    assert driver.machine.commit_identity().generation == 1  # what was read can still be committed
    driver.happened(driver.machine.revoked(revoke.ticket, driver.now))
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


def test_a_fenced_member_fails_and_loses_its_partitions() -> None:
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
    assert driver.machine.standing.state is MemberState.FAILED


def test_heartbeats_to_a_loading_coordinator() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert driver.machine.standing.state is MemberState.STABLE
    driver.wait(3)
    driver.beat()


# The coordinator.


def test_finding_the_coordinator_backs_off() -> None:
    driver = Driver()
    driver.subscribe()
    pauses = []
    for _ in range(6):
        driver.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        deadline = driver.machine.standing.next_deadline()
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


def test_a_member_keeps_its_partitions_while_it_looks_for_the_coordinator() -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.drop(HeartbeatRequest)
    assert driver.take(Disconnect).coordinator.node_id == 1
    assert driver.machine.standing.state is MemberState.STABLE
    assert driver.machine.owned == partitions(0, 1)
    driver.wait(1)
    driver.find(node=2)
    heartbeat = driver.sent(HeartbeatRequest)
    assert heartbeat.to is not None
    assert heartbeat.to.node_id == 2


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_found_again(code: ErrorCode) -> None:
    driver = Driver().become_stable()
    driver.wait(3)
    driver.beat(code)
    driver.wait(1)
    assert driver.has_sent(FindCoordinatorRequest)
    assert driver.machine.owned == partitions(0, 1)


def test_a_coordinator_that_does_not_answer_is_lost_when_the_session_times_out() -> None:
    driver = Driver().become_stable()
    for _ in range(3):
        driver.wait(3)
    assert driver.machine.standing.coordinator is not None
    driver.wait(1.1)
    assert "session" in driver.take(Disconnect).reason
    assert driver.machine.standing.state is MemberState.STABLE
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


def test_the_coordinator_is_found_for_commits_without_a_subscription() -> None:
    driver = Driver()
    driver.happened(driver.machine.standing.find_coordinator(0))
    driver.find()
    driver.wait(1000)
    assert driver.quiet()
    assert driver.machine.standing.state is MemberState.UNJOINED
