"""Optional dependencies: packages that are imported only when a flag or a key needs them."""

from importlib import import_module
from typing import Any

from barnabas_broker.errors import BrokerError


def require(module: str, *, wanted_by: str, extra: str) -> Any:
    """Import a module that is, or that needs, an optional dependency.

    Args:
        module: the full name of the module.
        wanted_by: the flag that needs it, for the error's text.
        extra: the extra of ``barnabas`` that installs the dependency.

    Raises:
        BrokerError: a package is not installed; the text names it and the command that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise BrokerError(f"{wanted_by} needs {error.name}: pip install 'barnabas[{extra}]'") from error
