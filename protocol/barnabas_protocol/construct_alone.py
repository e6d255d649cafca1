"""Imports construct without the debugger, pickle, OpenSSL's hashes and `platform`.

construct imports them for classes that messages do not use, and they take as long as half of construct. It gets
stand-ins, which import a module when it is used. All modules of this package import construct after this one.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Final

_RARE: Final = ("hashlib", "pdb", "pickle", "platform")


class _Later(ModuleType):
    """A module that is imported when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        self.leave()
        return getattr(import_module(self.__name__), name)

    def leave(self) -> None:
        """Have other imports find the module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]


def _import_construct() -> None:
    later = [_Later(name) for name in _RARE if name not in sys.modules]
    for module in later:
        if module.__name__ == "platform":
            # The one thing that is used at once: whether this is Windows.
            module.__dict__["system"] = lambda: "Windows" if sys.platform == "win32" else sys.platform
        sys.modules[module.__name__] = module
    try:
        import_module("construct")
    finally:
        for module in later:
            module.leave()


_import_construct()
