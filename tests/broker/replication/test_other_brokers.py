"""Messages to the group coordinators of other brokers, and what is said when they do not answer."""

import asyncio

import pytest

from barnabas_broker.replication.other_brokers import OtherCoordinators
from barnabas_protocol.codec import encode_response
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas_protocol.schema import Request
from barnabas_protocol.wire import Buffer


class Broker2:
    """The only other broker.

    Attributes:
        answer: what it answers; None if it cannot be reached.
    """

    def __init__(self, answer: EnvelopeResponse | None) -> None:
        self.answer = answer
        self.asked: list[bytes] = []

    async def ask(self, node_id: int, request: Request, version: int, timeout: float) -> bytes | bytearray:
        assert isinstance(request, EnvelopeRequest)
        self.asked.append(bytes(request.request_data))
        if self.answer is None:
            raise ConnectionError(f"broker {node_id} is not registered")
        return encode_response(self.answer, version, 1)[4:]


async def answers(broker: Broker2, times: int = 1) -> list[Buffer | None]:
    others = OtherCoordinators(lambda: [2], broker, lambda node_id, listener: None)
    got: list[Buffer | None] = []
    done = asyncio.Event()

    def answered(answer: Buffer | None) -> None:
        got.append(answer)
        if len(got) == times:
            done.set()

    for _ in range(times):
        others.ask(2, b"question", answered)
    assert (list(others.all()), got) == ([2], [])
    await asyncio.wait_for(done.wait(), 5)
    return got


async def test_an_answer() -> None:
    broker = Broker2(EnvelopeResponse(response_data=b"answer", error_code=ErrorCode.NONE))
    assert [bytes(each or b"") for each in await answers(broker)] == [b"answer"]
    assert broker.asked == [b"question"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "broker 2 is not registered"),
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "CLUSTER_AUTHORIZATION_FAILED"),
    ],
    ids=["it cannot be reached", "it refuses"],
)
async def test_no_answer_is_logged_once(
    answer: EnvelopeResponse | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert await answers(Broker2(answer), 20) == [None] * 20
    (line,) = caplog.messages
    assert "another broker does not report the Fetches of members" in line
    assert "node_id=2" in line, "the key `broker` is that of the broker that writes the line"
    assert reason in line


async def test_questions_without_an_answer_are_bounded() -> None:
    broker = Broker2(EnvelopeResponse(response_data=b"answer", error_code=ErrorCode.NONE))
    got = await answers(broker, 1_100)
    assert (got.count(None), len(broker.asked)) == (100, 1_000)


async def test_a_broker_that_has_not_answered_is_left_alone_for_a_while() -> None:
    """It may be an older one, which closes each connection on which it is asked."""
    broker = Broker2(None)
    others = OtherCoordinators(lambda: [2], broker, lambda node_id, listener: None)
    loop = asyncio.get_running_loop()
    for _ in range(3):
        answered: asyncio.Future[Buffer | None] = loop.create_future()
        others.ask(2, b"question", answered.set_result)
        assert not answered.done()
        assert await asyncio.wait_for(answered, 5) is None
    assert len(broker.asked) == 1
