"""Reads the iterables of `send_many`: some records at a time, checked and serialized, as columns."""

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar

from barnabas_client.producer.config import ProducerConfig
from barnabas_client.producer.measure import OVERHEAD, Headers, check_timestamp, headers_size, is_bytes, record_size
from barnabas_client.serialization import Conversion
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.records import RecordColumns

T = TypeVar("T")

#: How many records, and how many bytes of them, are read at a time: a few milliseconds of work.
_RECORDS: Final = 4096
_BYTES: Final = 1 << 20
#: How many are read at first, before their size is known; and the largest growth from one time to the next.
_FIRST: Final = 64
_GROWTH: Final = 8


class ReadBatch(NamedTuple):
    """Some records that were read.

    Attributes:
        columns: the records, and perhaps more that are not to be sent.
        size: the number of records.
        keys: of the records; None if all are null.
    """

    columns: RecordColumns
    size: int
    keys: list[Any] | None


class RecordReader:
    """Reads records from one iterable for each of their parts.

    Args:
        topic: for errors.
        values: one for each record.
        keys: one for each record; None if all are null.
        headers: one sequence, or None, for each record; None if there are none.
        timestamps_ms: one for each record; None for now.
        config: the producer's settings.

    Attributes:
        count: the number of records that were read.

    Raises:
        TypeError: one of them is not an iterable.
        ValueError: their lengths differ.
    """

    def __init__(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        headers: Iterable[Headers | None] | None,
        timestamps_ms: Iterable[int] | None,
        config: ProducerConfig,
    ) -> None:
        self._what = f"send_many to {topic}"
        self._config = config
        given: dict[str, Iterable[Any]] = {"values": values}
        others = (("keys", keys), ("headers", headers), ("timestamps_ms", timestamps_ms))
        given.update((name, one) for name, one in others if one is not None)
        for name, one in given.items():
            if isinstance(values, Sized) and isinstance(one, Sized) and len(one) != len(values):
                raise ValueError(f"{self._what}: values has {len(values)} items, {name} {len(one)}: give as many")
        self._iterators = {name: _iterator(self._what, name, one) for name, one in given.items()}
        self._next = _FIRST
        self._end = 0
        self._failure: Exception | None = None
        self.count = 0

    def read(self, now_ms: int) -> ReadBatch | None:
        """Read some more records; None if there are no more.

        Args:
            now_ms: the time of the records if none is given.

        Raises:
            Exception: the next record cannot be read or sent. All records before it were returned.
        """
        taken = self._take()
        return None if taken is None else self._columns(taken, now_ms)

    async def read_converted(self, now_ms: int, topic: str, conversion: Conversion) -> ReadBatch | None:
        """As :meth:`read`, with serializers that are awaited or take a context.

        Raises:
            Exception: the next record cannot be read or sent. All records before it were returned.
        """
        taken = self._take()
        if taken is None:
            return None
        values = taken["values"]
        keys, headers = taken.get("keys"), taken.get("headers")
        made: list[tuple[Any, Any, Any]] = []
        for at, value in enumerate(values):
            key, own = None if keys is None else keys[at], None if headers is None else headers[at]
            try:
                made.append(await conversion.convert(topic, key, value, own))
            except Exception as error:
                error.add_note(f"{self._what}: a serializer raised this for record {self.count + at}")
                self._fail(at, error)
                break
        if keys is not None:
            taken["keys"] = [key for key, _, _ in made]
        taken["values"] = [value for _, value, _ in made]
        if headers is not None or any(own for _, _, own in made):
            taken["headers"] = [own for _, _, own in made]
        return self._columns(taken, now_ms)

    def _take(self) -> dict[str, list[Any]] | None:
        """The items of some more records, as they are; None if there are no more."""
        if self._failure is not None:
            raise self._failure
        values = self._pull("values", self._next)
        self._end = len(values)
        taken = {name: self._pull(name, len(values)) for name in self._iterators if name != "values"}
        if not self._end:
            if self._failure is not None:
                raise self._failure
            return None
        return taken | {"values": values}

    def _columns(self, taken: dict[str, list[Any]], now_ms: int) -> ReadBatch:
        """Check and serialize records."""
        values = self._bytes("value", taken["values"], self._config.value_serializer)
        keys, headers, times = (taken.get(name) for name in ("keys", "headers", "timestamps_ms"))
        if keys is not None:
            keys = self._bytes("key", keys, self._config.key_serializer)
            if keys.count(None) == len(keys):
                keys = None
        if headers is not None:
            self._check_headers(headers)
        if times is not None:
            self._check_times(times)
        end = self._end
        if not end and self._failure is not None:
            raise self._failure
        values = values[:end]
        keys, headers, times = (None if one is None else one[:end] for one in (keys, headers, times))
        columns = RecordColumns(values, keys, headers, now_ms if times is None else times)
        if columns.largest + OVERHEAD > self._config.max_request_size:
            self._each(
                range(end),
                lambda what, at: record_size(
                    what,
                    None if keys is None else keys[at],
                    values[at],
                    None if headers is None else headers[at],
                    self._config.max_request_size,
                ),
            )
            if not self._end and self._failure is not None:
                raise self._failure
        mean = max(1, columns.ends[-1] // end)
        self._next = max(1, min(_RECORDS, self._next * _GROWTH, _BYTES // mean))
        self.count += self._end
        return ReadBatch(columns, self._end, keys)

    def cut(self, chunk: ReadBatch, at: int, error: Exception) -> ReadBatch:
        """Return the records of the last chunk before the one at `at`, which cannot be sent because of `error`.

        Raises:
            Exception: `error`, if there are none.
        """
        if at == 0:
            raise error
        self.count -= chunk.size - at
        self._failure = error
        return chunk._replace(size=at)

    def _fail(self, at: int, error: Exception) -> None:
        """The record at this place of the chunk cannot be sent: it ends before that one."""
        if at < self._end or self._failure is None:
            self._end, self._failure = min(at, self._end), error

    def _pull(self, name: str, count: int) -> list[Any]:
        items: list[Any] = []
        try:
            items.extend(islice(self._iterators[name], count))  # keeps what came before an error
        except Exception as error:
            error.add_note(f"{self._what}: {name} raised this after {self.count + len(items)} records")
            if name == "values":
                self._failure = error
            else:
                self._fail(len(items), error)
        if name != "values" and len(items) < count:
            sent = self.count + len(items)
            self._fail(
                len(items),
                ValueError(f"{self._what}: {name} has only {sent} items, values has more: give as many of both"),
            )
        return items

    def _bytes(self, name: str, items: list[Any], serializer: Callable[..., Any] | None) -> list[Any]:
        if serializer is not None:
            out: list[Any] = []
            made: Iterable[Any] = map(serializer, items)
            if NoneType in set(map(type, items)):
                made = (None if item is None else serializer(item) for item in items)
            try:
                out.extend(made)
            except Exception as error:
                error.add_note(f"{self._what}: {name}_serializer raised this for record {self.count + len(out)}")
                self._fail(len(out), error)
            items = out
        if not {bytes, NoneType}.issuperset(map(type, items)):

            def check(what: str, item: object) -> None:
                if not (item is None or is_bytes(item)):
                    raise TypeError(
                        f"{what}: the {name} is {type(item).__name__}: give bytes, or set {name}_serializer"
                    )

            self._each(items, check)
        return items

    def _check_headers(self, items: Sequence[Headers | None]) -> None:
        before: Headers | None = None

        def check(what: str, headers: Headers | None) -> None:
            nonlocal before
            if headers is not before:
                if headers:
                    headers_size(what, headers)
                before = headers

        self._each(items, check)

    def _check_times(self, times: list[int]) -> None:
        if {int}.issuperset(map(type, times)) and times and min(times) >= 0 and max(times) < 1 << 63:
            return
        self._each(times, check_timestamp)

    def _each(self, items: Iterable[T], check: Callable[[str, T], object]) -> None:
        """Check records one by one, until one is refused."""
        for at, item in enumerate(items):
            try:
                check(f"{self._what}: record {self.count + at}", item)
            except (TypeError, ValueError, KafkaError) as error:
                self._fail(at, error)
                return


def _iterator(what: str, name: str, given: object) -> Iterator[Any]:
    if isinstance(given, str | bytes | bytearray | memoryview):
        raise TypeError(
            f"{what}: {name} is {type(given).__name__}: give a list or another iterable. To do: for a "
            "single record use send"
        )
    if isinstance(given, Iterable):
        return iter(given)
    if isinstance(given, AsyncIterable):
        raise TypeError(
            f"{what}: {name} is an async iterable. To do: collect some of its items in a list, and send that; or use "
            "`async for` with send"
        )
    raise TypeError(f"{what}: {name} is {type(given).__name__}: give an iterable with an item for each record")
