"""Compiles the codecs of the responses that clients wait for, before a test does."""

import asyncio
from typing import Final

from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.structures import codec_for

#: The APIs that a client uses until its first record, in order, and librdkafka's version if it is not the newest.
#: The first response of a version that is missing here takes a millisecond more.
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
    """Compile one response in each turn of the event loop, so that a request waits for one at most."""
    for key, other in _APIS:
        response = api(key).response
        for version in {response.VERSIONS.high, response.VERSIONS.high if other is None else other}:
            codec_for(response, version).compile_builder()
            await asyncio.sleep(0)
