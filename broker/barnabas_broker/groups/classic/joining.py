"""JoinGroup: new members, members to be, members that rejoin, static members that come back. Pure.

Source: Kafka's ``GroupMetadataManager`` (4.x): classicGroupJoin and what it calls. KIP-345 (static members), KIP-394
(member ids first), KIP-814 (skipAssignment).
"""

from barnabas_broker.groups.classic.core import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    SLOW,
    STABLE,
    Caller,
    Replacing,
    reason_of,
)
from barnabas_broker.groups.classic.members import Member, Protocols, protocols_of
from barnabas_broker.groups.classic.phases import Phases
from barnabas_broker.groups.classic.responses import current_generation, join_error
from barnabas_broker.groups.effects import Effect, Kind, Reply, Token
from barnabas_broker.groups.subscriptions import CONSUMER, read_topics
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupRequest


class Joining(Phases):
    """The entrance of a group."""

    __slots__ = ()

    def join(self, request: JoinGroupRequest, version: int, caller: Caller, token: Token, now: float) -> list[Effect]:
        """JoinGroup: answered at once, or parked until the join phase is over (C2)."""
        out: list[Effect] = []
        member_id = request.member_id
        members = self.members
        if self.state is DEAD:
            return [Reply(token, join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))]
        if not self._accepts(member_id):
            refused = members.remove(member_id)
            out.append(Reply(token, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, "")))
            if refused is not None:
                out.append(self._note(Kind.MEMBER_REFUSED, **refused.who(), max_size=self._settings.max_size))
                self._complete_if_joined(out, now)
        elif not members.supports(request.protocol_type, request.protocols, self.state is EMPTY):
            out.append(Reply(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)))
        elif not member_id:
            self._join_unknown(request, version, caller, token, out, now)
        elif member_id in members.pending and request.group_instance_id is None:
            self._add(request, version, caller, member_id, token, out, now)
        elif error := members.check(member_id, request.group_instance_id):
            out.append(Reply(token, join_error(error, member_id)))
        else:
            self._rejoin(request, version, members.by_id[member_id], token, out, now)
        if self.fresh and (len(members) or members.pending):
            # The group gets a record at once, so that it exists wherever its coordinator moves to.
            out.append(self._persist(None))
        return out

    def _accepts(self, member_id: str) -> bool:
        """Whether `group.max.size` leaves room (rule 28)."""
        members, room = self.members, self._settings.max_size
        if self.state is EMPTY:
            return True
        member = members.by_id.get(member_id)
        if self.state is PREPARING:
            return (member is not None and member.join_token is not None) or members.waiting < room
        return member is not None or len(members) < room

    def _join_unknown(
        self, request: JoinGroupRequest, version: int, caller: Caller, token: Token, out: list[Effect], now: float
    ) -> None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{self._settings.new_id()}"
            if instance_id in self.members.static:
                self._replace(request, version, caller, member_id, token, out, now)
            else:
                self._add(request, version, caller, member_id, token, out, now)
            return
        member_id = f"{caller.client_id}-{self._settings.new_id()}"
        if version < 4:
            self._add(request, version, caller, member_id, token, out, now)
            return
        expires = now + request.session_timeout_ms / 1000
        self.members.remember_pending(member_id, expires)
        self._expect(expires)
        out.append(Reply(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)))
        out.append(self._note(Kind.MEMBER_ID_GIVEN, member_id=member_id, client_id=caller.client_id, host=caller.host))

    def _add(
        self,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        member_id: str,
        token: Token,
        out: list[Effect],
        now: float,
    ) -> None:
        session, rebalance = _timeouts(request, version)
        protocols = protocols_of(request.protocols)
        member = Member(
            member_id, request.group_instance_id, caller.client_id, caller.host, session, rebalance, protocols, now
        )
        member.is_new = True
        member.join_token = token
        # The session does not count yet: the member cannot heartbeat without its id. Rule 11.
        member.allowance = self._settings.new_member_timeout
        self._expect(now + member.allowance)
        if self.state is PREPARING and self._previous is EMPTY:
            self._newcomer = True
        self.members.add(member, request.protocol_type)
        why = reason_of(request.reason)
        out.append(self._note(Kind.MEMBER_JOINED, **member.who(), client_reason=why))
        self._prepare_or_complete(
            f"Adding new member {member_id} with group instance id {_null(request.group_instance_id)};"
            f" client reason: {why}",
            Kind.MEMBER_JOINED,
            member,
            out,
            now,
        )

    def _rejoin(
        self, request: JoinGroupRequest, version: int, member: Member, token: Token, out: list[Effect], now: float
    ) -> None:
        """JoinGroup of somebody who is a member (rules 13 and 14)."""
        protocols = protocols_of(request.protocols)
        changed = protocols != member.protocols
        leads = self.members.leader == member.member_id
        if self.state is EMPTY:
            out.append(Reply(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)))
            return
        if not changed and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            out.append(Reply(token, current_generation(self.members, self.generation, member)))
            return
        state = self.state.value
        why = reason_of(request.reason)
        cause = self._cause(member, protocols) if changed else Kind.LEADER_REJOINED
        if self.state is PREPARING:
            reason = f"Member {member.member_id} is joining group during {state}"
        elif leads and self.state is STABLE:
            reason = f"Leader {member.member_id} re-joining group during {state}"
        else:
            reason = f"Updating metadata for member {member.member_id} during {state}"
        if cause is Kind.SUBSCRIPTION_CHANGED:
            old, new = member.metadata(self.members.protocol), dict(protocols).get(self.members.protocol or "")
            out.append(self._note(cause, **member.who(), client_reason=why, old=old, new=new))
        elif self.state is not PREPARING:
            if leads:
                cause = Kind.LEADER_REJOINED
            out.append(self._note(cause, **member.who(), client_reason=why))
        self._update(request, version, member, protocols, token, out, now)
        self._prepare_or_complete(f"{reason}; client reason: {why}", cause, member, out, now)

    def _cause(self, member: Member, protocols: Protocols) -> Kind:
        """Whether new blobs say something new to people: other topics; or only what the member owns now (KIP-429)."""
        if self.members.protocol_type == CONSUMER:
            new = dict(protocols)
            for name, metadata in member.protocols:
                topics = read_topics(metadata)
                if topics is not None and sorted(topics) == sorted(read_topics(new.get(name, b"")) or ()):
                    return Kind.MEMBER_REJOINED
        return Kind.SUBSCRIPTION_CHANGED

    def _update(
        self,
        request: JoinGroupRequest,
        version: int,
        member: Member,
        protocols: Protocols,
        token: Token,
        out: list[Effect],
        now: float,
    ) -> None:
        """Take over what a JoinGroup says about its member, and park it."""
        self.members.speak(member, protocols)
        member.session, member.rebalance = _timeouts(request, version)
        member.joined = now
        if not member.is_new:
            member.allowance = member.session
        earlier = self.members.park_join(member, token)
        if earlier is not None:
            # Sent again, over another connection: the earlier one must not hang there.
            out.append(Reply(earlier, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))

    def _replace(
        self,
        request: JoinGroupRequest,
        version: int,
        caller: Caller,
        new_id: str,
        token: Token,
        out: list[Effect],
        now: float,
    ) -> None:
        """A static member comes back without its member id: it gets a new one, its double is fenced (rules 4 to 6)."""
        members = self.members
        member = members.by_id[members.static[request.group_instance_id or ""]]
        old_id, old_leader = member.member_id, members.leader
        old = (member.session, member.rebalance, member.protocols, member.client_id, member.client_host)
        for reply in self._answer(member, ErrorCode.FENCED_INSTANCE_ID, old_id):
            out.append(reply)
        members.rename(member, new_id)
        member.client_id, member.client_host = caller.client_id, caller.host
        member.is_new = False
        member.heard = now
        self._update(request, version, member, protocols_of(request.protocols), token, out, now)
        self._expect(now + member.session * SLOW)
        why = reason_of(request.reason)
        out.append(self._note(Kind.MEMBER_REPLACED, **member.who(), old_member_id=old_id, client_reason=why))
        if self.state is STABLE:
            if members.select_protocol() == members.protocol:
                about = Replacing(self.generation, version, token, member, old_id, old_leader, old)
                out.append(self._persist(about, {each.member_id: each.assignment for each in members}))
                return
            reason = (
                f"Group's selectedProtocol will change because static member {new_id} with instance id"
                f" {member.instance_id} joined with change of protocol; client reason: {why}"
            )
        else:
            # In CompletingRebalance the leader may already assign to the old id, which nobody answers to any more.
            reason = (
                f"Updating metadata for static member {new_id} with instance id {member.instance_id};"
                f" client reason: {why}"
            )
        self._prepare_or_complete(reason, Kind.MEMBER_REPLACED, member, out, now)

    def _replaced(self, about: Replacing, error: ErrorCode, out: list[Effect], now: float) -> None:
        member, members = about.member, self.members
        if member.join_token is not about.token or self.state is not STABLE or about.generation != self.generation:
            return  # Overtaken by a rebalance, which answers it, or by the next incarnation of the member.
        members.park_join(member, None)
        member.heard = now
        self._expect(now + member.session * SLOW)
        if error != ErrorCode.NONE:
            session, rebalance, protocols, member.client_id, member.client_host = about.old
            members.speak(member, protocols)
            member.session = member.allowance = session
            member.rebalance = rebalance
            members.rename(member, about.old_id)
            out.append(Reply(about.token, join_error(error, "")))
            return
        response = current_generation(members, self.generation, member)
        if about.version < 9:
            # It must not take itself for the leader: it would assign anew although nobody rejoins.
            response.leader = about.old_leader or ""
            response.members = []
        else:
            response.skip_assignment = members.leader == member.member_id
        out.append(Reply(about.token, response))


def _timeouts(request: JoinGroupRequest, version: int) -> tuple[float, float]:
    """Session and rebalance timeout in seconds; version 0 has only the one (rule 9)."""
    session = request.session_timeout_ms / 1000
    return session, (max(request.rebalance_timeout_ms, 0) / 1000 if version >= 1 else session)


def _null(text: str | None) -> str:
    return "null" if text is None else text
