"""The search for a group's coordinator."""

import pytest

from barnabas_client.errors import GroupAuthorizationFailedError, KafkaConnectionError, UnsupportedVersionError
from barnabas_client.membership.effects import Coordinator, Disconnect, Effect, Note
from barnabas_client.membership.member import MemberConfig
from barnabas_client.membership.search import CoordinatorSearch
from barnabas_protocol.backoff import no_jitter
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import Coordinator as Found
from barnabas_protocol.messages.find_coordinator import FindCoordinatorResponse

THERE = Coordinator(1, "host", 9092)
BACKOFF, LONGEST = 0.1, 1.0


@pytest.fixture
def search() -> CoordinatorSearch:
    """A search whose first request is in flight."""
    made = CoordinatorSearch(MemberConfig(group_id="g", retry_backoff=BACKOFF, retry_backoff_max=LONGEST), no_jitter)
    made.ticket = 7
    return made


def response(code: ErrorCode = ErrorCode.NONE) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[Found(key="g", node_id=1, host="host", port=9092, error_code=code)])


def events(effects: list[Effect]) -> list[str]:
    return [effect.event for effect in effects if isinstance(effect, Note)]


def test_nothing_is_due_until_it_is_needed() -> None:
    search = CoordinatorSearch(MemberConfig(group_id="g"), no_jitter)
    assert search.due(subscribed=False) is None
    assert search.due(subscribed=True) == 0.0
    search.wanted = True
    assert search.due(subscribed=False) == 0.0
    search.ticket = 1
    assert search.due(subscribed=True) is None
    assert search.request().coordinator_keys == ["g"]


def test_it_is_found(search: CoordinatorSearch) -> None:
    effects: list[Effect] = []
    assert search.answered(response(), 1.0, effects) is None
    assert search.coordinator == THERE
    assert events(effects) == ["found the coordinator"]
    assert search.ticket is None
    assert search.due(subscribed=True) is None


def test_attempts_back_off(search: CoordinatorSearch) -> None:
    not_now = search.answered(response(ErrorCode.COORDINATOR_NOT_AVAILABLE), 1.0, [])
    assert not_now == ("FindCoordinator was answered COORDINATOR_NOT_AVAILABLE", None)
    assert search.due(subscribed=True) == 1.0 + BACKOFF
    assert search.answered(FindCoordinatorResponse(coordinators=[]), 2.0, []) == not_now
    assert search.due(subscribed=True) == 2.0 + 2 * BACKOFF
    assert search.failed(KafkaConnectionError("gone"), 3.0).error is None
    assert search.due(subscribed=True) == 3.0 + 4 * BACKOFF


def test_errors_that_do_not_pass(search: CoordinatorSearch) -> None:
    refused = search.answered(response(ErrorCode.GROUP_AUTHORIZATION_FAILED), 1.0, [])
    assert refused is not None
    assert isinstance(refused.error, GroupAuthorizationFailedError)
    too_old = UnsupportedVersionError("too old")
    assert search.failed(too_old, 1.0) == (str(too_old), too_old)


@pytest.mark.parametrize(("lived", "pause"), [(LONGEST, 4 * BACKOFF), (2 * LONGEST + 1, BACKOFF)])
def test_a_coordinator_that_is_lost_soon_does_not_end_the_back_off(
    search: CoordinatorSearch, lived: float, pause: float
) -> None:
    """Two brokers may name each other as the coordinator: the pauses grow."""
    effects: list[Effect] = []
    for _ in range(2):
        search.answered(response(ErrorCode.COORDINATOR_NOT_AVAILABLE), 0.0, effects)
    search.answered(response(), 1.0, effects)
    search.lose("a reason", 1.0 + lived, effects)
    assert search.coordinator is None
    assert search.due(subscribed=True) == pytest.approx(1.0 + lived + pause)
    assert effects[1] == Disconnect(THERE, "a reason")
    assert events(effects) == ["found the coordinator", "lost the coordinator"]


def test_losing_one_that_is_not_known_only_pauses(search: CoordinatorSearch) -> None:
    effects: list[Effect] = []
    search.ticket = None
    search.lose("a reason", 1.0, effects)
    assert effects == []
    assert search.due(subscribed=True) == 1.0 + BACKOFF
