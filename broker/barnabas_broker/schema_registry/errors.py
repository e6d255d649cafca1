"""Errors of the registry, with the codes and texts of Confluent's."""


class RegistryError(Exception):
    """A request cannot be carried out.

    Attributes:
        code: Confluent's error code; its first three digits are the HTTP status.
        message: the text.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])


def no_subject(subject: str) -> RegistryError:
    """There is no such subject."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def no_version(version: int) -> RegistryError:
    """The subject has no such version."""
    return RegistryError(40402, f"Version {version} not found.")


def no_schema(which: object = None) -> RegistryError:
    """There is no such schema."""
    return RegistryError(40403, "Schema not found" if which is None else f"Schema {which} not found")


def invalid_schema(reason: str) -> RegistryError:
    """The schema cannot be read."""
    return RegistryError(42201, f"Invalid schema: {reason}")


def not_permitted(reason: str) -> RegistryError:
    """The mode does not allow it."""
    return RegistryError(42205, reason)
