"""One connection: versions, order of responses, timeouts, and its end."""

import asyncio
import socket

import pytest

from barnabas_client.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, UnsupportedVersionError
from barnabas_client.network.connection import KEEPALIVE_SECONDS, Connection
from barnabas_client.network.versions import ApiRange, choose_version
from barnabas_protocol.codec import encode_response
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import ProduceRequest
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.world.answers import Action, Answer, Raw, drop, silence
from tests.world.programs import Machine, simulated


async def opened(broker: Machine, timeout: float = 5) -> Connection:
    await broker.broker.load_groups()
    return await Connection.open(broker.host, broker.port, client_id="test", timeout=timeout)


def heartbeat(group: str = "g") -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=1, member_id="m")


async def ask(connection: Connection, group: str = "g", timeout: float = 5) -> HeartbeatResponse:
    return await connection.ask(heartbeat(group), HeartbeatResponse, timeout=timeout)


@simulated
async def test_api_versions_are_requested_first(broker: Machine) -> None:
    connection = await opened(broker)
    assert (broker.script.keys(), broker.script.versions(ApiKey.API_VERSIONS)) == ([ApiKey.API_VERSIONS], {5})
    assert connection.versions[ApiKey.FETCH] == ApiRange(4, 18)
    assert not connection.closed
    await connection.close()
    assert connection.closed


@simulated
async def test_the_same_api_versions_are_decoded_once(broker: Machine) -> None:
    connections = [await opened(broker) for _ in range(2)]
    assert connections[0].versions is connections[1].versions
    for connection in connections:
        await connection.close()


@simulated
async def test_api_versions_of_an_unusual_size_are_not_kept(broker: Machine) -> None:
    apis = [ApiVersion(api_key=key, min_version=0, max_version=5) for key in range(2_000)]
    broker.script.always(
        ApiKey.API_VERSIONS, lambda request: ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=apis)
    )
    connections = [await opened(broker) for _ in range(2)]
    assert connections[0].versions == connections[1].versions
    assert connections[0].versions is not connections[1].versions
    for connection in connections:
        await connection.close()


@pytest.mark.parametrize("newest", [0, 1, 2, 3, 4])
@simulated
async def test_api_versions_are_requested_again_in_a_version_of_an_older_broker(broker: Machine, newest: int) -> None:
    served = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=newest)]
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served)
    broker.script.once(ApiKey.API_VERSIONS, lambda request: Raw(bytes(encode_response(refusal, 0, 0))))
    connection = await opened(broker)
    assert (broker.script.keys(), broker.script.versions(ApiKey.API_VERSIONS)) == (
        [ApiKey.API_VERSIONS] * 2,
        {5, newest},
    )
    assert (await ask(connection)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await connection.close()


@simulated
async def test_an_error_without_versions_means_version_0(broker: Machine) -> None:
    def refuse(request: Request) -> Answer:
        return Raw(b"\x00\x00\x00\x0a" + b"\x00\x00\x00\x00" + b"\x00\x23" + b"\x00\x00\x00\x00")

    broker.script.once(ApiKey.API_VERSIONS, refuse)
    connection = await opened(broker)
    assert broker.script.keys() == [ApiKey.API_VERSIONS] * 2
    assert broker.script.versions(ApiKey.API_VERSIONS) == {5, 0}
    await connection.close()


@simulated
async def test_a_broker_that_refuses_all_versions(broker: Machine) -> None:
    def refuse(request: Request) -> Answer:
        return ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, api_keys=[])

    broker.script.once(ApiKey.API_VERSIONS, refuse)
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        await opened(broker)


@simulated
async def test_requests_are_pipelined_and_responses_find_their_requests(broker: Machine) -> None:
    connection = await opened(broker)
    answers = await asyncio.gather(
        *(
            connection.ask(FindCoordinatorRequest(coordinator_keys=[f"g{number}"]), FindCoordinatorResponse, timeout=60)
            for number in range(50)
        )
    )
    assert [answer.coordinators[0].key for answer in answers] == [f"g{number}" for number in range(50)]
    assert connection.in_flight == 0
    await connection.close()


@simulated
async def test_the_newest_common_version_is_used(broker: Machine) -> None:
    broker.limit(ApiKey.METADATA, 7)
    connection = await opened(broker)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    await connection.ask(request, MetadataResponse, timeout=60)
    await connection.ask(request, MetadataResponse, timeout=60, at_most=4)
    assert broker.script.versions(ApiKey.METADATA) == {7, 4}
    await connection.close()


@simulated
async def test_an_api_that_the_broker_lacks_is_refused_by_name(broker: Machine) -> None:
    connection = await opened(broker)
    connection.versions = {key: found for key, found in connection.versions.items() if key != ApiKey.HEARTBEAT}
    with pytest.raises(UnsupportedVersionError, match="HEARTBEAT"):
        await ask(connection)
    await connection.close()


def test_versions_without_a_common_one_are_refused_with_both_ranges() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"PRODUCE: the broker has versions 0 to 2, this needs 3 to 13"):
        choose_version(ProduceRequest, ApiRange(0, 2), None)


