"""Effects: what a group's state machine asks its shell to do. The machine decides and returns them; the shell acts."""

from enum import Enum
from typing import Any, NamedTuple

from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.sync_group import SyncGroupResponse

#: Identifies a deferred request to the shell. The machine only stores it and returns it.
Token = object


class Reply(NamedTuple):
    """Respond to the request that `token` stands for. The response has the newest version's shape."""

    token: Token
    response: JoinGroupResponse | SyncGroupResponse


class Persist(NamedTuple):
    """Append the group's record, then report with ``ClassicGroup.persisted(ticket, ...)``.

    The machine does not know the time of day. The shell sets `value.current_state_timestamp` from `state_since`, the
    time at which the group entered its state: seconds on the clock of `now`, None if unknown.
    """

    ticket: int
    value: GroupMetadataValue
    state_since: float | None


class EventType(Enum):
    """The type of a group event. The value is the ``type`` of its record in ``__group_events``."""

    MEMBER_JOINED = "member_joined"
    MEMBER_ID_GIVEN = "member_id_given"
    MEMBER_REPLACED = "static_member_replaced"
    MEMBER_LEFT = "member_left"
    MEMBER_EXPIRED = "member_expired"
    MEMBER_NOT_REJOINED = "member_not_rejoined"
    MEMBER_NOT_SYNCED = "member_not_synced"
    MEMBER_REFUSED = "member_refused"
    MEMBER_SLOW = "member_slow"
    MEMBER_REJOINED = "member_rejoined"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    LEADER_REJOINED = "leader_rejoined"
    LEADER_CHANGED = "leader_changed"
    REBALANCE_STARTED = "rebalance_started"
    JOIN_PHASE_OVER = "join_phase_over"
    JOIN_PHASE_STUCK = "join_phase_stuck"
    REBALANCE_OVER = "rebalance_over"
    PERSIST_FAILED = "persist_failed"
    GROUP_EMPTY = "group_empty"
    GROUP_LOADED = "group_loaded"
    GROUP_UNLOADED = "group_unloaded"
    GROUP_DELETED = "group_deleted"
    OFFSETS_EXPIRED = "offsets_expired"
    TOPIC_CHANGED = "topic_changed"
    STORM = "rebalance_storm"


class GroupEvent(NamedTuple):
    """Something that happened to a group, for the log, the metrics and ``__group_events``.

    Attributes:
        type: what happened.
        generation: the group's generation when it happened.
        data: details. They may contain subscriptions and assignments as bytes, which
            :mod:`barnabas_broker.groups.events.events` decodes later, after the response is sent.
    """

    type: EventType
    generation: int
    data: dict[str, Any]


Effect = Reply | Persist | GroupEvent
