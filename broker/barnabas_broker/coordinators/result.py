"""Decision of a coordinator's machine (Kafka's ``CoordinatorResult``). Pure.

A decision changes nothing that is in the log: the runtime appends its records, and the machine applies them when they
are durable (:mod:`~barnabas_broker.coordinators.runtime`).
"""

from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas_protocol.errors import ErrorCode

S = TypeVar("S")
R = TypeVar("R")
E = TypeVar("E")


class Result(NamedTuple, Generic[S, R, E]):
    """A decision about a request, or about time that has passed.

    Attributes:
        records: to append, all or none of them; the machine applies them when they are durable.
        response: to the request, sent after the records are applied; None if it is not answered now.
        events: published after the records are applied: what follows from them, and what the log and metrics report.
        waits: whether the machine cannot decide now. It is asked again after its next change.
    """

    records: Sequence[S] = ()
    response: R | None = None
    events: Sequence[E] = ()
    waits: bool = False


class IllegalTransition(Exception):
    """A transition that a machine's table does not allow: a bug of the machine, never caused by a client."""


#: How errors of an append are answered, as in Kafka's coordinators.
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
