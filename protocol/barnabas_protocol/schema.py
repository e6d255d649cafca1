"""Declarations of messages, once for all versions; :mod:`.structures` makes constructs of them.

A declaration is a class whose attributes are :func:`field` calls::

    class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+"):
        group_id: str = field(STRING)
        generation_id: int = field(INT32)
        member_id: str = field(STRING)
        group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)

Instances are slotted objects with a keyword-only ``__init__``. A field has the default that Kafka's schema gives it; a
field without one is required. If a version lacks a field, parsing sets its default, and building refuses any other
value unless the field is ignorable, as in Kafka's generated classes.

Names are Kafka's in snake case. Source: Kafka's ``clients/src/main/resources/common/message``; a test compares every
declaration with it in every version.
"""

from functools import cache
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, dataclass_transform, overload

from construct import Construct

from barnabas_protocol import wire
from barnabas_protocol.wire import MAX_ELEMENTS, MAX_REQUEST_ELEMENTS, Buffer

T = TypeVar("T")


class Versions:
    """An inclusive range of versions, in Kafka's notation: ``"0-4"``, ``"3+"``, ``"2"``, ``"none"``."""

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low: Final = low
        self.high: Final = high

    @staticmethod
    @cache
    def of(text: str) -> "Versions":
        """Read Kafka's notation. An open end is 32767, and "none" is an empty range, which begins after the last
        version that there can be."""
        if text == "none":
            return Versions(32768, 32767)
        if text.endswith("+"):
            return Versions(int(text[:-1]), 32767)
        low, _, high = text.partition("-")
        return Versions(int(low), int(high or low))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions) and (self.low, self.high) == (other.low, other.high)

    def __hash__(self) -> int:
        return hash((self.low, self.high))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __iter__(self) -> Any:
        return iter(range(self.low, self.high + 1))

    def __str__(self) -> str:
        if self.high < self.low:
            return "none"
        if self.high == 32767:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NONE: Final = Versions.of("none")


class WireType(NamedTuple, Generic[T]):
    """The type of a field: its constructs, plain and compact, nullable and not, and its value when absent."""

    name: str
    zero: Any
    plain: Construct | None = None
    nullable: Construct | None = None
    compact: Construct | None = None
    compact_nullable: Construct | None = None
    struct: "type[Struct] | None" = None
    element: "WireType[Any] | None" = None


def _fixed(name: str, con: Construct, zero: Any) -> WireType[Any]:
    return WireType(name, zero, con, None, con, None)


INT8: Final[WireType[int]] = _fixed("int8", wire.INT8, 0)
INT16: Final[WireType[int]] = _fixed("int16", wire.INT16, 0)
UINT16: Final[WireType[int]] = _fixed("uint16", wire.UINT16, 0)
INT32: Final[WireType[int]] = _fixed("int32", wire.INT32, 0)
UINT32: Final[WireType[int]] = _fixed("uint32", wire.UINT32, 0)
INT64: Final[WireType[int]] = _fixed("int64", wire.INT64, 0)
FLOAT64: Final[WireType[float]] = _fixed("float64", wire.FLOAT64, 0.0)
BOOLEAN: Final[WireType[bool]] = _fixed("bool", wire.BOOLEAN, False)
UUID: Final[WireType[bytes]] = _fixed("uuid", wire.UUID, bytes(16))
STRING: Final[WireType[str]] = WireType(
    "string", "", wire.STRING, wire.NULLABLE_STRING, wire.COMPACT_STRING, wire.COMPACT_NULLABLE_STRING
)
BYTES: Final[WireType[Buffer]] = WireType(
    "bytes", b"", wire.BYTES, wire.NULLABLE_BYTES, wire.COMPACT_BYTES, wire.COMPACT_NULLABLE_BYTES
)
RECORDS: Final[WireType[Buffer]] = WireType(
    "records", None, wire.BYTES, wire.NULLABLE_BYTES, wire.COMPACT_BYTES, wire.COMPACT_NULLABLE_BYTES
)

S = TypeVar("S", bound="Struct")


def struct(cls: type[S]) -> WireType[S]:
    """The type of a field that is a structure."""
    return WireType(cls.__name__, None, struct=cls)


@overload
def array(of: type[S]) -> WireType[list[S]]: ...
@overload
def array(of: WireType[T]) -> WireType[list[T]]: ...
def array(of: Any) -> WireType[Any]:
    """The type of a field that is an array, of structures or of a plain type."""
    element: WireType[Any] = of if isinstance(of, WireType) else struct(of)
    return WireType(f"[]{element.name}", [], element=element)


_MISSING: Final = object()

#: The instances of a class that are made before its ``__init__`` is generated, which takes as long as some 30 of them.
_PLAIN: Final = 32


class Field(NamedTuple):
    """A declared field. `flexible` overrides the flexible versions of the message for this field's own encoding."""

    name: str
    type: WireType[Any]
    versions: Versions
    nullable: Versions
    default: Any
    required: bool
    tag: int | None
    tagged: Versions
    ignorable: bool
    flexible: Versions | None

    def absent(self) -> Any:
        """The value of the field in a version that lacks it. A new list for arrays."""
        return [] if isinstance(self.default, list) else self.default


