"""Imports what Python imports by itself when something is used for the first time.

An import opens files. When all descriptors are taken, the request that needs it would fail, a heartbeat for instance.
"""

import codecs
from typing import Final

#: The encodings that the broker uses, and that of host names in the standard library.
ENCODINGS: Final = ("ascii", "idna", "latin-1", "unicode_escape", "utf-8", "utf-16-be", "utf-16-le")


def preload() -> None:
    """Import it. To be called at the start."""
    for name in ENCODINGS:
        codecs.lookup(name)
