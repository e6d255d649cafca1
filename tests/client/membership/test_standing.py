"""Where a member stands, in any protocol."""

import pytest

from barnabas_client.errors import GroupAuthorizationFailedError
from barnabas_client.membership.classic import TRANSITIONS
from barnabas_client.membership.effects import Coordinator, Effect, Fail, Note, Send
from barnabas_client.membership.member import MemberConfig, MemberState
from barnabas_client.membership.standing import Standing, Step
from barnabas_protocol.backoff import no_jitter
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.find_coordinator import Coordinator as Found
from barnabas_protocol.messages.find_coordinator import FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatResponse

CONFIG = MemberConfig(group_id="g", instance_id="i", request_timeout=10.0, max_poll_interval=20.0)
THERE = Coordinator(1, "host", 9092)
BROKEN = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed")


class Machine:
    """A machine that only waits for an assignment."""

    def __init__(self, *, subscribed: bool = True) -> None:
        self.subscribed = subscribed
        self.taken: list[str] = []
        self.standing = Standing(CONFIG, TRANSITIONS, lambda: self.subscribed, lambda: "it waits", self.fail, no_jitter)
        self.standing.steps = (
            Step(self.standing.watch),
            Step(self.standing.warn, self.standing.warning_due),
            Step(lambda now: self.taken.append(self.standing.poll_overdue()), self.standing.poll_due),
            Step(self.standing.search.ask, self.standing.search.due),
        )

    def fail(self, error: KafkaError) -> None:
        self.standing.fail(error)

    def become(self, *states: MemberState) -> None:
        for state in states:
            self.standing.to(state)


def warnings(effects: list[Effect]) -> list[Note]:
    return [effect for effect in effects if isinstance(effect, Note) and effect.warns]


def test_steps_are_taken_in_order_when_they_are_due() -> None:
    taken: list[tuple[str, float]] = []
    times: dict[str, float | None] = {"first": 2.0, "second": None}
    standing = Machine(subscribed=False).standing

    def take(name: str, now: float) -> None:
        taken.append((name, now))
        times[name] = None

    standing.steps = (
        Step(lambda now: take("first", now), lambda: times["first"]),
        Step(lambda now: taken.append(("always", now))),
        Step(lambda now: take("second", now), lambda: times["second"]),
    )
    assert standing.next_deadline() == 2.0
    standing.tick(1.0)
    times["second"] = 1.5
    assert standing.next_deadline() == 1.5
    standing.tick(2.0)
    assert taken == [("always", 1.0), ("first", 2.0), ("always", 2.0), ("second", 2.0)]
    assert standing.next_deadline() is None


def test_a_member_that_has_failed_takes_no_steps() -> None:
    machine = Machine()
    machine.standing.fail(BROKEN)
    assert machine.standing.tick(0.0) == [Fail(BROKEN)]
    assert machine.standing.next_deadline() is None
    assert machine.standing.error is BROKEN
    assert machine.standing.retry()
    assert machine.standing.state is MemberState.UNJOINED
    assert machine.standing.view(1, "m").error is None
    assert not machine.standing.retry()


def test_only_some_states_follow_each_state() -> None:
    machine = Machine()
    with pytest.raises(AssertionError, match="no transition from UNJOINED to STABLE"):
        machine.become(MemberState.STABLE)
    assert machine.standing.state is MemberState.UNJOINED


def test_the_coordinator_is_found_without_a_subscription_if_the_program_asks() -> None:
    standing = Machine(subscribed=False).standing
    assert standing.tick(0.0) == []
    assert [type(effect) for effect in standing.find_coordinator(0.0)] == [Send]
    assert [type(effect) for effect in standing.coordinator_found(THERE, 1.0)] == [Note]
    assert standing.coordinator == THERE
    assert standing.obstacle == ""


def response(code: ErrorCode = ErrorCode.NONE) -> FindCoordinatorResponse:
    found = Found(key="g", node_id=1, host="host", port=9092, error_code=code)
    return FindCoordinatorResponse(coordinators=[found])


def test_a_search_ends_with_its_own_answer() -> None:
    machine = Machine()
    standing = machine.standing
    (send,) = standing.tick(0.0)
    assert isinstance(send, Send)
    assert not standing.answered(send.ticket + 1, response(), 0.0)
    assert not standing.answered(send.ticket, HeartbeatResponse(error_code=0), 0.0)
    standing.failed(send.ticket + 1, BROKEN, 0.0)
    assert (standing.coordinator, standing.error, standing.last_error) == (None, None, "")
    assert standing.answered(send.ticket, response(), 0.0)
    assert standing.coordinator == THERE


def test_a_search_that_does_not_succeed() -> None:
    machine = Machine()
    standing = machine.standing
    (send,) = standing.tick(0.0)
    assert isinstance(send, Send)
    standing.failed(send.ticket, KafkaError(ErrorCode.NETWORK_EXCEPTION, "nothing there"), 0.0)
    assert standing.obstacle == "the coordinator is not found; the last error: nothing there"
    assert standing.state is MemberState.UNJOINED
    (send,) = standing.tick(1.0)
    assert isinstance(send, Send)
    assert not standing.answered(send.ticket, response(ErrorCode.GROUP_AUTHORIZATION_FAILED), 1.0)
    assert isinstance(standing.error, GroupAuthorizationFailedError)
    assert standing.last_error == str(standing.error)


def test_a_member_that_gets_no_assignment_warns_and_doubles_the_time() -> None:
    machine = Machine()
    standing = machine.standing
    standing.coordinator_found(THERE, 0.0)
    times = []
    for _ in range(3):
        at = standing.next_deadline()
        assert at is not None
        (warning,) = warnings(standing.tick(at))
        assert warning.event == "still without an assignment from the group"
        assert warning.fields == {"reason": "it waits", "seconds": at}
        times.append(at)
    assert times == [10.0, 20.0, 40.0]
    standing.last_error = "an error"
    assert standing.obstacle == "it waits; the last error: an error"
    machine.become(MemberState.JOINING, MemberState.SYNCING, MemberState.STABLE)
    standing.polled(60.0)
    assert (standing.next_deadline(), standing.obstacle) == (80.0, "")


def test_a_member_leaves_if_its_program_does_not_poll() -> None:
    machine = Machine()
    standing = machine.standing
    standing.coordinator_found(THERE, 0.0)
    standing.polled(0.0)
    machine.become(MemberState.JOINING)
    assert standing.poll_due() is None, "it waits for the other members"
    machine.become(MemberState.SYNCING, MemberState.STABLE)
    assert standing.poll_due() == 20.0
    standing.polled(15.0)
    assert (standing.tick(34.0), machine.taken) == ([], [])
    (warning,) = standing.tick(35.0)
    assert isinstance(warning, Note) and warning.warns
    assert machine.taken == ["the program did not poll for max_poll_interval_ms (20000 ms)"]
    assert warning.event.startswith(f"leaving the group: {machine.taken[0]}. Raise it")


def test_the_view() -> None:
    standing = Machine().standing
    standing.coordinator_found(THERE, 0.0)
    standing.beaten(1.0)
    standing.beaten(2.0)
    view = standing.view(7, "m", leads=True)
    assert (view.group_id, view.instance_id, view.protocol, view.state) == ("g", "i", "classic", MemberState.UNJOINED)
    assert (view.generation, view.member_id, view.is_leader, view.coordinator) == (7, "m", True, THERE)
    assert (view.heartbeats, view.heartbeat_at, view.error, view.obstacle) == (2, 2.0, None, "it waits")
