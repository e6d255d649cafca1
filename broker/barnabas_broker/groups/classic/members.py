"""The members of a classic group, its leader, and the protocol that all members support. Pure.

Source: the member side of Kafka's ``ClassicGroup``, and ``ClassicGroupMember``; KIP-345 (static membership), KIP-394
(pending members).
"""

from collections import Counter
from collections.abc import Iterator
from math import inf
from typing import Final

from barnabas_broker.groups.effects import Token
from barnabas_explain.members import Member
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupRequestProtocol

#: Maximum number of pending members per group; beyond that the oldest is dropped. Clients that ask for member ids and
#: never join can then neither fill the memory nor keep others out: an honest client joins within a round trip.
MAX_PENDING: Final = 10_000

#: Heartbeats and commits compare with it several times; a global is cheaper than the enum's attribute.
NONE: Final = ErrorCode.NONE

Protocols = tuple[tuple[str, bytes], ...]


def protocols_of(requested: list[JoinGroupRequestProtocol]) -> Protocols:
    """Name and metadata of each protocol of a JoinGroup, in the member's order of preference."""
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in requested)


class ClassicGroupMember:
    """One member of a classic group.

    Attributes:
        member_id: the id that the coordinator gave to it.
        instance_id: its ``group.instance.id``; None for a dynamic member.
        client_id: of the client that sent the last JoinGroup.
        client_host: its address, as Kafka prints it ("/127.0.0.1").
        session_timeout: seconds without a heartbeat after which the member is removed.
        rebalance_timeout: seconds that the member may take to rejoin.
        protocols: the protocols that it supports with its metadata (its subscription), in order of preference.
        assignment: its assignment in the current generation, b"" if it has none.
        join_token: its deferred JoinGroup.
        sync_token: its deferred SyncGroup.
        is_new: whether its first JoinGroup is deferred. It has no member id to heartbeat with yet, so that the
            JoinGroup itself expires.
        last_seen: when the last heartbeat, commit or response was, in seconds on the machine's clock.
        timeout: seconds after `last_seen` at which the member expires.
        joined_at: when it joined the generation that is being formed.
        heartbeat_at: when its last heartbeat was, or the response to its JoinGroup; -inf if that is not known.
        heartbeat_gap: seconds between the last two of these; inf if that is not known.
        told_at: when it was first told that it has to rejoin; -inf if it never was.
        reported_slow_at: the value of `last_seen` for which the member was reported as slow.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "heartbeat_at",
        "heartbeat_gap",
        "instance_id",
        "is_new",
        "join_token",
        "joined_at",
        "last_seen",
        "member_id",
        "protocols",
        "rebalance_timeout",
        "reported_slow_at",
        "session_timeout",
        "sync_token",
        "timeout",
        "told_at",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout: float,
        rebalance_timeout: float,
        protocols: Protocols,
        now: float,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout = session_timeout
        self.rebalance_timeout = rebalance_timeout
        self.protocols = protocols
        self.assignment = b""
        self.join_token: Token | None = None
        self.sync_token: Token | None = None
        self.is_new = False
        self.last_seen = self.joined_at = now
        self.told_at = self.heartbeat_at = -inf
        self.heartbeat_gap = inf
        self.timeout = session_timeout
        self.reported_slow_at = -1.0

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for `protocol`; b"" if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def beats(self, now: float) -> None:
        """It has sent a heartbeat."""
        self.last_seen = now
        self.heartbeat_gap = now - self.heartbeat_at
        self.heartbeat_at = now

    @property
    def awaits_response(self) -> bool:
        """Whether the member waits for a response of ours: its session does not expire meanwhile."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def identity(self) -> Member:
        """The member's ids and address, for group events."""
        return Member(self.member_id, self.client_id, self.client_host, self.instance_id)


