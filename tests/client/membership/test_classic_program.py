"""The member's state machine and its program: polls, subscriptions, commits, cooperative rebalancing, assignors."""

from collections.abc import Mapping, Sequence

import pytest

from barnabas_client.assignors import (
    Assignments,
    MemberSubscription,
    RangeAssignor,
)
from barnabas_client.errors import CommitFailedError, RebalanceInProgressError
from barnabas_client.membership.effects import Assign, Disconnect, Fail, Note, Revoke, Send
from barnabas_client.membership.member import CommitIdentity, MemberConfig, MemberState
from barnabas_client.membership.member_data import decode_subscription
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupRequest
from barnabas_protocol.messages.leave_group import LeaveGroupRequest
from tests.client.member_driver import Driver, cooperative, partitions

# The program.


def test_a_program_that_does_not_poll_leaves_and_rejoins_when_it_polls() -> None:
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
    assert driver.machine.standing.state is MemberState.UNJOINED
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        driver.machine.commit_identity()
    driver.wait(1000, polls=False)
    assert not driver.has_sent(JoinGroupRequest)  # not before the program polls and the partitions are revoked
    assert driver.release().lost
    assert driver.join().member_id == ""


def test_a_program_that_does_not_poll_during_a_rebalance_leaves() -> None:
    driver = Driver(MemberConfig(group_id="g", max_poll_interval=5))
    driver.become_stable()
    driver.wait(3, polls=False)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    first = driver.take(Revoke)
    driver.wait(2, polls=False)
    assert driver.has_sent(LeaveGroupRequest)
    assert first.generation != driver.machine.generation  # so the shell knows that these are lost now
    driver.happened(driver.machine.revoked(first.ticket, driver.now))
    assert not driver.has_sent(JoinGroupRequest)
    driver.release()
    assert driver.has_sent(JoinGroupRequest)


def test_a_static_member_sends_no_leave_group() -> None:
    driver = Driver(MemberConfig(group_id="g", instance_id="i"))
    driver.become_stable()
    driver.happened(driver.machine.leave("closed", driver.now))
    assert driver.quiet()


def test_leave_group_has_a_reason() -> None:
    driver = Driver().become_stable()
    driver.happened(driver.machine.leave("the consumer is being closed", driver.now))
    leave = driver.sent(LeaveGroupRequest).request
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].reason == "the consumer is being closed"
    assert driver.machine.standing.next_deadline() is None
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


def test_a_subscription_that_changes_during_a_rebalance_causes_another_one() -> None:
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


def test_a_follower_does_not_rejoin_when_partitions_are_added() -> None:
    driver = Driver().become_stable(leads=False)
    driver.happened(driver.machine.metadata_changed({"t": 5}, driver.now))
    assert driver.quiet()


# Commits.


def test_commits_are_refused_in_the_sync_phase() -> None:
    """In the join phase the coordinator accepts those of the generation that still holds."""
    driver = Driver().become_stable()
    before = driver.machine.commit_identity()
    driver.wait(3)
    driver.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    driver.release()
    assert driver.machine.commit_identity() == before
    driver.join(generation=before.generation + 1)
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
def test_a_refused_commit_changes_the_membership(code: ErrorCode, state: MemberState) -> None:
    driver = Driver().become_stable()
    driver.happened(driver.machine.commit_refused(code, 1, driver.now))
    assert driver.machine.standing.state is state
    assert (driver.machine.standing.coordinator is None) == (code == ErrorCode.NOT_COORDINATOR)


def test_a_refused_commit_of_an_old_generation_changes_nothing() -> None:
    driver = Driver().become_stable()
    driver.happened(driver.machine.commit_refused(ErrorCode.ILLEGAL_GENERATION, 0, driver.now))
    assert driver.machine.standing.state is MemberState.STABLE


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


def test_a_cooperative_member_revokes_unsubscribed_topics_before_the_join() -> None:
    driver = cooperative()
    driver.subscribe("u")
    assert driver.release().partitions == partitions(0, 1)


