"""Effects: what a group's state machine asks its shell to do. The machine decides and returns them; the shell acts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas_broker.groups.sightings import MemberConnection
from barnabas_explain.catalog import GroupEvent
from barnabas_protocol.coordinator_records import CoordinatorRecord
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse
from barnabas_protocol.messages.sync_group import SyncGroupResponse

#: Identifies a deferred request to the shell. The machine only stores it and returns it.
Token = object


class Caller(NamedTuple):
    """The client that sends a request.

    Attributes:
        client_id: its client id.
        host: its address as Kafka prints it ("/127.0.0.1").
        may_describe: whether it may describe a topic; None if it may describe all.
        principal: who it is; "" if that is not known.
        connection: what is seen of its connection; None if that is not known.
        audit: called with a group that it is not a member of and whose offsets it has set; None if that is not audited.
    """

    client_id: str
    host: str
    may_describe: Callable[[str], bool] | None = None
    principal: str = ""
    connection: MemberConnection | None = None
    audit: Callable[[str], None] | None = None


class Reply(NamedTuple):
    """Respond to the request that `token` stands for. The response has the newest version's shape."""

    token: Token
    response: JoinGroupResponse | SyncGroupResponse | LeaveGroupResponse | ConsumerGroupHeartbeatResponse


class Persist(NamedTuple):
    """Append records of a group, all or none, then report with ``persisted(ticket, ...)``.

    Attributes:
        ticket: of the append.
        records: what to append, in their order.
        state_since: when the group entered its state, in seconds on the clock of `now`; None if that is unknown, or not
            in the records. A machine does not know the time of day: the shell sets ``current_state_timestamp`` of the
            last record from it.
        caller: the client that causes it, if what follows depends on it.
        batch: made of the records beforehand, if they are many.
    """

    ticket: int
    records: Sequence[CoordinatorRecord]
    state_since: float | None = None
    caller: Caller | None = None
    batch: bytearray | None = None


Effect = Reply | Persist | GroupEvent
