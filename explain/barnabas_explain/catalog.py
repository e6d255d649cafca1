"""The catalogue of group events: every type, and what an event is. Pure."""

from enum import Enum
from typing import Any, Final, NamedTuple

#: The reason of a client that gives none, in Kafka's words (KIP-800).
NOT_PROVIDED: Final = "not provided"


class EventType(Enum):
    """The type of a group event. The value is the ``type`` of its record in ``__group_events``.

    Brokers do not write the last four: :mod:`barnabas_explain.rebuild` makes them from other records.
    """

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
    OFFSETS_UNSTABLE = "offsets_unstable"
    OFFSETS_STABLE = "offsets_stable"
    TOPIC_CHANGED = "topic_changed"
    STORM = "rebalance_storm"
    EPOCH_BUMPED = "group_epoch_bumped"
    TARGET_ASSIGNED = "target_assigned"
    ASSIGNOR_FAILED = "assignor_failed"
    MEMBER_REVOKING = "member_revoking"
    MEMBER_STILL_REVOKING = "member_still_revoking"
    MEMBER_REVOKED = "member_revoked"
    MEMBER_NOT_REVOKED = "member_not_revoked"
    MEMBER_FENCED = "member_fenced"
    MEMBER_AWAY = "static_member_away"
    GROUP_RECONCILED = "group_reconciled"
    REGEX_RESOLVED = "regex_resolved"
    REGEX_FAILED = "regex_failed"
    MEMBER_GONE = "member_gone"
    OFFSETS_COMMITTED = "offsets_committed"
    HISTORY_BEGAN = "history_began"
    HISTORY_GAP = "history_gap"
    GROUP_UPGRADED = "group_upgraded"
    GROUP_DOWNGRADED = "group_downgraded"


class GroupEvent(NamedTuple):
    """Something that happened to a group, for the log, the metrics and ``__group_events``.

    Attributes:
        type: what happened.
        generation: the group's generation when it happened; its group epoch in the consumer protocol.
        data: details. They may contain subscriptions and assignments as bytes, which
            :mod:`barnabas_explain.records` decodes later, after the response is sent.
    """

    type: EventType
    generation: int
    data: dict[str, Any]
