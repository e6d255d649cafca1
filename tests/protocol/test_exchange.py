"""Responses are matched with the requests that they answer."""

import pytest

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.exchange import Exchange


def answer(correlation_id: int) -> bytes:
    return correlation_id.to_bytes(4, "big", signed=True) + b"body"


def test_responses_in_order() -> None:
    exchange: Exchange[str] = Exchange()
    ids = [exchange.sent(token) for token in ("a", "b", "c")]
    assert len(set(ids)) == 3
    assert len(exchange) == 3
    assert [exchange.answered(answer(one)) for one in ids] == ["a", "b", "c"]
    assert len(exchange) == 0


def test_a_response_out_of_order() -> None:
    exchange: Exchange[str] = Exchange()
    first, second = exchange.sent("a"), exchange.sent("b")
    with pytest.raises(DecodeError, match=f"response {second}, but the oldest request in flight is {first}"):
        exchange.answered(answer(second))
    assert exchange.answered(memoryview(answer(first))) == "a"


def test_a_response_without_a_request() -> None:
    exchange: Exchange[str] = Exchange()
    with pytest.raises(DecodeError, match="no request is in flight"):
        exchange.answered(answer(0))
    correlation_id = exchange.sent("a")
    exchange.answered(answer(correlation_id))
    with pytest.raises(DecodeError, match="no request is in flight"):
        exchange.answered(answer(correlation_id))


def test_a_response_without_a_correlation_id() -> None:
    exchange: Exchange[str] = Exchange()
    exchange.sent("a")
    with pytest.raises(DecodeError):
        exchange.answered(b"\0\0")
    assert len(exchange) == 1


def test_abandoned_requests() -> None:
    exchange: Exchange[str] = Exchange()
    exchange.sent("a")
    exchange.sent("b")
    assert exchange.abandon() == ["a", "b"]
    assert exchange.abandon() == []


def test_correlation_ids_stay_positive() -> None:
    exchange: Exchange[int] = Exchange()
    exchange._next = 0x7FFFFFFF
    assert [exchange.sent(1), exchange.sent(2)] == [0x7FFFFFFF, 0]
    assert exchange.answered(answer(0x7FFFFFFF)) == 1
    assert exchange.answered(answer(0)) == 2
