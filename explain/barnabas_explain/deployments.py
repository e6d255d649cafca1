"""Deployments: the members of a group are replaced one by one, by new ones with other names. Pure.

An autoscaler makes a group larger and then smaller again; a deployment leaves its size as it is, and none of the
members that it has started leaves.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas_explain.catalog import (
    Departure,
    GroupEvent,
    JoinPhaseOver,
    LeaderRejoined,
    MemberEvent,
    MemberJoined,
    MemberRejoined,
    MemberReplaced,
    SubscriptionChanged,
)
from barnabas_explain.findings import KILLED, STOPPED, Findings
from barnabas_explain.members import Member
from barnabas_explain.rejoins import GOES_ON
from barnabas_explain.words import Told, count, ms, names_of

#: So many members are replaced in a deployment.
_REPLACED: Final = 2
#: Kubernetes starts a quarter of the new programs before it stops old ones, or the other way round.
_AT_ONCE: Final = 4


class Deployment(NamedTuple):
    """Members that were replaced.

    Attributes:
        old: those that have gone.
        new: those that have joined.
        are_stopped: whether all old ones left by themselves.
        is_cooperative: whether the assignor is a cooperative one.
    """

    old: Sequence[Member]
    new: Sequence[Member]
    are_stopped: bool
    is_cooperative: bool

    def sentence(self, rebalances: int, within_ms: float) -> Told:
        """The deployment in words.

        Args:
            rebalances: that it took.
            within_ms: the time between the first and the last one.
        """
        text = f"Probably a deployment: {count(len(self.old), 'member')} were replaced one by one, with"
        text += f" {count(rebalances, 'rebalance')} within {ms(within_ms)}: {names_of(self.old)} went once each, and"
        text += f" {names_of(self.new)} joined once each."
        remedy = "Nothing, if it was a deployment."
        if not self.are_stopped:
            remedy += " Close the consumer when the program stops: partitions of a member that does not leave wait for"
            remedy += " its session.timeout.ms."
        if not self.is_cooperative:
            remedy += " With the assignor cooperative-sticky, members keep most of their partitions meanwhile."
        remedy += " A new program that takes over the group.instance.id of an old one, as in a StatefulSet, costs no"
        remedy += " rebalance (KIP-345)."
        return Told(text, remedy)


def find_deployment(events: Iterable[GroupEvent], findings: Findings) -> Deployment | None:
    """Find out whether the members of a group were replaced one by one.

    Args:
        events: of rebalances that followed each other, oldest first.
        findings: about these events.

    Returns:
        The deployment; None if members came back, or if the group became larger or smaller meanwhile.
    """
    joined: dict[str, int] = {}
    gone: dict[str, int] = {}
    members: list[Member] = []
    are_stopped, is_cooperative = True, False
    for event in events:
        if isinstance(event, JoinPhaseOver):
            is_cooperative |= GOES_ON in (event.protocol or "")
        if not isinstance(event, MemberEvent):
            continue
        name = event.member.name
        if isinstance(event, MemberJoined):
            if name in joined or name in gone or id(event) in findings.of_joins:
                return None
            joined[name] = len(members)
            members.append(event.member)
        elif isinstance(event, Departure):
            finding = findings.of_departures.get(id(event))
            if finding is None or finding.kind not in (STOPPED, KILLED) or name in gone:
                return None
            are_stopped &= finding.kind == STOPPED
            gone[name] = len(members)
            members.append(event.member)
        elif isinstance(event, MemberReplaced | SubscriptionChanged):
            return None
        elif isinstance(event, LeaderRejoined | MemberRejoined):
            if id(event) not in findings.revoked and id(event) not in findings.at_first:
                return None
            is_cooperative |= id(event) in findings.revoked
    if len(gone) < _REPLACED:
        return None
    first_gone = min(gone.values())
    new = [at for name, at in joined.items() if name not in gone][-len(gone) :]
    if not new or any(joined.get(name, -1) > first_gone for name in gone):
        return None
    began = min(first_gone, new[0])
    left = set(gone.values())
    difference, most = 0, -(-len(gone) // _AT_ONCE)
    for at in range(began, len(members)):
        difference += -1 if at in left else 1
        if abs(difference) > most:
            return None
    return Deployment([members[at] for at in gone.values()], [members[at] for at in new], are_stopped, is_cooperative)
