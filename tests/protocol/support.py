"""Every message, values for them, damage, and the interpreted twin of the codec."""

import random
import struct
from io import BytesIO
from typing import Any, Final

from construct import ConstructError
from hypothesis import strategies as st

from barnabas_protocol import consumer_protocol, coordinator_records, headers
from barnabas_protocol.apis import APIS
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.schema import Data, Field, Message, Struct, WireType
from barnabas_protocol.structures import construct_for
from barnabas_protocol.wire import Buffer, Reader, WireError

DATA: Final[list[type[Message]]] = [
    declared
    for module in (headers, consumer_protocol, coordinator_records)
    for declared in vars(module).values()
    if isinstance(declared, type) and issubclass(declared, Data) and declared is not Data
]
API_MESSAGES: Final[list[type[Message]]] = [message for declared in APIS.values() for message in declared]
MESSAGES: Final = API_MESSAGES + DATA
#: Every message in every version.
PAIRS: Final = [(message, version) for message in MESSAGES for version in message.VERSIONS]
#: The exceptions that the codec turns into DecodeError.
BROKEN: Final = (WireError, struct.error, UnicodeError, ConstructError)


def name_of(value: object) -> str | None:
    """The name of a class, for the ids of parameters."""
    return value.__name__ if isinstance(value, type) else None


def slow_decode(cls: type[Message], version: int, data: Buffer) -> Message:
    """Decode with the interpreted construct; raises one of BROKEN."""
    reader = Reader(data)
    reader.size = len(data)
    message: Message = construct_for(cls, version)._parse(reader, None, "")
    if reader.read(1):
        raise WireError("bytes follow")
    return message


def slow_encode(message: Message, version: int) -> bytes:
    """Encode with the interpreted construct."""
    out = BytesIO()
    construct_for(type(message), version)._build(message, out, None, "")
    return out.getvalue()


INTEGERS: Final = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


def _of_type(of: WireType[Any], version: int) -> st.SearchStrategy[Any]:
    if of.element is not None:
        return st.lists(_of_type(of.element, version), max_size=3)
    if of.struct is not None:
        return structs(of.struct, version)
    if of.name in INTEGERS:
        return st.integers(*INTEGERS[of.name])
    plain: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        "bytes": st.binary(max_size=12),
        "records": st.binary(max_size=12),
    }
    return plain[of.name]


def _stands_for_its_defaults(f: Field) -> bool:
    """Whether None is the absence of a tagged structure."""
    return f.default is None and not f.required


def _of_field(f: Field, version: int) -> st.SearchStrategy[Any]:
    if version not in f.versions:
        return st.just(f.absent())
    values = _of_type(f.type, version)
    return st.none() | values if version in f.nullable or _stands_for_its_defaults(f) else values


def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Instances of `cls` that `version` can express."""
    return st.builds(cls, **{f.name: _of_field(f, version) for f in cls.FIELDS})


def _some_type(rng: random.Random, of: WireType[Any], version: int) -> Any:
    if of.element is not None:
        return [_some_type(rng, of.element, version) for _ in range(rng.choice((0, 1, 1, 2)))]
    if of.struct is not None:
        return some(rng, of.struct, version)
    if of.name in INTEGERS:
        low, high = INTEGERS[of.name]
        return rng.choice((low, high, max(low, -1), 0, 1, rng.randint(low, high)))
    match of.name:
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.uniform(-1e9, 1e9)
        case "uuid":
            return rng.randbytes(16)
        case "string":
            return rng.choice(("", "topic", "Grüße", "😀", "x" * 130))
        case _:
            return rng.randbytes(rng.choice((0, 1, 20, 200)))


def some(rng: random.Random, cls: type[Struct], version: int) -> Any:
    """An instance of `cls` that `version` can express, the same for the same seed."""
    values = {}
    for f in cls.FIELDS:
        if version not in f.versions:
            values[f.name] = f.absent()
        elif (version in f.nullable or _stands_for_its_defaults(f)) and rng.random() < 0.3:
            values[f.name] = None
        else:
            values[f.name] = _some_type(rng, f.type, version)
    return cls(**values)


def repeat(rng: random.Random, message: Struct, times: int) -> None:
    """Repeat an element of some of a message's lists, and of the lists within these, up to `times` times in all."""
    for f in message.FIELDS:
        elements = getattr(message, f.name)
        if f.type.element is None or not elements:
            continue
        left = rng.randint(1, times)
        for each in elements:
            if isinstance(each, Struct):
                repeat(rng, each, max(times // left, 1))
        elements += [rng.choice(elements)] * left


def damaged(rng: random.Random, data: bytes) -> bytes:
    """`data` with one to three damages: bytes changed, removed, doubled or inserted."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at % len(out)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                out[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 3:
                del out[at : at + rng.randrange(1, 5)]
            case 4:
                out[at : at + 4] = rng.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\x0f")
                )
            case _:
                out[at:at] = out[at : at + rng.randrange(1, 9)]
    return bytes(out)


def outcome(decode: Any, *arguments: Any) -> Any:
    """The decoded message, or "refused"."""
    try:
        return decode(*arguments)
    except DecodeError:
        return "refused"
