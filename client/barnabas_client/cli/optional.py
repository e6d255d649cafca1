"""Imports optional dependencies: packages that an extra of the distribution installs."""

from importlib import import_module
from typing import Any

from barnabas_client.cli.failures import CommandError


class NotInstalledError(CommandError):
    """An optional dependency is not installed."""


def optional(module: str, *, extra: str, purpose: str, instead: str = "") -> Any:
    """Import a module of an optional dependency, or one that needs it.

    Args:
        module: its name, such as "rich.live".
        extra: the extra of the distribution that installs it.
        purpose: what needs it, for the error message.
        instead: what else the user can do, for the error message.

    Raises:
        NotInstalledError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = (error.name or module).partition(".")[0]
        remedy = f"pip install 'barnabas[{extra}]'" + (f", or {instead}" if instead else "")
        raise NotInstalledError(f"{purpose} needs {package}, which is not installed. To do: {remedy}") from None
