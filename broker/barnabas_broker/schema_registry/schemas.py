"""A schema, as clients send it to the registry. Pure.

Two schemas of Avro or JSON Schema are the same if their JSON is, whatever the order of the keys; two of Protobuf if
their text is. The same schema has the same id in all subjects.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.schema_registry.errors import RegistryError, invalid_schema

AVRO: Final = "AVRO"
#: In the order in which Confluent's registry lists them.
TYPES: Final = ("JSON", "PROTOBUF", AVRO)
#: Levels of lists and objects in a schema: the checks of a schema are recursive.
_DEEPEST: Final = 100
_MOST_REFERENCES: Final = 200
_LARGEST: Final = 2**31 - 1
_LONGEST_NAME: Final = 1_000


class Reference(NamedTuple):
    """A schema that another one uses by name.

    Attributes:
        name: how the other schema names it.
        subject: where it is registered.
        version: its version there.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema, not yet registered.

    Attributes:
        guid: an id made of the content: two schemas are the same if it is.
        type: one of :data:`TYPES`.
        text: the schema, JSON without spaces in the case of Avro and JSON Schema.
        references: the schemas that it uses.
        extras: what is stored with it: ``metadata`` and ``ruleSet``.
    """

    guid: str
    type: str
    text: str
    references: tuple[Reference, ...]
    extras: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Schema":
        """Read a schema from a request or a record. This takes some time: 100 ms for a megabyte.

        Raises:
            RegistryError: it cannot be read.
        """
        text, kind = fields.get("schema"), fields.get("schemaType") or AVRO
        if not isinstance(text, str) or not text:
            raise invalid_schema("there is no schema, or it is not a string")
        if not isinstance(kind, str) or kind not in TYPES:
            raise invalid_schema(f"schemaType must be one of {', '.join(TYPES)}")
        given = fields.get("references") or []
        if not isinstance(given, list) or len(given) > _MOST_REFERENCES:
            raise invalid_schema(f"references must be a list of {_MOST_REFERENCES} or fewer")
        extras = tuple((name, _plain(fields[name])) for name in ("metadata", "ruleSet") if fields.get(name))
        content: object = text
        if kind != "PROTOBUF":
            content = _parsed(text)
            text = _plain(content)
        references = tuple(map(_reference, given))
        identity = _plain([kind, content, references, extras], sort_keys=True)
        try:
            guid = str(UUID(bytes=sha256(identity.encode()).digest()[:16]))
        except UnicodeEncodeError:
            raise invalid_schema("it has half a surrogate pair") from None
        return cls(guid, kind, text, references, extras)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a response and of a record."""
        return {
            **({} if self.type == AVRO else {"schemaType": self.type}),
            **({"references": [each._asdict() for each in self.references]} if self.references else {}),
            **{name: json.loads(text) for name, text in self.extras},
            "schema": self.text,
        }


def as_number(value: object) -> int | None:
    """A version or an id; None if it is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST else None


def check_subject(subject: str) -> None:
    """Check the name of a subject.

    Raises:
        RegistryError: it cannot be one; or it is in a context, which there are none of.
    """
    if not subject or len(subject) > _LONGEST_NAME or not subject.isprintable():
        raise RegistryError(42208, f"The specified subject '{subject[:_LONGEST_NAME]!a}' is not a valid subject name")
    if subject.startswith(":."):
        raise RegistryError(42208, f"The specified subject '{subject}' is in a context. This registry has no contexts")


def _reference(given: object) -> Reference:
    if isinstance(given, dict):
        name, subject, version = given.get("name"), given.get("subject"), as_number(given.get("version"))
        if isinstance(name, str) and isinstance(subject, str) and version is not None:
            return Reference(name, subject, version)
    raise invalid_schema("a reference must have a name, a subject and a version")


def _plain(value: object, *, sort_keys: bool = False) -> str:
    # Not json.dumps, which makes the whole text in one call of C: a thread keeps the interpreter's lock for that long.
    encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)
    return "".join(encoder.iterencode(value))


def _parsed(text: str) -> object:
    """Read JSON.

    Raises:
        RegistryError: it is none, or nested too deeply.
    """
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid_schema(f"it is not JSON: {error}") from None
    check_depth(value)
    return value


def check_depth(value: object) -> None:
    """Check that JSON is not nested too deeply for what reads it.

    Raises:
        RegistryError: it is.
    """
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise invalid_schema(f"it is nested more than {_DEEPEST} levels deep")
