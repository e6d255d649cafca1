"""When heartbeats are due and what they tell; the machines' tests cover what follows from it."""

import pytest

from barnabas_client.membership.heartbeats import Heartbeats, Refusal, TopicIdPartition, is_valid
from barnabas_client.membership.member import MemberConfig
from barnabas_protocol.backoff import no_jitter
from barnabas_protocol.errors import ErrorCode

CONFIG = MemberConfig(group_id="g", heartbeat_interval=3.0, retry_backoff=0.1, retry_backoff_max=1.0)


@pytest.fixture
def beats() -> Heartbeats[str]:
    """Heartbeats of a member that has joined at 0 and told "a"; the coordinator's interval is 5 s."""
    made: Heartbeats[str] = Heartbeats(CONFIG, no_jitter)
    made.sent(1, "a", 0.0)
    made.ticket = None
    made.succeeded(5_000, 0.0, joined=True)
    return made


def test_one_is_due_after_the_interval_or_with_news(beats: Heartbeats[str]) -> None:
    assert beats.told == "a"
    assert beats.due("a", member=True) == 5.0
    assert beats.due("b", member=True) == 0.0, "news"
    assert beats.due("a", member=False) == 0.0, "a join"
    beats.hurry(2.0)
    assert beats.due("a", member=True) == 2.0


def test_everything_is_told_again_after_an_error_and_a_pause(beats: Heartbeats[str]) -> None:
    beats.try_again(5.0)
    assert (beats.told, beats.due("a", member=True)) == (None, 5.1)
    beats.try_again(6.0)
    assert beats.due("a", member=True) == 6.2


def test_only_a_heartbeat_after_the_join_ends_the_pauses_of_joins(beats: Heartbeats[str]) -> None:
    beats.removed(1.0)
    assert beats.due("a", member=False) == 1.0, "the first one at once"
    beats.succeeded(0, 1.0, joined=True)
    beats.removed(2.0)
    assert beats.due("a", member=False) == 2.2
    beats.succeeded(0, 3.0, joined=False)
    beats.removed(4.0)
    assert beats.due("a", member=False) == 4.0


def test_a_short_interval_leaves_time_for_the_answer(beats: Heartbeats[str]) -> None:
    assert beats.patience == 10.0
    beats.succeeded(60_000, 0.0, joined=False)
    assert beats.patience == CONFIG.request_timeout


@pytest.mark.parametrize(
    ("code", "member", "refusal"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, False, Refusal.REMOVED),
        (ErrorCode.GROUP_ID_NOT_FOUND, True, Refusal.REMOVED),
        (ErrorCode.GROUP_ID_NOT_FOUND, False, Refusal.FINAL),
        (ErrorCode.NOT_COORDINATOR, True, Refusal.COORDINATOR_GONE),
        (ErrorCode.UNSUPPORTED_VERSION, False, Refusal.UNSUPPORTED),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, Refusal.RETRIABLE),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, True, Refusal.FINAL),
    ],
)
def test_errors_are_classified(code: ErrorCode, member: bool, refusal: Refusal) -> None:
    assert Refusal.of(code, member=member) is refusal


def test_an_answer_without_the_epoch_of_a_member_is_invalid() -> None:
    assert not is_valid(0, None)
    assert not is_valid(1, frozenset({TopicIdPartition(bytes(16), -1)}))
    assert is_valid(1, frozenset())
