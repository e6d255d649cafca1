"""The first records of a topic: lines of JSON, rows of CSV, or records in the document."""

import csv
import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas_broker.init.document import FileLine, Seed

#: The fields of a record as ``barnabas consume --json`` prints it. A line of JSON with ``value`` and no other field
#: than these is a record; any other line is the value of one.
_FIELDS: Final = frozenset(("topic", "partition", "offset", "timestamp", "key", "value", "headers"))


class SeedRecord(NamedTuple):
    """A record to write.

    Attributes:
        place: the line that it is from.
        key: its key; None for none.
        value: its value; None for a tombstone.
        headers: names and values.
        partition: its partition; None to choose one by the key.
        timestamp: in ms since 1970; None for now.
    """

    place: FileLine
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def records_of(seed: Seed) -> Iterator[SeedRecord]:
    """The records of a seed, one after another.

    Raises:
        InitError: the file cannot be read, or a line of it; the text names the line.
    """
    if seed.file is None:
        yield _record(seed.place, seed.record)
        return
    try:
        with seed.file.open(encoding="utf-8", newline="") as lines:
            yield from _rows(seed, lines) if seed.file.suffix == ".csv" else _lines(seed, lines)
    except (OSError, UnicodeDecodeError) as error:
        raise seed.place.error(f"{seed.file}: {error}") from None


def _lines(seed: Seed, lines: Iterator[str]) -> Iterator[SeedRecord]:
    assert seed.file is not None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        place = FileLine(seed.file, number)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise place.error(f"not JSON: {error}") from None
        if seed.key is not None:
            if not isinstance(data, dict) or seed.key not in data:
                raise place.error(f"it has no field {seed.key}, which is the key")
            yield SeedRecord(place, _bytes(place, data[seed.key]), text.encode())
        elif isinstance(data, dict) and "value" in data and data.keys() <= _FIELDS:
            yield _record(place, data)
        else:
            yield SeedRecord(place, None, text.encode())


def _rows(seed: Seed, lines: Iterator[str]) -> Iterator[SeedRecord]:
    """Rows of CSV; the value of a record is a JSON object with the columns."""
    assert seed.file is not None
    rows = csv.DictReader(lines)
    try:
        names = rows.fieldnames or []
        if seed.key is not None and seed.key not in names:
            raise FileLine(seed.file, 1).error(
                f"it has no column {seed.key}, which is the key; it has {', '.join(names)}"
            )
        for row in rows:
            place = FileLine(seed.file, rows.line_num)
            if None in row or None in row.values():
                raise place.error(f"it has another number of columns than the first line, which has {len(names)}")
            key = None if seed.key is None else row[seed.key].encode()
            yield SeedRecord(place, key, json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode())
    except csv.Error as error:
        raise FileLine(seed.file, rows.line_num).error(f"not CSV: {error}") from None


def _record(place: FileLine, data: dict[str, Any]) -> SeedRecord:
    for name in data.keys() - _FIELDS:
        raise place.error(f"a record has no {name}, only key, value, headers, partition and timestamp")
    headers = data.get("headers") or ()
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise place.error("headers must be a mapping of names and values")
    numbers = [data.get(name) for name in ("partition", "timestamp")]
    if not all(each is None or (type(each) is int and each >= 0) for each in numbers):
        raise place.error("partition and timestamp must be whole numbers")
    return SeedRecord(
        place,
        _bytes(place, data.get("key")),
        _bytes(place, data["value"]),
        tuple((name, _bytes(place, content)) for name, content in pairs),
        numbers[0],
        numbers[1],
    )


def _bytes(place: FileLine, data: Any) -> bytes | None:
    """The bytes of a key or a value: text as UTF-8, ``{"base64": "..."}`` as that, anything else as JSON."""
    if data is None:
        return None
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, dict) and data.keys() == {"base64"}:
        try:
            return b64decode(data["base64"], validate=True)
        except (TypeError, ValueError):
            raise place.error(f"not base64: {data['base64']}") from None
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str).encode()
