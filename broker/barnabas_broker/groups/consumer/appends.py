"""The appends of a group: what it decided, in its order, and the responses that wait until that is in the log. Pure.

If an append fails, its clients get an error, and the group's next append repeats its records.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas_broker.coordinators.result import APPEND_ERRORS
from barnabas_broker.groups.consumer import records
from barnabas_broker.groups.effects import Persist, Reply
from barnabas_broker.groups.errors import failed
from barnabas_protocol.coordinator_records import CoordinatorRecord
from barnabas_protocol.errors import ErrorCode, KafkaError

#: The type of a record, and the id of the member or the regular expression that it is about; "" for the others.
RecordId = tuple[int, str]

#: Maximum number of records that are appended together; a target of thousands of members does not fit into one batch.
_RECORDS_PER_APPEND: Final = 500

#: The answer to a request whose records have not been in the log for long.
_DELAYED: Final = APPEND_ERRORS[ErrorCode.REQUEST_TIMED_OUT]


@dataclass(slots=True)
class _Append:
    """Records in flight, and the responses that wait for them; none does if the append takes long (`delayed`)."""

    ids: list[RecordId]
    replies: list[Reply] = field(default_factory=list)
    delayed: bool = False


class Appends:
    """The records that a group has decided on, until they are in the log.

    Attributes:
        changed: records that the current call has to append.
        unwritten: those that a failed append has left behind.
        migrated: the records that make a classic group one of the consumer protocol, until they are appended.
    """

    __slots__ = ("_in_flight", "_last_ticket", "changed", "migrated", "unwritten")

    def __init__(self) -> None:
        self.changed: dict[RecordId, None] = {}
        self.unwritten: dict[RecordId, None] = {}
        self.migrated: list[tuple[RecordId, CoordinatorRecord]] = []
        self._in_flight: dict[int, _Append] = {}
        self._last_ticket = 0

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._in_flight

    def new_ticket(self) -> int:
        """A ticket for an effect, of any kind."""
        self._last_ticket += 1
        return self._last_ticket

    def clear(self) -> None:
        """Forget what is in flight: the group has ended."""
        self._in_flight.clear()

    def pending(self) -> Iterator[RecordId]:
        """Records in flight, and those that could not be appended."""
        for append in self._in_flight.values():
            yield from append.ids
        yield from self.unwritten

    def missing(self) -> dict[RecordId, None]:
        """Records that are neither in the log nor in flight: their append has failed, or is to come."""
        return self.unwritten | self.changed

    @property
    def replies(self) -> list[Reply]:
        """All responses that wait."""
        return [reply for append in self._in_flight.values() for reply in append.replies]

    def begin(self, record: Callable[[int, str], CoordinatorRecord]) -> list[Persist]:
        """Append what is missing.

        Args:
            record: makes a record.
        """
        ids, migrated = [*self.missing()], self.migrated
        if not ids and not migrated:
            return []
        self.changed, self.unwritten, self.migrated = {}, {}, []
        effects: list[Persist] = []
        for part in _parts([(each, record(*each)) for each in ids]) or [[]]:
            ticket = self.new_ticket()
            together = migrated + part
            self._in_flight[ticket] = _Append([each for each, _ in together])
            effects.append(Persist(ticket, [made for _, made in together]))
            migrated = []
        return effects

    def begin_migrated(self, batch: bytearray) -> Persist:
        """Append :attr:`migrated` on its own, before what the group says next.

        Args:
            batch: the records.
        """
        ticket, migrated = self.new_ticket(), self.migrated
        self._in_flight[ticket] = _Append([each for each, _ in migrated])
        self.migrated = []
        return Persist(ticket, [record for _, record in migrated], batch=batch)

    def wait(self, replies: list[Reply]) -> list[Reply]:
        """Let responses wait for everything that is in flight; returns those that are sent now."""
        if not self._in_flight:
            return replies
        newest = self._in_flight[next(reversed(self._in_flight))]
        if newest.delayed:
            return [failed(reply, KafkaError(_DELAYED)) for reply in replies]
        newest.replies += replies
        return []

    def succeeded(self, ticket: int) -> list[Reply]:
        """An append, and with it all earlier ones, is in the log: the responses that waited for it."""
        return self._in_flight.pop(ticket).replies

    def failed(self, ticket: int, error: ErrorCode) -> list[Reply]:
        """An append has failed: the responses to what waited for it, or for later ones."""
        append = self._in_flight.pop(ticket)
        self.unwritten.update(dict.fromkeys(append.ids))
        refusal = KafkaError(APPEND_ERRORS.get(error, error))
        return [*(failed(reply, refusal) for reply in append.replies), *self._refuse_from(ticket, refusal)]

    def delayed(self, ticket: int) -> list[Reply]:
        """An append takes long: what waits for it is refused. It may still succeed, and nothing is undone."""
        for number, append in self._in_flight.items():
            append.delayed |= number >= ticket
        return self._refuse_from(ticket, KafkaError(_DELAYED))

    def _refuse_from(self, ticket: int, refusal: KafkaError) -> list[Reply]:
        """Refuse what waits for an append, or for later ones: these depend on what is not in the log."""
        refused: list[Reply] = []
        for number, append in self._in_flight.items():
            if number >= ticket:
                refused += [failed(reply, refusal) for reply in append.replies]
                append.replies = []
        return refused


def _parts(
    made: Sequence[tuple[RecordId, CoordinatorRecord]],
) -> list[list[tuple[RecordId, CoordinatorRecord]]]:
    """The records in the parts that are appended together: what a regular expression matches may be large.

    A classic group becomes one of the consumer protocol as a whole or not at all.
    """
    if len(made) == 1 or any(each == (records.CLASSIC, "") for each, _ in made):
        return [[*made]]
    parts: list[list[tuple[RecordId, CoordinatorRecord]]] = [[]]
    for each, record in made:
        alone = each[0] == records.REGEX and record[1] is not None
        if parts[-1] and (alone or len(parts[-1]) >= _RECORDS_PER_APPEND):
            parts.append([])
        parts[-1].append((each, record))
        if alone:
            parts.append([])
    return [part for part in parts if part]
