"""DescribeTransactions and ListTransactions of a broker without transactions."""

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.wire import Wire


async def test_described_transactions_are_not_found(wire: Wire) -> None:
    request = DescribeTransactionsRequest(transactional_ids=["one", "", "two"])
    states = (await wire.ask(request, 0, DescribeTransactionsResponse)).transaction_states
    assert [(state.transactional_id, state.error_code) for state in states] == [
        ("one", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
        ("two", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    ]
    assert [state.topics for state in states] == [[], [], []]


@pytest.mark.parametrize("version", [0, 1])
async def test_no_transactions_are_listed_and_unknown_states_are_returned(wire: Wire, version: int) -> None:
    request = ListTransactionsRequest(state_filters=["Ongoing", "Bewildered"], producer_id_filters=[])
    answer = await wire.ask(request, version, ListTransactionsResponse)
    assert (answer.error_code, answer.transaction_states) == (ErrorCode.NONE, [])
    assert answer.unknown_state_filters == ["Bewildered"]