@overload
def field(
    type: WireType[T],
    versions: str = "0+",
    *,
    default: T = ...,
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    flexible: str | None = None,
) -> T: ...
@overload
def field(
    type: WireType[T],
    versions: str = "0+",
    *,
    nullable: str,
    default: T | None = ...,
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    flexible: str | None = None,
) -> T | None: ...
@overload
def field(
    type: WireType[S], versions: str = "0+", *, default: None, tag: int, tagged: str, ignorable: bool = ...
) -> S | None: ...
def field(
    type: WireType[Any],
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = _MISSING,
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    flexible: str | None = None,
) -> Any:
    """Declare a field of a :class:`Struct`.

    Args:
        type: a wire type of this module, :func:`struct` or :func:`array`.
        versions: the versions that have the field.
        nullable: the versions in which it may be None.
        default: Kafka's default; without one the field is required. For a tagged structure None stands for the
            structure at its defaults, which is what its absence means.
        tag: the tag.
        tagged: the versions that have the field in the tag section.
        ignorable: whether a version that lacks the field may be built when it is not at its default.
        flexible: the versions in which the field itself is compact, where they differ from those of the message.
    """
    has = Versions.of(versions)
    null = Versions.of(nullable)
    if default is _MISSING:
        absent = type.zero
    else:
        absent = default
    return Field(
        name="",
        type=type,
        versions=has,
        nullable=null,
        default=absent,
        required=default is _MISSING,
        tag=tag,
        tagged=Versions.of(tagged),
        ignorable=ignorable,
        flexible=None if flexible is None else Versions.of(flexible),
    )


class _StructMeta(type):
    """Makes slots of declared fields. `__init__` is generated when it is used often: most classes are only parsed."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        declared = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key in declared:
            del namespace[key]
        namespace["__slots__"] = tuple(declared)
        namespace["FIELDS"] = tuple(f._replace(name=key) for key, f in declared.items())
        return super().__new__(mcs, name, bases, namespace, **options)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct(metaclass=_StructMeta):
    """A structure on the wire: slotted, compared by value, printed with its fields."""

    FIELDS: ClassVar[tuple[Field, ...]]
    _made: ClassVar[int] = 0

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls._made += 1
        if cls._made > _PLAIN:
            type.__setattr__(cls, "__init__", _write_init(cls))
            cls.__init__(self, **values)
            return
        for f in cls.FIELDS:
            if f.required and f.name not in values:
                raise TypeError(f"{cls.__name__} needs {f.name}")
            setattr(self, f.name, values.pop(f.name, [] if isinstance(f.default, list) else f.default))
        if values:
            raise TypeError(f"{cls.__name__} has no {', '.join(values)}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in self.FIELDS)})"


def _write_init(cls: type[Struct]) -> Any:
    """Generate a keyword-only ``__init__`` for `cls`, as `dataclasses` does."""
    scope: dict[str, Any] = {"missing": _MISSING}
    arguments, body = [], []
    for f in cls.FIELDS:
        if f.required:
            arguments.append(f.name)
            body.append(f"self.{f.name} = {f.name}")
        elif isinstance(f.default, list):
            arguments.append(f"{f.name}=missing")
            body.append(f"self.{f.name} = [] if {f.name} is missing else {f.name}")
        else:
            scope[f"default_{f.name}"] = f.default
            arguments.append(f"{f.name}=default_{f.name}")
            body.append(f"self.{f.name} = {f.name}")
    star = ", *, " if arguments else ""
    source = f"def __init__(self{star}{', '.join(arguments)}):\n    " + "\n    ".join(body or ["pass"])
    exec(source, scope)
    return scope["__init__"]


class Message(Struct):
    """A structure with versions of its own.

    Attributes:
        VERSIONS: the versions that are declared.
        FLEXIBLE: those with compact types and tagged fields (KIP-482).
        MAX_ELEMENTS: array elements that are decoded at most, in all.
        SMALL: whether it is usually small, so that writing it the first times is not worth a compilation.
    """

    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[Versions]
    MAX_ELEMENTS: ClassVar[int] = MAX_ELEMENTS
    SMALL: ClassVar[bool] = False

    def __init_subclass__(cls, versions: str = "none", flexible: str = "none", **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.VERSIONS = Versions.of(versions)
        cls.FLEXIBLE = Versions.of(flexible)


class _ApiMessage(Message):
    API_KEY: ClassVar[int]

    def __init_subclass__(cls, api_key: int = -1, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.API_KEY = api_key


class Request(_ApiMessage):
    """The body of a request."""

    MAX_ELEMENTS = MAX_REQUEST_ELEMENTS
    SMALL = True


class Response(_ApiMessage):
    """The body of a response."""


class Data(Message):
    """A message that belongs to no API: a header, a subscription, the key or the value of a coordinator's record."""


class Api(NamedTuple):
    """The two messages of an API. Each module of :mod:`barnabas_protocol.messages` declares one as ``API``."""

    request: type[Request]
    response: type[Response]

    @property
    def versions(self) -> Versions:
        """The versions that are declared, the same for both messages."""
        return self.request.VERSIONS