class Members:
    """The members of one group, and what follows from them.

    Attributes:
        by_id: members by member id, in the order in which they joined.
        static: member ids by instance id.
        pending: when each pending member's id expires, by member id, oldest first (KIP-394).
        unsynced: ids of the members whose SyncGroup of the current generation has not arrived.
        joining: number of deferred JoinGroups.
        leader: member id of the leader.
        protocol_type: "consumer" for instance; None for a group that only has offsets.
        protocol: the protocol of the current generation.
    """

    __slots__ = (
        "_supported",
        "by_id",
        "joining",
        "leader",
        "pending",
        "protocol",
        "protocol_type",
        "static",
        "unsynced",
    )

    def __init__(self) -> None:
        self.by_id: dict[str, ClassicGroupMember] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, float] = {}
        self.unsynced: dict[str, None] = {}  # an empty set takes three times the memory, in every group
        self.joining = 0
        self.leader: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self._supported: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[ClassicGroupMember]:
        return iter(self.by_id.values())

    def validate(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Check that `member_id` is a member. The instance id is checked first (KIP-345).

        Returns:
            NONE; UNKNOWN_MEMBER_ID; or FENCED_INSTANCE_ID if another member id has replaced it for the instance id.
        """
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        """Add a member. The first one becomes the leader and sets the protocol type."""
        if not self.by_id:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.by_id[member.member_id] = member
        self._count(member.protocols, 1)
        self.joining += member.join_token is not None
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """Remove a member or a pending member. If it was the leader, the oldest remaining member becomes the leader."""
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        member = self.by_id.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        self.joining -= member.join_token is not None
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        return member

    def replace(self, old: ClassicGroupMember, new: ClassicGroupMember) -> None:
        """Put a member into the place of another one with the same instance id: into its position and its role."""
        self.by_id = {each.member_id: each for each in (new if each is old else each for each in self.by_id.values())}
        if new.instance_id is not None:
            self.static[new.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id
        if old.member_id in self.unsynced:
            del self.unsynced[old.member_id]
            self.unsynced[new.member_id] = None
        self.joining += (new.join_token is not None) - (old.join_token is not None)
        self._count(old.protocols, -1)
        self._count(new.protocols, 1)

    def set_join_token(self, member: ClassicGroupMember, token: Token | None) -> Token | None:
        """Set the member's deferred JoinGroup, None for none; returns the previous one."""
        old = member.join_token
        member.join_token = token
        self.joining += (token is not None) - (old is not None)
        return old

    def set_protocols(self, member: ClassicGroupMember, protocols: Protocols) -> None:
        """Replace the protocols that a member supports."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def add_pending(self, member_id: str, expires: float) -> None:
        """Expect a member to join until `expires` with the id that it was given."""
        if len(self.pending) >= MAX_PENDING:
            del self.pending[next(iter(self.pending))]
        self.pending[member_id] = expires

    @property
    def all_joined(self) -> bool:
        """Whether every member has rejoined and no pending member is expected."""
        return self.joining == len(self.by_id) and not self.pending

    @property
    def rebalance_timeout(self) -> float:
        """Seconds that a rebalance may take: the largest rebalance timeout of the members."""
        return max((member.rebalance_timeout for member in self.by_id.values()), default=0.0)

    def supports(self, protocol_type: str, protocols: list[JoinGroupRequestProtocol], empty: bool) -> bool:
        """Whether a member with these protocols can join; `empty` if the group's state is Empty."""
        if empty:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        members = len(self.by_id)
        return any(self._supported.get(protocol.name, 0) == members for protocol in protocols)

    def supported_protocols(self) -> list[str]:
        """The protocols that all members support, in the order of their names."""
        return sorted(name for name, count in self._supported.items() if count == len(self.by_id))

    def select_protocol(self, member: ClassicGroupMember | None = None, protocols: Protocols = ()) -> str | None:
        """Select a protocol by vote: each member votes for the first of its protocols that all members support.

        Args:
            member: a member that counts with other protocols than it has.
            protocols: these protocols.
        """
        of_each = [protocols if each is member else each.protocols for each in self.by_id.values()]
        if member is None:
            supported = self._supported
        else:
            supported = Counter(name for each in of_each for name in {name for name, _ in each})
        candidates = {name for name, count in supported.items() if count == len(of_each)}
        if len(candidates) == 1:
            return candidates.pop()
        votes: dict[str, int] = {}
        for each in of_each:
            for name, _ in each:
                if name in candidates:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__, default=None)

    def elect_joined_leader(self) -> bool:
        """Make a member the leader that has joined, the present leader if possible. False if no member has joined."""
        if self.leader is not None and self.by_id[self.leader].join_token is not None:
            return True
        for member in self.by_id.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    def _count(self, protocols: Protocols, by: int) -> None:
        supported = self._supported
        for name in {name for name, _ in protocols}:
            count = supported.get(name, 0) + by
            if count:
                supported[name] = count
            else:
                # Protocol names come from clients: keeping those that no member supports would be a leak.
                del supported[name]
