"""A member of a classic consumer group as a pure state machine.

The machine finds the coordinator, joins, computes the assignment if it is the leader, syncs, sends heartbeats, and
starts over when it has to. It reads no clock and does no I/O: events come in with the time `now`, in seconds of any
clock, and each returns the effects (:mod:`barnabas_client.membership.effects`) that its shell carries out. The shell is
:mod:`barnabas_client.membership.thread`, or a simulation:

- :class:`Send` a request, then call :meth:`ClassicMember.answered` or :meth:`ClassicMember.failed` with its ticket.
- :class:`Revoke` partitions: wait until the program polls, commit, call its rebalance listener, then call
  :meth:`ClassicMember.revoked`. Each rebalance begins with one, even without partitions: the program has then processed
  what it was given (in Kafka's consumer, rebalances happen inside of ``poll``), and a program that does not poll does
  not rejoin. The first one does not if the program waits for it in its start.
- :class:`Assign` partitions: they are owned by this member now.
- :class:`CountPartitions`: the leader needs partition counts; then call :meth:`ClassicMember.counted`.
- :class:`Disconnect`, :class:`Fail`, :class:`Note`.

The state, the coordinator, and the events that concern no protocol are those of :attr:`ClassicMember.standing`
(:mod:`barnabas_client.membership.standing`): the shell keeps one timer, at its `next_deadline`, for its `tick`.
Responses to anything but the current request of a kind are ignored. Eager and cooperative rebalancing (KIP-429) differ
in which partitions are revoked, and whether before the join or after the sync. Sources: ``AbstractCoordinator.java``,
``ConsumerCoordinator.java``; KIP-62, 345, 394, 429, 814.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas_client.assignors import Assignor, MemberSubscription, PartitionCounts, RebalanceProtocol
from barnabas_client.errors import error_for
from barnabas_client.membership.effects import (
    Assign,
    CountPartitions,
    Disconnect,
    Effect,
    Note,
    Revoke,
)
from barnabas_client.membership.member import NO_GENERATION, CommitIdentity, MemberConfig, MemberState, MemberView
from barnabas_client.membership.member_data import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas_client.membership.search import COORDINATOR_GONE, HOPELESS
from barnabas_client.membership.standing import Standing, Step
from barnabas_client.structs import TopicPartition
from barnabas_protocol.backoff import Backoff, Jitter, no_jitter
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas_protocol.schema import Response

TRANSITIONS: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    MemberState.UNJOINED: frozenset({MemberState.UNJOINED, MemberState.JOINING, MemberState.FAILED}),
    MemberState.JOINING: frozenset({MemberState.SYNCING, MemberState.UNJOINED, MemberState.FAILED}),
    MemberState.SYNCING: frozenset({MemberState.STABLE, MemberState.UNJOINED, MemberState.FAILED}),
    MemberState.STABLE: frozenset({MemberState.JOINING, MemberState.UNJOINED, MemberState.FAILED}),
    MemberState.FAILED: frozenset({MemberState.UNJOINED, MemberState.FAILED}),
}

_NONE: Final = frozenset[TopicPartition]()
#: After these errors the first attempt to rejoin comes without a pause, as in Kafka's ``joinGroupIfNeeded``.
_REJOIN_AT_ONCE: Final = (
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


class Leadership:
    """Knowledge of the leader of one generation: the subscriptions of all members, and the partition counts that its
    assignment was computed for.

    Args:
        response: the JoinGroup response that made this member the leader.
    """

    def __init__(self, response: JoinGroupResponse) -> None:
        self._members: dict[str, MemberSubscription] = {}
        #: Warnings about subscriptions that cannot be decoded.
        self.notes: list[Note] = []
        for member in response.members:
            try:
                subscription = decode_subscription(member.metadata, member.group_instance_id)
            except DecodeError as error:
                # One broken member must not stop the group: it gets no partitions.
                subscription = MemberSubscription(())
                fields = {"member": member.member_id, "reason": str(error)}
                self.notes.append(Note("a member's subscription cannot be decoded", fields, warns=True))
            self._members[member.member_id] = subscription
        #: The topics of all members.
        self.topics: Final = frozenset(topic for member in self._members.values() for topic in member.topics)
        self._with_racks = any(member.rack for member in self._members.values())
        self._skip = response.skip_assignment
        self._counts = PartitionCounts({})

    def assign(self, counts: Mapping[str, int], assignor: Assignor) -> list[SyncGroupRequestAssignment]:
        """Compute the assignment for the leader's SyncGroup. If the coordinator asked to skip it (KIP-814), it is
        empty.

        Raises:
            KafkaError: the assignor raised, or returned something else than an assignment.
        """
        self._counts = self._relevant(counts)
        if self._skip:
            return []
        try:
            assigned = assignor.assign(self._counts, self._members)
            return [
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(assigned.get(member, ())))
                for member in self._members
            ]
        except Exception as error:
            raise _assignor_raised(assignor, error) from error

    def changed(self, counts: Mapping[str, int]) -> list[str]:
        """The topics whose partitions differ from those that the assignment was computed for."""
        return sorted(self._relevant(counts).changed(self._counts))

    def _relevant(self, counts: Mapping[str, int]) -> PartitionCounts:
        """The counts that determine the assignment, with racks only if a member has a rack (KIP-881)."""
        return PartitionCounts.of(counts, self.topics, with_racks=self._with_racks)


class ClassicMember:
    """One member.

    Args:
        config: names and timeouts.
        assignors: in order of preference.
        jitter: for back-offs.
    """

    def __init__(self, config: MemberConfig, assignors: Sequence[Assignor], jitter: Jitter = no_jitter) -> None:
        self.config = config
        self.member_id = ""
        self.generation = NO_GENERATION
        #: None unless this member is the leader.
        self.leadership: Leadership | None = None
        self.topics: frozenset[str] | None = None
        self.owned: frozenset[TopicPartition] = _NONE
        self._assignors = {assignor.name: assignor for assignor in assignors}
        common = frozenset.intersection(*(assignor.protocols for assignor in assignors))
        self.cooperative = RebalanceProtocol.COOPERATIVE in common
        self._protocol: str | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._rejoin_reason: str | None = None  # a rebalance is due, for this reason
        self._may_join = False  # the revocation before the join is done
        # Tickets of what is in flight: one request of a kind at a time.
        self._joining: int | None = None  # JoinGroup, CountPartitions or SyncGroup
        self._revoking: int | None = None
        self._beating: int | None = None
        self._sync_sent = False
        self.standing = Standing(config, TRANSITIONS, self._is_subscribed, self._obstacle, self._fail, jitter)
        self._out, self._search = self.standing.out, self.standing.search
        self._join_backoff = Backoff(config.retry_backoff, config.retry_backoff_max, jitter)
        self._join_at = self._beat_at = self._session_at = 0.0
        self.standing.steps = (
            Step(self.standing.watch),
            Step(self.standing.warn, self.standing.warning_due),
            Step(self._leave_without_polls, self.standing.poll_due),
            Step(self._expire, self._session_due),
            Step(self._search.ask, self._search.due),
            Step(self._revoke),
            Step(self._join, self._join_due),
            Step(self._beat, self._beat_due),
        )

    # Events.

    def subscribe(self, topics: Iterable[str], now: float, *, waits: bool = False) -> list[Effect]:
        """Become a member that reads `topics`, or change them. Also leads out of FAILED.

        Args:
            topics: their names.
            now: the time.
            waits: whether the program owns nothing, and waits for its first assignment.
        """
        if waits and self._revoking is None:
            self._may_join = True
        before, self.topics = self.topics, frozenset(topics)
        if self.standing.retry() or before is None:
            self.standing.allow(now)
            self._rejoin_reason = "the subscription is new"
        elif before != self.topics:
            self._rejoin_reason = "the subscription changed"
        return self.standing.tick(now)

    def revoked(self, ticket: int, now: float) -> list[Effect]:
        """A :class:`Revoke` is done, so the program has polled."""
        if ticket != self._revoking:
            return []
        self.standing.allow(now)
        self._revoking = None
        self._may_join = True
        return self.standing.tick(now)

    def metadata_changed(self, counts: Mapping[str, int], now: float) -> list[Effect]:
        """The topics have these partition counts: a leader that assigned other partitions rejoins."""
        if self.leadership is not None and self.standing.state is MemberState.STABLE and self._rejoin_reason is None:
            changed = self.leadership.changed(counts)
            if changed:
                self._request_rejoin(f"partitions of {', '.join(changed)} changed")
        return self.standing.tick(now)

    def counted(self, ticket: int, counts: Mapping[str, int], now: float) -> list[Effect]:
        """A :class:`CountPartitions` is done; topics that do not exist are missing from `counts`."""
        if ticket == self._joining and self.standing.state is MemberState.SYNCING and self.leadership is not None:
            try:
                assignments = self.leadership.assign(counts, self._assignors[self._protocol or ""])
            except KafkaError as error:
                self._fail(error)
            else:
                self._sync(assignments)
        return self.standing.tick(now)

    def answered(self, ticket: int, response: Response, now: float) -> list[Effect]:
        """The response to a :class:`Send` has come."""
        if self.standing.answered(ticket, response, now):
            self._beat_at = min(self._beat_at, now)
            self._session_at = max(self._session_at, now + self.config.session_timeout)
        elif ticket == self._beating and isinstance(response, HeartbeatResponse):
            self._beating = None
            self._heartbeat(ErrorCode.of(response.error_code), now)
        elif ticket == self._joining and isinstance(response, JoinGroupResponse):
            self._joining = None
            self._joined(response, now)
        elif ticket == self._joining and isinstance(response, SyncGroupResponse):
            self._joining = None
            self._synced(response, now)
        return self.standing.tick(now)

    def failed(self, ticket: int, error: KafkaError, now: float) -> list[Effect]:
        """A :class:`Send` got no response: the connection broke, or the timeout expired."""
        self.standing.failed(ticket, error, now)
        if ticket in (self._beating, self._joining):
            if error.code in HOPELESS:
                self._fail(error)
            else:
                self._lose_coordinator(str(error), now)
        return self.standing.tick(now)

    def coordinator_lost(self, reason: str, now: float) -> list[Effect]:
        """A request that this machine did not send, such as a commit, found that the coordinator is gone or has
        moved."""
        self._lose_coordinator(reason, now)
        return self.standing.tick(now)

    def commit_refused(self, code: ErrorCode, generation: int, now: float) -> list[Effect]:
        """A commit with this generation was answered with `code`, which may concern the membership."""
        if code in COORDINATOR_GONE:
            self._lose_coordinator(f"a commit was answered {code.name}", now)
        elif NO_GENERATION != generation == self.generation and self.standing.state is not MemberState.JOINING:
            # In JOINING the generation may have ended with the response that is on its way; the join itself will tell.
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self._fail(self.config.fenced())
            elif code == ErrorCode.REBALANCE_IN_PROGRESS and self.standing.state is MemberState.STABLE:
                self._request_rejoin("a commit was answered REBALANCE_IN_PROGRESS")
            elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self._lose_membership(code)
        return self.standing.tick(now)

    def rejoin(self, reason: str, now: float) -> list[Effect]:
        """Start a rebalance because the program asked for one (KIP-568)."""
        if self.standing.state is MemberState.STABLE:
            self._request_rejoin(reason)
        return self.standing.tick(now)

    def leave(self, reason: str, now: float) -> list[Effect]:
        """Leave the group until the next :meth:`subscribe`. Static members send no LeaveGroup (KIP-345)."""
        state, coordinator = self.standing.state, self._search.coordinator
        waits = state is MemberState.JOINING or (state is MemberState.SYNCING and self._sync_sent)
        if waits and coordinator is not None:
            # The coordinator reads no LeaveGroup behind a request that waits for other members.
            self._out.put(Disconnect(coordinator, "the member is leaving"))
        self._send_leave(reason)
        self._reset()
        self.topics, self._rejoin_reason, self.owned = None, None, _NONE
        self._joining = self._beating = self._revoking = None
        self._may_join = False
        if state is not MemberState.FAILED:
            self.standing.to(MemberState.UNJOINED)
        return self._out.take()

    # What the shell reads.

    @property
    def is_leader(self) -> bool:
        """Whether this member computes the assignment."""
        return self.leadership is not None

    def view(self) -> MemberView:
        """A snapshot."""
        return self.standing.view(self.generation, self.member_id, leads=self.is_leader)

    def _obstacle(self) -> str:
        """Why this member has no assignment, although the coordinator is known."""
        if self.standing.state is MemberState.JOINING:
            return "the coordinator has not answered JoinGroup, it waits until all members have joined"
        if self.standing.state is MemberState.SYNCING:
            return "the coordinator has not answered SyncGroup, it waits for the assignment by the leader"
        return "the coordinator refuses the member" if self._revoking is None else "the program has not polled"

    def commit_identity(self) -> CommitIdentity:
        """The identity that this member's commits carry; see :meth:`MemberView.commit_identity`."""
        return self.view().commit_identity()

    # Progress.

    def _is_subscribed(self) -> bool:
        return self.topics is not None

    def _session_due(self) -> float | None:
        stable = self.standing.state is MemberState.STABLE
        return self._session_at if stable and self._search.coordinator is not None else None

    def _expire(self, now: float) -> None:
        self._lose_coordinator("the session timed out without an answer to a heartbeat", now)
        self._session_at = now + self.config.session_timeout

    def _rebalance_due(self) -> bool:
        return (
            self._rejoin_reason is not None
            and self.topics is not None
            and self._search.coordinator is not None
            and self.standing.state in (MemberState.UNJOINED, MemberState.STABLE)
        )

    def _join_due(self) -> float | None:
        return self._join_at if self._may_join and self._rebalance_due() else None

    def _beat_due(self) -> float | None:
        if self._beating is not None or self._search.coordinator is None:
            return None
        state = self.standing.state
        # A heartbeat behind a SyncGroup that waits for the leader would only wait as well.
        beats = state is MemberState.STABLE or (state is MemberState.SYNCING and not self._sync_sent)
        return self._beat_at if beats else None

    def _revoke(self, _: float) -> None:
        """Start a rebalance that is due: revoke the partitions that this member does not keep during it."""
        if not self._rebalance_due() or self._may_join or self._revoking is not None:
            return
        lost = self.generation == NO_GENERATION or not self.member_id
        if lost or not self.cooperative:
            revoked = self.owned
        else:
            revoked = frozenset(tp for tp in self.owned if tp.topic not in (self.topics or ()))
        self.owned -= revoked
        self._revoking = self._out.ticket()
        self._out.put(Revoke(self._revoking, revoked, lost=lost, generation=self.generation))

    def _join(self, _: float) -> None:
        self._joined_topics = self.topics or frozenset()
        subscription = MemberSubscription(
            topics=tuple(sorted(self._joined_topics)),
            owned=tuple(sorted(self.owned)),
            generation=self.generation,
            rack=self.config.rack,
        )
        try:
            request = self._join_request(subscription)
        except KafkaError as error:
            self._fail(error)
            return
        self._out.note("joining the group", member=self.member_id, reason=self._rejoin_reason or "")
        self.standing.to(MemberState.JOINING)
        self._beating = None
        self._joining = self._out.send(request, self._search.coordinator, self.config.join_timeout)

    def _beat(self, now: float) -> None:
        request = HeartbeatRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
        )
        self._beating = self._out.send(request, self._search.coordinator, self.config.request_timeout)
        self._beat_at = now + self.config.heartbeat_interval

    # Responses.

    def _joined(self, response: JoinGroupResponse, now: float) -> None:
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            expected, self.member_id = not self.member_id and bool(response.member_id), response.member_id
            self._restart_join()
            if expected:
                self._join_at = now
            else:
                self._back_off_join(code, now)
        elif code != ErrorCode.NONE:
            self._join_refused(code, "join", now)
        elif response.protocol_name not in self._assignors:
            self._fail(
                error_for(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"join group {self.config.group_id!r}",
                    f"it uses {response.protocol_name!r}",
                )
            )
        else:
            self.member_id, self.generation = response.member_id, response.generation_id
            self._protocol = response.protocol_name
            self.leadership = Leadership(response) if response.leader == response.member_id else None
            self._sync_sent = False
            self._beat_at = now + self.config.heartbeat_interval
            self.standing.to(MemberState.SYNCING)
            self._out.note("joined the group", generation=self.generation, member=self.member_id, leader=self.is_leader)
            if self.leadership is not None:
                for note in self.leadership.notes:
                    self._out.put(note)
                self._joining = self._out.ticket()
                self._out.put(CountPartitions(self._joining, self.leadership.topics))
            else:
                self._sync([])

    def _sync(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        """Send SyncGroup, with the assignment if this member is the leader."""
        request = SyncGroupRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=assignments,
        )
        self._sync_sent = True
        self._joining = self._out.send(request, self._search.coordinator, self.config.join_timeout)

    def _synced(self, response: SyncGroupResponse, now: float) -> None:
        code = ErrorCode.of(response.error_code)
        if code != ErrorCode.NONE:
            self._join_refused(code, "sync with", now)
            return
        try:
            assigned = frozenset(decode_assignment(response.assignment))
        except DecodeError as error:
            message = f"the assignment from the leader of group {self.config.group_id!r} cannot be decoded: {error}"
            self._fail(KafkaError(ErrorCode.INVALID_REQUEST, message))
            return
        self.standing.to(MemberState.STABLE)
        self.standing.last_error = ""
        self._rejoin_reason, self._may_join = None, False
        self._session_at = now + self.config.session_timeout
        self._beat_at = now + self.config.heartbeat_interval
        revoked, added = self.owned - assigned, assigned - self.owned
        if revoked:
            # Only cooperative members still own partitions here (KIP-429).
            self._out.put(Revoke(self._out.ticket(), revoked, lost=False, generation=self.generation))
            self._request_rejoin("partitions were revoked for other members")
        self.owned = assigned
        self._notify_assignor(assigned)
        self._out.put(Assign(assigned, added, self.generation))
        if any(tp.topic not in self._joined_topics for tp in assigned):
            self._request_rejoin("the leader assigned topics that are not subscribed to")
            self._join_at = now + self._join_backoff.failed()
        elif self._joined_topics != self.topics:
            self._request_rejoin("the subscription changed during the rebalance")

    def _heartbeat(self, code: ErrorCode, now: float) -> None:
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._session_at = now + self.config.session_timeout
            self.standing.beaten(now)
        if self.standing.state is not MemberState.STABLE:
            return
        if code == ErrorCode.NONE:
            self._join_backoff.succeeded()  # only now: a join that succeeds may be followed by a sync that never does
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._request_rejoin("the group is rebalancing")
        else:
            self._refused(code, "heartbeat to", f"a heartbeat was answered {code.name}", now)

    def _join_refused(self, code: ErrorCode, what: str, now: float) -> None:
        """JoinGroup or SyncGroup was answered with an error: start over, or give up."""
        self.standing.last_error = f"{code.name} to {what} the group"
        self._restart_join()
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._out.note("the group is rebalancing again", during=what)
        else:
            self._refused(code, what, f"answered {code.name}", now)
        self._back_off_join(code, now)

    def _refused(self, code: ErrorCode, what: str, reason: str, now: float) -> None:
        """A request was answered with an error that ends the membership, or the use of this coordinator, or neither."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._lose_membership(code)
        elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._lose_coordinator(reason, now)
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fail(self.config.fenced())
        elif not code.retriable:
            self._fail(error_for(code, f"{what} group {self.config.group_id!r}"))

    def _back_off_join(self, code: ErrorCode, now: float) -> None:
        """Set the time of the next attempt to join."""
        first = self._join_backoff.failures == 0
        pause = self._join_backoff.failed()
        self._join_at = now if first and code in _REJOIN_AT_ONCE else now + pause

    # Back to an earlier state.

    def _request_rejoin(self, reason: str) -> None:
        if self._rejoin_reason is None:
            self._rejoin_reason = reason
            self._out.note("must rejoin the group", generation=self.generation, reason=reason)

    def _restart_join(self) -> None:
        """Drop a join that will not complete; another one is due. What was revoked stays revoked."""
        self._joining = None
        if self.standing.state in (MemberState.JOINING, MemberState.SYNCING):
            self.standing.to(MemberState.UNJOINED)
        self._rejoin_reason = self._rejoin_reason or "the last attempt did not succeed"

    def _lose_coordinator(self, reason: str, now: float) -> None:
        """Look for the coordinator again. The membership and the owned partitions stay."""
        self.standing.last_error = reason
        if self._joining is not None:
            self._restart_join()
        self._beating = None
        self._search.lose(reason, now)

    def _lose_membership(self, code: ErrorCode) -> None:
        """The coordinator does not know this member or generation: other members may own the partitions already."""
        self._out.warn("lost the membership", generation=self.generation, reason=code.name)
        keep_id = code == ErrorCode.ILLEGAL_GENERATION
        member_id = self.member_id
        self._reset()
        self.member_id = member_id if keep_id else ""
        self._joining = self._beating = None
        if self.standing.state is not MemberState.UNJOINED:
            self.standing.to(MemberState.UNJOINED)
        self._rejoin_reason = f"the coordinator answered {code.name}"
        if self.owned:
            self._may_join, self._revoking = False, None  # what is still owned must be revoked as lost

    def _leave_without_polls(self, _: float) -> None:
        """The program has not polled for `max_poll_interval_ms`."""
        reason = self.standing.poll_overdue()
        self._send_leave(reason)
        self._reset()
        self._joining = self._beating = None
        self.standing.to(MemberState.UNJOINED)
        self._rejoin_reason, self._may_join, self._revoking = reason, False, None

    def _send_leave(self, reason: str) -> None:
        """Send LeaveGroup, with a reason that the coordinator logs (KIP-800)."""
        if self.member_id and self.config.instance_id is None and self._search.coordinator is not None:
            identity = MemberIdentity(member_id=self.member_id, group_instance_id=None, reason=reason)
            request = LeaveGroupRequest(group_id=self.config.group_id, members=[identity])
            self._out.send(request, self._search.coordinator, self.config.request_timeout)

    def _reset(self) -> None:
        self.member_id, self.generation, self.leadership, self._protocol = "", NO_GENERATION, None, None

    def _fail(self, error: KafkaError) -> None:
        self._reset()
        self._joining = self._beating = self._revoking = None
        self._may_join = False
        lost, self.owned = self.owned, _NONE
        if lost:
            self._out.put(Revoke(self._out.ticket(), lost, lost=True, generation=NO_GENERATION))
        self.standing.fail(error)

    # Requests and assignors.

    def _join_request(self, subscription: MemberSubscription) -> JoinGroupRequest:
        """Join with `subscription` under the name of each assignor, the preferred one first.

        Raises:
            KafkaError: an assignor raised, or returned something else than user data.
        """
        protocols: list[JoinGroupRequestProtocol] = []
        metadata = b""
        for assignor in self._assignors.values():
            try:
                user_data = assignor.user_data(subscription.topics)
                if not protocols or user_data != subscription.user_data:
                    subscription = subscription._replace(user_data=user_data)
                    metadata = encode_subscription(subscription)
            except Exception as error:
                raise _assignor_raised(assignor, error) from error
            protocols.append(JoinGroupRequestProtocol(name=assignor.name, metadata=metadata))
        return JoinGroupRequest(
            group_id=self.config.group_id,
            session_timeout_ms=round(self.config.session_timeout * 1000),
            rebalance_timeout_ms=round(self.config.rebalance_timeout * 1000),
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=self._rejoin_reason,
        )

    def _notify_assignor(self, assigned: Iterable[TopicPartition]) -> None:
        assignor = self._assignors[self._protocol or ""]
        try:
            assignor.assigned(tuple(sorted(assigned)), self.generation)
        except Exception as error:
            self._out.warn(str(_assignor_raised(assignor, error)))


def _assignor_raised(assignor: Assignor, error: Exception) -> KafkaError:
    """An assignor may be the user's code: the program must see whatever it raises."""
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"assignor {assignor.name!r} raised {type(error).__name__}: {error}. To do: repair it and subscribe again",
    )