@simulated
async def test_a_request_that_cannot_be_encoded_does_not_affect_others(broker: Machine) -> None:
    connection = await opened(broker)
    with pytest.raises(KafkaError, match="cannot be sent") as raised:
        await ask(connection, "\ud800")
    assert raised.value.code == ErrorCode.INVALID_REQUEST
    assert (await ask(connection)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await connection.close()


@simulated
async def test_a_missing_response_ends_the_connection(broker: Machine) -> None:
    broker.script.once(ApiKey.HEARTBEAT, silence)
    connection = await opened(broker)
    first = asyncio.ensure_future(ask(connection, timeout=0.01))
    second = asyncio.ensure_future(ask(connection, timeout=60))
    with pytest.raises(KafkaTimeoutError, match=r"did not answer HEARTBEAT within 0.01 s.*request_timeout_ms"):
        await first
    with pytest.raises(KafkaConnectionError):
        await second
    assert connection.closed


@simulated
async def test_a_closed_connection_reports_why(broker: Machine) -> None:
    broker.script.once(ApiKey.HEARTBEAT, drop)
    connection = await opened(broker)
    with pytest.raises(KafkaConnectionError):
        await ask(connection)
    with pytest.raises(KafkaConnectionError, match="is closed"):
        await ask(connection)
    await connection.close()


@simulated
async def test_close_fails_requests_in_flight(broker: Machine) -> None:
    broker.script.once(ApiKey.HEARTBEAT, silence)
    connection = await opened(broker)
    waiting = asyncio.ensure_future(ask(connection))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(KafkaConnectionError, match="closed by this client"):
        await waiting


@simulated
async def test_the_response_of_a_cancelled_request_is_dropped(broker: Machine) -> None:
    connection = await opened(broker)
    forgotten = asyncio.ensure_future(ask(connection, "first"))
    await asyncio.sleep(0)
    forgotten.cancel()
    assert (await ask(connection, "second")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert [request.group_id for request in broker.script.asked(HeartbeatRequest)] == ["first", "second"]
    await connection.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x04\x00\x00\x00\x63",
        b"\x00\x00\x00\x05\x00\x00\x00\x01\x00",
        b"\x00\x00\x00\x02\x00\x00",
    ],
)
@simulated
async def test_bytes_that_are_not_a_response_end_the_connection(broker: Machine, nonsense: bytes) -> None:
    broker.script.once(ApiKey.HEARTBEAT, lambda request: Raw(nonsense))
    connection = await opened(broker)
    with pytest.raises(KafkaConnectionError, match=r"not a Kafka response|cannot be read"):
        await ask(connection)
    assert connection.closed


@simulated
async def test_responses_that_arrive_in_pieces(broker: Machine) -> None:
    pieces = b"\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x19\x00"
    # ApiVersions took correlation id 0, so this answers the heartbeat.
    broker.script.once(ApiKey.HEARTBEAT, lambda request: Raw(pieces[:7]), lambda request: Raw(pieces[7:]))
    connection = await opened(broker)
    first = asyncio.ensure_future(ask(connection))
    second = asyncio.ensure_future(ask(connection, timeout=60))
    assert (await first).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    await connection.close()
    with pytest.raises(KafkaConnectionError):
        await second


async def test_no_broker_listens() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        with pytest.raises(
            KafkaConnectionError, match=rf"cannot connect to 127.0.0.1:{port}.*check that a broker listens"
        ):
            await Connection.open("127.0.0.1", port, client_id="test", timeout=60)


@pytest.mark.usefixtures("no_complaints")
async def test_a_listener_that_does_not_answer() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(
        KafkaTimeoutError, match=rf"no Kafka broker answered at 127.0.0.1:{port} within 0.05 s|did not answer"
    ):
        await Connection.open("127.0.0.1", port, client_id="test", timeout=0.05)
    server.close()
    await server.wait_closed()


async def test_a_host_name_that_does_not_exist() -> None:
    with pytest.raises(KafkaConnectionError):
        await Connection.open("no-such-host.invalid", 9092, client_id="test", timeout=60)


@simulated
async def test_requests_without_a_response_are_not_waited_for(broker: Machine) -> None:
    await broker.create("t")
    connection = await opened(broker)
    connection.send_only(ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), at_most=12)
    assert connection.in_flight == 0
    assert (await ask(connection)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(broker.script.asked(ProduceRequest)) == 1
    await connection.close()


class Interrupted(asyncio.Future[HeartbeatResponse]):
    """Cancelled at the very moment at which its request is answered, as by Ctrl-C."""

    def set_result(self, result: HeartbeatResponse, /) -> None:
        self.cancel()
        super().set_result(result)

    def set_exception(self, exception: type[BaseException] | BaseException, /) -> None:
        self.cancel()
        super().set_exception(exception)


@pytest.mark.parametrize("fault", [None, drop])
@simulated
async def test_ctrl_c_between_two_steps_of_a_response(
    broker: Machine, monkeypatch: pytest.MonkeyPatch, fault: Action | None
) -> None:
    """The other requests in flight still get their response, or their error."""
    connection = await opened(broker)
    broker.script.always(ApiKey.HEARTBEAT, fault)
    with monkeypatch.context() as patch:
        patch.setattr(connection._loop, "create_future", Interrupted)
        interrupted = asyncio.create_task(ask(connection, "a"))
        await asyncio.sleep(0)
    other = asyncio.create_task(ask(connection, "b"))
    await asyncio.wait((interrupted, other), timeout=60)
    assert interrupted.cancelled()
    if fault is None:
        assert other.result().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert isinstance(other.exception(), KafkaConnectionError)
    await connection.close()


async def test_tcp_looks_whether_a_silent_broker_still_exists() -> None:
    """Its machine may have lost power: it sends nothing then, and a JoinGroup may wait for minutes."""
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    connection = Connection("127.0.0.1", server.sockets[0].getsockname()[1], "client")
    transport, _ = await asyncio.get_running_loop().create_connection(
        lambda: connection, connection.host, connection.port
    )
    opened = transport.get_extra_info("socket")
    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_KEEPIDLE"):
        idle, every, times = (
            opened.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + every * times == KEEPALIVE_SECONDS <= 60
    connection.abort("the test is over")
    for writer in accepted:
        writer.close()
    server.close()
