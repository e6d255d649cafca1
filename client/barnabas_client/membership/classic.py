"""A member of a consumer group as a pure state machine: what it does about every answer, failure and passing of time.

It finds the coordinator, joins, assigns if it leads, syncs, sends heartbeats, and starts over when it must. It reads no
clock and does no I/O: events come in with the time `now`, in seconds of any clock, and each returns the effects that
its shell carries out (:mod:`barnabas_client.membership.membership`, or a simulation):

- :class:`Send` a request; then :meth:`GroupMember.answered` or :meth:`GroupMember.failed` with its ticket.
- :class:`Revoke` partitions: wait until the program polls, commit, call its listener; then
  :meth:`GroupMember.released`. Each round begins with one, even of no partitions: the program has then processed what
  it was given (in Kafka's consumer rebalances happen inside of ``poll``), and a program that never polls again does not
  rejoin.
- :class:`Assign` partitions: these are this member's now.
- :class:`AskCluster`: the leader needs partition counts; then :meth:`GroupMember.counted`.
- :class:`Disconnect`, :class:`Fail`, :class:`Note`.

The shell keeps one timer, at :meth:`GroupMember.next_deadline`, for :meth:`GroupMember.tick`. Answers to anything but
the current request of a kind are ignored. Eager and cooperative rebalancing (KIP-429) differ in what a round gives up,
before the join or after the sync. Sources: ``AbstractCoordinator.java``, ``ConsumerCoordinator.java``; KIP-62, 345,
394, 429, 814.
"""

from collections.abc import Iterable, Mapping, Sequence

from barnabas_client.assignors import Assignor, MemberSubscription, RebalanceProtocol
from barnabas_client.errors import error_for
from barnabas_client.membership.consumer_protocol import decode_assignment
from barnabas_client.membership.leader import Leadership
from barnabas_client.membership.messages import (
    fenced,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
    tell_assignor,
)
from barnabas_client.membership.types import (
    NO_GENERATION,
    TRANSITIONS,
    AskCluster,
    Assign,
    Coordinator,
    Disconnect,
    Effect,
    Fail,
    Identity,
    MemberConfig,
    MemberState,
    Note,
    Revoke,
    Send,
)
from barnabas_client.membership.view import MemberView
from barnabas_client.network.backoff import Backoff, Jitter, no_jitter
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse
from barnabas_protocol.schema import Request, Response

_NONE = frozenset[TopicPartition]()


