"""Malformed and unsupported requests: they get an error or close their connection, and no other one."""

import asyncio
import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Dispatch, Route
from barnabas_broker.handlers.table import BETWEEN_BROKERS, join
from barnabas_broker.server.connection import Answer, CloseConnection, DeferredResponse, Peer
from barnabas_broker.slicer import Slicer
from barnabas_protocol.codec import decode, decode_response, encode_request
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.metadata import MetadataResponse
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.wire import Buffer
from tests.wire import Wire

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")

#: A coordinator of groups that takes no note of connections.
NO_GROUPS = SimpleNamespace(opened=lambda client: lambda: None)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_api_versions_lists_the_table(wire: Wire, version: int) -> None:
    response = await wire.ask(VERSIONS, version, ApiVersionsResponse)
    assert response.error_code == ErrorCode.NONE
    listed = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    routes = {key: route for key, route in join().items() if key not in BETWEEN_BROKERS}
    served = {key: (route.served.low, route.served.high) for key, route in routes.items()}
    # Clients that see the APIs of telemetry ask for it: listed while there is a subscription.
    assert listed == {key: versions for key, versions in served.items() if "TELEMETRY" not in key.name}


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(wire: Wire) -> None:
    body = struct.pack(">hhih", 18, 99, 7, -1) + b"\x00" + b"whatever the future brings"
    wire.writer.write(struct.pack(">i", len(body)) + body)
    frame = await wire.frame()
    assert frame[:4] == struct.pack(">i", 7)
    response = decode(ApiVersionsResponse, 0, frame[4:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a\n"])
async def test_a_bad_software_name_is_an_invalid_request(wire: Wire, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert (await wire.ask(request, 3, ApiVersionsResponse)).error_code == ErrorCode.INVALID_REQUEST


HEARTBEAT = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "c")


async def test_a_request_with_trailing_bytes_closes_its_connection(wire: Wire) -> None:
    wire.writer.write(struct.pack(">i", len(HEARTBEAT) - 3) + HEARTBEAT[4:] + b"\x00")
    assert await wire.closed()


async def test_librdkafkas_metadata_request_is_read_as_kafka_reads_it(wire: Wire) -> None:
    head = struct.pack(">hhih", ApiKey.METADATA, 13, 7, -1)
    body = head + b"\x00" + b"\x00\x00\x00\x00\x01\x00\x00"
    wire.writer.write(struct.pack(">i", len(body)) + body)
    response = decode_response(MetadataResponse, 13, await wire.frame())
    assert response.topics == []
    assert response.brokers


class Owing:
    """A dispatcher whose only handler returns a future, and a transport that collects the responses."""

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []
        self.future: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
        services: Any = SimpleNamespace(
            quotas=SimpleNamespace(active=False), authorizer=None, slicer=Slicer(lambda: 0.0), groups=NO_GROUPS
        )
        self.dispatch = Dispatch(services, {ApiKey.HEARTBEAT: Route(ApiKey.HEARTBEAT, self._handle, ())}, lambda: 0.0)
        self.metrics = self.dispatch.metrics.of(ApiKey.HEARTBEAT)

    def _handle(self, context: RequestContext, request: HeartbeatRequest) -> asyncio.Future[HeartbeatResponse]:
        self.contexts.append(context)
        return self.future

    def ask(self, peer: Peer, version: int = 4, client_id: str | None = "c") -> DeferredResponse:
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        later = self.dispatch(peer, encode_request(request, version, 7, client_id)[4:])
        assert isinstance(later, DeferredResponse)
        return later

    async def settled(self, later: DeferredResponse) -> Answer | None:
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        later.settled = lambda _: settled.set_result(None)
        await asyncio.wait_for(settled, 60)
        return later.answer


def code_of(answer: Answer | None) -> int:
    assert answer is not None
    return decode_response(HeartbeatResponse, 4, b"".join(cast(list[Buffer], answer))[4:]).error_code


async def test_the_result_of_a_handlers_future_is_sent_when_it_is_done() -> None:
    owing = Owing()
    later = owing.ask(Peer("h", 1))
    assert later.answer is None
    assert sum(owing.metrics.latency.counts) == 0
    owing.future.set_result(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert code_of(await owing.settled(later)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert owing.metrics.errors == {ErrorCode.REBALANCE_IN_PROGRESS: 1}
    assert sum(owing.metrics.latency.counts) == 1


async def test_a_future_that_fails_is_an_unknown_server_error() -> None:
    owing = Owing()
    later = owing.ask(Peer("h", 1))
    owing.future.set_exception(ValueError("a bug"))
    assert code_of(await owing.settled(later)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert owing.metrics.errors == {ErrorCode.UNKNOWN_SERVER_ERROR: 1}


async def test_a_future_may_close_the_connection() -> None:
    owing = Owing()
    later = owing.ask(Peer("h", 1))
    owing.future.set_exception(CloseConnection("asked to"))
    assert await owing.settled(later) is None
    assert later.reason == "asked to"


async def test_a_cancelled_handler_closes_the_connection() -> None:
    owing = Owing()
    later = owing.ask(Peer("h", 1))
    owing.future.cancel()
    assert await owing.settled(later) is None
    assert later.reason == "the broker is shutting down"


async def test_handlers_get_the_client_and_the_version() -> None:
    owing = Owing()
    one, other = Peer("one", 1), Peer("other", 2)
    asked: list[tuple[Peer, int, str | None]] = [(one, 4, "c"), (one, 4, "c"), (one, 3, "c"), (one, 3, "d")]
    asked += [(one, 3, None), (other, 3, "d"), (one, 4, "c")]
    for peer, version, client_id in asked:
        owing.ask(peer, version, client_id)
    found = [(context.peer, context.version, context.client_id) for context in owing.contexts]
    assert found == [(peer, version, client_id or "") for peer, version, client_id in asked]
    owing.future.cancel()


class Quota:
    """Keeps what clients are charged for, in percent of a second."""

    def __init__(self) -> None:
        self.charged: list[float] = []

    def record(self, user: str, client_id: str, amount: float, now: float) -> float:
        self.charged.append(amount)
        return 0.0


async def test_a_client_is_charged_for_all_the_time_of_a_handler_that_waits() -> None:
    time, quota = 0.0, Quota()

    async def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal time
        time += 2.0
        await asyncio.sleep(0)
        time += 3.0
        return HeartbeatResponse(error_code=ErrorCode.NONE)

    quotas = SimpleNamespace(active=True, requests=quota, produces=Quota())
    services = SimpleNamespace(
        quotas=quotas, authorizer=None, slicer=Slicer(lambda: time), now=lambda: time, groups=NO_GROUPS
    )
    dispatch = Dispatch(cast(Any, services), {ApiKey.HEARTBEAT: Route(ApiKey.HEARTBEAT, handle, ())}, lambda: time)
    peer = Peer("h", 1)
    for charged in (200, 700):  # what a request does in the step that answers it counts with the next one
        later = dispatch(peer, HEARTBEAT[4:])
        assert isinstance(later, DeferredResponse)
        settled = asyncio.Event()
        later.settled = lambda _, settled=settled: settled.set()  # type: ignore[misc]
        async with asyncio.timeout(60):
            await settled.wait()
        assert sum(quota.charged) == charged
