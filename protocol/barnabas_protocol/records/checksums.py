"""CRC-32C over records."""

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, Protocol, cast

from barnabas_protocol.wire import Buffer


class Crc32c(Protocol):
    """Computes the CRC-32C of bytes, after others whose CRC-32C is given."""

    def __call__(self, content: Buffer, before: int = 0, /) -> int: ...


def _function() -> Crc32c:
    """Load the C extension of the package `crc32c` alone.

    The package itself also imports its command line and the metadata of all installed packages, which takes longer than
    the first record of a consumer.
    """
    package = find_spec("crc32c")
    extension = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if not extension or not extension.loader:
        return cast(Crc32c, import_module("crc32c").crc32c)
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return cast(Crc32c, module.crc32c)


crc32c: Final = _function()
