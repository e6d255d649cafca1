"""Static members (KIP-345, KIP-814): replacement, fencing, skipAssignment."""

import pytest

from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_protocol.errors import ErrorCode
from tests.broker.groups.machine import Machine
from tests.broker.groups.support import assignment, owned_subscription

PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE


def test_a_static_member_without_id_gets_a_new_one_and_fences_the_deferred_join_group() -> None:
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


def test_a_static_member_without_id_fences_the_deferred_sync_group() -> None:
    machine = Machine()
    machine.join("a", instance="a")
    machine.join("b", instance="b")
    machine.after(6)
    follower = machine.answers["b"].member_id
    machine.sync("sync b", follower)
    machine.join("new b", instance="b")
    assert machine.error("sync b") == ErrorCode.FENCED_INSTANCE_ID


def test_replacing_a_static_member_of_a_stable_group_causes_no_rebalance() -> None:
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
    assert synced.assignment == f"assignment of {old}".encode()


@pytest.mark.parametrize(
    ("owned", "kept", "state"),
    [
        ({"t": [0, 1]}, {"t": [0]}, PREPARING),
        ({"t": [0, 1]}, {}, PREPARING),
        ({"t": [0]}, {"t": [0, 1]}, STABLE),
        ({}, {"t": [0, 1]}, STABLE),
    ],
)
def test_a_static_member_that_restarts_before_it_has_revoked_partitions_causes_a_rebalance(
    owned: dict[str, list[int]], kept: dict[str, list[int]], state: ClassicGroupState
) -> None:
    machine = Machine()
    machine.join("a", instance="a", protocols=(("cooperative-sticky", owned_subscription(owned, "t")),))
    machine.join("b", instance="b", protocols=(("cooperative-sticky", owned_subscription({}, "t")),))
    machine.after(6)
    ids = [machine.answers[name].member_id for name in ("a", "b")]
    for member_id in ids:
        shares = {ids[0]: assignment(**kept), ids[1]: assignment()}
        machine.sync(f"sync {member_id}", member_id, assignments=shares if member_id == ids[0] else None)
    assert machine.state is STABLE
    # The other partitions would have no owner: it is what it has revoked that a member joins again for.
    machine.join("a again", instance="a", protocols=(("cooperative-sticky", owned_subscription({}, "t")),))
    assert machine.state is state


def test_replacing_a_static_member_in_completing_rebalance_starts_another_rebalance() -> None:
    machine = Machine()
    machine.join("a", instance="a")
    machine.join("b", instance="b")
    machine.after(6)
    assert machine.state is COMPLETING
    machine.sync("sync a", machine.answers["b"].member_id)
    machine.join("b again", instance="b")
    assert machine.state is PREPARING


def test_replacing_a_static_member_causes_a_rebalance_if_the_protocol_changes() -> None:
    machine = Machine()
    machine.join("a", instance="a", protocols=(("range", b""), ("sticky", b"")))
    machine.join("b", instance="b", protocols=(("range", b""), ("sticky", b"")))
    machine.after(6)
    machine.settle(*machine.group.members.by_id)
    machine.join("b again", instance="b", protocols=(("sticky", b""),))
    assert machine.state is PREPARING


def test_kip_814_a_replaced_leader_skips_the_assignment_from_version_9_on() -> None:
    machine = Machine()
    machine.stable(static=("s", "t"))
    answer = machine.join("again", instance="s", version=9)
    assert answer is not None
    assert answer.leader == answer.member_id == machine.group.members.leader
    assert answer.skip_assignment
    assert [each.group_instance_id for each in answer.members] == ["s", "t"]


def test_kip_814_below_version_9_the_response_names_the_old_leader() -> None:
    machine = Machine()
    machine.stable(static=("s", "t"))
    old = machine.group.members.leader
    answer = machine.join("again", instance="s", version=8)
    assert answer is not None
    assert answer.leader == old != answer.member_id
    assert not answer.skip_assignment
    assert answer.members == []


