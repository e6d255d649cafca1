"""What makes no sense is refused where it is given, by an error that says what would be right."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas_client import Admin, Consumer, Producer
from barnabas_client.errors import KafkaConnectionError, KafkaError
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, consumer, member
from tests.client.fake_answers import Raw
from tests.client.fake_broker import FakeBroker

pytestmark = pytest.mark.usefixtures("no_complaints")

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


async def test_arguments_of_a_consumer_of_a_wrong_type(broker: FakeBroker) -> None:
    broker.create("t")
    wrong: Any = 5
    text: Any = "5"
    async with member(broker) as reader:
        calls: dict[str, Callable[[], Any]] = {
            "give a list of topics": lambda: reader.subscribe(wrong),
            "is no regular expression": lambda: reader.subscribe(pattern=wrong),
            "assign: 5 is no list of partitions": lambda: reader.assign(wrong),
            "timeout_ms is '5'": lambda: reader.getmany(timeout_ms=text),
            "max_records is '5'": lambda: reader.getmany(max_records=text),
            "end_offsets: 5 is no list of partitions": lambda: reader.end_offsets(wrong),
            "commit: 5 is no mapping": lambda: reader.commit(wrong),
            "offsets_for_times: 5 is no mapping": lambda: reader.offsets_for_times(wrong),
            "give milliseconds since 1970": lambda: reader.offsets_for_times({T0: text}),
        }
        for message, call in calls.items():
            with pytest.raises(TypeError, match=message):
                await call()


async def test_arguments_of_a_producer_of_a_wrong_type(broker: FakeBroker) -> None:
    broker.create("t")
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


async def test_one_name_is_no_list_of_names(broker: FakeBroker) -> None:
    """It would delete the topics that are called as its letters."""
    broker.create("t")
    wrong: Any = "t"
    number: Any = 5
    async with Admin(bootstrap_servers=broker.address) as admin:
        for call in (
            admin.delete_topics,
            admin.describe_topics,
            admin.describe_consumer_groups,
            admin.delete_consumer_groups,
        ):
            with pytest.raises(TypeError, match="'t': give a list of names"):
                await call(wrong)
            with pytest.raises(TypeError, match="give a list of names"):
                await call(number)
    assert "t" in broker.topics


@pytest.mark.parametrize("key", [ApiKey.API_VERSIONS, ApiKey.METADATA])
async def test_a_broker_that_answers_nonsense_to_a_start(broker: FakeBroker, key: ApiKey) -> None:
    broker.always(key, lambda request: Raw(NONSENSE))
    with pytest.raises(KafkaConnectionError, match=r"no Kafka answer.*To do: check that a Kafka broker listens there"):
        await consumer(broker, "t", request_timeout_ms=1_000).start()


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH])
async def test_a_broker_that_answers_nonsense_for_a_while(broker: FakeBroker, key: ApiKey) -> None:
    broker.create("t")
    broker.write("t", [b"a"])
    broker.once(key, *[lambda request: Raw(NONSENSE)] * 2)
    async with member(broker, "t") as reader:
        assert (await reader.getone()).value == b"a"


async def test_a_broker_that_answers_nonsense_to_a_commit(broker: FakeBroker) -> None:
    broker.create("t")
    broker.write("t", [b"a"])
    async with member(broker, "t", request_timeout_ms=500, close_timeout_ms=100) as reader:
        await reader.getone()
        broker.always(ApiKey.OFFSET_COMMIT, lambda request: Raw(NONSENSE))
        with pytest.raises(KafkaError, match="commit to group 'g'"):
            await reader.commit()
