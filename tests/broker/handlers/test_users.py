"""Users of SCRAM over the wire: what librdkafka sends, and requests of many users."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.handlers.users import MOST_CHANGES, decode_alteration
from barnabas_protocol.codec import decode_request_header, encode_request
from barnabas_protocol.errors import DecodeError, ErrorCode
from barnabas_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.wire import Wire


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    running = await BrokerServer.start(Config(BROKER_KEYS, {"log.dir": str(tmp_path / "data")}), port=0)
    yield running
    await running.stop()


def set_users(count: int) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[],
        upsertions=[
            ScramCredentialUpsertion(
                name=f"user-{number}", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"x" * 32
            )
            for number in range(count)
        ],
    )


@pytest.mark.parametrize("more", [b"", b"\0"])
def test_the_byte_too_many_of_librdkafka(more: bytes) -> None:
    request = set_users(1)
    frame = bytes(encode_request(request, 0, 1, "c"))[4:] + more
    assert decode_alteration(AlterUserScramCredentialsRequest, decode_request_header(frame), frame) == request


@pytest.mark.parametrize("more", [b"\1", b"\0\0", b"x"])
def test_other_bytes_too_many_are_refused(more: bytes) -> None:
    frame = bytes(encode_request(set_users(1), 0, 1, "c"))[4:] + more
    with pytest.raises(DecodeError):
        decode_alteration(AlterUserScramCredentialsRequest, decode_request_header(frame), frame)


async def test_many_users(broker: BrokerServer) -> None:
    async with await Wire.connect(broker.port) as wire:
        answer = await wire.ask(set_users(MOST_CHANGES), 0, AlterUserScramCredentialsResponse)
        assert {result.error_code for result in answer.results} == {0}
        found = await wire.ask(DescribeUserScramCredentialsRequest(users=None), 0, DescribeUserScramCredentialsResponse)
        assert len(found.results) == MOST_CHANGES
        request = set_users(MOST_CHANGES)
        request.deletions = [ScramCredentialDeletion(name="user-0", mechanism=1)]
        answer = await wire.ask(request, 0, AlterUserScramCredentialsResponse)
        assert {result.error_code for result in answer.results} == {ErrorCode.INVALID_REQUEST}
        assert len(answer.results) == MOST_CHANGES
        assert "at most 1000 are accepted" in (answer.results[0].error_message or "")
