"""The health of a group in one word."""

from typing import Any

import pytest

from barnabas_broker.http.health import COMMIT_SECONDS, LAG, STUCK_SECONDS, health


def status(**given: Any) -> str:
    usual: dict[str, Any] = {
        "members": 1, "lag": 0, "unstable_lag": 0, "rebalancing": None, "since_commit": None, "flapping": False,
    }  # fmt: skip
    return health(**{**usual, **given}).status


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "ok"),
        ({"lag": None, "unstable_lag": None}, "ok"),
        ({"lag": LAG}, "ok"),
        ({"lag": LAG + 1}, "lagging"),
        ({"rebalancing": STUCK_SECONDS}, "ok"),
        ({"rebalancing": STUCK_SECONDS + 1}, "stuck"),
        ({"rebalancing": STUCK_SECONDS + 1, "flapping": True}, "stuck"),
        ({"flapping": True, "lag": LAG + 1}, "flapping"),
        ({"members": 0}, "no members"),
        ({"members": 0, "lag": 5}, "no members"),
        ({"lag": 5, "unstable_lag": 5}, "waiting"),
        ({"lag": 5, "unstable_lag": 4}, "ok"),
        ({"lag": 5, "since_commit": COMMIT_SECONDS + 1}, "stuck"),
        ({"lag": 0, "since_commit": COMMIT_SECONDS + 1}, "ok"),
    ],
)
def test_the_worst_is_told(given: dict[str, Any], expected: str) -> None:
    assert status(**given) == expected


def test_all_but_ok_have_a_reason() -> None:
    worst = health(members=0, lag=1_234, unstable_lag=0, rebalancing=None, since_commit=None, flapping=False)
    assert worst.reason == "1,234 records are not consumed."
