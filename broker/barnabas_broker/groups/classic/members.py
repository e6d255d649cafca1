"""Who is in a group: members, static members, members to be, who leads, and which protocol all of them speak. Pure.

Source: the member side of Kafka's ``ClassicGroup`` and ``ClassicGroupMember``; KIP-345 (static membership), KIP-394
(members to be).
"""

from collections.abc import Iterator
from typing import Final

from barnabas_broker.groups.effects import Token
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupRequestProtocol

#: Members to be that are remembered per group. Beyond it the oldest is forgotten, so that a client which asks for ids
#: and never comes back cannot fill the memory, nor keep others out: an honest one is back within a round trip.
MAX_PENDING: Final = 10_000

#: Every heartbeat and every commit says this a few times, and looking it up in the enum each time is what costs most.
NONE: Final = ErrorCode.NONE

Protocols = tuple[tuple[str, bytes], ...]


def protocols_of(requested: list[JoinGroupRequestProtocol]) -> Protocols:
    """Name and metadata of each protocol of a JoinGroup, in the member's order of preference."""
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in requested)


class Member:
    """One member of a group.

    Attributes:
        session: seconds without a sign of life after which the member is removed.
        rebalance: seconds that the member may take to rejoin.
        protocols: what it can speak, with its metadata (its subscription), in order of preference.
        assignment: its share in the current generation, b"" while it has none.
        join_token: its parked JoinGroup.
        sync_token: its parked SyncGroup.
        is_new: whether its first JoinGroup is still parked. It knows no member id to heartbeat with, so that request
            itself times out.
        heard: when it was last heard of, in seconds on the machine's clock.
        allowance: seconds after `heard` at which it expires.
        joined: when it joined the generation that is being formed.
        warned: the value of `heard` for which it was called slow.
    """

    __slots__ = (
        "allowance",
        "assignment",
        "client_host",
        "client_id",
        "heard",
        "instance_id",
        "is_new",
        "join_token",
        "joined",
        "member_id",
        "protocols",
        "rebalance",
        "session",
        "sync_token",
        "warned",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session: float,
        rebalance: float,
        protocols: Protocols,
        now: float,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session = session
        self.rebalance = rebalance
        self.protocols = protocols
        self.assignment = b""
        self.join_token: Token | None = None
        self.sync_token: Token | None = None
        self.is_new = False
        self.heard = self.joined = now
        self.allowance = session
        self.warned = -1.0

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says under `protocol`; b"" if it does not speak it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    @property
    def excused(self) -> bool:
        """Whether it need not heartbeat: it waits for our answer (rule 11)."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def who(self) -> dict[str, str | None]:
        """Its identity, for the story of the group."""
        return {
            "member_id": self.member_id,
            "client_id": self.client_id,
            "host": self.client_host,
            "instance_id": self.instance_id,
        }


class Membership:
    """The members of one group and what follows from them.

    Attributes:
        by_id: members by member id, in the order in which they came.
        static: member id by instance id.
        pending: members to be (KIP-394): when their id expires, by that id, oldest first.
        unsynced: ids of members whose SyncGroup of the current generation has not come.
        waiting: how many JoinGroups are parked.
        leader: member id of the leader.
        protocol_type: what the group is for, "consumer" for instance; None for a group that only holds offsets.
        protocol: the protocol that the current generation speaks.
    """

    __slots__ = (
        "_supported",
        "by_id",
        "leader",
        "pending",
        "protocol",
        "protocol_type",
        "static",
        "unsynced",
        "waiting",
    )

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, float] = {}
        self.unsynced: set[str] = set()
        self.waiting = 0
        self.leader: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self._supported: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether `member_id` is a member. An instance id is looked at first (rule 7).

        Returns:
            NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member id has taken the instance id over.
        """
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member, protocol_type: str) -> None:
        """Take a member in. The first one leads and says what the group is for."""
        if not self.by_id:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.by_id[member.member_id] = member
        self._count(member.protocols, 1)
        self.waiting += member.join_token is not None
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Forget a member or a member to be. If it led, the oldest of the others leads."""
        self.pending.pop(member_id, None)
        self.unsynced.discard(member_id)
        member = self.by_id.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        self.waiting -= member.join_token is not None
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.by_id), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another member id; it keeps its share, its place and its role."""
        old = member.member_id
        self.by_id = {member_id if key == old else key: value for key, value in self.by_id.items()}
        member.member_id = member_id
        if member.instance_id is not None:
            self.static[member.instance_id] = member_id
        if self.leader == old:
            self.leader = member_id
        if old in self.unsynced:
            self.unsynced.discard(old)
            self.unsynced.add(member_id)

    def park_join(self, member: Member, token: Token | None) -> Token | None:
        """Park a JoinGroup, or none; return the one that was parked."""
        old = member.join_token
        member.join_token = token
        self.waiting += (token is not None) - (old is not None)
        return old

    def speak(self, member: Member, protocols: Protocols) -> None:
        """Replace what a member says it can speak."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def remember_pending(self, member_id: str, expires: float) -> None:
        """Expect a member to come back with the id that it was given, until `expires`."""
        if len(self.pending) >= MAX_PENDING:
            del self.pending[next(iter(self.pending))]
        self.pending[member_id] = expires

    @property
    def all_joined(self) -> bool:
        """Whether nobody has to be waited for: every member has rejoined and nobody is still to come (rule 2)."""
        return self.waiting == len(self.by_id) and not self.pending

    @property
    def rebalance(self) -> float:
        """Seconds that a rebalance may take: the largest over the members (rule 9)."""
        return max((member.rebalance for member in self.by_id.values()), default=0.0)

    def supports(self, protocol_type: str, protocols: list[JoinGroupRequestProtocol], empty: bool) -> bool:
        """Whether a member with these protocols could be part of the group; `empty` if its state is Empty."""
        if empty:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        everybody = len(self.by_id)
        return any(self._supported.get(protocol.name, 0) == everybody for protocol in protocols)

    def select_protocol(self) -> str | None:
        """Vote: each member for the first of its protocols that all support (rule 16); the first of equals wins."""
        everybody = len(self.by_id)
        candidates = {name for name, count in self._supported.items() if count == everybody}
        if len(candidates) == 1:
            return candidates.pop()
        votes: dict[str, int] = {}
        for member in self.by_id.values():
            for name, _ in member.protocols:
                if name in candidates:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__, default=None)

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is one that has joined (rule 17); False if nobody has."""
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
                # What nobody speaks any more is forgotten: names come from clients.
                del supported[name]
