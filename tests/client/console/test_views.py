"""Groups as JSON, from descriptions and offsets."""

import pytest

from barnabas.console import views
from barnabas.console.views import Observations, Observed, Position, one_group, positions_of, summary
from barnabas_broker.http.rates import UNKNOWN
from barnabas_client.admin.types import GroupDescription, GroupListing, MemberDescription
from barnabas_client.structs import TopicPartition
from barnabas_explain.doctor import BROKEN, Diagnosis
from barnabas_explain.findings import CERTAIN
from barnabas_explain.storm_score import Score

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LISTED = GroupListing("g", "consumer", "Stable", "classic")
MEMBER = MemberDescription("m-1", None, "reader", "/10.0.0.7", partitions=(T0, T1), topics=("t",))
STABLE = GroupDescription("g", state="Stable", protocol_type="consumer", protocol="range", members=(MEMBER,))
NOTHING = Observed()


def test_positions_are_those_of_committed_and_of_owned_partitions() -> None:
    found = positions_of(STABLE, {T0: 5, TopicPartition("old", 3): 1}, {T0: 9, T1: 4}, {T0: 7})
    assert [(str(each.partition), each.committed, each.end, each.lag, each.unstable_lag) for each in found] == [
        ("old-3", 1, None, None, None),
        ("t-0", 5, 9, 4, 2),
        ("t-1", None, 4, None, None),
    ]


def test_a_commit_beyond_the_end_is_no_lag() -> None:
    position = Position(T0, 12, 9, 9)
    assert (position.lag, position.unstable_lag) == (0, 0)


def test_a_summary() -> None:
    row = summary(LISTED, STABLE, [Position(T0, 5, 9, 9), Position(T1, None, 4, 4)], NOTHING, generation=3)
    assert row == {
        "group": "g",
        "state": "Stable",
        "generation": 3,
        "type": "classic",
        "protocol_type": "consumer",
        "protocol": "range",
        "members": 1,
        "lag": 4,
        "unstable_lag": 0,
        "lag_ms": None,
        "lag_ms_exact": True,
        "commit_rate": None,
        "produce_rate": None,
        "health": "ok",
        "health_reason": "",
        "storm_score": None,
        "findings": [],
    }


def test_a_row_has_what_was_found_in_its_group() -> None:
    found = [Diagnosis("g", "no_members", BROKEN, "g has no members, and 4 records to read.", CERTAIN)]
    assert summary(LISTED, STABLE, [], Observed(findings=found))["findings"] == [found[0].as_data()]


def test_the_health_of_a_group() -> None:
    behind = [Position(T0, 0, 5_000, 5_000)]
    assert summary(LISTED, STABLE, behind, NOTHING)["health"] == "lagging"
    assert summary(LISTED, STABLE, behind, Observed(None, 61.0))["health"] == "stuck"
    assert summary(LISTED, STABLE, [], Observed(31.0, None))["health"] == "stuck"
    assert summary(LISTED, STABLE, [], Observed(flapping=True))["health"] == "flapping"
    assert summary(LISTED, STABLE, [Position(T0, 0, 50, 0)], NOTHING)["health"] == "waiting"


def test_a_group_with_a_high_storm_score_is_flapping() -> None:
    calm, storm = Score(59, 6, 0.1, "x left", 2, "Calm."), Score(60, 9, 0.2, "x left", 3, "Storm score 60 of 100.")
    assert summary(LISTED, STABLE, [], Observed(storm=calm))["health"] == "ok"
    row = summary(LISTED, STABLE, [], Observed(storm=storm))
    assert (row["health"], row["storm_score"]) == ("flapping", 60)
    assert row["health_reason"] == "It rebalances again and again. Storm score 60 of 100."
    assert one_group(STABLE, [], Observed(storm=storm), generation=2)["storm"]["rebalances"] == 9


def test_a_group_that_cannot_be_described_is_listed_with_the_reason() -> None:
    row = summary(LISTED, None, [], NOTHING, error="not allowed")
    assert (row["group"], row["members"], row["lag"]) == ("g", None, None)
    assert (row["health"], row["health_reason"]) == ("unknown", "not allowed")


def test_a_group_whose_offsets_cannot_be_read_is_not_called_ok() -> None:
    assert summary(LISTED, STABLE, [], NOTHING, error="not allowed")["health"] == "unknown"


def test_members_and_offsets_of_a_group() -> None:
    made = one_group(STABLE, [Position(T0, 5, 9, 9)], NOTHING, generation=2)
    assert made["members"][0]["assignment"] == {"t": [0, 1]}
    assert made["offsets"][0]["member_id"] == "m-1"
    assert (made["type"], made["generation"]) == ("classic", 2)


def test_a_group_of_the_consumer_protocol_has_an_epoch_and_what_is_to_be_revoked() -> None:
    member = MemberDescription("m", None, "c", "h", partitions=(T0, T1), epoch=6, target=(T0,))
    described = GroupDescription("g", state="Reconciling", members=(member,), epoch=7, assignment_epoch=7)
    made = one_group(described, [], Observed(1.5), generation=2)
    assert (made["type"], made["generation"], made["assignment_epoch"]) == ("consumer", 7, 7)
    assert made["seconds_in_state"] == 1.5
    assert made["members"][0]["revoking"] == {"t": [1]}
    assert made["members"][0]["target"] == {"t": [0]}


def test_durations_begin_with_the_first_look() -> None:
    looks = Observations()
    behind = [Position(T0, 5, 9, 9)]
    assert looks.look("g", "PreparingRebalance", behind, 100.0) == (0.0, 0.0, None, UNKNOWN, False, None, ())
    assert looks.look("g", "CompletingRebalance", behind, 107.0) == (7.0, 7.0, None, UNKNOWN, False, None, ())
    assert looks.look("g", "Stable", behind, 108.0) == (None, 8.0, None, UNKNOWN, False, None, ())
    assert looks.look("g", "Stable", [Position(T0, 6, 9, 9)], 109.0) == (None, 0.0, None, UNKNOWN, False, None, ())
    again = looks.look("g", "PreparingRebalance", [Position(T0, 6, 9, 9)], 110.0)
    assert again == (0.0, 1.0, None, UNKNOWN, False, None, ())


def test_the_groups_of_observations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_MOST_GROUPS", 10)
    looks = Observations()
    for number in range(11):
        looks.look(f"g{number}", "Assigning", (), 0.0)
    assert looks.look("g0", "Assigning", (), 10.0).rebalancing == 0.0
    assert looks.look("g10", "Assigning", (), 10.0).rebalancing == 10.0
