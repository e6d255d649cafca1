"""The registry as a machine: subjects with their versions, ids, compatibility levels and modes. Pure.

A method decides and returns the changes, which are records of ``_schemas``; :meth:`Registry.apply` is the only way in
which the state changes, of a new record and of one that is replayed alike. Subjects and versions are deleted in two
steps, as in Confluent's registry: at first they can still be found with ``deleted=true``, then they are gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas_broker.schema_registry.errors import (
    RegistryError,
    no_schema,
    no_subject,
    no_version,
    not_permitted,
)
from barnabas_broker.schema_registry.records import CONFIG, DELETE_SUBJECT, MODE, SCHEMA, RegistryKey, SchemaChange
from barnabas_broker.schema_registry.schemas import Reference, Schema, as_number, check_subject

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
#: Bytes of all schemas: they are in memory.
MOST_BYTES: Final = 64 * 1024 * 1024
#: Bytes of a version beside its text.
_VERSION_BYTES: Final = 1_000
_MOST_USED: Final = 1_000


class Version(NamedTuple):
    """A schema in a subject.

    Attributes:
        subject: the subject.
        version: its number there, from 1 on.
        id: the id of the schema.
        schema: the schema.
        deleted: whether it was deleted, and can still be found.
    """

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a response."""
        return {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            "guid": self.schema.guid,
            **self.schema.fields,
        }

    def change(self, *, deleted: bool) -> SchemaChange:
        """The record of it."""
        value = {"subject": self.subject, "version": self.version, "id": self.id, **self.schema.fields}
        return SchemaChange(RegistryKey(SCHEMA, self.subject, self.version), {**value, "deleted": deleted}, self.schema)


