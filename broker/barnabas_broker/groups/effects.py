"""Effects: what a group's state machine asks its shell to do. The machine decides and returns them; the shell acts."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse
from barnabas_protocol.messages.sync_group import SyncGroupResponse
from barnabas_protocol.schema import Data

#: Identifies a deferred request to the shell. The machine only stores it and returns it.
Token = object


#: The reason of a client that gives none, in Kafka's words (KIP-800).
NOT_PROVIDED: Final = "not provided"


#: The error that members get if the group's record cannot be appended.
APPEND_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Caller(NamedTuple):
    """The client that sends a request.

    Attributes:
        client_id: its client id.
        host: its address as Kafka prints it ("/127.0.0.1").
        may_describe: whether it may describe a topic; None if it may describe all.
    """

    client_id: str
    host: str
    may_describe: Callable[[str], bool] | None = None


class Reply(NamedTuple):
    """Respond to the request that `token` stands for. The response has the newest version's shape."""

    token: Token
    response: JoinGroupResponse | SyncGroupResponse | LeaveGroupResponse | ConsumerGroupHeartbeatResponse


#: Key and value of a record in the schemas of :mod:`barnabas_protocol.coordinator_records`; None for a tombstone.
CoordinatorRecord = tuple[Data, Data | None]


class Persist(NamedTuple):
    """Append the group's record, then report with ``ClassicGroup.persisted(ticket, ...)``.

    The machine does not know the time of day. The shell sets `value.current_state_timestamp` from `state_since`, the
    time at which the group entered its state: seconds on the clock of `now`, None if unknown.

    `before` are records that are appended with it, all or none, in front of it. If there is a `batch`, it has been made
    of all of them beforehand: they are many.
    """

    ticket: int
    value: GroupMetadataValue
    state_since: float | None
    before: Sequence[CoordinatorRecord] = ()
    batch: bytearray | None = None


class PersistRecords(NamedTuple):
    """Append records of a group of the consumer protocol, all or none, then report with ``persisted(ticket, ...)``.

    If there is a `batch`, it has been made of the records beforehand: they are many.
    """

    ticket: int
    records: Sequence[CoordinatorRecord]
    batch: bytearray | None = None


class EventType(Enum):
    """The type of a group event. The value is the ``type`` of its record in ``__group_events``.

    Brokers do not write the last four: :mod:`barnabas_broker.groups.events.rebuild` makes them from other records.
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
            :mod:`barnabas_broker.groups.events.events` decodes later, after the response is sent.
    """

    type: EventType
    generation: int
    data: dict[str, Any]


Effect = Reply | Persist | PersistRecords | GroupEvent
