"""Whether a schema of Avro is valid, and compatible with others: the rules of Avro's own library. Pure.

https://avro.apache.org/docs/1.12.0/specification/#schema-resolution. A check takes time that grows with the product of
the two schemas' sizes, so it is given up after so many pairs.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
)
from avro.name import Names
from avro.schema import Schema, make_avsc_object

from barnabas_broker.schema_registry.errors import invalid_schema

#: Pairs of types that one check compares.
_MOST_PAIRS: Final = 20_000


class Parsed(NamedTuple):
    """Texts of schemas: one, after those that it uses."""

    text: str
    uses: tuple[str, ...]


def parse(given: Parsed) -> Schema:
    """Read a schema.

    Raises:
        RegistryError: it is not valid.
    """
    try:
        names = Names()
        for used in given.uses:
            make_avsc_object(_without_logical_types(json.loads(used)), names)
            names.default_namespace = None
        return make_avsc_object(_without_logical_types(json.loads(given.text)), names)
    except Exception as error:  # of a hostile schema the library raises more than its own exceptions
        raise invalid_schema(f"{type(error).__name__}: {error}"[:1_000]) from error


def problems(reader: Schema, writer: Schema) -> Sequence[str]:
    """Reasons why the one schema cannot read what was written with the other; none if it can.

    Raises:
        RegistryError: the schemas are too large to compare.
    """
    try:
        found = _Checker().get_compatibility(reader, writer)
    except (RecursionError, _TooManyPairs):
        raise invalid_schema("it is too large to be compared with the earlier one") from None
    if found.compatibility is not SchemaCompatibilityType.incompatible:
        return []
    kinds = sorted({each.name.upper() for each in found.incompatibilities})
    places = ", ".join(sorted(found.locations)[:10])
    return [f"{', '.join(kinds)} at {places}: {'; '.join(sorted(found.messages)[:10])}"]


class _TooManyPairs(Exception):
    pass


class _Checker(ReaderWriterCompatibilityChecker):
    """Gives up after so many pairs."""

    def __init__(self) -> None:
        self.memoize_map = {}  # all that the library's own, which has no types, does
        self._pairs = 0

    def calculate_compatibility(self, reader: Schema, writer: Schema, location: list[str]) -> SchemaCompatibilityResult:
        self._pairs += 1
        if self._pairs > _MOST_PAIRS:
            raise _TooManyPairs
        return super().calculate_compatibility(reader, writer, location)


def _without_logical_types(value: Any) -> Any:
    """JSON without logical types: the rules ignore them, and the library warns of those that it does not know."""
    if isinstance(value, dict):
        return {key: _without_logical_types(each) for key, each in value.items() if key != "logicalType"}
    return [_without_logical_types(each) for each in value] if isinstance(value, list) else value
