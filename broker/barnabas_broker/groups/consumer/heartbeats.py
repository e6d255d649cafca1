"""Heartbeats of a group that wait: for a target that is computed, or for partitions that others have to revoke. Pure.

Members that have waited for a target together report together that they have revoked, usually within milliseconds. If
the others did not wait for that, they would get their partitions after another interval.
"""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import NamedTuple

from barnabas_broker.groups.consumer.assignment import Target
from barnabas_broker.groups.consumer.members import Owned
from barnabas_broker.groups.effects import Reply, Token
from barnabas_broker.groups.errors import heartbeat_error, join_error
from barnabas_protocol.errors import KafkaError


class Heartbeat(NamedTuple):
    """A heartbeat that may have to wait; or a JoinGroup, if `classic`.

    Attributes:
        token: identifies it in the :class:`~barnabas_broker.groups.effects.Reply`.
        member_id: of the member that sent it.
        full: whether it says everything, so that its response does, too.
        reported: the partitions that it reports as owned; None if it reports none.
        assigned_before: what its member was assigned when it came.
        subscription_changed: whether the member subscribes to something else than before.
        classic: whether it is a JoinGroup.
        connection: on which it came; None if that is not known.
    """

    token: Token
    member_id: str
    full: bool
    reported: Target | None
    assigned_before: Owned
    subscription_changed: bool
    classic: bool = False
    connection: object | None = None

    def refusal(self, error: KafkaError) -> Reply:
        """The failed response."""
        return Reply(self.token, join_error(error.code, "") if self.classic else heartbeat_error(error))


@dataclass(slots=True)
class Computation:
    """A target assignment that is being computed.

    Attributes:
        ticket: of the effect.
        epoch: the group epoch that it is for.
        started: when.
        assignor: the assignor's name.
        waiting: the heartbeats that wait for it.
        replaced: new member ids of static members that were replaced meanwhile.
    """

    ticket: int
    epoch: int
    started: float
    assignor: str
    waiting: list[Heartbeat] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Held:
    """A heartbeat that waits until others, by their member ids, have revoked partitions of its member's new target."""

    heartbeat: Heartbeat
    owners: set[str]


class ReleasedHeartbeats:
    """Heartbeats that have waited for a target. They go on with it, some at a time, or wait for members that revoke.

    Attributes:
        ready: those that go on.
        losing: the ids of the members that have waited for the last target, and have to revoke for it.
        until: how long the others wait for these, in seconds on the clock of `now`.
    """

    __slots__ = ("_held", "losing", "ready", "until")

    def __init__(self) -> None:
        self.ready: deque[Heartbeat] = deque()
        self.losing: Collection[str] = ()
        self.until = -inf
        #: Those that wait until a member has revoked, by its id.
        self._held: dict[str, list[_Held]] = {}

    def __iter__(self) -> Iterator[Heartbeat]:
        held = dict.fromkeys(chain.from_iterable(self._held.values()))
        return iter([*self.ready, *(each.heartbeat for each in held)])

    @property
    def waits(self) -> bool:
        """Whether some wait for members that revoke."""
        return bool(self._held)

    def clear(self) -> None:
        """Forget all of them."""
        self.ready.clear()
        self._held.clear()

    def add(self, waiting: list[Heartbeat], losing: Collection[str], until: float) -> None:
        """There is a target: those that have waited for it go on, and all that have waited for others.

        Args:
            waiting: for the target.
            losing: the ids of the members among them that have to revoke for it. They come first: the others need not
                wait for an interval if those revoke at once.
            until: how long the others wait for them.
        """
        self.release()
        self.losing, self.until = losing, until
        self.ready += [each for each in waiting if each.member_id in losing]
        self.ready += [each for each in waiting if each.member_id not in losing]

    def hold(self, heartbeat: Heartbeat, owners: set[str]) -> None:
        """Let a heartbeat wait until these members have revoked."""
        held = _Held(heartbeat, owners)
        for owner in owners:
            self._held.setdefault(owner, []).append(held)

    def has_revoked(self, owner: str) -> bool:
        """A member has revoked what it had to; returns whether heartbeats go on, which waited for no other one."""
        before = len(self.ready)
        for held in self._held.pop(owner, ()):
            held.owners.discard(owner)
            if not held.owners:
                self.ready.append(held.heartbeat)
        return len(self.ready) > before

    def release(self) -> None:
        """All heartbeats that wait for others go on."""
        for owner in [*self._held]:
            for held in self._held.get(owner, ()):
                held.owners = {owner}
            self.has_revoked(owner)
