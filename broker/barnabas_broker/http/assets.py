"""The files of the page, as they are sent: compressed once, each with an ETag that changes with its content."""

import gzip
import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file of the page.

    Attributes:
        content_type: its media type.
        etag: with quotes.
        plain: its bytes.
        compressed: the same with gzip.
    """

    content_type: str
    etag: str
    plain: bytes
    compressed: bytes


def load() -> dict[str, Asset]:
    """The files of the page by name."""
    found: dict[str, Asset] = {}
    for each in (files("barnabas_broker") / "http" / "page").iterdir():
        content_type = _TYPES.get(each.name.rpartition(".")[2])
        if content_type is not None:
            plain = each.read_bytes()
            etag = f'"{hashlib.sha256(plain).hexdigest()[:16]}"'
            found[each.name] = Asset(content_type, etag, plain, gzip.compress(plain, mtime=0))
    return found
