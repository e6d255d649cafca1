"""ApiVersions responses by hand, as far as a client reads them: the error code, and the versions of each API.

It is the first response of a client, with some 70 elements of a fixed size, and interpreting its schema takes as long
as connecting. Features and the throttle time, which follow, are left out.
"""

import struct
from collections.abc import Sequence
from typing import Final

from barnabas_protocol.codec import decode
from barnabas_protocol.messages.api_versions import ApiVersionsResponse

#: Key, lowest and highest version, and a tag section, which is a single zero as long as Kafka has no tags there.
_ELEMENT: Final = struct.Struct(">hhhB")
#: Where the elements begin: after the error code and a count of one byte.
_AT: Final = 3
#: A count of more elements takes two bytes.
_MOST: Final = 126
#: What follows the elements: the throttle time, and a tag section.
_REST: Final = 5


def decode_api_ranges(version: int, body: bytes) -> tuple[int, Sequence[tuple[int, int, int]]]:
    """Decode the body of a response.

    Returns:
        The error code, and key, lowest and highest version of each API.

    Raises:
        DecodeError: it is not an ApiVersions response of that version.
    """
    count = body[_AT - 1] - 1 if version in ApiVersionsResponse.FLEXIBLE and len(body) >= _AT else -1
    end = _AT + count * _ELEMENT.size
    if (
        0 <= count <= _MOST
        and end + _REST <= len(body)
        and not any(body[_AT + _ELEMENT.size - 1 : end : _ELEMENT.size])
    ):
        found = [(key, low, high) for key, low, high, _ in _ELEMENT.iter_unpack(body[_AT:end])]
        return int.from_bytes(body[:2], "big", signed=True), found
    response = decode(ApiVersionsResponse, version, body)
    return response.error_code, [(one.api_key, one.min_version, one.max_version) for one in response.api_keys]
