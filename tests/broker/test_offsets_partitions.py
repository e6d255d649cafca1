"""The partitions that ``__consumer_offsets`` has decide where a group belongs, not ``offsets.topic.num.partitions``."""

from collections.abc import Awaitable, Callable

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.broker.http.support import commit, make_topic
from tests.wire import Wire

GROUPS = [f"group-{n}" for n in range(30)]


@pytest.mark.parametrize("configured", ["50", "2"])
async def test_the_configured_number_changes(
    start_broker: Callable[..., Awaitable[BrokerServer]], configured: str
) -> None:
    broker = await start_broker(offsets_topic_num_partitions="4")
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, "t")
        for group in GROUPS[:15]:
            await commit(wire, group, "t", {0: 7})
    await broker.stop()

    broker = await start_broker(offsets_topic_num_partitions=configured)
    async with await Wire.connect(broker.port) as wire:
        for group in GROUPS[15:]:
            await commit(wire, group, "t", {0: 7})
        for group in GROUPS:
            answer = await wire.ask(OffsetFetchRequest(group_id=group, topics=None), 7, OffsetFetchResponse)
            assert answer.error_code == ErrorCode.NONE
            assert [each.committed_offset for topic in answer.topics for each in topic.partitions] == [7]
