"""The state machine of a classic group, with a clock that tests move and requests with short arguments."""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from barnabas_broker.groups.classic.group import ClassicGroup, GroupSettings
from barnabas_broker.groups.classic.states import ClassicGroupState
from barnabas_broker.groups.effects import Caller, Persist, Reply
from barnabas_explain.catalog import GroupEvent
from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.leave_group import MemberIdentity
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

RANGE = (("range", b"topics"),)


def value_of(persist: Persist) -> GroupMetadataValue:
    """The record of the group itself, which comes after those that delete the group that it was."""
    _, value = persist.records[-1]
    assert isinstance(value, GroupMetadataValue)
    return value


@dataclass
class Machine:
    """A group, the time, and the effects of the group so far.

    Attributes:
        hold: whether appends wait in `persists` for :meth:`persisted`, instead of succeeding at once.
        answers: the last response by token.
        persists: the appends without a result.
        events: the group events.
    """

    max_size: int = 2**31 - 1
    initial_delay: float = 3.0
    hold: bool = False
    now: float = 100.0
    answers: dict[str, Any] = field(default_factory=dict)
    persists: list[Persist] = field(default_factory=list)
    events: list[GroupEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        ids = count(1)
        settings = GroupSettings(
            new_id=lambda: f"id{next(ids)}", initial_delay=self.initial_delay, max_size=self.max_size
        )
        self.settings = settings
        self.group = ClassicGroup("g", settings, self.now)

    # Requests and time

    def join(
        self,
        token: str,
        member_id: str = "",
        *,
        instance: str | None = None,
        version: int = 9,
        session: int = 10_000,
        rebalance: int = 60_000,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        client: str = "client",
    ) -> JoinGroupResponse | None:
        """Send a JoinGroup; its response, or None if that is deferred."""
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance if version >= 1 else -1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        self.answers.pop(token, None)
        self.apply(self.group.join(request, version, Caller(client, "/127.0.0.1"), token, self.now))
        return self.answers.get(token)

    def sync(
        self,
        token: str,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> SyncGroupResponse | None:
        """Send a SyncGroup; its response, or None if that is deferred."""
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assigned)
                for name, assigned in (assignments or {}).items()
            ],
        )
        self.answers.pop(token, None)
        self.apply(self.group.sync(request, token, self.now))
        return self.answers.get(token)

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        """Send a Heartbeat, by default of the current generation."""
        at = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance, at, self.now)

    def commit(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        """Check an OffsetCommit."""
        return self.group.check_commit(member_id, instance, generation, self.now)

    def leave(self, *members: str, instance: str | None = None, reason: str | None = None) -> list[ErrorCode]:
        """Send a LeaveGroup."""
        identities = [MemberIdentity(member_id=each, group_instance_id=instance, reason=reason) for each in members]
        codes, effects = self.group.leave(identities, self.now)
        self.apply(effects)
        return codes

    def persisted(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Report the result of the oldest append."""
        self.apply(self.group.persisted(self.persists.pop(0).ticket, error, self.now))

    def delayed(self) -> None:
        """Report that the oldest append takes long."""
        self.apply(self.group.persist_delayed(self.persists[0].ticket, self.now))

    def after(self, seconds: float) -> None:
        """Move the clock, and stop at every deadline."""
        end = self.now + seconds
        while self.group.next_deadline() <= end:
            self.now = max(self.now, self.group.next_deadline())
            self.apply(self.group.tick(self.now))
        self.now = end

    # Effects

    def apply(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self.answers, f"{effect.token} is answered twice"
                self.answers[str(effect.token)] = effect.response
            elif isinstance(effect, Persist):
                self.persists.append(effect)
            else:
                self.events.append(effect)
        while self.persists and not self.hold:
            self.persisted()

    def error(self, token: str) -> ErrorCode:
        """The error code of a response."""
        return ErrorCode(self.answers[token].error_code)

    @property
    def state(self) -> ClassicGroupState:
        return self.group.state

    def event_types(self) -> list[type[GroupEvent]]:
        return [type(event) for event in self.events]

    # Several steps

    def enter(self, token: str, **options: Any) -> str:
        """Join as a new dynamic member, in both steps (KIP-394); its member id."""
        answer = self.join(token, **options)
        assert answer is not None
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        self.join(token, answer.member_id, **options)
        return answer.member_id

    def stable(self, *names: str, static: tuple[str, ...] = (), **options: Any) -> list[str]:
        """Make the group Stable, with dynamic members `names` and static members `static`; their member ids."""
        ids = [self.enter(name, **options) for name in names]
        for name in static:
            self.join(name, instance=name, **options)
        self.after(self.initial_delay)
        while self.state is not ClassicGroupState.COMPLETING_REBALANCE:
            self.after(self.initial_delay or 1.0)
        ids += [self.answers[name].member_id for name in static]
        self.settle(*ids)
        return ids

    def settle(self, *ids: str) -> None:
        """All members sync; the leader assigns `assignment of <member id>` to each."""
        leader = self.group.members.leader
        for member_id in ids:
            assignments = {each: f"assignment of {each}".encode() for each in ids} if member_id == leader else None
            self.sync(f"sync {member_id}", member_id, assignments=assignments)
        assert self.state is ClassicGroupState.STABLE
