"""What the group machine wants done. It decides and returns these; the shell acts."""

from enum import Enum
from typing import Any, NamedTuple

from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.sync_group import SyncGroupResponse

#: Whatever the shell recognises a parked request by. The machine only hands it back.
Token = object


class Reply(NamedTuple):
    """Answer the request that `token` stands for. The response is in the newest version's shape."""

    token: Token
    response: JoinGroupResponse | SyncGroupResponse


class Persist(NamedTuple):
    """Append the group's record, then report with ``Group.persisted(ticket, ...)``.

    The machine knows no time of day: the shell fills `value.current_state_timestamp`, as many ms before now as the
    group entered its state, which is `since` (seconds, on the clock of `now`; None when that is not known).
    """

    ticket: int
    value: GroupMetadataValue
    since: float | None


class Kind(Enum):
    """What happened to a group. The value is the ``type`` of its record in ``__group_events``."""

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


class Note(NamedTuple):
    """Something that happened, for the log, the metrics and the story of the group.

    `data` may hold bytes of subscriptions and assignments; :mod:`barnabas_broker.groups.events.events` decodes them,
    later and not in the way of an answer.
    """

    kind: Kind
    generation: int
    data: dict[str, Any]


Effect = Reply | Persist | Note
