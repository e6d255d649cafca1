"""Which requests meet a fault."""

from typing import Any

import pytest

from barnabas_broker.testing.rules import Rules, find_api, find_code
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.registry import ApiKey


@pytest.mark.parametrize(
    ("given", "met"),
    [
        ({}, [1]),
        ({"nth": 3}, [3]),
        ({"nth": 2, "times": 2}, [2, 3]),
        ({"times": None}, [1, 2, 3, 4, 5]),
        ({"nth": 4, "times": None}, [4, 5]),
    ],
)
def test_nth_and_times(given: dict[str, Any], met: list[int]) -> None:
    rules = Rules()
    rule = rules.add("drop", "Fetch", **given)
    assert [n for n in range(1, 6) if rules.met_by(ApiKey.FETCH, "a")] == met
    assert rule.fired == len(met)


def test_other_apis_and_other_clients_are_left_alone_and_not_counted() -> None:
    rules = Rules()
    rule = rules.add("drop", "JoinGroup", client_id="a", nth=2)
    assert not rules.met_by(ApiKey.JOIN_GROUP, "a")
    assert not rules.met_by(ApiKey.JOIN_GROUP, "b")
    assert not rules.met_by(ApiKey.SYNC_GROUP, "a")
    assert rules.met_by(ApiKey.JOIN_GROUP, "a") == [rule]


def test_every_api_at_once() -> None:
    rules = Rules()
    rules.add("delay", "*", seconds=1, times=None)
    assert rules.met_by(ApiKey.FETCH, "a")
    assert rules.met_by(ApiKey.PRODUCE, "")


def test_a_request_may_meet_several_rules() -> None:
    rules = Rules()
    made = [rules.add("delay", "Fetch", seconds=1), rules.add("error", "Fetch", code="NOT_LEADER_OR_FOLLOWER")]
    assert rules.met_by(ApiKey.FETCH, "") == made
    assert [str(rule) for rule in made] == ["delay 1 s", "error NOT_LEADER_OR_FOLLOWER"]


def test_what_is_taken_back_is_met_by_the_next_request() -> None:
    rules = Rules()
    rule = rules.add("error", "Fetch", code=6, nth=2)
    rules.met_by(ApiKey.FETCH, "")
    assert rules.met_by(ApiKey.FETCH, "") == [rule]
    rule.take_back()
    assert rules.met_by(ApiKey.FETCH, "") == [rule]
    assert not rules.met_by(ApiKey.FETCH, "")


def test_a_removed_rule_is_not_met_but_keeps_its_count() -> None:
    rules = Rules(first=7)
    rule = rules.add("drop", "Fetch", times=None)
    assert rules.met_by(ApiKey.FETCH, "")
    assert rules.remove(7) is rule
    assert rules.remove(7) is None
    assert not rules.met_by(ApiKey.FETCH, "")
    assert rules[7].fired == 1
    with pytest.raises(ValueError, match="ended when its broker was stopped"):
        rules[8]


@pytest.mark.parametrize("name", ["JoinGroup", "JOIN_GROUP", "join_group", "joingroup", 11, ApiKey.JOIN_GROUP])
def test_an_api_by_any_name(name: str | int) -> None:
    assert find_api(name) is ApiKey.JOIN_GROUP


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "not_coordinator", 16, ErrorCode.NOT_COORDINATOR])
def test_an_error_by_name_or_number(code: str | int) -> None:
    assert find_code(code) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"api": "JoinGruop"}, "'JoinGruop': no API has this name; did you mean JoinGroup"),
        ({"api": 999}, "999: no API has this key"),
        ({"kind": "error", "code": "NOT_LEADER"}, "'NOT_LEADER': no such error code; did you mean NOT_LEADER_OR"),
        ({"kind": "error", "code": 12345}, "12345: no such error code"),
        ({"kind": "error", "code": 0}, "NONE is not an error"),
        ({"nth": 0}, "nth=0: the first request is 1"),
        ({"times": 0}, "times=0: must be 1 or more, or None"),
        ({"kind": "delay", "seconds": -1}, "seconds=-1: must be 0 or more"),
    ],
)
def test_what_makes_no_sense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Rules().add(**{"kind": "drop", "api": "Fetch", **given})