class GroupMember:
    """One member.

    Args:
        config: names and timeouts.
        assignors: in order of preference.
        jitter: for back-offs.
    """

    def __init__(self, config: MemberConfig, assignors: Sequence[Assignor], jitter: Jitter = no_jitter) -> None:
        self.config = config
        self.state = MemberState.UNJOINED
        self.coordinator: Coordinator | None = None
        self.member_id = ""
        self.generation = NO_GENERATION
        self.leading: Leadership | None = None
        self.topics: frozenset[str] | None = None
        self.owned: frozenset[TopicPartition] = _NONE
        self.error: KafkaError | None = None
        self._assignors = {assignor.name: assignor for assignor in assignors}
        shared = frozenset.intersection(*(assignor.protocols for assignor in assignors))
        self.cooperative = RebalanceProtocol.COOPERATIVE in shared
        self._protocol: str | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._rejoin: str | None = None
        self._released = False
        self._wants_coordinator = False
        self._tickets = 0
        self._finding: int | None = None
        self._round: int | None = None  # the JoinGroup, AskCluster or SyncGroup that is under way
        self._sync_sent = False
        self._releasing: int | None = None
        self._beating: int | None = None
        self._find_backoff = Backoff(config.retry_backoff, config.retry_backoff_max, jitter)
        self._join_backoff = Backoff(config.retry_backoff, config.retry_backoff_max, jitter)
        self._find_at = self._join_at = self._beat_at = self._session_at = self._poll_at = 0.0
        self._heartbeats = 0
        self._heartbeat_at: float | None = None

    # Events.

    def subscribe(self, topics: Iterable[str], now: float) -> list[Effect]:
        """Be a member that reads `topics`; call again when they change. Also the way out of FAILED."""
        before, self.topics = self.topics, frozenset(topics)
        if self.state is MemberState.FAILED:
            self._go(MemberState.UNJOINED)
            self.error = before = None
        if before is None:
            self._poll_at = now + self.config.max_poll_interval
            self._rejoin = "the subscription is new"
        elif before != self.topics:
            self._rejoin = "the subscription changed"
        return self._advance(now, [])

    def want_coordinator(self, now: float) -> list[Effect]:
        """Look for the coordinator although nothing is joined: to commit, or to read what was committed."""
        self._wants_coordinator = True
        return self._advance(now, [])

    def polled(self, now: float) -> list[Effect]:
        """The program asked for records."""
        self._poll_at = now + self.config.max_poll_interval
        return self._advance(now, [])

    def released(self, ticket: int, now: float) -> list[Effect]:
        """What :class:`Revoke` asked for is done, so the program has come to a poll."""
        if ticket != self._releasing:
            return []
        self._poll_at = now + self.config.max_poll_interval
        self._releasing = None
        self._released = True
        return self._advance(now, [])

    def tick(self, now: float) -> list[Effect]:
        """Time has passed."""
        return self._advance(now, [])

    def metadata_changed(self, counts: Mapping[str, int], now: float) -> list[Effect]:
        """The topics' partition counts are these: a leader whose assignment was made for others rejoins (C7)."""
        effects: list[Effect] = []
        if self.leading is not None and self.state is MemberState.STABLE and self._rejoin is None:
            changed = self.leading.changed(counts)
            if changed:
                self._request_rejoin(f"partitions of {', '.join(changed)} changed", effects)
        return self._advance(now, effects)

    def counted(self, ticket: int, counts: Mapping[str, int], now: float) -> list[Effect]:
        """The answer to :class:`AskCluster`; topics that do not exist are missing."""
        effects: list[Effect] = []
        if ticket == self._round and self.state is MemberState.SYNCING and self.leading is not None:
            try:
                blobs = self.leading.counted(counts, self._assignors[self._protocol or ""])
            except KafkaError as error:
                self._fail(error, effects)
            else:
                self._sync(blobs, effects)
        return self._advance(now, effects)

    def answered(self, ticket: int, response: Response, now: float) -> list[Effect]:
        """An answer to a :class:`Send` has come."""
        effects: list[Effect] = []
        if ticket == self._finding and isinstance(response, FindCoordinatorResponse):
            self._finding = None
            self._found(response, now, effects)
        elif ticket == self._beating and isinstance(response, HeartbeatResponse):
            self._beating = None
            self._heartbeat(ErrorCode.of(response.error_code), now, effects)
        elif ticket == self._round and isinstance(response, JoinGroupResponse):
            self._round = None
            self._joined(response, now, effects)
        elif ticket == self._round and isinstance(response, SyncGroupResponse):
            self._round = None
            self._synced(response, now, effects)
        return self._advance(now, effects)

    def failed(self, ticket: int, error: KafkaError, now: float) -> list[Effect]:
        """A :class:`Send` got no answer: the connection broke, or it took too long."""
        effects: list[Effect] = []
        if ticket == self._finding:
            self._finding = None
            self._find_at = now + self._find_backoff.failed()
            if error.code in _HOPELESS:
                self._fail(error, effects)
        elif ticket in (self._beating, self._round):
            if error.code in _HOPELESS:
                self._fail(error, effects)
            else:
                self._lose_coordinator(str(error), now, effects)
        return self._advance(now, effects)

    def coordinator_lost(self, reason: str, now: float) -> list[Effect]:
        """Something else than this machine found that the coordinator is gone or has moved, such as a commit."""
        effects: list[Effect] = []
        self._lose_coordinator(reason, now, effects)
        return self._advance(now, effects)

    def commit_refused(self, code: ErrorCode, generation: int, now: float) -> list[Effect]:
        """A commit with this generation was answered with `code`, which tells something about the membership."""
        effects: list[Effect] = []
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT):
            self._lose_coordinator(f"a commit was answered {code.name}", now, effects)
        elif generation != NO_GENERATION and generation == self.generation:
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self._fail(fenced(self.config), effects)
            elif code == ErrorCode.REBALANCE_IN_PROGRESS and self.state is MemberState.STABLE:
                self._request_rejoin("the group is rebalancing, a commit was told", effects)
            elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self._lose_membership(code, effects)
        return self._advance(now, effects)

    def rejoin(self, reason: str, now: float) -> list[Effect]:
        """Begin a round because the program wants one (KIP-568)."""
        effects: list[Effect] = []
        if self.state is MemberState.STABLE:
            self._request_rejoin(reason, effects)
        return self._advance(now, effects)

    def leave(self, reason: str, now: float) -> list[Effect]:
        """Leave the group for good, or until the next :meth:`subscribe`. Static members only stop (KIP-345)."""
        effects: list[Effect] = []
        waits = self.state is MemberState.JOINING or (self.state is MemberState.SYNCING and self._sync_sent)
        if waits and self.coordinator is not None:
            # Behind a request that waits for other members the coordinator would not read a LeaveGroup.
            effects.append(Disconnect(self.coordinator, "the member is leaving"))
        self._send_leave(reason, effects)
        self._reset()
        self.topics, self._rejoin, self.owned = None, None, _NONE
        self._round = self._beating = self._releasing = None
        self._released = False
        if self.state is not MemberState.FAILED:
            self._go(MemberState.UNJOINED)
        return effects

    # What the shell asks.

    def next_deadline(self) -> float | None:
        """When :meth:`tick` is due next, None while only events can bring anything forward."""
        times = []
        if self.state is MemberState.FAILED:
            return None
        if self._must_find():
            times.append(self._find_at)
        if self._must_join():
            times.append(self._join_at)
        if self._must_beat():
            times.append(self._beat_at)
        if self.state is MemberState.STABLE and self.coordinator is not None:
            times.append(self._session_at)
        if self.state in (MemberState.STABLE, MemberState.SYNCING):
            times.append(self._poll_at)
        return min(times, default=None)

    @property
    def leads(self) -> bool:
        """Whether this member makes the assignments."""
        return self.leading is not None

    def view(self) -> MemberView:
        """A snapshot for others."""
        return MemberView(
            group_id=self.config.group_id,
            instance_id=self.config.instance_id,
            state=self.state,
            generation=self.generation,
            member_id=self.member_id,
            leads=self.leads,
            coordinator=self.coordinator,
            error=self.error,
            heartbeats=self._heartbeats,
            heartbeat_at=self._heartbeat_at,
        )

    def commit_identity(self) -> Identity:
        """With what a commit of this member goes out; see :meth:`MemberView.commit_identity`."""
        return self.view().commit_identity()

    # Moving forward.

    def _advance(self, now: float, effects: list[Effect]) -> list[Effect]:
        """Do whatever is due. Each step leaves a state in which it is not due any more."""
        if self.state is MemberState.FAILED:
            return effects
        if self.state in (MemberState.STABLE, MemberState.SYNCING) and now >= self._poll_at:
            self._leave_for_silence(effects)
        if self.state is MemberState.STABLE and self.coordinator is not None and now >= self._session_at:
            self._lose_coordinator("the session timed out without an answer to a heartbeat", now, effects)
            self._session_at = now + self.config.session_timeout
        if self._must_find() and now >= self._find_at:
            self._finding = self._send(
                FindCoordinatorRequest(coordinator_keys=[self.config.group_id]), effects, to_coordinator=False
            )
        if self._must_release():
            self._release(effects)
        if self._must_join() and now >= self._join_at:
            self._join(effects)
        if self._must_beat() and now >= self._beat_at:
            self._beating = self._send(heartbeat_request(self.config, self.member_id, self.generation), effects)
            self._beat_at = now + self.config.heartbeat_interval
        return effects

    def _must_find(self) -> bool:
        return (
            self.coordinator is None and self._finding is None and (self.topics is not None or self._wants_coordinator)
        )

    def _between_rounds(self) -> bool:
        return (
            self.topics is not None
            and self._rejoin is not None
            and self.coordinator is not None
            and self.state in (MemberState.UNJOINED, MemberState.STABLE)
        )

    def _must_release(self) -> bool:
        return self._between_rounds() and not self._released and self._releasing is None

    def _must_join(self) -> bool:
        return self._between_rounds() and self._released

    def _must_beat(self) -> bool:
        # Behind a SyncGroup that waits for the leader a heartbeat would only wait as well.
        return (
            self.coordinator is not None
            and self._beating is None
            and (self.state is MemberState.STABLE or (self.state is MemberState.SYNCING and not self._sync_sent))
        )

    def _release(self, effects: list[Effect]) -> None:
        """Begin a round: the partitions that do not survive it are given up before."""
        lost = self.generation == NO_GENERATION or not self.member_id
        if lost or not self.cooperative:
            given_up = self.owned
        else:
            given_up = frozenset(tp for tp in self.owned if tp.topic not in (self.topics or ()))
        self.owned -= given_up
        self._releasing = self._ticket()
        effects.append(Revoke(self._releasing, given_up, lost=lost, generation=self.generation))

    def _join(self, effects: list[Effect]) -> None:
        self._joined_topics = self.topics or frozenset()
        subscription = MemberSubscription(
            topics=tuple(sorted(self._joined_topics)),
            owned=tuple(sorted(self.owned)),
            generation=self.generation,
            rack=self.config.rack,
        )
        assignors = self._assignors.values()
        try:
            request = join_request(self.config, self.member_id, subscription, assignors, self._rejoin)
        except KafkaError as error:
            self._fail(error, effects)
            return
        effects.append(Note("joining the group", {"member": self.member_id, "reason": self._rejoin or ""}))
        self._go(MemberState.JOINING)
        self._beating = None
        self._round = self._send(request, effects, timeout=self.config.round_timeout)

    # Answers.

    def _found(self, response: FindCoordinatorResponse, now: float, effects: list[Effect]) -> None:
        told = response.coordinators[0] if response.coordinators else None
        code = ErrorCode.of(told.error_code) if told is not None else ErrorCode.COORDINATOR_NOT_AVAILABLE
        if told is not None and code == ErrorCode.NONE:
            self._find_backoff.succeeded()
            self.coordinator = Coordinator(told.node_id, told.host, told.port)
            self._beat_at = min(self._beat_at, now)
            self._session_at = max(self._session_at, now + self.config.session_timeout)
            effects.append(Note("found the coordinator", {"node": told.node_id, "at": f"{told.host}:{told.port}"}))
        elif code.retriable:
            self._find_at = now + self._find_backoff.failed()
        else:
            self._fail(error_for(code, f"find the coordinator of group {self.config.group_id!r}"), effects)

    def _joined(self, response: JoinGroupResponse, now: float, effects: list[Effect]) -> None:
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._back()
            self._pause(code, now)
        elif code != ErrorCode.NONE:
            self._round_refused(code, "join", now, effects)
        elif response.protocol_name not in self._assignors:
            self._fail(
                error_for(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"join group {self.config.group_id!r}",
                    f"it uses {response.protocol_name!r}",
                ),
                effects,
            )
        else:
            self._join_backoff.succeeded()
            self.member_id, self.generation = response.member_id, response.generation_id
            self._protocol = response.protocol_name
            self.leading = Leadership(response) if response.leader == response.member_id else None
            self._sync_sent = False
            self._beat_at = now + self.config.heartbeat_interval
            self._go(MemberState.SYNCING)
            fields = {"generation": self.generation, "member": self.member_id, "leads": self.leads}
            effects.append(Note("joined the group", fields))
            if self.leading is not None:
                effects += self.leading.notes
                self._round = self._ticket()
                effects.append(AskCluster(self._round, self.leading.topics))
            else:
                self._sync([], effects)

    def _sync(self, blobs: list[SyncGroupRequestAssignment], effects: list[Effect]) -> None:
        request = sync_request(self.config, self.member_id, self.generation, self._protocol, blobs)
        self._sync_sent = True
        self._round = self._send(request, effects, timeout=self.config.round_timeout)

    def _synced(self, response: SyncGroupResponse, now: float, effects: list[Effect]) -> None:
        code = ErrorCode.of(response.error_code)
        if code != ErrorCode.NONE:
            self._round_refused(code, "sync with", now, effects)
            return
        try:
            assigned = frozenset(decode_assignment(response.assignment))
        except DecodeError as error:
            self._fail(
                KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"the leader of group {self.config.group_id!r} sent no assignment: {error}",
                ),
                effects,
            )
            return
        self._go(MemberState.STABLE)
        self._rejoin, self._released = None, False
        self._join_backoff.succeeded()
        self._session_at = now + self.config.session_timeout
        self._beat_at = now + self.config.heartbeat_interval
        revoked, added = self.owned - assigned, assigned - self.owned
        if revoked:
            # Only in cooperative rebalancing is anything still owned here (KIP-429).
            effects.append(Revoke(self._ticket(), revoked, lost=False, generation=self.generation))
            self._request_rejoin("partitions were given up for other members", effects)
        self.owned = assigned
        effects += tell_assignor(self._assignors[self._protocol or ""], assigned, self.generation)
        effects.append(Assign(assigned, added, self.generation))
        if self._joined_topics != self.topics or any(tp.topic not in self._joined_topics for tp in assigned):
            self._request_rejoin("the subscription changed during the rebalance", effects)

    def _heartbeat(self, code: ErrorCode, now: float, effects: list[Effect]) -> None:
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._session_at = now + self.config.session_timeout
            self._heartbeats += 1
            self._heartbeat_at = now
        if code == ErrorCode.NONE or self.state is not MemberState.STABLE:
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._request_rejoin("the group is rebalancing", effects)
        elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._lose_coordinator(f"a heartbeat was answered {code.name}", now, effects)
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._lose_membership(code, effects)
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fail(fenced(self.config), effects)
        elif not code.retriable:
            self._fail(error_for(code, f"heartbeat to group {self.config.group_id!r}"), effects)

    def _round_refused(self, code: ErrorCode, what: str, now: float, effects: list[Effect]) -> None:
        """JoinGroup or SyncGroup was answered with an error: start the round again, or give up."""
        self._back()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._lose_membership(code, effects)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            effects.append(Note("the group rebalances again", {"after": what}))
        elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._lose_coordinator(f"answered {code.name}", now, effects)
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fail(fenced(self.config), effects)
        elif not code.retriable:
            self._fail(error_for(code, f"{what} group {self.config.group_id!r}"), effects)
        self._pause(code, now)

    def _pause(self, code: ErrorCode, now: float) -> None:
        """Before the next attempt to join; the first one of those that need none comes at once."""
        first = self._join_backoff.failures == 0
        pause = self._join_backoff.failed()
        self._join_at = now if first and code in _AT_ONCE else now + pause

    # Falling back.

    def _request_rejoin(self, reason: str, effects: list[Effect]) -> None:
        if self._rejoin is None:
            self._rejoin = reason
            effects.append(Note("must rejoin the group", {"generation": self.generation, "reason": reason}))

    def _back(self) -> None:
        """Out of a round that will not end: the next one is due, and what was given up stays given up."""
        self._round = None
        if self.state in (MemberState.JOINING, MemberState.SYNCING):
            self._go(MemberState.UNJOINED)
        self._rejoin = self._rejoin or "the last attempt did not succeed"

    def _lose_coordinator(self, reason: str, now: float, effects: list[Effect]) -> None:
        """Keep the membership and what is owned; look for the coordinator."""
        gone, self.coordinator = self.coordinator, None
        if self._round is not None:
            self._back()
        self._beating = None
        if gone is not None:
            effects.append(Disconnect(gone, reason))
            effects.append(Note("lost the coordinator", {"node": gone.node_id, "reason": reason}))
        self._find_at = max(self._find_at, now + self._find_backoff.failed())

    def _lose_membership(self, code: ErrorCode, effects: list[Effect]) -> None:
        """The coordinator knows no such member or generation: others may have the partitions already."""
        effects.append(Note("lost the membership", {"generation": self.generation, "reason": code.name}, warns=True))
        keep_id = code == ErrorCode.ILLEGAL_GENERATION
        member_id = self.member_id
        self._reset()
        self.member_id = member_id if keep_id else ""
        self._round = self._beating = None
        if self.state is not MemberState.UNJOINED:
            self._go(MemberState.UNJOINED)
        self._rejoin = f"the coordinator answered {code.name}"
        if self.owned:
            self._released, self._releasing = False, None  # what is still held must be given up as lost

    def _leave_for_silence(self, effects: list[Effect]) -> None:
        reason = f"the program did not poll for max_poll_interval_ms ({round(self.config.max_poll_interval * 1000)} ms)"
        effects.append(
            Note(f"leaving the group: {reason}. Raise it, lower max_poll_records, or process faster", warns=True)
        )
        self._send_leave(reason, effects)
        self._reset()
        self._round = self._beating = None
        self._go(MemberState.UNJOINED)
        self._rejoin, self._released, self._releasing = reason, False, None

    def _send_leave(self, reason: str, effects: list[Effect]) -> None:
        if self.member_id and self.config.instance_id is None and self.coordinator is not None:
            self._send(leave_request(self.config, self.member_id, reason), effects)

    def _reset(self) -> None:
        self.member_id, self.generation, self.leading, self._protocol = "", NO_GENERATION, None, None

    def _fail(self, error: KafkaError, effects: list[Effect]) -> None:
        self.error = error
        self._reset()
        self._round = self._beating = self._finding = self._releasing = None
        self._released = False
        lost, self.owned = self.owned, _NONE
        self._go(MemberState.FAILED)
        if lost:
            effects.append(Revoke(self._ticket(), lost, lost=True, generation=NO_GENERATION))
        effects.append(Fail(error))

    # Small things.

    def _go(self, state: MemberState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"no way from {self.state.name} to {state.name}")
        self.state = state

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def _send(
        self, request: Request, effects: list[Effect], *, to_coordinator: bool = True, timeout: float | None = None
    ) -> int:
        ticket = self._ticket()
        to = self.coordinator if to_coordinator else None
        effects.append(Send(ticket, request, to, self.config.request_timeout if timeout is None else timeout))
        return ticket


#: The request cannot be sent, today or tomorrow.
_HOPELESS = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST)
#: After these a round starts again without a pause, as in Kafka's ``joinGroupIfNeeded``.
_AT_ONCE = (
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
