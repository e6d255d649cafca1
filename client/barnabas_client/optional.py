"""Imports optional dependencies: packages that an extra of the distribution installs."""

from importlib import import_module
from typing import Any


class MissingExtraError(ImportError):
    """A package of an extra is not installed."""


def require(module: str, *, extra: str, purpose: str, instead: str = "") -> Any:
    """Import a module of an optional dependency, or one that needs it.

    Args:
        module: its name, such as "rich.live".
        extra: the extra of the distribution that installs it.
        purpose: what needs it, for the error message.
        instead: what else the user can do, for the error message.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = (error.name or module).partition(".")[0]
        remedy = f"pip install 'barnabas[{extra}]'" + (f", or {instead}" if instead else "")
        raise MissingExtraError(f"{purpose} needs {package}, which is not installed. To do: {remedy}") from error
