"""How a rebalance goes: preparing, the join phase, the sync phase; and who is late. Pure.

Source: Kafka's ``GroupMetadataManager`` (4.x): prepareRebalance, completeClassicGroupJoin, expirePendingSync and their
like. KIP-134 (initial delay), KIP-345.
"""

from math import inf
from typing import Any, Final

from barnabas_broker.groups.classic.core import COMPLETING, EMPTY, PREPARING, SLOW, STABLE, Assigning, GroupCore
from barnabas_broker.groups.classic.members import Member
from barnabas_broker.groups.classic.responses import current_generation, own_share, sync_error
from barnabas_broker.groups.effects import Effect, Kind, Reply
from barnabas_protocol.errors import ErrorCode

#: Seconds between two looks at members to be: a flood of them must not cost a look each.
_PENDING_GRAIN: Final = 0.5


class Phases(GroupCore):
    """The ways from one generation to the next."""

    __slots__ = ()

    def rebalance(self, reason: str, cause: Kind, now: float, **data: Any) -> list[Effect]:
        """Start a rebalance that no member asked for, where one can be started."""
        out: list[Effect] = []
        if self.state in (STABLE, COMPLETING):
            self._prepare(reason, cause, [], out, now, **data)
        return out

    def _prepare_or_complete(self, reason: str, cause: Kind, member: Member, out: list[Effect], now: float) -> None:
        if self.state is PREPARING:
            self._complete_if_joined(out, now)
        else:
            self._prepare(reason, cause, [member], out, now)

    def _prepare(self, reason: str, cause: Kind, by: list[Member], out: list[Effect], now: float, **data: Any) -> None:
        """Start a rebalance."""
        members = self.members
        if self.state is COMPLETING:
            for member in members:
                member.assignment = b""
                self._answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS), out, now)
        members.unsynced.clear()
        self._sync_at = inf
        first = self.state is EMPTY
        self._transition(PREPARING, now)
        self._began = now
        causes = [member.who() for member in by]
        out.append(self._note(Kind.REBALANCE_STARTED, reason=reason, cause=cause.value, by=causes, **data))
        if first:
            # An empty group gives more members the time to come (KIP-134).
            self._newcomer = False
            self._initial_delay = self._settings.initial_delay
            self._initial_left = max(members.rebalance - self._initial_delay, 0.0)
            self._join_at = now + self._initial_delay
        elif members.all_joined:
            self._complete(out, now)
        else:
            self._join_at = now + members.rebalance

    def _complete_if_joined(self, out: list[Effect], now: float) -> None:
        """End the join phase if nobody has to be waited for; the first one after Empty never ends early (rule 8)."""
        if self.state is PREPARING and self._previous is not EMPTY and self.members.all_joined:
            self._complete(out, now)

    def _join_phase_over(self, out: list[Effect], now: float) -> None:
        if self._previous is EMPTY and self._newcomer and self._initial_left > 0:
            self._newcomer = False
            before = self._initial_delay
            self._initial_delay = min(self._settings.initial_delay, self._initial_left)
            self._initial_left = max(self._initial_left - before, 0.0)
            self._join_at = now + self._initial_delay
        else:
            self._complete(out, now)

    def _complete(self, out: list[Effect], now: float) -> None:
        """End the join phase: the next generation is who has joined (rules 10 and 17)."""
        members = self.members
        self._join_at = inf
        waited = now - self._began
        for member in [each for each in members if each.join_token is None and each.instance_id is None]:
            members.remove(member.member_id)
            heard = now - member.heard
            out.append(self._note(Kind.MEMBER_NOT_REJOINED, **member.who(), waited=waited, heard_ago=heard))
        leader = members.leader
        if members.by_id and not members.elect_joined_leader():
            out.append(self._note(Kind.JOIN_PHASE_STUCK, waited=waited, members=len(members)))
            self._join_at = now + members.rebalance
            return
        self.generation += 1
        members.unsynced.clear()
        if not members.by_id:
            members.protocol = None
            self.subscriptions = ()
            self._held = ()
            self._transition(EMPTY, now)
            out.append(self._note(Kind.GROUP_EMPTY))
            out.append(self._persist(None))
            return
        if leader != members.leader and leader is not None:
            out.append(self._note(Kind.LEADER_CHANGED, old=leader, new=members.leader))
        members.protocol = members.select_protocol()
        self.subscriptions = tuple(member.metadata(members.protocol) for member in members)
        self._transition(COMPLETING, now)
        self._joined_at = now
        self._sync_at = now + members.rebalance
        for member in members:
            token = members.park_join(member, None)
            if token is not None:
                out.append(Reply(token, current_generation(members, self.generation, member)))
            member.is_new = False
            member.allowance = member.session
            member.heard = now
            members.unsynced.add(member.member_id)
            self._expect(now + member.session * SLOW)
        slow = [(m.who(), m.joined - self._began) for m in members if m.joined > self._began]
        out.append(
            self._note(
                Kind.JOIN_PHASE_OVER,
                took=waited,
                members=len(members),
                protocol=members.protocol,
                leader=members.by_id[members.leader].who() if members.leader else None,
                joined_after=sorted(slow, key=lambda each: -each[1]),
            )
        )

    def _assigned(self, about: Assigning, error: ErrorCode, out: list[Effect], now: float) -> None:
        """The leader's assignment is in the log, or cannot get there."""
        members = self.members
        if error != ErrorCode.NONE:
            for member in members:
                self._answer_sync(member, sync_error(error), out, now)
            who = [members.by_id[members.leader]] if members.leader else []
            reason = f"Error {error.name} when storing group assignment during SyncGroup (member: {members.leader})."
            self._prepare(reason, Kind.PERSIST_FAILED, who, out, now)
            return
        before = self._held
        for member in members:
            member.assignment = about.shares.get(member.member_id, b"")
            if member.sync_token is not None:
                self._answer_sync(member, own_share(members, member), out, now)
        self._held = tuple((member, member.assignment) for member in members)
        synced = now - self._joined_at
        self._transition(STABLE, now)
        data = {"join_took": self._joined_at - self._began, "sync_took": synced, "before": before, "after": self._held}
        kinds = {"protocol_type": members.protocol_type, "protocol": members.protocol}
        out.append(self._note(Kind.REBALANCE_OVER, members=len(members), **kinds, **data))

    def _sync_phase_over(self, out: list[Effect], now: float) -> None:
        """Who has not synced within the rebalance timeout is removed (rule 20)."""
        self._sync_at = inf
        missing = [self.members.by_id[member_id] for member_id in sorted(self.members.unsynced)]
        for member in missing:
            self.members.remove(member.member_id)
            heard = now - member.heard
            out.append(
                self._note(Kind.MEMBER_NOT_SYNCED, **member.who(), waited=now - self._joined_at, heard_ago=heard)
            )
        if missing:
            who = ", ".join(member.member_id for member in missing)
            self._prepare(
                f"Removing [{who}] on pending sync request expiration", Kind.MEMBER_NOT_SYNCED, missing, out, now
            )

    def _look_after(self, out: list[Effect], now: float) -> None:
        """Find whom the time is over for, warn of who is near it, and set the time of the next look."""
        members = self.members
        self._check_at = inf
        gone = [member_id for member_id, expires in members.pending.items() if expires <= now]
        for member_id in gone:
            del members.pending[member_id]
        if members.pending:
            self._expect(max(min(members.pending.values()), now + _PENDING_GRAIN))
        late = []
        for member in members:
            if member.excused:
                continue
            deadline = member.heard + member.allowance
            if deadline <= now:
                late.append(member)
                continue
            slow = member.heard + member.session * SLOW
            if member.is_new or member.warned == member.heard:
                self._expect(deadline)
            elif slow <= now:
                member.warned = member.heard
                out.append(
                    self._note(Kind.MEMBER_SLOW, **member.who(), heard_ago=now - member.heard, session=member.session)
                )
                self._expect(deadline)
            else:
                self._expect(slow)
        for member in late:
            # The first of them may have ended a phase, which removes members or gives them a new session.
            alive = member.excused or member.heard + member.allowance > now
            if members.by_id.get(member.member_id) is member and not alive:
                self._expire(member, out, now)
        if gone:
            self._complete_if_joined(out, now)

    def _expire(self, member: Member, out: list[Effect], now: float) -> None:
        heard = now - member.heard
        allowed = member.allowance
        self._remove(member, out, ErrorCode.UNKNOWN_MEMBER_ID)
        out.append(
            self._note(Kind.MEMBER_EXPIRED, **member.who(), heard_ago=heard, session=allowed, newcomer=member.is_new)
        )
        if self.state in (STABLE, COMPLETING):
            reason = f"removing member {member.member_id} on heartbeat expiration."
            self._prepare(reason, Kind.MEMBER_EXPIRED, [member], out, now)
        else:
            self._complete_if_joined(out, now)