def test_a_cooperative_member_that_loses_its_membership_loses_all_partitions() -> None:
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


def test_an_assignor_that_raises_in_assigned_causes_a_warning() -> None:
    driver = Driver(assignors=(Failing("assigned"),))
    driver.subscribe()
    driver.find()
    driver.release()
    assert decode_subscription(driver.join(protocol="failing").protocols[0].metadata).user_data == b"mine"
    driver.count()
    driver.sync()
    assert driver.machine.standing.state is MemberState.STABLE
    assert any(isinstance(effect, Note) and "no thanks" in effect.event for effect in driver.effects)


# What the program asks for, and what it may know.


def test_rejoin() -> None:
    driver = Driver().become_stable()
    driver.happened(driver.machine.rejoin("more memory", driver.now))
    driver.release()
    assert driver.join().reason == "more memory"
    driver.happened(driver.machine.rejoin("too late", driver.now))
    driver.count()
    driver.sync()
    driver.take(Assign)
    assert driver.quiet()  # the second request came while the round was under way


@pytest.mark.parametrize("synced", [False, True], ids=["joining", "syncing"])
def test_leave_disconnects_during_a_join(synced: bool) -> None:
    driver = Driver()
    driver.subscribe()
    driver.find()
    driver.release()
    driver.join(ErrorCode.MEMBER_ID_REQUIRED)
    if synced:
        driver.join(leader="m2")
    driver.happened(driver.machine.leave("closing", driver.now))
    kinds = [type(effect) for effect in driver.effects if not isinstance(effect, Note)]
    assert kinds[-2:] == [Disconnect, Send]
    send = driver.sent(LeaveGroupRequest)
    assert isinstance(send.request, LeaveGroupRequest)
    assert [one.member_id for one in send.request.members] == ["m1"]


def test_the_view_has_the_last_heartbeat() -> None:
    driver = Driver().become_stable()
    assert (driver.machine.view().heartbeats, driver.machine.view().heartbeat_at) == (0, None)
    driver.wait(3)
    driver.beat()
    view = driver.machine.view()
    assert (view.heartbeats, view.heartbeat_at) == (1, 3.0)
    assert (view.generation, view.member_id, view.is_leader) == (1, "m1", True)
    assert view.commit_identity() == CommitIdentity(1, "m1", None)


def test_a_revocation_counts_as_a_poll() -> None:
    """Other signs of a poll may arrive after the rebalance, which must not end in a LeaveGroup."""
    driver = Driver().become_stable()
    driver.wait(301, polls=False)
    driver.sent(LeaveGroupRequest)
    driver.release()
    driver.join(ErrorCode.MEMBER_ID_REQUIRED)
    driver.join()
    driver.count()
    driver.sync()
    driver.wait(1, polls=False)
    assert driver.machine.standing.state is MemberState.STABLE
    assert not driver.has_sent(LeaveGroupRequest)


# A group that never answers sensibly.


def complaints(driver: Driver) -> list[str]:
    return [
        str(one.fields["reason"]) for one in driver.effects if isinstance(one, Note) and "still without" in one.event
    ]


def test_a_member_that_is_never_assigned_anything_says_why() -> None:
    driver = Driver()
    driver.subscribe()
    for _ in range(400):
        driver.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        driver.wait(1.0)
    said = complaints(driver)
    assert 2 <= len(said) <= 5, "less and less often"
    assert said[0] == (
        "the coordinator is not found; the last error: FindCoordinator was answered COORDINATOR_NOT_AVAILABLE"
    )
    driver.find()
    driver.release()
    assert "JoinGroup" in driver.machine.view().obstacle
    driver.wait(1_000)
    assert "JoinGroup" in complaints(driver)[-1]


def test_a_member_without_trouble_does_not_complain() -> None:
    driver = Driver().become_stable()
    for _ in range(100):
        driver.wait(3)
        driver.beat()
    assert not complaints(driver)
    assert driver.machine.view().obstacle == ""
