"""The 31 rules of the classic group protocol that implementers get wrong, each as a test named after it: 1 to 16."""

import pytest

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.effects import EventType
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine

EMPTY, PREPARING = ClassicGroupState.EMPTY, ClassicGroupState.PREPARING_REBALANCE
COMPLETING, STABLE, DEAD = ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE, ClassicGroupState.DEAD
OTHER = (("range", b"other topics"),)


def test_rule_01_an_unknown_dynamic_member_gets_an_id_first_and_is_pending_for_its_session() -> None:
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


def test_rule_01_does_not_hold_below_version_4_nor_for_static_members() -> None:
    machine = Machine()
    assert machine.join("a", version=3) is None
    assert machine.join("b", instance="b") is None
    assert list(machine.group.members.by_id) == ["client-id1", "b-id2"]


def test_rule_02_pending_members_hold_back_join_completion() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    pending = machine.join("b")
    assert pending is not None
    machine.join("a", first, protocols=OTHER)
    assert machine.state is PREPARING
    assert "a" not in machine.answers
    machine.join("b", pending.member_id)
    assert machine.state is COMPLETING
    assert machine.error("a") == machine.error("b") == ErrorCode.NONE


def test_rule_02_pending_members_do_not_count_towards_the_maximum_size() -> None:
    machine = Machine(max_size=2)
    machine.stable("a")
    for name in "bcd":
        answer = machine.join(name)
        assert answer is not None
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_rule_02_a_pending_member_that_does_not_come_lets_the_join_phase_end() -> None:
    machine = Machine()
    (first,) = machine.stable("a")
    machine.join("b")
    machine.join("a", first, protocols=OTHER)
    assert machine.state is PREPARING
    machine.after(10.1)
    assert machine.state is COMPLETING


@pytest.mark.parametrize("instance", [None, "instance"])
def test_rule_03_a_member_id_on_an_unknown_group_is_unknown(instance: str | None) -> None:
    machine = Machine()
    answer = machine.join("a", "somebody", instance=instance)
    assert answer is not None
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.member_id == "somebody"
    assert machine.state is EMPTY
    assert not machine.group.recorded


def test_rule_04_a_static_member_without_id_gets_a_new_one_and_fences_the_parked_join() -> None:
    machine = Machine()
    machine.stable("leader", static=("s",))
    old = machine.group.members.static["s"]
    machine.enter("late")
    machine.join("old s", old, instance="s")
    assert machine.state is PREPARING
    machine.join("new s", instance="s")
    assert machine.error("old s") == ErrorCode.FENCED_INSTANCE_ID
    assert machine.answers["old s"].member_id == old
    assert machine.group.members.static["s"] not in (old, "")
    assert "new s" not in machine.answers


def test_rule_04_the_parked_sync_is_fenced_too() -> None:
    machine = Machine()
    machine.join("a", instance="a")
    machine.join("b", instance="b")
    machine.after(6)
    follower = machine.answers["b"].member_id
    machine.sync("sync b", follower)
    machine.join("new b", instance="b")
    assert machine.error("sync b") == ErrorCode.FENCED_INSTANCE_ID


def test_rule_05_in_stable_with_the_same_protocol_there_is_no_rebalance() -> None:
    machine = Machine()
    machine.stable("leader", static=("s",))
    old = machine.group.members.static["s"]
    answer = machine.join("s again", instance="s")
    assert answer is not None
    assert answer.error_code == ErrorCode.NONE
    assert answer.generation_id == machine.group.generation == 1
    assert machine.state is STABLE
    assert answer.member_id != old
    synced = machine.sync("sync", answer.member_id)
    assert synced is not None
    assert synced.assignment == f"share of {old}".encode()


def test_rule_05_in_completing_rebalance_it_rebalances() -> None:
    machine = Machine()
    machine.join("a", instance="a")
    machine.join("b", instance="b")
    machine.after(6)
    assert machine.state is COMPLETING
    machine.sync("sync a", machine.answers["b"].member_id)
    machine.join("b again", instance="b")
    assert machine.state is PREPARING


