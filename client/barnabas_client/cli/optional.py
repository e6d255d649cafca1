"""Imports optional dependencies of commands."""

from typing import Any

from barnabas_client.cli.failures import CommandError
from barnabas_client.optional import MissingExtraError, require


class NotInstalledError(CommandError):
    """An optional dependency is not installed."""


def optional(module: str, *, extra: str, purpose: str, instead: str = "") -> Any:
    """Import a module as :func:`~barnabas_client.optional.require` does.

    Raises:
        NotInstalledError: it is not installed.
    """
    try:
        return require(module, extra=extra, purpose=purpose, instead=instead)
    except MissingExtraError as error:
        raise NotInstalledError(str(error)) from None
