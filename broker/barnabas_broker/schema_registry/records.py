"""The records of the topic ``_schemas``, as Confluent's registry writes and reads them. Pure.

Keys and values are JSON. The order of a key's fields counts, because the topic is compacted by the bytes of keys. A
record that cannot be read is one of another kind, and is ignored.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas_broker.schema_registry.errors import RegistryError
from barnabas_broker.schema_registry.schemas import Schema

#: The topic, as Confluent's registry names it unless ``kafkastore.topic`` says otherwise.
TOPIC: Final = "_schemas"

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"


class RegistryKey(NamedTuple):
    """The key of a record.

    Attributes:
        kind: what the record is about.
        subject: None for what is about all subjects.
        version: of a schema; 0 for others.
    """

    kind: str
    subject: str | None
    version: int = 0

    def encode(self) -> bytes:
        """The bytes of the key."""
        fields: dict[str, Any] = {"keytype": self.kind}
        if self.subject is not None:
            fields["subject"] = self.subject
        if self.kind == SCHEMA:
            fields["version"] = self.version
        fields["magic"] = 1 if self.kind == SCHEMA else 0
        return _encoded(fields)


class SchemaChange(NamedTuple):
    """A record.

    Attributes:
        key: what it is about.
        value: None removes it.
        schema: the schema in the value, for the kind SCHEMA.
    """

    key: RegistryKey
    value: Mapping[str, Any] | None
    schema: Schema | None = None

    def encode(self) -> tuple[bytes, bytes | None]:
        """The bytes of key and value."""
        return self.key.encode(), None if self.value is None else _encoded(self.value)


def decode(key: bytes | None, value: bytes | None) -> SchemaChange | None:
    """Read a record; None if it is of another kind, or cannot be read."""
    try:
        fields = json.loads(key or b"")
        found = None if value is None else json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not (found is None or isinstance(found, dict)):
        return None
    kind, subject, version = fields.get("keytype"), fields.get("subject"), fields.get("version", 0)
    if not isinstance(kind, str) or not (subject is None or isinstance(subject, str)):
        return None
    if not isinstance(version, int) or (subject is None and kind in (SCHEMA, DELETE_SUBJECT)):
        return None
    try:
        schema = Schema.of(found) if kind == SCHEMA and found is not None else None
    except RegistryError:
        return None
    return SchemaChange(RegistryKey(kind, subject, version), found, schema)


def _encoded(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
