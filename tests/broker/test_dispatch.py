"""What the broker does with frames that are no requests, or none it serves. Every other connection goes on."""

import struct

import pytest

from barnabas_broker.broker import Broker
from barnabas_broker.handlers.table import handlers
from barnabas_protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.apis.heartbeat import HeartbeatRequest
from barnabas_protocol.apis.metadata import MetadataRequest, MetadataResponse
from barnabas_protocol.codec import decode, decode_response, encode_request
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.registry import ApiKey
from tests.wire import Wire

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_api_versions_tells_what_the_table_serves(wire: Wire, version: int) -> None:
    response = await wire.ask(VERSIONS, version, ApiVersionsResponse)
    assert response.error_code == ErrorCode.NONE
    told = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert told == {key: (r.served(key).low, r.served(key).high) for key, r in handlers().items()}


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(wire: Wire) -> None:
    body = struct.pack(">hhih", 18, 99, 7, -1) + b"\x00" + b"whatever the future brings"
    wire.writer.write(struct.pack(">i", len(body)) + body)
    frame = await wire.frame()
    assert frame[:4] == struct.pack(">i", 7)
    response = decode(ApiVersionsResponse, 0, frame[4:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a\n"])
async def test_a_bad_software_name_is_an_invalid_request(wire: Wire, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert (await wire.ask(request, 3, ApiVersionsResponse)).error_code == ErrorCode.INVALID_REQUEST


HEARTBEAT = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "c")


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.HEARTBEAT, 99, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.HEARTBEAT, -1, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 1, 500),
        struct.pack(">i", len(HEARTBEAT) - 6) + HEARTBEAT[4:-2],
        struct.pack(">i", len(HEARTBEAT) - 3) + HEARTBEAT[4:] + b"\x00",
    ],
    ids=["negative", "huge", "empty", "api", "version", "version -1", "client id", "truncated", "trailing"],
)
async def test_what_is_no_request_closes_its_connection_and_no_other(broker: Broker, wire: Wire, data: bytes) -> None:
    async with await Wire.connect(broker.port) as other:
        other.writer.write(data)
        assert await other.closed()
    response = await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)
    assert response.topics == []
    assert [b.port for b in response.brokers] == [broker.port]


async def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    numbers = [wire.send(VERSIONS, 3) if n % 2 else wire.send(MetadataRequest(topics=[]), 12) for n in range(50)]
    answered = [struct.unpack_from(">i", await wire.frame())[0] for _ in numbers]
    assert answered == numbers


async def test_librdkafkas_metadata_request_is_read_as_kafka_reads_it(wire: Wire) -> None:
    head = struct.pack(">hhih", ApiKey.METADATA, 13, 7, -1)
    body = head + b"\x00" + b"\x00\x00\x00\x00\x01\x00\x00"
    wire.writer.write(struct.pack(">i", len(body)) + body)
    response = decode_response(MetadataResponse, 13, await wire.frame())
    assert response.topics == []
    assert response.brokers