class Registry:
    """The state; see the module."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        #: The versions that have an id, and the id of a schema by its guid.
        self._by_id: dict[int, dict[tuple[str, int], Version]] = {}
        self._ids: dict[str, int] = {}
        self._referrers: dict[tuple[str, int], dict[tuple[str, int], Version]] = {}
        self._levels: dict[str | None, str] = {}
        self._modes: dict[str | None, str] = {}
        self._next_id = 1
        self._bytes = 0

    # Changes

    def apply(self, change: SchemaChange) -> None:
        """Apply a record. One that makes no sense changes nothing."""
        key, value, schema = change
        match key.kind:
            case "SCHEMA" if key.subject is not None:
                id = None if value is None else as_number(value.get("id"))
                if value is None:
                    self._remove(key.subject, key.version)
                elif id is not None and schema is not None and as_number(key.version) is not None:
                    self._set(Version(key.subject, key.version, id, schema, bool(value.get("deleted"))))
            case "DELETE_SUBJECT" if key.subject is not None and value is not None:
                until = as_number(value.get("version")) or 0
                for each in list(self._subjects.get(key.subject, {}).values()):
                    if each.version <= until:
                        self._set(each._replace(deleted=True))
            case "CONFIG":
                _set_word(self._levels, key.subject, value, "compatibilityLevel", LEVELS)
            case "MODE":
                _set_word(self._modes, key.subject, value, "mode", MODES)

    def _set(self, found: Version) -> None:
        self._remove(found.subject, found.version)
        place = (found.subject, found.version)
        self._subjects.setdefault(found.subject, {})[found.version] = found
        self._by_id.setdefault(found.id, {})[place] = found
        self._ids.setdefault(found.schema.guid, found.id)
        for used in found.schema.references:
            self._referrers.setdefault((used.subject, used.version), {})[place] = found
        self._next_id = max(self._next_id, found.id + 1)
        self._bytes += _size(found)

    def _remove(self, subject: str, version: int) -> None:
        found = self._subjects.get(subject, {}).pop(version, None)
        if found is None:
            return
        place = (subject, version)
        if not self._subjects[subject]:
            del self._subjects[subject]
        self._by_id[found.id].pop(place)
        if not self._by_id[found.id]:
            del self._by_id[found.id]
            if self._ids.get(found.schema.guid) == found.id:
                del self._ids[found.schema.guid]
        for used in found.schema.references:
            self._referrers.get((used.subject, used.version), {}).pop(place, None)
        self._bytes -= _size(found)

    # Subjects and versions

    def subjects(self, *, prefix: str = "", deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """The names of the subjects."""
        return sorted(
            name
            for name, versions in self._subjects.items()
            if name.startswith(prefix)
            and (
                all(each.deleted for each in versions.values())
                if deleted_only
                else deleted or any(not each.deleted for each in versions.values())
            )
        )

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[Version]:
        """The versions of a subject, oldest first.

        Raises:
            RegistryError: there is no such subject.
        """
        found = self._live(subject, deleted=deleted or deleted_only)
        if not found:
            raise no_subject(subject)
        return [each for each in found if each.deleted or not deleted_only]

    def _live(self, subject: str, *, deleted: bool = False) -> list[Version]:
        versions = self._subjects.get(subject, {})
        return [versions[number] for number in sorted(versions) if deleted or not versions[number].deleted]

    def version(self, subject: str, version: int | None, *, deleted: bool = False) -> Version:
        """A version of a subject; None stands for the latest one.

        Raises:
            RegistryError: there is no such subject, or no such version.
        """
        found = self.versions(subject, deleted=deleted)
        if version is None:
            return found[-1]
        for each in found:
            if each.version == version:
                return each
        raise no_version(version)

    def lookup(self, subject: str, schema: Schema, *, deleted: bool = False) -> Version:
        """The version of a subject that has this schema; the latest one if there are several.

        Raises:
            RegistryError: there is no such subject, or none of its versions has it.
        """
        for each in reversed(self.versions(subject, deleted=deleted)):
            if each.schema.guid == schema.guid:
                return each
        raise no_schema()

    def all_versions(self, *, prefix: str = "", deleted: bool = False, latest_only: bool = False) -> Iterator[Version]:
        """The versions of all subjects."""
        for name in self.subjects(prefix=prefix, deleted=deleted):
            found = self._live(name, deleted=deleted)
            yield from found[-1:] if latest_only else found

    def with_id(self, id: int) -> list[Version]:
        """The versions that have an id, by subject; deleted ones too.

        Raises:
            RegistryError: there is no such id.
        """
        found = self._by_id.get(id)
        if not found:
            raise no_schema(id)
        return [found[place] for place in sorted(found)]

    def with_guid(self, guid: str) -> list[Version]:
        """The same by the schema's guid.

        Raises:
            RegistryError: there is no such schema.
        """
        if guid not in self._ids:
            raise no_schema(guid)
        return self.with_id(self._ids[guid])

    @property
    def last_id(self) -> int:
        """The highest id so far."""
        return self._next_id - 1

    def referenced_by(self, found: Version) -> list[int]:
        """The ids of the schemas that refer to a version."""
        users = self._referrers.get((found.subject, found.version), {})
        return sorted({each.id for each in users.values() if not each.deleted})

    def used_by(self, schema: Schema) -> list[Schema]:
        """All schemas that a schema refers to, directly or not, each after those that it uses itself.

        Raises:
            RegistryError: one does not exist, or there are too many.
        """
        done: dict[Reference, Schema] = {}
        open: list[tuple[Reference, bool]] = [(each, False) for each in reversed(schema.references)]
        steps = 0
        while open:
            reference, entered = open.pop()
            steps += 1
            if steps > _MOST_USED:
                raise RegistryError(42201, f"Invalid schema: it refers to more than {_MOST_USED // 2} others")
            if reference in done:
                continue
            try:
                found = self.version(reference.subject, reference.version).schema
            except RegistryError:
                raise RegistryError(
                    42201,
                    f"Invalid schema: there is no schema for the reference {reference.name}, "
                    f"subject '{reference.subject}', version {reference.version}",
                ) from None
            if entered:
                done[reference] = found
            else:
                open.append((reference, True))
                open.extend((each, False) for each in reversed(found.references) if each not in done)
        unique = {(each.subject, each.version): found for each, found in done.items()}
        return list(unique.values())

    def known(self, subject: str, schema: Schema) -> Version | None:
        """The version that a registration of this schema returns without a change; None if it makes a new one."""
        same = (each for each in reversed(self._live(subject)) if each.schema.guid == schema.guid)
        return next(same, None)

    def register(
        self, subject: str, schema: Schema, id: int | None = None, version: int | None = None
    ) -> Sequence[SchemaChange]:
        """Register a schema, whose compatibility was checked, as a new version.

        Args:
            subject: the subject.
            schema: the schema; not one that is :meth:`known` there.
            id: the id that it is to have, in the mode IMPORT.
            version: the version that it is to have, in that mode.

        Raises:
            RegistryError: the mode does not allow it, or the registry is full.
        """
        check_subject(subject)
        mode = self.mode_of(subject)
        self._check_writable(subject)
        if (id is not None) != (mode == "IMPORT"):
            wants = "not in import mode" if id is not None else "in import mode, which needs an id"
            raise not_permitted(f"Subject {subject} is {wants}")
        following = max(self._subjects.get(subject, {}), default=0) + 1
        if version is not None and mode != "IMPORT" and version != following:
            raise RegistryError(42202, f"Version is not one more than previous version: {version}, not {following}")
        if id is not None and any(each.schema.guid != schema.guid for each in self._by_id.get(id, {}).values()):
            raise not_permitted(f"Overwrite new schema with id {id} is not permitted.")
        if self._bytes + _VERSION_BYTES + len(schema.text) > MOST_BYTES:
            raise RegistryError(42209, f"The registry has {MOST_BYTES} bytes of schemas, and takes no more")
        chosen = id or self._ids.get(schema.guid) or self._next_id
        return [Version(subject, version or following, chosen, schema, False).change(deleted=False)]

    def delete_version(
        self, subject: str, version: int | None, *, permanent: bool
    ) -> tuple[int, Sequence[SchemaChange]]:
        """Delete a version; its number, and the changes.

        Raises:
            RegistryError: there is none, it is used by others, or the step before is missing.
        """
        self._check_writable(subject)
        found = self.version(subject, version, deleted=True)
        which = f"Subject '{subject}' Version {found.version}"
        if found.deleted and not permanent:
            raise RegistryError(40406, f"{which} was soft deleted.Set permanent=true to delete permanently")
        if permanent and not found.deleted:
            raise RegistryError(40407, f"{which} was not deleted first before being permanently deleted")
        self._check_unused([found])
        if permanent:
            return found.version, [_removed(found)]
        return found.version, [found.change(deleted=True)]

    def delete_subject(self, subject: str, *, permanent: bool) -> tuple[list[int], Sequence[SchemaChange]]:
        """Delete a subject; the numbers of its versions, and the changes.

        Raises:
            RegistryError: there is none, it is used by others, or the step before is missing.
        """
        self._check_writable(subject)
        every = self.versions(subject, deleted=True)
        live = [each for each in every if not each.deleted]
        if permanent and live:
            raise RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        if not permanent and not live:
            raise RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")
        self._check_unused(every)
        if permanent:
            return [each.version for each in every], [_removed(each) for each in every]
        changes = [
            SchemaChange(RegistryKey(DELETE_SUBJECT, subject), {"subject": subject, "version": every[-1].version})
        ]
        # As in Confluent's registry, levels and modes of a subject end with it.
        changes += [SchemaChange(RegistryKey(CONFIG, subject), None)] if subject in self._levels else []
        changes += [SchemaChange(RegistryKey(MODE, subject), None)] if subject in self._modes else []
        return [each.version for each in live], changes

    def _check_unused(self, deleted: Sequence[Version]) -> None:
        for each in deleted:
            if self.referenced_by(each):
                raise RegistryError(
                    42206,
                    f"One or more references exist to the schema {{subject={each.subject},version={each.version}}}.",
                )

    # Levels and modes

    def level(self, subject: str | None, *, or_default: bool) -> str:
        """The compatibility level of a subject, or of all of them.

        Raises:
            RegistryError: the subject has none of its own, and the default is not wanted.
        """
        if subject is not None and subject not in self._levels and not or_default:
            raise RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return self._levels.get(subject) or self._levels.get(None, DEFAULT_LEVEL)

    def set_level(self, subject: str | None, level: object) -> Sequence[SchemaChange]:
        """Set a compatibility level.

        Raises:
            RegistryError: it is none.
        """
        word = level.upper() if isinstance(level, str) else ""
        if word not in LEVELS:
            raise RegistryError(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS).lower()}")
        return [_word(CONFIG, subject, "compatibilityLevel", word)]

    def delete_level(self, subject: str | None) -> tuple[str, Sequence[SchemaChange]]:
        """Remove a compatibility level; the one it was.

        Raises:
            RegistryError: the subject has none of its own.
        """
        if subject is not None and subject not in self._levels:
            raise no_subject(subject)
        return self.level(subject, or_default=True), [SchemaChange(RegistryKey(CONFIG, subject), None)]

    def mode(self, subject: str | None, *, or_default: bool) -> str:
        """The mode of a subject, or of all of them.

        Raises:
            RegistryError: the subject has none of its own, and the default is not wanted.
        """
        if subject is not None and subject not in self._modes and not or_default:
            raise RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")
        return self._modes.get(subject) or self._modes.get(None, DEFAULT_MODE)

    def mode_of(self, subject: str) -> str:
        """The mode that counts for a subject: READONLY_OVERRIDE of all subjects overrides its own."""
        everywhere = self._modes.get(None, DEFAULT_MODE)
        return everywhere if everywhere == "READONLY_OVERRIDE" else self._modes.get(subject, everywhere)

    def set_mode(self, subject: str | None, mode: object, *, force: bool) -> Sequence[SchemaChange]:
        """Set a mode.

        Raises:
            RegistryError: it is none; or it is IMPORT, and there are schemas already.
        """
        word = mode.upper() if isinstance(mode, str) else ""
        if word not in MODES:
            raise RegistryError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
        has = self._subjects if subject is None else self._subjects.get(subject)
        if word == "IMPORT" and has and not force:
            raise not_permitted("Cannot import since found existing subjects")
        return [_word(MODE, subject, "mode", word)]

    def delete_mode(self, subject: str) -> tuple[str, Sequence[SchemaChange]]:
        """Remove the mode of a subject; the one it was.

        Raises:
            RegistryError: it has none of its own.
        """
        if subject not in self._modes:
            raise no_subject(subject)
        return self._modes[subject], [SchemaChange(RegistryKey(MODE, subject), None)]

    def _check_writable(self, subject: str) -> None:
        if self.mode_of(subject).startswith("READONLY"):
            raise not_permitted(f"Subject {subject} is in read-only mode")

    def clear(self) -> Sequence[SchemaChange]:
        """Remove everything; ids are not used again."""
        return [
            *(_removed(each) for versions in self._subjects.values() for each in versions.values()),
            *(SchemaChange(RegistryKey(CONFIG, subject), None) for subject in self._levels),
            *(SchemaChange(RegistryKey(MODE, subject), None) for subject in self._modes),
        ]


def _removed(found: Version) -> SchemaChange:
    return SchemaChange(RegistryKey(SCHEMA, found.subject, found.version), None)


def _size(found: Version) -> int:
    return _VERSION_BYTES + len(found.schema.text)


def _word(kind: str, subject: str | None, field: str, word: str) -> SchemaChange:
    return SchemaChange(RegistryKey(kind, subject), {**({} if subject is None else {"subject": subject}), field: word})


def _set_word(
    words: dict[str | None, str], subject: str | None, value: Mapping[str, Any] | None, field: str, known: Sequence[str]
) -> None:
    word = None if value is None else value.get(field)
    if word in known:
        words[subject] = str(word)
    elif value is None:
        words.pop(subject, None)
