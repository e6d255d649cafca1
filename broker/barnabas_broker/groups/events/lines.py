"""The log lines of group events, in Kafka's words, so that searches for Kafka's messages find them. Pure."""

from collections.abc import Callable
from typing import Any, Final

from barnabas_broker.groups.effects import EventType, GroupEvent

_Line = Callable[[str, GroupEvent, dict[str, Any]], str]

#: Level and text by event type. The text is made of the group id, the event and its data.
_LINES: Final[dict[EventType, tuple[str, _Line]]] = {
    EventType.MEMBER_ID_GIVEN: (
        "debug",
        lambda group, event, data: (
            f"Dynamic member with unknown member id joins group {group}. Created a new member id {data['member_id']}"
            " and requesting the member to rejoin with this id."
        ),
    ),
    EventType.MEMBER_JOINED: (
        "debug",
        lambda group, event, data: f"Member {data['member_id']} added to group {group}.",
    ),
    EventType.MEMBER_REPLACED: (
        "info",
        lambda group, event, data: (
            f"Static member with groupInstanceId={data['instance_id']} and unknown member id joins group {group}."
            f" Replacing previously mapped member {data['old_member_id']} with this groupInstanceId."
        ),
    ),
    EventType.MEMBER_LEFT: (
        "info",
        lambda group, event, data: (
            f"[Group {group}] Member {data['member_id']} has left group through explicit `LeaveGroup` request;"
            f" client reason: {data['client_reason']}"
        ),
    ),
    EventType.MEMBER_EXPIRED: (
        "info",
        lambda group, event, data: (
            f"Member {data['member_id']} in group {group} has failed, removing it from the group."
            f" Its last request was {data['heard_ago']:.1f} s ago, its session timeout is {data['session']:.1f} s."
        ),
    ),
    EventType.MEMBER_NOT_REJOINED: (
        "info",
        lambda group, event, data: f"Group {group} removed dynamic members who haven't joined: {data['member_id']}",
    ),
    EventType.MEMBER_NOT_SYNCED: (
        "info",
        lambda group, event, data: (
            f"Group {group} removed members who haven't sent their sync requests: {data['member_id']}"
        ),
    ),
    EventType.MEMBER_REFUSED: (
        "warning",
        lambda group, event, data: (
            f"Group {group} is full ({data['max_size']} members):"
            f" removed member {data['member_id']}, which rejoined late."
        ),
    ),
    EventType.MEMBER_SLOW: (
        "warning",
        lambda group, event, data: (
            f"Member {data['member_id']} of group {group} sent its last request {data['heard_ago']:.1f} s ago;"
            f" its session timeout is {data['session']:.1f} s."
        ),
    ),
    EventType.REBALANCE_STARTED: (
        "info",
        lambda group, event, data: (
            f"Preparing to rebalance group {group} in state PreparingRebalance with old generation {event.generation}"
            f" (reason: {data['reason']})."
        ),
    ),
    EventType.JOIN_PHASE_OVER: (
        "info",
        lambda group, event, data: (
            f"Stabilized group {group} generation {event.generation} with {data['members']} members."
        ),
    ),
    EventType.JOIN_PHASE_STUCK: (
        "error",
        lambda group, event, data: f"Group {group} could not complete rebalance because no members rejoined.",
    ),
    EventType.LEADER_CHANGED: (
        "info",
        lambda group, event, data: (
            f"Group leader {data['old']} of group {group} failed to join before the rebalance timeout."
            f" Member {data['new']} was elected as the new leader."
        ),
    ),
    EventType.REBALANCE_OVER: (
        "info",
        lambda group, event, data: (
            f"Assignment received from leader for group {group} for generation {event.generation}."
            f" The group has {data['members']} members."
        ),
    ),
    EventType.PERSIST_FAILED: (
        "warning",
        lambda group, event, data: f"Failed to write metadata for group {group}: {data['error']}",
    ),
    EventType.GROUP_EMPTY: (
        "info",
        lambda group, event, data: f"Group {group} with generation {event.generation} is now empty.",
    ),
    EventType.GROUP_LOADED: (
        "info",
        lambda group, event, data: f"Loaded classic group {group} with {data['members']} members.",
    ),
    EventType.GROUP_UNLOADED: (
        "info",
        lambda group, event, data: f"[GroupId={group}] Unloading group metadata for generation {event.generation}.",
    ),
    EventType.GROUP_DELETED: (
        "info",
        lambda group, event, data: (
            f"The following groups were deleted: {group}. A total of {data['offsets']} offsets were removed."
        ),
    ),
    EventType.OFFSETS_EXPIRED: (
        "info",
        lambda group, event, data: f"[GroupId {group}] Expired {data['offsets']} offsets.",
    ),
}


def line_of(group_id: str, event: GroupEvent) -> tuple[str, str] | None:
    """Level and text of a group event's log line; None if the event is not logged."""
    found = _LINES.get(event.type)
    if found is None:
        return None
    level, text = found
    return level, text(group_id, event, event.data)
