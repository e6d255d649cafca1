"""The search for a group's coordinator."""

import pytest

from barnabas_client.errors import GroupAuthorizationFailedError, KafkaConnectionError, UnsupportedVersionError
from barnabas_client.membership.effects import Coordinator, Disconnect, Note, Outbox, Send
from barnabas_client.membership.member import MemberConfig
from barnabas_client.membership.search import CoordinatorSearch
from barnabas_protocol.backoff import no_jitter
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.find_coordinator import Coordinator as Found
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

THERE = Coordinator(1, "host", 9092)
BACKOFF, LONGEST = 0.1, 1.0


def idle(*, subscribed: bool = True) -> tuple[CoordinatorSearch, Outbox]:
    config, out = MemberConfig(group_id="g", retry_backoff=BACKOFF, retry_backoff_max=LONGEST), Outbox()
    return CoordinatorSearch(config, out, lambda: subscribed, no_jitter), out


@pytest.fixture
def search() -> CoordinatorSearch:
    """A search whose first request is in flight."""
    return asked()[0]


def asked() -> tuple[CoordinatorSearch, Outbox]:
    """A search whose first request is in flight, and what it puts out from now on."""
    search, out = idle()
    search.ask(0.0)
    out.take()
    return search, out


def response(code: ErrorCode = ErrorCode.NONE) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[Found(key="g", node_id=1, host="host", port=9092, error_code=code)])


def events(out: Outbox) -> list[str]:
    return [effect.event for effect in out.take() if isinstance(effect, Note)]


def test_nothing_is_due_until_it_is_needed() -> None:
    search, out = idle(subscribed=False)
    assert search.due() is None
    search.wanted = True
    assert search.due() == 0.0
    search, out = idle()
    assert search.due() == 0.0
    search.ask(0.0)
    assert search.due() is None
    (send,) = out.take()
    assert isinstance(send, Send)
    assert (send.ticket, send.to) == (search.ticket, None)
    assert isinstance(send.request, FindCoordinatorRequest)
    assert send.request.coordinator_keys == ["g"]


def test_it_is_found() -> None:
    search, out = asked()
    assert search.answered(response(), 1.0) is None
    assert search.coordinator == THERE
    assert events(out) == ["found the coordinator"]
    assert search.ticket is None
    assert search.due() is None


def test_attempts_back_off(search: CoordinatorSearch) -> None:
    not_now = search.answered(response(ErrorCode.COORDINATOR_NOT_AVAILABLE), 1.0)
    assert not_now == ("FindCoordinator was answered COORDINATOR_NOT_AVAILABLE", None)
    assert search.due() == 1.0 + BACKOFF
    assert search.answered(FindCoordinatorResponse(coordinators=[]), 2.0) == not_now
    assert search.due() == 2.0 + 2 * BACKOFF
    assert search.failed(KafkaConnectionError("gone"), 3.0).error is None
    assert search.due() == 3.0 + 4 * BACKOFF


def test_errors_that_do_not_pass(search: CoordinatorSearch) -> None:
    refused = search.answered(response(ErrorCode.GROUP_AUTHORIZATION_FAILED), 1.0)
    assert refused is not None
    assert isinstance(refused.error, GroupAuthorizationFailedError)
    too_old = UnsupportedVersionError("too old")
    assert search.failed(too_old, 1.0) == (str(too_old), too_old)


@pytest.mark.parametrize(("lived", "pause"), [(LONGEST, 4 * BACKOFF), (2 * LONGEST + 1, BACKOFF)])
def test_a_coordinator_that_is_lost_soon_does_not_end_the_back_off(lived: float, pause: float) -> None:
    """Two brokers may name each other as the coordinator: the pauses grow."""
    search, out = asked()
    for _ in range(2):
        search.answered(response(ErrorCode.COORDINATOR_NOT_AVAILABLE), 0.0)
    search.answered(response(), 1.0)
    search.lose("a reason", 1.0 + lived)
    assert search.coordinator is None
    assert search.due() == pytest.approx(1.0 + lived + pause)
    found, disconnect, lost = out.take()
    assert disconnect == Disconnect(THERE, "a reason")
    assert isinstance(found, Note) and isinstance(lost, Note)
    assert (found.event, lost.event) == ("found the coordinator", "lost the coordinator")


def test_losing_one_that_is_not_known_only_pauses() -> None:
    search, out = idle()
    search.lose("a reason", 1.0)
    assert out.take() == []
    assert search.due() == 1.0 + BACKOFF
