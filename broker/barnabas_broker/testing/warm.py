"""Compiles the codecs of the messages that clients send, before a test waits for them."""

import asyncio
from collections.abc import Iterator
from typing import Final

from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Message
from barnabas_protocol.structures import codec_for

#: The APIs that a client uses until its first record, in order, and librdkafka's version if it is not the newest.
#: The first request of a version that is missing here takes 3 ms more.
_APIS: Final = (
    (ApiKey.API_VERSIONS, 3),
    (ApiKey.METADATA, None),
    (ApiKey.FIND_COORDINATOR, 2),
    (ApiKey.JOIN_GROUP, 5),
    (ApiKey.SYNC_GROUP, 3),
    (ApiKey.OFFSET_FETCH, None),
    (ApiKey.LIST_OFFSETS, 7),
    (ApiKey.FETCH, 16),
    (ApiKey.HEARTBEAT, 3),
    (ApiKey.OFFSET_COMMIT, None),
    (ApiKey.LEAVE_GROUP, 1),
)


async def warm_up() -> None:
    """Compile codecs, one in each turn of the event loop, so that a request waits for one at most."""
    for message, version in _messages():
        codec_for(message, version).compile()
        await asyncio.sleep(0)


def _messages() -> Iterator[tuple[type[Message], int]]:
    for key, _ in _APIS:
        for message in api(key):
            yield message, message.VERSIONS.high
    for key, other in _APIS:
        if other is not None:
            for message in api(key):
                yield message, other
