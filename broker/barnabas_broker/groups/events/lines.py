"""What the coordinator logs, in Kafka's words, so that what people know to look for is there to be found. Pure."""

from collections.abc import Callable
from typing import Any, Final

from barnabas_broker.groups.effects import Kind, Note

_Line = Callable[[str, Note, dict[str, Any]], str]

#: What a note reads like: given the group, the note and its data.
_LINES: Final[dict[Kind, tuple[str, _Line]]] = {
    Kind.MEMBER_ID_GIVEN: (
        "debug",
        lambda group, note, data: (
            f"Dynamic member with unknown member id joins group {group}. Created a new member id {data['member_id']}"
            " and requesting the member to rejoin with this id."
        ),
    ),
    Kind.MEMBER_JOINED: (
        "debug",
        lambda group, note, data: f"Member {data['member_id']} added to group {group}.",
    ),
    Kind.MEMBER_REPLACED: (
        "info",
        lambda group, note, data: (
            f"Static member with groupInstanceId={data['instance_id']} and unknown member id joins group {group}."
            f" Replacing previously mapped member {data['old_member_id']} with this groupInstanceId."
        ),
    ),
    Kind.MEMBER_LEFT: (
        "info",
        lambda group, note, data: (
            f"[Group {group}] Member {data['member_id']} has left group through explicit `LeaveGroup` request;"
            f" client reason: {data['client_reason']}"
        ),
    ),
    Kind.MEMBER_EXPIRED: (
        "info",
        lambda group, note, data: (
            f"Member {data['member_id']} in group {group} has failed, removing it from the group."
            f" It was last heard of {data['heard_ago']:.1f} s ago, its session is {data['session']:.1f} s."
        ),
    ),
    Kind.MEMBER_NOT_REJOINED: (
        "info",
        lambda group, note, data: f"Group {group} removed dynamic members who haven't joined: {data['member_id']}",
    ),
    Kind.MEMBER_NOT_SYNCED: (
        "info",
        lambda group, note, data: (
            f"Group {group} removed members who haven't sent their sync requests: {data['member_id']}"
        ),
    ),
    Kind.MEMBER_REFUSED: (
        "warning",
        lambda group, note, data: (
            f"Group {group} is full ({data['max_size']} members):"
            f" removed member {data['member_id']}, which rejoined late."
        ),
    ),
    Kind.MEMBER_SLOW: (
        "warning",
        lambda group, note, data: (
            f"Member {data['member_id']} of group {group} was last heard of {data['heard_ago']:.1f} s ago;"
            f" its session ends at {data['session']:.1f} s."
        ),
    ),
    Kind.REBALANCE_STARTED: (
        "info",
        lambda group, note, data: (
            f"Preparing to rebalance group {group} in state PreparingRebalance with old generation {note.generation}"
            f" (reason: {data['reason']})."
        ),
    ),
    Kind.JOIN_PHASE_OVER: (
        "info",
        lambda group, note, data: (
            f"Stabilized group {group} generation {note.generation} with {data['members']} members."
        ),
    ),
    Kind.JOIN_PHASE_STUCK: (
        "error",
        lambda group, note, data: f"Group {group} could not complete rebalance because no members rejoined.",
    ),
    Kind.LEADER_CHANGED: (
        "info",
        lambda group, note, data: (
            f"Group leader {data['old']} of group {group} failed to join before the rebalance timeout."
            f" Member {data['new']} was elected as the new leader."
        ),
    ),
    Kind.REBALANCE_OVER: (
        "info",
        lambda group, note, data: (
            f"Assignment received from leader for group {group} for generation {note.generation}."
            f" The group has {data['members']} members."
        ),
    ),
    Kind.PERSIST_FAILED: (
        "warning",
        lambda group, note, data: f"Failed to write metadata for group {group}: {data['error']}",
    ),
    Kind.GROUP_EMPTY: (
        "info",
        lambda group, note, data: f"Group {group} with generation {note.generation} is now empty.",
    ),
    Kind.GROUP_LOADED: (
        "info",
        lambda group, note, data: f"Loaded classic group {group} with {data['members']} members.",
    ),
    Kind.GROUP_UNLOADED: (
        "info",
        lambda group, note, data: f"[GroupId={group}] Unloading group metadata for generation {note.generation}.",
    ),
    Kind.GROUP_DELETED: (
        "info",
        lambda group, note, data: (
            f"The following groups were deleted: {group}. A total of {data['offsets']} offsets were removed."
        ),
    ),
    Kind.OFFSETS_EXPIRED: (
        "info",
        lambda group, note, data: f"[GroupId {group}] Expired {data['offsets']} offsets.",
    ),
}


def line_of(group_id: str, note: Note) -> tuple[str, str] | None:
    """The level and the text that a note is logged with; None if it is not."""
    found = _LINES.get(note.kind)
    if found is None:
        return None
    return found[0], found[1](group_id, note, note.data)
