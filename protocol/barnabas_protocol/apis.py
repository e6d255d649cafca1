"""All APIs whose messages are declared in :mod:`barnabas_protocol.messages`, checked when this module is imported.

A broker imports it at its start. A client does not: it uses a few APIs, and imports their modules by name.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType, ModuleType
from typing import Final

from barnabas_protocol import messages
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Api

#: All modules of :mod:`barnabas_protocol.messages`. An error in one of them is an error of the whole package.
MODULES: Final = tuple(import_module(f"{messages.__name__}.{found.name}") for found in iter_modules(messages.__path__))


class RegistryError(Exception):
    """A module of :mod:`barnabas_protocol.messages` does not declare an API as it must; the text names it."""


def register(modules: Iterable[ModuleType]) -> Mapping[ApiKey, Api]:
    """Collect the APIs that modules declare as ``API``, by key.

    Raises:
        RegistryError: a module declares no API, its two messages do not belong together, their names or key are not
            Kafka's, or two modules declare the same API.
    """
    found: dict[ApiKey, Api] = {}
    for module in modules:
        where, api = module.__name__, getattr(module, "API", None)
        if not isinstance(api, Api):
            raise RegistryError(f"{where} declares no API: end it with API = Api(...Request, ...Response)")
        request, response = api
        for what in ("API_KEY", "VERSIONS", "FLEXIBLE"):
            if getattr(request, what) != getattr(response, what):
                raise RegistryError(f"{where}: {request.__name__} and {response.__name__} differ in {what}")
        try:
            key = ApiKey(request.API_KEY)
        except ValueError:
            raise RegistryError(f"{where}: Kafka has no API with key {request.API_KEY}") from None
        if (request.__name__, response.__name__) != (f"{key.title}Request", f"{key.title}Response"):
            raise RegistryError(f"{where}: key {key} is {key.title}, not {request.__name__} and {response.__name__}")
        if key in found:
            raise RegistryError(f"{where}: {key.name} is declared in another module already")
        found[key] = api
    return MappingProxyType(dict(sorted(found.items())))


#: The APIs whose messages are declared, by key, ascending. The broker answers all of them.
APIS: Final = register(MODULES)
