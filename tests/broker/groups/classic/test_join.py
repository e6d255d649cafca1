"""JoinGroup of a classic group: member ids, limits, protocols, and members that rejoin."""

import pytest

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_explain.catalog import JoinRefused, LeaderRejoined
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine

EMPTY = ClassicGroupState.EMPTY
PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
OTHER = (("range", b"other topics"),)


def test_kip_394_a_dynamic_member_without_id_gets_one_and_is_pending_for_its_session_timeout() -> None:
    machine = Machine()
    answer = machine.join("a", version=4)
    assert answer is not None
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "client-id1"
    assert list(machine.group.members.pending) == ["client-id1"]
    assert machine.state is EMPTY
    machine.after(9.9)
    assert machine.group.members.pending
    machine.after(0.2)
    assert not machine.group.members.pending
    machine.join("a", answer.member_id)
    assert machine.error("a") == ErrorCode.UNKNOWN_MEMBER_ID


def test_kip_394_does_not_apply_below_version_4_nor_to_static_members() -> None:
    machine = Machine()
    assert machine.join("a", version=3) is None
    assert machine.join("b", instance="b") is None
    assert list(machine.group.members.by_id) == ["client-id1", "b-id2"]


@pytest.mark.parametrize("instance", [None, "instance"])
def test_a_member_id_is_unknown_to_a_new_group(instance: str | None) -> None:
    machine = Machine()
    answer = machine.join("a", "unknown", instance=instance)
    assert answer is not None
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.member_id == "unknown"
    assert machine.state is EMPTY
    assert not machine.group.recorded


def test_a_group_of_maximum_size_refuses_new_members() -> None:
    machine = Machine(max_size=2)
    first, _ = machine.stable("a", "b")
    for version in (3, 9):
        answer = machine.join("c", version=version)
        assert answer is not None
        assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert answer.member_id == ""
    assert machine.state is STABLE
    machine.join("a", first)
    assert machine.state is PREPARING


def test_during_the_join_phase_places_are_taken_in_the_order_of_the_join_groups() -> None:
    machine = Machine(max_size=2)
    first, second = machine.stable("a", "b")
    machine.join("a", first)
    assert machine.join("c", version=3) is None, "one JoinGroup is deferred, so that there is room for a new member"
    assert machine.join("a again", first) is None, "a member with a deferred JoinGroup is always accepted"
    refused = machine.join("b", second)
    assert refused is not None
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED, "the last one is removed, even if it is a member"
    assert second not in machine.group.members.by_id
    assert machine.state is COMPLETING, "all remaining members have joined"


def test_pending_members_do_not_count_towards_the_maximum_size() -> None:
    machine = Machine(max_size=2)
    machine.stable("a")
    for name in "bcd":
        answer = machine.join(name)
        assert answer is not None
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_member_without_a_common_protocol_is_refused() -> None:
    machine = Machine()
    machine.stable("a")
    for options in ({"protocols": (("other", b""),)}, {"protocol_type": "connect"}, {"protocols": ()}):
        answer = machine.join("b", **options)
        assert answer is not None
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    empty = Machine()
    for options in ({"protocols": ()}, {"protocol_type": ""}):
        answer = empty.join("b", **options)
        assert answer is not None
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not empty.group.recorded


def test_what_a_client_and_the_members_support_is_recorded_once_a_minute() -> None:
    machine = Machine()
    machine.stable("a", session=300_000, protocols=(("range", b""), ("sticky", b"")))
    for _ in range(3):
        machine.join("b", protocols=(("roundrobin", b""), *((f"x{number}" * 300, b"") for number in range(20))))
    machine.now += 61
    machine.join("b", protocol_type="connect")
    first, second = (event for event in machine.events if isinstance(event, JoinRefused))
    assert (first.offered[0], first.supported, first.protocol_type) == ("roundrobin", ("range", "sticky"), None)
    assert (len(first.offered), max(map(len, first.offered))) == (8, 255)
    assert second.protocol_type == "connect"


def test_each_member_votes_for_its_first_protocol_that_all_support() -> None:
    machine = Machine()
    machine.enter("a", protocols=(("own", b""), ("range", b""), ("sticky", b"")))
    machine.enter("b", protocols=(("sticky", b""), ("range", b"")))
    machine.enter("c", protocols=(("sticky", b""), ("range", b"")))
    machine.after(9)
    assert machine.group.members.protocol == "sticky"
    assert {machine.answers[name].protocol_name for name in "abc"} == {"sticky"}


def test_the_votes_of_removed_members_do_not_count() -> None:
    machine = Machine()
    both = (("range", b""), ("sticky", b""))
    first = machine.enter("a", protocols=both)
    second = machine.enter("b", protocols=(("range", b""),))
    machine.after(6)
    assert machine.group.members.protocol == "range"
    machine.settle(first, second)
    machine.leave(second)
    machine.join("a", first, protocols=(("sticky", b""), ("range", b"")))
    assert machine.group.members.protocol == "sticky"


def test_only_the_leaders_response_lists_the_members() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    assert machine.answers["a"].leader == machine.answers["b"].leader == first
    assert [each.member_id for each in machine.answers["a"].members] == [first, second]
    assert [each.metadata for each in machine.answers["a"].members] == [b"topics", b"topics"]
    assert machine.answers["b"].members == []


def test_an_unchanged_member_that_rejoins_in_completing_rebalance_gets_the_current_generation() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    assert machine.state is COMPLETING
    again = machine.join("a again", first)
    assert again is not None
    assert (again.generation_id, again.error_code, len(again.members)) == (1, ErrorCode.NONE, 2)
    follower = machine.join("b again", second)
    assert follower is not None
    assert (follower.generation_id, follower.members) == (1, [])
    assert machine.state is COMPLETING


def test_a_changed_member_that_rejoins_in_completing_rebalance_starts_another_rebalance() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    machine.sync("sync b", second)
    machine.join("a again", first, protocols=OTHER)
    assert machine.error("sync b") == ErrorCode.REBALANCE_IN_PROGRESS
    assert machine.state is PREPARING


def test_a_leader_that_rejoins_a_stable_group_starts_a_rebalance() -> None:
    machine = Machine()
    first, _ = machine.stable("a", "b")
    assert machine.join("a", first) is None
    assert machine.state is PREPARING
    assert LeaderRejoined in machine.event_types()


def test_an_unchanged_follower_that_rejoins_a_stable_group_gets_the_current_generation() -> None:
    machine = Machine()
    _, second = machine.stable("a", "b")
    answer = machine.join("b", second)
    assert answer is not None
    assert (answer.error_code, answer.generation_id, answer.members) == (ErrorCode.NONE, 1, [])
    assert machine.state is STABLE
    assert machine.join("b", second, protocols=OTHER) is None
    assert machine.state is PREPARING


def test_a_repeated_join_group_ends_the_previous_one() -> None:
    machine = Machine()
    first = machine.enter("a")
    machine.join("a again", first)
    assert machine.error("a") == ErrorCode.REBALANCE_IN_PROGRESS
    machine.after(3)
    assert machine.error("a again") == ErrorCode.NONE
