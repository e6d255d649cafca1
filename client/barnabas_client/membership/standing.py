"""The part that the machines of all members have in common, in each protocol. Pure.

:mod:`barnabas_client.membership.classic`, :mod:`barnabas_client.membership.consumer_member` and
:mod:`barnabas_client.shares.member` own one of these. A machine changes it, and names its steps; the shell calls the
events that concern no protocol, and reads where the member stands.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas_client.membership.effects import Coordinator, Effect, Fail, Outbox
from barnabas_client.membership.member import MemberConfig, MemberState, MemberView
from barnabas_client.membership.search import CoordinatorSearch, NotFound
from barnabas_protocol.backoff import Jitter
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.messages.find_coordinator import FindCoordinatorResponse
from barnabas_protocol.schema import Response

#: The states of a member that leaves if its program does not poll.
_POLLS: Final = (MemberState.STABLE, MemberState.RECONCILING, MemberState.SYNCING)


class Step(NamedTuple):
    """A step of a machine.

    Attributes:
        take: takes it, at this time. Afterwards it is not due any more.
        due: when it is due; None while it is not. Without this function the step follows every event, and does nothing
            if there is nothing to do.
    """

    take: Callable[[float], None]
    due: Callable[[], float | None] | None = None


class Standing:
    """Where a member stands: its state and its coordinator, the effects of the event that its machine processes, and
    the steps that are due.

    Args:
        config: names and timeouts.
        transitions: the states that may follow each state.
        subscribed: whether the program reads from topics.
        obstacle: why a member without an assignment has none, although its coordinator is known.
        fail: gives the membership up for good: the machine ends it, and calls :meth:`fail`.
        jitter: for back-offs.
    """

    def __init__(
        self,
        config: MemberConfig,
        transitions: Mapping[MemberState, frozenset[MemberState]],
        subscribed: Callable[[], bool],
        obstacle: Callable[[], str],
        fail: Callable[[KafkaError], None],
        jitter: Jitter,
    ) -> None:
        self.state = MemberState.UNJOINED
        #: Why the membership failed for good.
        self.error: KafkaError | None = None
        #: The last error since the member had its assignment; for warnings.
        self.last_error = ""
        #: In the order in which they are taken.
        self.steps: tuple[Step, ...] = ()
        self.out = Outbox()
        self.search = CoordinatorSearch(config, self.out, subscribed, jitter)
        self._config = config
        self._transitions = transitions
        self._subscribed = subscribed
        self._obstacle = obstacle
        #: Gives the membership up for good.
        self.give_up = fail
        self._poll_at = 0.0  # the program must have polled until then
        self._waits_since: float | None = None  # for its assignment
        self._warn_at = 0.0
        self._heartbeats = 0
        self._heartbeat_at: float | None = None

    # Events.

    def tick(self, now: float) -> list[Effect]:
        """Time has passed, or the machine has processed an event: take every step that is due, and return the effects
        since the last time."""
        if self.state is not MemberState.FAILED:
            for take, due in self.steps:
                if due is None or ((at := due()) is not None and at <= now):
                    take(now)
        return self.out.take()

    def find_coordinator(self, now: float) -> list[Effect]:
        """Find the coordinator without a subscription: to commit, or to fetch committed offsets."""
        self.search.wanted = True
        return self.tick(now)

    def coordinator_found(self, coordinator: Coordinator, now: float) -> list[Effect]:
        """The shell has found the coordinator, before the machine asked for it."""
        self.search.found(coordinator, now)
        return self.tick(now)

    def polled(self, now: float) -> list[Effect]:
        """The program polled."""
        self.allow(now)
        return self.tick(now)

    # Readings.

    @property
    def coordinator(self) -> Coordinator | None:
        """The group's coordinator; None while it is not known."""
        return self.search.coordinator

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is due next; None while only other events can change anything."""
        if self.state is MemberState.FAILED:
            return None
        times = [at for _, due in self.steps if due is not None and (at := due()) is not None]
        return min(times, default=None)

    def view(self, generation: int, member_id: str, *, leads: bool = False) -> MemberView:
        """A snapshot."""
        return MemberView(
            group_id=self._config.group_id,
            instance_id=self._config.instance_id,
            protocol=self._config.protocol,
            state=self.state,
            generation=generation,
            member_id=member_id,
            is_leader=leads,
            coordinator=self.search.coordinator,
            error=self.error,
            heartbeats=self._heartbeats,
            heartbeat_at=self._heartbeat_at,
            obstacle=self.obstacle,
        )

    @property
    def obstacle(self) -> str:
        """Text for errors and warnings: why the member has no assignment yet, and the last error."""
        if self.state is MemberState.STABLE or self.state is MemberState.FAILED:
            return ""
        if self.search.coordinator is None:
            what = "the coordinator is not found"
        elif self._subscribed():
            what = self._obstacle()
        else:
            return ""
        return f"{what}; the last error: {self.last_error}" if self.last_error else what

    # Changes by the machine.

    def to(self, state: MemberState) -> None:
        """Change the state."""
        if state not in self._transitions[self.state]:
            raise AssertionError(f"no transition from {self.state.name} to {state.name}")
        self.state = state

    def fail(self, error: KafkaError) -> None:
        """The membership failed for good: to FAILED."""
        self.error = error
        self.search.ticket = None
        self.to(MemberState.FAILED)
        self.out.put(Fail(error))

    def retry(self) -> bool:
        """Leave FAILED, for a new subscription; whether it was the state."""
        failed = self.state is MemberState.FAILED
        if failed:
            self.to(MemberState.UNJOINED)
            self.error = None
        return failed

    def answered(self, ticket: int, response: Response, now: float) -> bool:
        """A request was answered; whether it was the one for the coordinator, and that is found."""
        if ticket != self.search.ticket or not isinstance(response, FindCoordinatorResponse):
            return False
        return self._searched(self.search.answered(response, now))

    def failed(self, ticket: int, error: KafkaError, now: float) -> None:
        """A request got no response: if it was the one for the coordinator, another one follows."""
        if ticket == self.search.ticket:
            self._searched(self.search.failed(error, now))

    def _searched(self, attempt: NotFound | None) -> bool:
        if attempt is not None:
            self.last_error = attempt.reason
            if attempt.error is not None:
                self.give_up(attempt.error)
        return attempt is None

    def beaten(self, now: float) -> None:
        """A heartbeat was answered."""
        self._heartbeats += 1
        self._heartbeat_at = now

    # The time between two polls.

    def allow(self, now: float) -> None:
        """From now on, the program has `max_poll_interval` to poll."""
        self._poll_at = now + self._config.max_poll_interval

    def poll_due(self) -> float | None:
        """When a member leaves unless the program polls; None while it is not a member."""
        return self._poll_at if self.state in _POLLS else None

    def poll_overdue(self) -> str:
        """Warn that the member leaves, and return the reason."""
        limit = round(self._config.max_poll_interval * 1000)
        reason = f"the program did not poll for max_poll_interval_ms ({limit} ms)"
        self.out.warn(f"leaving the group: {reason}. Raise it, lower max_poll_records, or process faster")
        return reason

    # The time without an assignment, in which polls return nothing.

    def watch(self, now: float) -> None:
        """Notice that the member waits for an assignment, or does not any more."""
        if self.state is MemberState.STABLE or not self._subscribed():
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since, self._warn_at = now, now + self._config.request_timeout

    def warning_due(self) -> float | None:
        """When to warn: after `request_timeout`, and after twice as long again; None while the member does not wait."""
        return None if self._waits_since is None else self._warn_at

    def warn(self, now: float) -> None:
        """Warn that the member has no assignment."""
        waited = now - (now if self._waits_since is None else self._waits_since)
        self._warn_at = now + max(waited, self._config.request_timeout)
        self.out.warn("still without an assignment from the group", reason=self.obstacle, seconds=round(waited, 1))
