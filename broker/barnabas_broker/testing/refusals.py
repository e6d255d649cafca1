"""Builds a response that carries only an error code, for any API in any version. Pure.

It follows the response's schema: the code is set at the outermost level that has a field for it, and every array on the
way there gets an item for each topic, partition or group in the request. For two APIs the code is set in the items,
because the outermost code means something else: Fetch (the fetch session) and Metadata (the cluster).
"""

from collections.abc import Sequence
from typing import Any, Final

from barnabas_broker.handlers.produce import Produce
from barnabas_broker.metrics import ERROR_CODES
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import INT16, RECORDS, Field, Response, Struct

_OF_ITEMS: Final = frozenset((ApiKey.FETCH, ApiKey.METADATA))
#: Errors of a fetch session as a whole: the outermost code of a Fetch response.
OF_SESSION: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
#: Fields that an item of a response copies from the request, with their names in the request.
_IDENTITY: Final[dict[str, tuple[str, ...]]] = {
    "name": ("name",),
    "topic": ("topic",),
    "topic_id": ("topic_id",),
    "index": ("index",),
    "partition": ("partition",),
    "partition_index": ("partition_index", "partition"),
    "group_id": ("group_id",),
    "member_id": ("member_id",),
    "key": ("key",),
    "resource_type": ("resource_type",),
    "resource_name": ("resource_name",),
}
#: Fields that are -1 in an error response, as in Kafka's.
_NONE_IS_MINUS_ONE: Final = frozenset(
    (
        "base_offset",
        "committed_offset",
        "end_offset",
        "generation_id",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "low_watermark",
        "node_id",
        "offset",
        "producer_epoch",
        "producer_id",
        "timestamp",
    )
)


def refusal(key: ApiKey, request: Any, version: int, code: ErrorCode) -> Response | None:
    """A response to `request` with `code` where it belongs.

    Args:
        key: the API.
        request: the request; a Produce request as the broker reads it.
        version: the version of the API.
        code: the error.

    Returns:
        The response, or None if it has no field for the error because the request names nothing.
    """
    response_class = api(key).response
    if isinstance(request, Produce):
        request = _full(request)
    flat = key not in _OF_ITEMS or (key is ApiKey.FETCH and code in OF_SESSION)
    made = _Maker(version, code).make(response_class, request, flat=flat)
    return made if isinstance(made, Response) else None


def _full(request: Produce) -> ProduceRequest:
    """A Produce request in the shape of its schema."""
    return ProduceRequest(
        transactional_id=request.head.transactional_id,
        acks=request.head.acks,
        timeout_ms=request.head.timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else bytes(16),
                partition_data=[PartitionProduceData(index=index, records=None) for index, _ in partitions],
            )
            for topic, partitions in request.topics
        ],
    )


class _Maker:
    """Builds structures of one version that carry an error."""

    def __init__(self, version: int, code: ErrorCode) -> None:
        self.version = version
        self.code = code

    def make(self, cls: type[Struct], asked: Any, *, flat: bool = True) -> Struct | None:
        """A structure that answers `asked`; None if it has no field for the error.

        Args:
            cls: its class.
            asked: the structure, or the plain value, of the request that it answers.
            flat: whether its own error code may be set.
        """
        own = flat and self._has_code(cls)
        values: dict[str, Any] = {}
        placed = own
        for field in cls.FIELDS:
            if self.version not in field.versions:
                values[field.name] = field.absent()
            elif field.name in ERROR_CODES:
                values[field.name] = self.code if own else ErrorCode.NONE
            elif field.name == "error_message" and own and self.version in field.nullable:
                values[field.name] = f"{self.code.name}, made by a test"
            elif not own and (items := self._items(field, asked)):
                values[field.name] = items
                placed = True
            else:
                values[field.name] = self._value(field, asked)
        return cls(**values) if placed else None

    def _has_code(self, cls: type[Struct]) -> bool:
        return any(f.name in ERROR_CODES and f.type is INT16 and self.version in f.versions for f in cls.FIELDS)

    def _items(self, field: Field, asked: Any) -> list[Struct]:
        """An item for each one in the request, if the field is an array whose items have a field for the error."""
        element = field.type.element
        if element is None or element.struct is None or not isinstance(asked, Struct):
            return []
        made = (self.make(element.struct, one) for one in self._asked_about(field.name, asked))
        return [item for item in made if item is not None]

    def _asked_about(self, name: str, asked: Struct) -> Sequence[Any]:
        """The items of the request: its array of the same name, otherwise its first array."""
        arrays = {f.name: f for f in asked.FIELDS if f.type.element is not None and self.version in f.versions}
        found = arrays.get(name) or next(iter(arrays.values()), None)
        return getattr(asked, found.name) or () if found is not None else ()

    def _value(self, field: Field, asked: Any) -> Any:
        for name in _IDENTITY.get(field.name, ()):
            if isinstance(asked, Struct):
                if any(f.name == name and f.type is field.type for f in asked.FIELDS):
                    return getattr(asked, name)
            elif isinstance(asked, str) == isinstance(field.type.zero, str):
                return asked
        if field.name in _NONE_IS_MINUS_ONE:
            return -1
        return b"" if field.type is RECORDS else field.absent()
