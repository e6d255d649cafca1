"""The answer to a request that says nothing but an error code, for any API in any version. Pure.

It is made of the response's schema: the code goes to the outermost level that has a place for one, and on the way
there every array of the response gets an item for each that was asked about (a topic, a partition, a group). Two APIs
have a place at the top that clients take for something else, so theirs goes to the items: Fetch, whose own code is
about the fetch session, and Metadata, whose own code is about the cluster.
"""

from collections.abc import Sequence
from typing import Any, Final

from barnabas_broker.handlers.produce import Produce
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import INT16, RECORDS, Field, Response, Struct

_OF_ITEMS: Final = frozenset((ApiKey.FETCH, ApiKey.METADATA))
#: What is about a fetch session as a whole, and stands at the top of a Fetch response.
OF_SESSION: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)
#: What an item of a response repeats of the request, and how else the request may call it.
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
#: What says "there is none" with -1, as Kafka's own error answers have it.
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
    """An answer to `request` with `code` wherever it belongs.

    Args:
        key: which API.
        request: what was asked; a Produce request as the broker reads it.
        version: of the API.
        code: the error.

    Returns:
        The answer, or None if the response has no place for an error, since nothing was asked about.
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
    """Makes structures of a version that hold an error."""

    def __init__(self, version: int, code: ErrorCode) -> None:
        self.version = version
        self.code = code

    def make(self, cls: type[Struct], asked: Any, *, flat: bool = True) -> Struct | None:
        """A structure that answers `asked`; None if there is no place for the error in it.

        Args:
            cls: its class.
            asked: the structure, or the plain value, of the request that it answers.
            flat: whether its own error code may hold the error.
        """
        own = flat and self._has_code(cls)
        values: dict[str, Any] = {}
        placed = own
        for field in cls.FIELDS:
            if self.version not in field.versions:
                values[field.name] = field.absent()
            elif field.name == "error_code":
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
        return any(f.name == "error_code" and f.type is INT16 and self.version in f.versions for f in cls.FIELDS)

    def _items(self, field: Field, asked: Any) -> list[Struct]:
        """An item for each that was asked about, if the field is an array whose items have a place for an error."""
        element = field.type.element
        if element is None or element.struct is None or not isinstance(asked, Struct):
            return []
        made = (self.make(element.struct, one) for one in self._asked_about(field.name, asked))
        return [item for item in made if item is not None]

    def _asked_about(self, name: str, asked: Struct) -> Sequence[Any]:
        """What the request asks about: its array of the same name, or else its first one."""
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
