"""The log lines of group events. Pure.

An operator gets one line for each rebalance, when it is over, and one for everything else that matters
(:class:`GroupLines`). The steps in between go to the debug level in Kafka's words (:func:`sentence_of`), so that
searches for Kafka's messages find them.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas_explain.catalog import NOT_PROVIDED, EventType, GroupEvent
from barnabas_explain.explain import CAUSES, shown_partitions
from barnabas_explain.storms import name_of
from barnabas_protocol.durations import seconds


class Line(NamedTuple):
    """A log line: its level, what happened, and the pairs that follow."""

    level: str
    event: str
    pairs: dict[str, Any]


class GroupLines:
    """Writes the lines of operators. It remembers why a rebalance has started until that is over."""

    def __init__(self) -> None:
        #: By group: the newest event of a member, which may start a rebalance.
        self._newest: dict[str, GroupEvent] = {}
        #: By group: why the current rebalance has started.
        self._reasons: dict[str, str] = {}

    def line_of(self, group_id: str, event: GroupEvent) -> Line | None:
        """The line of a group event; None if the event has none. Takes every event of every group, in their order."""
        data = event.data
        match event.type:
            case EventType.REBALANCE_STARTED:
                self._reasons[group_id] = _reason_of(event, self._newest.get(group_id))
                return None
            case EventType.REBALANCE_OVER:
                pairs = {"members": data["members"], "reason": self._forget(group_id)}
                took = seconds(data["join_took"] + data["sync_took"])
                return _line("info", "group rebalanced", group_id, event, **pairs, took=took)
            case EventType.EPOCH_BUMPED:
                self._reasons[group_id] = _reason_of(event, self._newest.get(group_id))
                return None
            case EventType.GROUP_RECONCILED:
                pairs = {"members": data["members"], "reason": self._forget(group_id)}
                return _line("info", "group reconciled", group_id, event, **pairs, took=seconds(data["took"]))
            case EventType.ASSIGNOR_FAILED:
                pairs = {"assignor": data["assignor"], "reason": data["reason"]}
                return _line("error", "no target assignment", group_id, event, **pairs)
            case EventType.REGEX_FAILED:
                pairs = {"regex": data["regex"][:200], "reason": data["reason"]}
                return _line("warning", "regular expression not resolved", group_id, event, **pairs)
            case EventType.MEMBER_STILL_REVOKING:
                pairs = {"member": name_of(data), "partitions": shown_partitions(data["partitions"])}
                times = {"waited": seconds(data["waited"]), "rebalance_timeout": seconds(data["timeout"])}
                return _line("warning", "member has not revoked its partitions yet", group_id, event, **pairs, **times)
            case EventType.MEMBER_NOT_REVOKED:
                self._newest[group_id] = event
                pairs = {"member": name_of(data), "waited": seconds(data["waited"])}
                return _line("warning", "member did not revoke its partitions", group_id, event, **pairs)
            case EventType.GROUP_EMPTY:
                return _line("info", "group is empty", group_id, event, reason=self._forget(group_id))
            case EventType.GROUP_UPGRADED:
                reason = f"{name_of(data['by'][0])} joined"
                pairs = {"classic_members": data["members"], "reason": reason}
                return _line("info", "group upgraded to the consumer protocol", group_id, event, **pairs)
            case EventType.GROUP_DOWNGRADED:
                pairs = {"members": data["members"], "reason": _reason_of(event, self._newest.get(group_id))}
                return _line("info", "group downgraded to the classic protocol", group_id, event, **pairs)
            case EventType.GROUP_UNLOADED:
                self._forget(group_id)
                return None
            case EventType.GROUP_DELETED:
                self._forget(group_id)
                reason = "its offsets expired" if data["expired"] else "a client asked for it"
                pairs = {"group": group_id, "offsets": data["offsets"], "reason": reason}
                pairs.update((name, data[name]) for name in ("client_id", "host") if name in data)
                return Line("info", "group deleted", pairs)
            case EventType.OFFSETS_EXPIRED:
                return Line("info", "offsets expired", {"group": group_id, "offsets": data["offsets"]})
            case EventType.OFFSETS_UNSTABLE:
                pairs = {"group": group_id, "producer_id": data["producer_id"], "offsets": data["offsets"]}
                pending = seconds(data["pending"])
                return Line("info", "offsets are pending in a transaction, consumers wait", {**pairs, "since": pending})
            case EventType.OFFSETS_STABLE:
                pairs = {"group": group_id, "producer_id": data["producer_id"], "offsets": data["offsets"]}
                pairs.update(committed=data["committed"], took=seconds(data["pending"]))
                return Line("info", "transaction with pending offsets ended", pairs)
            case EventType.MEMBER_SLOW:
                silent = {"silent": seconds(data["heard_ago"]), "session": seconds(data["session"])}
                return _line("warning", "member is silent", group_id, event, member=name_of(data), **silent)
            case EventType.MEMBER_REFUSED:
                pairs = {"member": name_of(data), "max_size": data["max_size"]}
                return _line("warning", "group is full, a member was removed", group_id, event, **pairs)
            case EventType.JOIN_PHASE_STUCK:
                pairs = {"members": data["members"], "waited": seconds(data["waited"])}
                return _line("error", "no member rejoined, the group waits again", group_id, event, **pairs)
            case EventType.PERSIST_FAILED:
                return _line("warning", "group cannot be written", group_id, event, error=data["error"])
        if event.type.value in CAUSES:
            self._newest[group_id] = event
        if event.type is EventType.MEMBER_REPLACED:
            return _line("info", "static member came back", group_id, event, member=name_of(data))
        return None

    def _forget(self, group_id: str) -> str:
        """Forget a rebalance; its reason."""
        self._newest.pop(group_id, None)
        return self._reasons.pop(group_id, "unknown")


def _line(level: str, text: str, group_id: str, event: GroupEvent, **pairs: Any) -> Line:
    return Line(level, text, {"group": group_id, "generation": event.generation, **pairs})


def _reason_of(started: GroupEvent, newest: GroupEvent | None) -> str:
    """Why a rebalance has started, in a few words."""
    data = started.data
    by: list[dict[str, Any]] = data["by"]
    if not by or data["cause"] not in CAUSES:
        return str(data.get("reason") or CAUSES.get(data["cause"], data["cause"])).rstrip(".")
    others = f" and {len(by) - 1} more" if len(by) > 1 else ""
    reason = f"{name_of(by[0])}{others} {CAUSES[data['cause']]}"
    if newest is not None and newest.type.value == data["cause"]:
        if newest.type is EventType.MEMBER_EXPIRED:
            reason += f" of {seconds(newest.data['session'])}"
        client_reason = newest.data.get("client_reason")
        if client_reason not in (None, "", NOT_PROVIDED):
            reason += f": {client_reason}"
    return reason


_Sentence = Callable[[str, GroupEvent, dict[str, Any]], str]

#: Kafka's sentences, made of the group id, the event and its data.
_SENTENCES: Final[dict[EventType, _Sentence]] = {
    EventType.MEMBER_ID_GIVEN: lambda group, event, data: (
        f"Dynamic member with unknown member id joins group {group}. Created a new member id {data['member_id']}"
        " and requesting the member to rejoin with this id."
    ),
    EventType.MEMBER_JOINED: lambda group, event, data: f"Member {data['member_id']} added to group {group}.",
    EventType.MEMBER_REPLACED: lambda group, event, data: (
        f"Static member with groupInstanceId={data['instance_id']} and unknown member id joins group {group}."
        f" Replacing previously mapped member {data['old_member_id']} with this groupInstanceId."
    ),
    EventType.MEMBER_LEFT: lambda group, event, data: (
        f"[Group {group}] Member {data['member_id']} has left group through explicit `LeaveGroup` request;"
        f" client reason: {data['client_reason']}"
    ),
    EventType.MEMBER_EXPIRED: lambda group, event, data: (
        f"Member {data['member_id']} in group {group} has failed, removing it from the group."
        f" Its last request was {data['heard_ago']:.1f} s ago, its session timeout is {data['session']:.1f} s."
    ),
    EventType.GROUP_UPGRADED: lambda group, event, data: (
        f"[GroupId {group}] Converted the classic group to a consumer group."
    ),
    EventType.GROUP_DOWNGRADED: lambda group, event, data: (
        f"[GroupId {group}] Converted the consumer group to a classic group."
    ),
    EventType.MEMBER_NOT_REJOINED: lambda group, event, data: (
        f"Group {group} removed dynamic members who haven't joined: {data['member_id']}"
    ),
    EventType.MEMBER_NOT_SYNCED: lambda group, event, data: (
        f"Group {group} removed members who haven't sent their sync requests: {data['member_id']}"
    ),
    EventType.MEMBER_REFUSED: lambda group, event, data: (
        f"Group {group} is full ({data['max_size']} members): removed member {data['member_id']}, which rejoined late."
    ),
    EventType.MEMBER_SLOW: lambda group, event, data: (
        f"Member {data['member_id']} of group {group} sent its last request {data['heard_ago']:.1f} s ago;"
        f" its session timeout is {data['session']:.1f} s."
    ),
    EventType.REBALANCE_STARTED: lambda group, event, data: (
        f"Preparing to rebalance group {group} in state PreparingRebalance with old generation {event.generation}"
        f" (reason: {data['reason']})."
    ),
    EventType.JOIN_PHASE_OVER: lambda group, event, data: (
        f"Stabilized group {group} generation {event.generation} with {data['members']} members."
    ),
    EventType.JOIN_PHASE_STUCK: lambda group, event, data: (
        f"Group {group} could not complete rebalance because no members rejoined."
    ),
    EventType.LEADER_CHANGED: lambda group, event, data: (
        f"Group leader {data['old']} of group {group} failed to join before the rebalance timeout."
        f" Member {data['new']} was elected as the new leader."
    ),
    EventType.REBALANCE_OVER: lambda group, event, data: (
        f"Assignment received from leader for group {group} for generation {event.generation}."
        f" The group has {data['members']} members."
    ),
    EventType.PERSIST_FAILED: lambda group, event, data: f"Failed to write metadata for group {group}: {data['error']}",
    EventType.GROUP_EMPTY: lambda group, event, data: f"Group {group} with generation {event.generation} is now empty.",
    EventType.EPOCH_BUMPED: lambda group, event, data: f"[GroupId {group}] Bumped group epoch to {event.generation}.",
    EventType.TARGET_ASSIGNED: lambda group, event, data: (
        f"[GroupId {group}] Computed a new target assignment for epoch {event.generation} with '{data['assignor']}'"
        f" assignor in {data['took'] * 1000:.0f}ms."
    ),
    EventType.MEMBER_NOT_REVOKED: lambda group, event, data: (
        f"[GroupId {group}] Member {data['member_id']} fenced from the group because it failed to transition from its"
        f" epoch within {data['waited'] * 1000:.0f}ms."
    ),
    EventType.MEMBER_AWAY: lambda group, event, data: (
        f"[GroupId {group}] Static member {data['member_id']} with instance id {data['instance_id']} temporarily left"
        " the consumer group."
    ),
    EventType.GROUP_LOADED: lambda group, event, data: f"Loaded classic group {group} with {data['members']} members.",
    EventType.GROUP_UNLOADED: lambda group, event, data: (
        f"[GroupId={group}] Unloading group metadata for generation {event.generation}."
    ),
    EventType.GROUP_DELETED: lambda group, event, data: (
        f"The following groups were deleted: {group}. A total of {data['offsets']} offsets were removed."
    ),
    EventType.OFFSETS_EXPIRED: lambda group, event, data: f"[GroupId {group}] Expired {data['offsets']} offsets.",
}


def sentence_of(group_id: str, event: GroupEvent) -> str | None:
    """What Kafka logs about a group event; None if it logs nothing."""
    sentence = _SENTENCES.get(event.type)
    return None if sentence is None else sentence(group_id, event, event.data)
