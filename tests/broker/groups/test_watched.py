"""State that is kept of groups from one look at them to the next."""

from barnabas_broker.groups import watched
from barnabas_broker.groups.watched import Lasting, OfPartitions


def test_a_state_is_due_after_the_patience_and_when_it_has_lasted_twice_as_long() -> None:
    state = Lasting(100.0)
    assert [state.is_due(now, 30.0) for now in (129.0, 130.0)] == [False, True]
    state.told_at = 130.0
    assert [state.is_due(now, 30.0) for now in (159.0, 160.0)] == [False, True]


def test_state_is_bounded_in_all_groups_together() -> None:
    state: OfPartitions[int] = OfPartitions()
    state.put("g", {("t", number): number for number in range(watched.MOST - 1)})
    state.put("h", {("t", number): number for number in range(3)})
    assert state.of("h") == {("t", 0): 0}
    assert state.room == 0
    state.forget("g")
    assert state.groups() == ["h"]
    assert state.room == watched.MOST - 1
