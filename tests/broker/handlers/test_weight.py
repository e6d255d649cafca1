"""The weight of a response, and which thread encodes it."""

import asyncio
import random
import threading
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Dispatch, Route, encode
from barnabas_broker.handlers.weight import elements as elements_of
from barnabas_broker.handlers.weight import exceeds
from barnabas_broker.server.connection import Answer, DeferredResponse, Peer
from barnabas_broker.slicer import Slicer, SlicerClient, Work
from barnabas_broker.steps import Steps
from barnabas_protocol.apis import APIS
from barnabas_protocol.codec import encode_request
from barnabas_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Struct
from tests.broker.handlers.test_dispatch import NO_GROUPS
from tests.protocol.support import some

T = TypeVar("T")


def metadata(topics: int, partitions: int) -> MetadataResponse:
    shown = [
        MetadataResponsePartition(
            error_code=0, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
        )
        for index in range(partitions)
    ]
    named = [MetadataResponseTopic(error_code=0, name=f"t{index}", partitions=shown) for index in range(topics)]
    return MetadataResponse(brokers=[], topics=named)


def elements(message: Struct) -> int:
    """The elements of the lists of a message, one by one."""
    found = 0
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.type.element is not None and value:
            found += len(value) + sum(elements(each) for each in value if isinstance(each, Struct))
    return found


def test_the_elements_of_lists_within_lists_count() -> None:
    assert exceeds(metadata(10, 100), 10 + 10 * 100 * 3 - 1)
    assert not exceeds(metadata(10, 100), 10 + 10 * 100 * 3)
    assert not exceeds(metadata(0, 0), 0)


@pytest.mark.parametrize("key", APIS)
def test_the_elements_of_responses_of_all_apis(key: int) -> None:
    chance, declared = random.Random(key), api(ApiKey(key)).response
    for version in declared.VERSIONS:
        message = some(chance, declared, version)
        count = elements(message)
        assert not exceeds(message, count)
        assert exceeds(message, count - 1)
        assert len(elements_of(message)) == count


@pytest.mark.parametrize(("topics", "in_thread"), [(3, False), (4, True)])
async def test_a_response_of_many_elements_is_encoded_in_a_thread(topics: int, in_thread: bool) -> None:
    threads: list[bool] = []
    freed: list[Steps[Any]] = []

    class Recorded(Slicer):
        def enqueue(self, steps: Steps[T], client: SlicerClient) -> Work[T]:
            freed.append(steps)
            return super().enqueue(steps, client)

    async def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        response = metadata(topics, 0)
        for topic in response.topics:
            topic.error_code = 3
        return response

    def seen(response: MetadataResponse, version: int, correlation_id: int) -> Answer:
        threads.append(threading.current_thread() is not threading.main_thread())
        return encode(response, version, correlation_id)

    services: Any = SimpleNamespace(
        quotas=SimpleNamespace(active=False), authorizer=None, slicer=Recorded(lambda: 0.0), groups=NO_GROUPS
    )
    route = Route(ApiKey.METADATA, handle, (), encode=seen)
    dispatch = Dispatch(services, {ApiKey.METADATA: route}, lambda: 0.0, long=3)
    deferred = dispatch(Peer("h", 1), encode_request(MetadataRequest(topics=[]), 12, 7, "c")[4:])
    assert isinstance(deferred, DeferredResponse)
    settled = asyncio.Event()
    deferred.settled = lambda _: settled.set()
    async with asyncio.timeout(60):
        await settled.wait()
    dispatch.close()
    assert deferred.answer
    assert threads == [in_thread]
    assert len(freed) == in_thread
    assert dispatch.metrics.of(ApiKey.METADATA).errors == {3: topics}
