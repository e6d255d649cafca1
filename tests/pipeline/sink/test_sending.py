"""Records of a task, sent many at a time: those of a partition stay in their order."""

import pytest

from barnabas_client.errors import MessageSizeTooLargeError
from barnabas_pipeline.sink.records import SinkRecord
from barnabas_pipeline.sink.sending import send
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.registry import ApiKey
from tests.client.producers import numbered, producer
from tests.world.answers import refused
from tests.world.programs import Machine, simulated

HEADERS = (("h", b"1"),)


@simulated
async def test_topics_keys_and_headers(broker: Machine) -> None:
    await broker.create("t", 3)
    await broker.create("u")
    async with producer(broker) as sender:
        await send(sender, [SinkRecord("t" if at % 2 else "u", None, None, b"%d" % at, HEADERS) for at in range(10)])
    assert broker.values("u") == [b"%d" % at for at in range(0, 10, 2)]
    there = [value for number in range(3) for value in broker.values("t", number)]
    assert sorted(value for value in there if value is not None) == [b"%d" % at for at in range(1, 10, 2)]
    assert all(record.headers == HEADERS for record in broker.records("u"))


@pytest.mark.parametrize("some_have_none", [False, True])
@simulated
async def test_given_partitions_in_any_order(broker: Machine, some_have_none: bool) -> None:
    await broker.create("t", 3)
    records = [SinkRecord("t", at % 3, None, b"%d" % at, ()) for at in range(30)]
    if some_have_none:
        records[10] = SinkRecord("t", None, b"key", b"10", ())
    async with producer(broker) as sender:
        await send(sender, records)
    found = [broker.values("t", number) for number in range(3)]
    assert sorted(value or b"" for values in found for value in values) == sorted(numbered(30))
    assert all(values == sorted(values, key=lambda value: int(value or b"0")) for values in found)


@simulated
async def test_nothing_and_an_error(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        await send(sender, [])
        broker.script.always(ApiKey.PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(MessageSizeTooLargeError):
            await send(sender, [SinkRecord("t", None, None, b"v", ())])
