"""Requests that name many things: for each array of each API, many elements, all different or all the same.

They are made from the declarations of the messages, so that an API that is added later is among them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from barnabas_broker.handlers.dispatch import Route
from barnabas_protocol.acls import AclPatternType
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import (
    BOOLEAN,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Field,
    Request,
    Struct,
    WireType,
)

#: The name of the topic, group and transaction that requests with repeated names name.
NAME: Final = "crowded"
#: Fields of which any other value makes a request that does nothing; and the fields of one struct.
_FIXED: Final[dict[str, Any]] = {
    "acks": 1,
    "config_operation": 0,
    "host": "*",
    "match_type": 0,
    "mechanism": 1,
    "member_epoch": 0,
    "num_partitions": 1,
    "operation": 3,
    "pattern_type_filter": AclPatternType.LITERAL,
    "permission_type": 3,
    "principal": "User:one",
    "rebalance_timeout_ms": 1_000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_pattern_type": AclPatternType.LITERAL,
    "resource_type": 2,
    "resource_type_filter": 2,
    "response_partition_limit": 2_000,
    "session_epoch": -1,
    "session_timeout_ms": 30_000,
    "timeout_ms": 1_000,
    "timestamp": -1,
}
_NUMBERS: Final = (INT8, INT16, INT32, INT64)
#: Names of numbers that tell elements apart.
_COUNTED: Final = ("partition", "index", "producer_id", "node", "replica", "broker")


@dataclass(frozen=True)
class Crowd:
    """A request with many elements in one array.

    Attributes:
        key: the API.
        version: of the request: the highest that has the array.
        path: the fields that lead to the array, outermost first.
    """

    key: ApiKey
    version: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key.title} v{self.version} {'.'.join(self.path)}"

    def request(self, count: int, topic_id: bytes, *, same: bool) -> Request:
        """The request.

        Args:
            count: elements of the array; the arrays around it have one element, all others are empty, or null where
                that means everything.
            topic_id: of the topic :data:`NAME`.
            same: whether all elements are the same.
        """
        made: Request = _Maker(self.version, count, topic_id, same).struct(api(self.key).request, self.path, None)
        return made


def crowds(route: Route) -> Iterator[Crowd]:
    """The requests of an API, one for each of its arrays."""
    request = api(route.key).request
    for path, versions in _arrays(request, range(route.served.low, route.served.high + 1)):
        yield Crowd(route.key, versions[-1], path)


def _arrays(of: type[Struct], versions: range) -> Iterator[tuple[tuple[str, ...], list[int]]]:
    for one in of.FIELDS:
        having = [version for version in versions if version in one.versions]
        if not having or one.type.element is None:
            continue
        yield (one.name,), having
        if one.type.element.struct is not None:
            for path, inner in _arrays(one.type.element.struct, range(having[0], having[-1] + 1)):
                yield (one.name, *path), [version for version in inner if version in having]


@dataclass
class _Maker:
    version: int
    count: int
    topic_id: bytes
    same: bool

    def struct(self, of: type[Struct], path: tuple[str, ...], number: int | None) -> Any:
        """A structure; `path` leads from it to the crowded array, if that is below it; `number` tells it apart."""
        return of(**{one.name: self.value(one, path, number) for one in of.FIELDS})

    def value(self, one: Field, path: tuple[str, ...], number: int | None) -> Any:
        if self.version not in one.versions:
            return one.absent()
        if one.type.element is not None:
            return self.array(one, path, number)
        if one.type.struct is not None:
            return (
                None if one.tag is not None or self.version in one.nullable else self.struct(one.type.struct, (), None)
            )
        return self.plain(one, number)

    def array(self, one: Field, path: tuple[str, ...], number: int | None) -> Any:
        element = one.type.element
        assert element is not None
        if not path or path[0] != one.name:
            return None if self.version in one.nullable else []
        numbers = range(self.count) if len(path) == 1 else range(1)
        if self.same:
            return [self.element(element, one, path[1:], None)] * len(numbers)
        if element.struct is not None and len(path) == 1:
            return list(self.numbered(element.struct, numbers))
        return [self.element(element, one, path[1:], each) for each in numbers]

    def numbered(self, of: type[Struct], numbers: Iterable[int]) -> Iterator[Struct]:
        """Structures that differ in their numbers only: most of their fields are made once."""
        made = {one.name: self.value(one, (), 0) for one in of.FIELDS}
        differing = [one for one in of.FIELDS if self.value(one, (), 1) != made[one.name]]
        for number in numbers:
            yield of(**made | {one.name: self.value(one, (), number) for one in differing})

    def element(self, element: WireType[Any], array: Field, path: tuple[str, ...], number: int | None) -> Any:
        if element.struct is not None:
            return self.struct(element.struct, path, number if not path else None)
        return self.plain(array._replace(type=element), number)

    def plain(self, one: Field, number: int | None) -> Any:
        if one.name in _FIXED:
            return _FIXED[one.name]
        if one.type is STRING:
            return NAME if number is None else f"{NAME}-{number}"
        if one.type is UUID:
            return self.topic_id if number is None else number.to_bytes(16, "big")
        if one.type in (BYTES, RECORDS):
            return None if self.version in one.nullable else b""
        if one.type is BOOLEAN:
            # Not that thousands of topics are created: that takes as long as it takes.
            return one.name != "allow_auto_topic_creation"
        if number is not None and one.type in _NUMBERS and any(word in one.name for word in _COUNTED):
            return number
        return one.type.zero if one.default is None or isinstance(one.default, list) else one.default
