"""What a broker does once in its life, done before a test waits for it: codecs of the messages that clients send."""

import asyncio
from collections.abc import Iterator
from typing import Final

from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Message
from barnabas_protocol.structures import codec_for

#: On the way to a first message, in order: the APIs, and the versions that librdkafka speaks if it is not the newest.
#: A version that is missing here costs its first request 3 ms.
_WAY: Final = (
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
    """Compile codecs, one in each turn of the loop: a request that comes meanwhile waits for one at most."""
    for message, version in _messages():
        codec_for(message, version).compile()
        await asyncio.sleep(0)


def _messages() -> Iterator[tuple[type[Message], int]]:
    for key, _ in _WAY:
        for message in api(key):
            yield message, message.VERSIONS.high
    for key, other in _WAY:
        if other is not None:
            for message in api(key):
                yield message, other
