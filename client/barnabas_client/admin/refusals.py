"""The errors that brokers answer to admin requests, with what to do about them. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

from barnabas_client.errors import error_for
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Error codes of a broker that is not the coordinator, or not ready yet.
COORDINATOR_MOVED: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
_REMEDIES: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "check its name",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.UNKNOWN_MEMBER_ID: "stop the group's members first: while it has some, only they set its offsets",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that subscribe to the topic first",
    ErrorCode.INVALID_PARTITIONS: "ask for at least one, and for more than there are: they cannot be taken away",
    ErrorCode.INVALID_PRODUCER_EPOCH: "look at the producers of the partition again: that one has another epoch now",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "look at the producers of the partition again: the coordinator has moved",
    ErrorCode.INVALID_CONFIG: "check key and value against Kafka's documentation",
}


class HasCode(Protocol):
    """A row of a response, or the response itself. Some have an `error_message` too."""

    @property
    def error_code(self) -> int: ...


class HasError(Protocol):
    """A result with an error, None if there is none."""

    @property
    def error(self) -> KafkaError | None: ...


K = TypeVar("K")
V = TypeVar("V", bound=HasError)
C = TypeVar("C", bound=Iterable[HasError] | Mapping[Any, HasError])


def refusal(code: int, what: str, detail: str | None = None) -> KafkaError:
    """Create the exception for an error code of a broker.

    Args:
        code: the error code.
        what: what was attempted, such as "describe group 'g'".
        detail: the broker's error message.
    """
    remedy = _REMEDIES.get(ErrorCode.of(code))
    error = error_for(code, what, detail)
    return error if remedy is None else KafkaError(error.code, f"{error}. To do: {remedy}")


def refused(code: int, what: str, detail: str | None = None) -> KafkaError | None:
    """Create the exception for an error code of a broker; None for the code NONE. Arguments as :func:`refusal`."""
    return None if code == ErrorCode.NONE else refusal(code, what, detail)


def failure(row: HasCode, what: str) -> KafkaError | None:
    """Create the exception for a row of a response; None if it has no error. `what` as in :func:`refusal`."""
    return refused(row.error_code, what, getattr(row, "error_message", None))


def label(what: str, item: object) -> str:
    """Name what is done with an item, for error messages."""
    return what if item is None else f"{what} {item!r}" if isinstance(item, str) else f"{what} {item}"


def not_mentioned(what: str) -> KafkaError:
    """Create the exception for something that a response should mention and does not."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the broker's answer does not mention it")


def results_of(
    found: Mapping[K, V | KafkaError], failed: Callable[[K, KafkaError], V], raise_errors: bool
) -> dict[K, V]:
    """The results of a call about several items, as :func:`checked`; `failed` makes that of an item with an error."""
    return checked(
        {item: failed(item, one) if isinstance(one, KafkaError) else one for item, one in found.items()}, raise_errors
    )


def checked(results: C, raise_errors: bool) -> C:
    """Return `results`, or with `raise_errors` raise the first error that one has, with the others as its notes."""
    if raise_errors:
        raise_first(one.error for one in (results.values() if isinstance(results, Mapping) else results))
    return results


def raise_first(errors: Iterable[KafkaError | None]) -> None:
    """Raise the first of `errors`, if there is one, with the others as its notes."""
    found = [error for error in errors if error is not None]
    if found:
        for other in found[1:]:
            found[0].add_note(f"and: {other}")
        raise found[0]