@pytest.mark.parametrize("what", ["join", "sync", "heartbeat", "commit", "leave"])
def test_the_instance_id_is_checked_before_the_member_id(what: str) -> None:
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

    assert ask("other", "unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert ask("other", "s") == ErrorCode.FENCED_INSTANCE_ID
    leader = machine.group.members.leader or ""
    assert ask(leader, "unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(leader, "s") == ErrorCode.FENCED_INSTANCE_ID
    assert machine.state is STABLE


def test_a_static_member_keeps_its_id_if_the_new_one_cannot_be_appended() -> None:
    machine = Machine()
    machine.stable("leader", static=("s",))
    old = machine.group.members.static["s"]
    machine.hold = True
    machine.join("again", instance="s", client="elsewhere")
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert machine.error("again") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.group.members.static["s"] == old
    assert machine.heartbeat(old, instance="s") == ErrorCode.NONE
    assert machine.group.members.by_id[old].client_id == "client"


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_replacement_whose_append_takes_long_counts_when_the_log_has_decided(error: ErrorCode) -> None:
    machine = Machine()
    machine.stable("leader", static=("s",))
    old = machine.group.members.static["s"]
    machine.hold = True
    machine.join("again", instance="s")
    machine.delayed()
    assert machine.error("again") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert machine.group.members.static["s"] == old
    machine.join("once more", instance="s")
    assert machine.error("once more") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    machine.persisted(error)
    assert (machine.group.members.static["s"] == old) == (error != ErrorCode.NONE)
    assert machine.group.members.joining == 0
    assert machine.state is STABLE


def test_a_rebalance_that_begins_while_a_replacement_is_appended_waits_for_the_static_member() -> None:
    machine = Machine()
    leader, _ = machine.stable("leader", static=("s",))
    machine.hold = True
    machine.join("again", instance="s")
    machine.join("leader", leader)
    assert machine.state is PREPARING
    assert "again" not in machine.answers
    machine.persisted()
    assert machine.state is COMPLETING
    assert machine.answers["again"].generation_id == 2
    assert machine.group.members.joining == 0


def test_static_members_that_come_back_together_come_back_one_after_the_other() -> None:
    machine = Machine()
    machine.stable("leader", static=("s", "t"))
    machine.hold = True
    for token, instance in (("first", "s"), ("second", "s"), ("t", "t")):
        machine.join(token, instance=instance)
    assert len(machine.persists) == 1
    machine.hold = False
    machine.persisted()
    static = machine.group.members.static
    assert machine.answers["first"].member_id not in machine.group.members.by_id
    assert static == {"s": machine.answers["second"].member_id, "t": machine.answers["t"].member_id}
    assert machine.state is STABLE


def test_a_replacement_that_fails_leaves_those_that_wait_for_it_as_they_were() -> None:
    machine = Machine()
    machine.stable("leader", static=("s", "t"))
    before = dict(machine.group.members.static)
    machine.hold = True
    for instance in ("s", "t"):
        machine.join(instance, instance=instance)
    machine.persisted(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert {machine.error("s"), machine.error("t")} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (machine.group.members.static, machine.persists) == (before, [])


def test_a_member_that_leaves_while_it_comes_back_joins_as_a_new_one() -> None:
    machine = Machine()
    leader, old = machine.stable("leader", static=("s",))
    machine.hold = True
    machine.join("again", instance="s")
    machine.leave("", instance="s")
    machine.persisted()
    machine.join("leader", leader)
    assert machine.state is COMPLETING
    assert machine.answers["again"].member_id not in (old, "")


def test_an_unload_answers_a_static_member_that_comes_back() -> None:
    machine = Machine()
    machine.stable("leader", static=("s",))
    machine.hold = True
    machine.join("again", instance="s")
    machine.apply(machine.group.unload(machine.now))
    assert machine.error("again") == ErrorCode.NOT_COORDINATOR
