"""Invalid arguments and invalid responses are refused with an error that shows a valid value."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas_client import Admin, Consumer, Producer, TopicPartition
from barnabas_client.errors import IllegalStateError, InvalidTopicError, KafkaConnectionError, KafkaError
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, consumer, member, stored
from tests.world.answers import Raw
from tests.world.broker import ScriptedBroker
from tests.world.programs import Machine, simulated

#: What speaks another protocol says.
NONSENSE = b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(60)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap_servers": 5}, 'give "host:port"'),
        ({"enable_auto_commit": "no"}, "give True or False"),
        ({"partition_assignment_strategy": ["range"]}, r"\[RangeAssignor\(\)\]"),
        ({"partition_assignment_strategy": "range"}, r"\[RangeAssignor\(\)\]"),
        ({"session_timeout_ms": "10"}, "give an integer"),
        ({"group": "g"}, "unexpected keyword argument 'group'"),
    ],
)
async def test_settings_of_a_wrong_type(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Consumer("t", **settings)


@simulated
async def test_arguments_of_a_consumer_of_a_wrong_type(broker: Machine) -> None:
    await broker.create("t")
    wrong: Any = 5
    text: Any = "5"
    async with member(broker) as reader:
        calls: dict[str, Callable[[], Any]] = {
            "give a list of topics": lambda: reader.subscribe(wrong),
            "is not a regular expression": lambda: reader.subscribe(pattern=wrong),
            "assign: 5 is not a list of partitions": lambda: reader.assign(wrong),
            "timeout_ms is '5'": lambda: reader.getmany(timeout_ms=text),
            "max_records is '5'": lambda: reader.getmany(max_records=text),
            "end_offsets: 5 is not a list of partitions": lambda: reader.end_offsets(wrong),
            "commit: 5 is not a mapping": lambda: reader.commit(wrong),
            "offsets_for_times: 5 is not a mapping": lambda: reader.offsets_for_times(wrong),
            "give milliseconds since 1970": lambda: reader.offsets_for_times({T0: text}),
        }
        for message, call in calls.items():
            with pytest.raises(TypeError, match=message):
                await call()


@simulated
async def test_arguments_of_a_producer_of_a_wrong_type(broker: Machine) -> None:
    await broker.create("t")
    async with Producer(bootstrap_servers=broker.address) as producer:
        wrong: list[dict[str, Any]] = [
            {"timestamp_ms": "now"},
            {"headers": [5]},
            {"headers": [("name", "text")]},
            {"headers": {"name": b"x"}},
        ]
        for arguments in wrong:
            with pytest.raises(TypeError, match=r"send to t: .*give"):
                await producer.send("t", b"x", **arguments)
        await producer.send_and_wait("t", b"y", headers=[("name", None)])
    assert broker.values("t") == [b"y"]


@simulated
async def test_a_single_name_is_not_a_list_of_names(broker: Machine) -> None:
    """It would delete the topics that are called as its letters."""
    await broker.create("t")
    wrong: Any = "t"
    number: Any = 5
    async with Admin(bootstrap_servers=broker.address) as admin:
        for call in (
            admin.delete_topics,
            admin.describe_topics,
            admin.describe_consumer_groups,
            admin.delete_consumer_groups,
            partial(admin.remove_group_members, "g"),
        ):
            with pytest.raises(TypeError, match="'t': give a list of names"):
                await call(wrong)
            with pytest.raises(TypeError, match="give a list of names"):
                await call(number)
    assert broker.values("t") == []


@pytest.mark.parametrize("key", [ApiKey.API_VERSIONS, ApiKey.METADATA])
@simulated
async def test_start_at_a_broker_with_invalid_responses(broker: Machine, key: ApiKey) -> None:
    broker.script.always(key, lambda request: Raw(NONSENSE))
    with pytest.raises(
        KafkaConnectionError, match=r"not a Kafka response.*To do: check that a Kafka broker listens there"
    ):
        await consumer(broker, "t", request_timeout_ms=1_000).start()


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH])
@simulated
async def test_a_broker_with_invalid_responses_for_a_while(broker: Machine, key: ApiKey) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.once(key, *[lambda request: Raw(NONSENSE)] * 2)
    async with member(broker, "t") as reader:
        assert (await reader.getone()).value == b"a"


@simulated
async def test_a_commit_with_an_invalid_response(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with member(broker, "t", request_timeout_ms=500, close_timeout_ms=100) as reader:
        await reader.getone()
        broker.script.always(ApiKey.OFFSET_COMMIT, lambda request: Raw(NONSENSE))
        with pytest.raises(KafkaError, match="commit to group 'g'"):
            await reader.commit()


# What no request can carry is refused at once: it would make requests fail that others need, too.


@simulated
async def test_invalid_topics_and_partition_numbers(broker: Machine) -> None:
    async with consumer(broker) as reader:
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("subscribe.*give a name of the characters", lambda: reader.subscribe(["caf\u00e9"])),
            ("has 250 characters: give a name of 1 to 249", lambda: reader.subscribe(["x" * 250])),
            ("assign: partition is -1: give a number of at least 0", lambda: reader.assign([TopicPartition("t", -1)])),
            ("assign: partition is 2147483648", lambda: reader.assign([TopicPartition("t", 1 << 31)])),
            ("assign: '\\\\ud800': give a name", lambda: reader.assign([TopicPartition("\ud800", 0)])),
        ]
        for message, call in calls:
            with pytest.raises(ValueError, match=message):
                call()
        reader.assign([TopicPartition("t", (1 << 31) - 1)])


@simulated
async def test_invalid_offsets(broker: Machine) -> None:
    await broker.create("t")
    wrong: Any = [1 << 63, -1, (-1, ""), (1 << 63, "noted", 3)]
    mistyped: Any = [True, None, "3", 3.5, (), (1, None), (1, "", "0"), (1, "", 0, 0)]
    async with member(broker, "t") as reader:
        await reader.position(T0)
        with pytest.raises(ValueError, match="give an offset of at least 0"):
            reader.seek(T0, 1 << 63)
        for offset in wrong:
            with pytest.raises(ValueError, match=r"commit: offset .* for t-0: give at least 0"):
                await reader.commit({T0: offset})
        for offset in mistyped:
            with pytest.raises(TypeError, match="give an offset, or an offset with metadata"):
                await reader.commit({T0: offset})
        await reader.commit({T0: ((1 << 63) - 1, "noted")})
        assert await stored(broker) == ((1 << 63) - 1, "noted")


@simulated
async def test_invalid_offsets_of_an_admin_client(broker: Machine) -> None:
    wrong: Any = "5"
    async with Admin(bootstrap_servers=broker.address) as admin:
        with pytest.raises(TypeError, match="alter_consumer_group_offsets: '5' for t-0: give an offset"):
            await admin.alter_consumer_group_offsets("g", {T0: wrong})
        with pytest.raises(ValueError, match="alter_consumer_group_offsets: offset -5 for t-0: give at least 0"):
            await admin.alter_consumer_group_offsets("g", {T0: -5})


@simulated
async def test_invalid_records_do_not_affect_others(broker: Machine) -> None:
    await broker.create("t")
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "timestamp_ms is -5: give milliseconds since 1970", {"timestamp_ms": -5}),
        (ValueError, "timestamp_ms is 9223372036854775808", {"timestamp_ms": 1 << 63}),
        (TypeError, "timestamp_ms is True", {"timestamp_ms": True}),
        (TypeError, "partition is '0': give its number", {"partition": "0"}),
        (ValueError, "partition is -1", {"partition": -1}),
        (ValueError, "header's name .* cannot be encoded", {"headers": [("\ud800", b"")]}),
        (TypeError, "the value is memoryview: give bytes", {"value": memoryview(bytes(8)).cast("I")}),
        (TypeError, "the key is memoryview: give bytes", {"key": memoryview(bytes(8)).cast("I")}),
    ]
    async with Producer(bootstrap_servers=broker.address, linger_ms=1_000) as producer:
        first = await producer.send("t", b"first")
        for kind, message, arguments in wrong:
            with pytest.raises(kind, match=message):
                await producer.send("t", **{"value": b"x", **arguments})
        for topic in ("\ud800", "x" * 250):
            with pytest.raises(ValueError, match="give a name"):
                await producer.send(topic, b"x")
        await producer.send("t", memoryview(b"last"))
        await producer.flush()
        assert (await first).offset == 0
    assert broker.values("t") == [b"first", b"last"]


@simulated
async def test_every_poll_reports_an_invalid_topic(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])

    async with member(broker, "a b") as reader:
        for _ in range(2):
            with pytest.raises(InvalidTopicError, match=r"read topic 'a b': INVALID_TOPIC_EXCEPTION\. To do: use 1"):
                await reader.getone()
        reader.subscribe(["t"])
        assert (await reader.getone()).value == b"a"


def test_a_group_id_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="group_id has 32768 characters: give at most 32767 bytes"):
        Consumer("t", group_id="x" * 32_768)


@simulated
async def test_a_group_id_that_cannot_be_sent(broker: Machine) -> None:
    await broker.create("t")
    with pytest.raises(KafkaError, match="FindCoordinatorRequest cannot be sent"):
        await member(broker, "t", group_id="\ud800").start()


async def test_a_poll_from_another_event_loop(real: ScriptedBroker) -> None:
    await real.create("t")

    def elsewhere(reader: Consumer) -> None:
        asyncio.run(reader.getone())

    async with consumer(real, "t") as reader:
        with pytest.raises(IllegalStateError, match=r"belongs to the event loop that started it.*To do: make one"):
            await asyncio.to_thread(elsewhere, reader)


async def test_tls_to_a_plain_text_listener() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader = Consumer("t", bootstrap_servers=f"127.0.0.1:{port}", security_protocol="SSL", request_timeout_ms=5_000)
    with pytest.raises(
        KafkaConnectionError, match=rf"cannot connect to 127.0.0.1:{port}: \S.*listens there, and with TLS"
    ):
        await reader.start()
    server.close()
    await server.wait_closed()