def test_rule_05_a_changed_selected_protocol_rebalances() -> None:
    machine = Machine()
    machine.join("a", instance="a", protocols=(("range", b""), ("sticky", b"")))
    machine.join("b", instance="b", protocols=(("range", b""), ("sticky", b"")))
    machine.after(6)
    machine.settle(*machine.group.members.by_id)
    machine.join("b again", instance="b", protocols=(("sticky", b""),))
    assert machine.state is PREPARING


def test_rule_06_from_version_9_the_new_leader_is_told_to_skip_the_assignment() -> None:
    machine = Machine()
    machine.stable(static=("s", "t"))
    answer = machine.join("again", instance="s", version=9)
    assert answer is not None
    assert answer.leader == answer.member_id == machine.group.members.leader
    assert answer.skip_assignment
    assert [each.group_instance_id for each in answer.members] == ["s", "t"]


def test_rule_06_below_version_9_it_is_told_the_old_leader() -> None:
    machine = Machine()
    machine.stable(static=("s", "t"))
    old = machine.group.members.leader
    answer = machine.join("again", instance="s", version=8)
    assert answer is not None
    assert answer.leader == old != answer.member_id
    assert not answer.skip_assignment
    assert answer.members == []


@pytest.mark.parametrize("what", ["join", "sync", "heartbeat", "commit", "leave"])
def test_rule_07_the_instance_is_checked_first(what: str) -> None:
    machine = Machine()
    machine.stable("leader", static=("s",))

    def ask(member_id: str, instance: str) -> ErrorCode:
        if what == "join":
            machine.join(what, member_id, instance=instance)
        elif what == "sync":
            machine.sync(what, member_id, instance=instance)
        elif what == "heartbeat":
            return machine.heartbeat(member_id, instance=instance)
        elif what == "commit":
            return machine.commit(member_id, 1, instance)
        else:
            return machine.leave(member_id, instance=instance)[0]
        return machine.error(what)

    assert ask("nobody", "unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert ask("nobody", "s") == ErrorCode.FENCED_INSTANCE_ID
    leader = machine.group.members.leader or ""
    assert ask(leader, "unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(leader, "s") == ErrorCode.FENCED_INSTANCE_ID
    assert machine.state is STABLE


def test_rule_08_the_initial_delay_is_extended_by_new_joiners_up_to_the_rebalance_timeout() -> None:
    machine = Machine()
    machine.enter("a", rebalance=7_000)
    machine.after(2.9)
    assert machine.state is PREPARING
    machine.enter("b", rebalance=7_000)
    machine.after(0.2)
    assert machine.state is PREPARING
    machine.after(2.7)
    machine.enter("c", rebalance=7_000)
    machine.after(1.1)
    assert machine.state is PREPARING, "7 seconds in all, not 9"
    machine.after(0.2)
    assert machine.state is COMPLETING


def test_rule_08_it_never_completes_early() -> None:
    machine = Machine()
    machine.enter("a")
    machine.after(2.9)
    assert machine.state is PREPARING
    machine.after(0.1)
    assert machine.state is COMPLETING
    assert machine.group.generation == 1


def test_rule_08_not_even_if_everybody_leaves() -> None:
    machine = Machine()
    member_id = machine.enter("a")
    assert machine.leave(member_id) == [ErrorCode.NONE]
    assert machine.error("a") == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.state is PREPARING
    machine.after(3)
    assert machine.state is EMPTY
    assert machine.group.generation == 1


def test_rule_09_the_rebalance_timeout_is_the_largest() -> None:
    machine = Machine()
    first = machine.enter("a", rebalance=20_000, session=600_000)
    second = machine.enter("b", rebalance=40_000, session=600_000)
    machine.after(6)
    machine.settle(first, second)
    machine.join("a", first, protocols=OTHER, rebalance=20_000, session=600_000)
    machine.after(39.9)
    assert machine.state is PREPARING
    machine.after(0.2)
    assert machine.state is COMPLETING


def test_rule_09_version_0_uses_the_session_timeout() -> None:
    machine = Machine()
    machine.join("a", version=0, session=30_000)
    assert machine.group.members.rebalance_timeout == 30.0


def test_rule_10_at_expiry_dynamic_members_are_removed_and_static_ones_kept() -> None:
    machine = Machine()
    dynamic, gone, _ = machine.stable("a", "b", static=("s",), session=600_000)
    machine.join("a", dynamic, protocols=OTHER, session=600_000)
    machine.after(60)
    assert machine.state is COMPLETING
    assert gone not in machine.group.members.by_id
    assert set(machine.group.members.by_id) == {dynamic, machine.group.members.static["s"]}


def test_rule_11_parked_members_do_not_session_expire() -> None:
    machine = Machine()
    first, second = machine.stable("a", "b")
    machine.join("a", first, protocols=OTHER)
    for _ in range(5):
        machine.after(9)
        machine.heartbeat(second)
    assert machine.state is PREPARING
    assert first in machine.group.members.by_id


def test_rule_11_new_ones_do_after_five_minutes() -> None:
    machine = Machine()
    first, _ = machine.stable("a", static=("s",), session=1_800_000, rebalance=3_600_000)
    machine.enter("new", session=1_800_000, rebalance=3_600_000)
    machine.after(299)
    assert "new" not in machine.answers
    machine.heartbeat(first)
    machine.after(2)
    assert machine.error("new") == ErrorCode.UNKNOWN_MEMBER_ID
    assert machine.answers["new"].member_id == ""


def test_rule_12_is_the_shells() -> None:
    """See test_service: INVALID_SESSION_TIMEOUT is answered before a machine is asked."""


def test_rule_13_in_completing_equal_protocols_get_the_current_generation() -> None:
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


def test_rule_13_changed_ones_rebalance_and_parked_syncs_hear_of_it() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    machine.sync("sync b", second)
    machine.join("a again", first, protocols=OTHER)
    assert machine.error("sync b") == ErrorCode.REBALANCE_IN_PROGRESS
    assert machine.state is PREPARING


def test_rule_14_in_stable_a_rejoining_leader_always_rebalances() -> None:
    machine = Machine()
    first, _ = machine.stable("a", "b")
    assert machine.join("a", first) is None
    assert machine.state is PREPARING
    assert EventType.LEADER_REJOINED in machine.kinds()


def test_rule_14_an_unchanged_follower_gets_the_current_generation() -> None:
    machine = Machine()
    _, second = machine.stable("a", "b")
    answer = machine.join("b", second)
    assert answer is not None
    assert (answer.error_code, answer.generation_id, answer.members) == (ErrorCode.NONE, 1, [])
    assert machine.state is STABLE
    assert machine.join("b", second, protocols=OTHER) is None
    assert machine.state is PREPARING


def test_rule_15_only_the_leaders_answer_carries_members() -> None:
    machine = Machine()
    first, second = machine.enter("a"), machine.enter("b")
    machine.after(6)
    assert machine.answers["a"].leader == machine.answers["b"].leader == first
    assert [each.member_id for each in machine.answers["a"].members] == [first, second]
    assert [each.metadata for each in machine.answers["a"].members] == [b"topics", b"topics"]
    assert machine.answers["b"].members == []


def test_rule_16_each_member_votes_for_its_first_protocol_that_all_support() -> None:
    machine = Machine()
    machine.enter("a", protocols=(("own", b""), ("range", b""), ("sticky", b"")))
    machine.enter("b", protocols=(("sticky", b""), ("range", b"")))
    machine.enter("c", protocols=(("sticky", b""), ("range", b"")))
    machine.after(9)
    assert machine.group.members.protocol == "sticky"
    assert {machine.answers[name].protocol_name for name in "abc"} == {"sticky"}


def test_rule_16_who_shares_no_protocol_is_refused() -> None:
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
