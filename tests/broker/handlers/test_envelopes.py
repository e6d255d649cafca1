"""Envelope: what only coordinators on other brokers may ask."""

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.groups.fetch_reports import VERSION, AskedClient, FetchMessage, FetchReport
from barnabas_broker.handlers import envelopes
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas_protocol.registry import ApiKey
from tests.wire import Wire

MESSAGE = encode(
    FetchMessage(notices=[], clients=[AskedClient(client_id="c", host="/h", partitions=[])], logs=[]), VERSION
)


async def ask(broker: BrokerServer, message: bytes) -> EnvelopeResponse:
    async with await Wire.connect(broker.port) as wire:
        request = EnvelopeRequest(request_data=message, request_principal=None, client_host_address=b"")
        return await wire.ask(request, 0, EnvelopeResponse)


async def test_clients_may_not_ask(broker: BrokerServer) -> None:
    answer = await ask(broker, MESSAGE)
    assert (answer.error_code, answer.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)


async def test_clients_do_not_find_it_in_api_versions(broker: BrokerServer) -> None:
    assert ApiKey.ENVELOPE not in {each.api_key for each in broker.services.api_versions}


async def test_a_coordinator_on_another_broker(broker: BrokerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "from_coordinator", lambda context: True)
    answer = await ask(broker, MESSAGE)
    assert answer.error_code == ErrorCode.NONE
    (client,) = decode(FetchReport, VERSION, answer.response_data or b"").clients
    assert (client.fetched_ago_ms, client.is_committed, client.is_member) == (-1, -1, False)
    assert (await ask(broker, MESSAGE[:-2])).error_code == ErrorCode.INVALID_REQUEST


async def test_the_clients_that_are_connected(broker: BrokerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "from_coordinator", lambda context: True)
    asked = [AskedClient(client_id=each, host="/127.0.0.1", partitions=[]) for each in ("reader", "other")]
    message = encode(FetchMessage(notices=[], clients=asked, logs=[]), VERSION)

    async def connected() -> list[bool]:
        report = decode(FetchReport, VERSION, (await ask(broker, message)).response_data or b"")
        return [each.is_connected for each in report.clients]

    async with await Wire.connect(broker.port) as wire:
        assert await connected() == [False, False], "it has not said yet who it is"
        await wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse, client_id="reader")
        assert await connected() == [True, False]
    for _ in range(100):
        if await connected() == [False, False]:
            return
    pytest.fail("its connection is closed")
