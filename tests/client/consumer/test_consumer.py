"""The consumer against a broker: reading, positions, flow control, the end, commits without a
membership."""

import asyncio
import json
import threading
from typing import Any

import pytest

from barnabas_client import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas_client.errors import (
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    WakeupError,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import (
    FetchRequest,
)
from barnabas_protocol.messages.metadata import MetadataRequest
from barnabas_protocol.records import build_batch
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, T1, consumer, values
from tests.world.answers import refused
from tests.world.broker import ScriptedBroker, until
from tests.world.programs import Machine, Simulation, simulated

# Reading.


@simulated
async def test_all_records_of_all_partitions_in_order(broker: Machine) -> None:
    await broker.create("t", 3)
    for number in range(3):
        for part in range(4):
            await broker.write("t", [b"%d-%d-%d" % (number, part, at) for at in range(5)], number)
    read: dict[int, list[bytes | None]] = {}
    async with consumer(broker, "t") as reader:
        async for record in reader:
            read.setdefault(record.partition, []).append(record.value)
            if sum(map(len, read.values())) == 60:
                break
    for number, got in read.items():
        assert got == [b"%d-%d-%d" % (number, part, at) for part in range(4) for at in range(5)]


@simulated
async def test_all_fields_of_a_record(broker: Machine) -> None:
    await broker.create("t")
    await broker.append("t", build_batch([(b"k", b"v", (("h", b"1"), ("n", None)), 1234)]))
    async with consumer(broker, "t") as reader:
        record = await reader.getone()
    assert record == ConsumerRecord("t", 0, 0, 1234, 0, b"k", b"v", (("h", b"1"), ("n", None)))
    assert record.topic_partition == T0


@simulated
async def test_getmany_returns_at_most_max_records(broker: Machine) -> None:
    await broker.create("t", 2)
    for number in range(2):
        await broker.write("t", [b"%d" % at for at in range(10)], number)
    async with consumer(broker, max_poll_records=7) as reader:
        reader.assign([T0, T1])
        sizes, got = [], 0
        while got < 20:
            taken = await reader.getmany(timeout_ms=1_000)
            sizes.append(sum(map(len, taken.values())))
            got += sizes[-1]
        assert max(sizes) <= 7
        await reader.seek_to_beginning()
        assert len(await reader.poll(1_000, max_records=3)) == 3
        assert [record.offset for record in (await reader.getmany(T1, timeout_ms=1_000))[T1]] == list(range(7))


@simulated
async def test_partitions_take_turns(broker: Machine) -> None:
    await broker.create("t", 2)
    for number in range(2):
        await broker.write("t", [b"x"] * 10, number)
    async with consumer(broker, max_poll_records=5) as reader:
        reader.assign([T0, T1])
        await until(lambda: len(reader._running().fetcher._filled) == 2)  # both have arrived
        first, second = await reader.getmany(), await reader.getmany()
    assert list(first) != list(second)


@pytest.mark.parametrize("iterates", [True, False])
@simulated
async def test_a_partition_that_gets_records_all_the_time_does_not_keep_the_others_waiting(
    broker: Machine, iterates: bool
) -> None:
    await broker.create("t", 2)
    for number in (0, 1):
        await broker.write("t", [b"x"], number)
    read: list[int] = []
    async with consumer(broker) as reader:
        reader.assign([T0, T1])
        await until(lambda: len(reader._running().fetcher._filled) == 2)
        async for record in reader if iterates else _one_by_one(reader):
            read.append(record.partition)
            if len(read) == 20:
                break
            # The handler is slower than the one that writes: the next record is there before it is done.
            await broker.write("t", [b"x"], record.partition)
            await asyncio.sleep(1)
    assert {*read[:2], *read[-2:]} == {0, 1}
    assert read.count(0) == read.count(1) == 10


async def _one_by_one(reader: Any) -> Any:
    while True:
        yield await reader.getone()


@simulated
async def test_a_poll_times_out(broker: Machine) -> None:
    await broker.create("t")
    async with consumer(broker, "t") as reader:
        assert await reader.getmany() == {}
        assert await reader.getmany(timeout_ms=10) == {}
        assert await reader.poll(10) == []


@simulated
async def test_new_records_end_a_waiting_poll(broker: Machine) -> None:
    await broker.create("t")
    async with consumer(broker, "t", fetch_max_wait_ms=5_000) as reader:
        waiting = asyncio.ensure_future(reader.getone())
        await until(lambda: bool(broker.script.asked(FetchRequest)))
        await broker.write("t", [b"late"])
        assert (await waiting).value == b"late"


@simulated
async def test_iteration_can_be_resumed(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(6)])
    async with consumer(broker, "t") as reader:
        async for first in reader:
            assert first.value == b"0"
            break
        async for second in reader:
            assert second.value == b"1"
            break
        assert (await reader.getone()).value == b"2"
        assert (await anext(reader)).value == b"3"
        assert [record.value for record in await reader.poll(1_000)] == [b"4", b"5"]
        assert await reader.position(T0) == 6


@pytest.mark.parametrize("newest", [4, 6, 7, 11, 12, 13, 17])
@simulated
async def test_older_and_newer_fetches(broker: Machine, newest: int) -> None:
    broker.limit(ApiKey.FETCH, newest)
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    async with consumer(broker, "t") as reader:
        assert await values(reader, 2) == [b"a", b"b"]
    assert broker.script.versions(ApiKey.FETCH) == {newest}


@simulated
async def test_topics_without_ids_are_fetched_by_name(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.limit(ApiKey.METADATA, 9)  # the last version without ids
    async with consumer(broker, "t") as reader:
        assert await values(reader, 1) == [b"a"]
    assert broker.script.versions(ApiKey.FETCH) == {12}


@simulated
async def test_a_topic_that_is_created_later(simulation: Simulation) -> None:
    broker = await simulation.machine(auto_create_topics_enable="false")
    async with consumer(broker, "t") as reader:
        waiting = asyncio.ensure_future(reader.getone())
        await until(lambda: bool(broker.script.asked(MetadataRequest)))
        await broker.create("t")
        await broker.write("t", [b"a"])
        assert (await waiting).value == b"a"


@simulated
async def test_topics_by_pattern(broker: Machine) -> None:
    for name in ("flights.eu", "flights.us", "trains"):
        await broker.create(name)
        await broker.write(name, [name.encode()])
    async with consumer(broker, group_id="g") as reader:  # The topic of its commit is internal.
        reader.assign([TopicPartition("trains", 0)])
        await reader.commit({TopicPartition("trains", 0): 1})
    async with consumer(broker) as reader:
        reader.subscribe(pattern="flights|__")
        assert sorted(await values(reader, 2)) == [b"flights.eu", b"flights.us"]
        assert reader.subscription() == {"flights.eu", "flights.us"}
        await broker.create("flights.asia")
        await broker.write("flights.asia", [b"new"])
        reader._running().network.want_refresh(urgent=True)
        assert await values(reader, 1) == [b"new"]


@simulated
async def test_deserializers(broker: Machine) -> None:
    await broker.create("t")
    await broker.append("t", build_batch([(b"1", b'{"a": 2}', (), 0), (None, None, (), 0)]))
    async with consumer(broker, "t", key_deserializer=int, value_deserializer=json.loads) as reader:
        assert [(record.key, record.value) for record in [await reader.getone(), await reader.getone()]] == [
            (1, {"a": 2}),
            (None, None),
        ]


@simulated
async def test_a_deserialization_error_is_raised_until_a_seek(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"1", b"x", b"3"])
    async with consumer(broker, "t", value_deserializer=json.loads) as reader:
        assert [record.value for record in await reader.poll(1_000)] == [1]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match=r"offset 1 of t-0"):
                await reader.getone()
        assert await reader.position(T0) == 1
        reader.seek(T0, 2)
        assert await values(reader, 1) == [3]


@simulated
async def test_a_corrupt_batch_is_raised_until_a_seek(broker: Machine) -> None:
    await broker.create("t")
    for value in (b"good", b"bad", b"after"):
        await broker.write("t", [value])
    (content,) = [node.seen for node in broker.files._names.values() if node is not None and b"bad" in node.seen]
    content[content.index(b"bad")] ^= 1
    async with consumer(broker, "t") as reader:
        assert await values(reader, 1) == [b"good"]
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match=r"seek\(\) over it"):
                await reader.getone()
        reader.seek(T0, 2)
        assert await values(reader, 1) == [b"after"]


# Where reading starts.


@pytest.mark.parametrize(("policy", "first"), [("earliest", b"2"), ("latest", b"new")])
@simulated
async def test_reset_policies(broker: Machine, policy: str, first: bytes) -> None:
    await broker.create("t")
    await broker.write("t", [b"0", b"1", b"2", b"3"])
    await broker.delete("t", 2)
    async with consumer(broker, auto_offset_reset=policy) as reader:
        reader.assign([T0])
        assert await reader.position(T0) == (2 if policy == "earliest" else 4)
        await broker.write("t", [b"new"])
        assert await values(reader, 1) == [first]


@simulated
async def test_no_reset_policy_asks_for_a_seek(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    async with consumer(broker, auto_offset_reset="none") as reader:
        reader.assign([T0])
        with pytest.raises(NoOffsetForPartitionError, match=r"t-0.*seek\(\)"):
            await reader.position(T0)
        with pytest.raises(NoOffsetForPartitionError):
            await reader.getone()
        reader.seek(T0, 1)
        assert await values(reader, 1) == [b"b"]


@simulated
async def test_an_offset_out_of_range_is_reset(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(6)])
    await broker.delete("t", 5)
    async with consumer(broker) as reader:
        reader.assign([T0])
        reader.seek(T0, 1)
        assert await values(reader, 1) == [b"5"]


@simulated
async def test_an_offset_out_of_range_without_a_policy_is_raised(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"0"])
    async with consumer(broker, auto_offset_reset="none") as reader:
        reader.assign([T0])
        reader.seek(T0, 99)
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 99 of t-0"):
            await reader.getone()
        reader.seek(T0, 0)
        assert await values(reader, 1) == [b"0"]


@simulated
async def test_seeking(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", [b"%d" % at for at in range(10)])
    async with consumer(broker) as reader:
        reader.assign([T0, T1])
        assert await values(reader, 3) == [b"0", b"1", b"2"]
        reader.seek(T0, 8)
        assert await values(reader, 2) == [b"8", b"9"]
        await reader.seek_to_beginning(T0)
        assert await reader.position(T0) == 0
        assert await values(reader, 1) == [b"0"]
        await reader.seek_to_end()
        assert (await reader.position(T0), await reader.position(T1)) == (10, 0)
        await broker.write("t", [b"new"])
        assert await values(reader, 1) == [b"new"]


@simulated
async def test_a_seek_drops_the_fetch_in_flight(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(10)])
    async with consumer(broker) as reader:
        reader.assign([T0])
        await reader.position(T0)
        await until(lambda: bool(broker.script.asked(FetchRequest)))
        reader.seek(T0, 7)
        assert await values(reader, 1) == [b"7"]


@simulated
async def test_offsets_of_partitions(broker: Machine) -> None:
    await broker.create("t", 2)
    for time in (1000, 2000, 3000):
        await broker.append("t", build_batch([(None, b"x", (), time)]))
    await broker.write("t", [b"x"] * 4, 1)
    await broker.delete("t", 4, 1)
    async with consumer(broker) as reader:
        assert await reader.beginning_offsets([T0, T1]) == {T0: 0, T1: 4}
        assert await reader.end_offsets([T0, T1]) == {T0: 3, T1: 4}
        found = await reader.offsets_for_times({T0: 1500, T1: 0})
        assert found[T0] == OffsetAndTimestamp(1, 2000, 0)
        assert found[T1] is None
        with pytest.raises(ValueError, match="milliseconds since 1970"):
            await reader.offsets_for_times({T0: -1})


@simulated
async def test_offsets_of_a_partition_that_does_not_exist(simulation: Simulation) -> None:
    broker = await simulation.machine(auto_create_topics_enable="false")
    async with consumer(broker, request_timeout_ms=500) as reader:
        with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await reader.end_offsets([TopicPartition("nowhere", 0)])


@simulated
async def test_watermarks_and_partitions(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.create("u")
    await broker.write("t", [b"a", b"b"])
    async with consumer(broker, "t") as reader:
        await reader.getone()
        assert reader.partitions_for_topic("t") == frozenset({0, 1})
        assert reader.partitions_for_topic("nowhere") is None
        assert await reader.topics() == {"t", "u"}
        assert reader.highwater(T0) == 2
        assert reader.subscription() == {"t"}
        assert reader.assignment() == {T0, T1}
        assert "t" in repr(reader)


# Flow control.


@simulated
async def test_pause_and_resume(broker: Machine) -> None:
    await broker.create("t", 2)
    for number in range(2):
        await broker.write("t", [b"%d-%d" % (number, at) for at in range(3)], number)
    async with consumer(broker) as reader:
        reader.assign([T0, T1])
        reader.pause(T0)
        assert reader.paused() == {T0}
        assert await values(reader, 3) == [b"1-0", b"1-1", b"1-2"]
        assert await reader.getmany(timeout_ms=10) == {}
        reader.resume(T0)
        assert await values(reader, 3) == [b"0-0", b"0-1", b"0-2"]


@simulated
async def test_a_pause_during_iteration_keeps_what_was_fetched(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"%d" % at for at in range(4)])
    async with consumer(broker) as reader:
        reader.assign([T0])
        assert await values(reader, 2) == [b"0", b"1"]
        reader.pause(T0)
        assert await reader.getmany(timeout_ms=10) == {}
        fetches = len(broker.script.asked(FetchRequest))
        reader.resume(T0)
        assert await values(reader, 2) == [b"2", b"3"]
        assert await reader.position(T0) == 4
        assert len(broker.script.asked(FetchRequest)) - fetches <= 2


@simulated
async def test_only_some_partitions(broker: Machine) -> None:
    await broker.create("t", 2)
    for number in range(2):
        await broker.write("t", [b"%d" % number], number)
    async with consumer(broker) as reader:
        reader.assign([T0, T1])
        assert (await reader.getone(T1)).value == b"1"
        assert await reader.getmany(T1, timeout_ms=10) == {}
        assert (await reader.getone()).value == b"0"


@simulated
async def test_fetching_ahead_is_bounded(broker: Machine) -> None:
    await broker.create("t")
    for _ in range(50):
        await broker.write("t", [b"x" * 1000])
    async with consumer(broker, max_partition_fetch_bytes=3_000, max_poll_records=1) as reader:
        reader.assign([T0])
        for _ in range(50):
            assert sum(map(len, (await reader.getmany(timeout_ms=1_000)).values())) == 1
            assert reader._subscription.state(T0).buffered < 6_000


@pytest.mark.usefixtures("no_complaints")
async def test_wakeup_from_a_thread_ends_a_poll_once(real: ScriptedBroker) -> None:
    await real.create("t")
    async with consumer(real, "t") as reader:
        waiting = asyncio.ensure_future(reader.getone())
        await asyncio.sleep(0)
        thread = threading.Thread(target=reader.wakeup)
        thread.start()
        with pytest.raises(WakeupError):
            await waiting
        thread.join()
        assert await reader.getmany(timeout_ms=10) == {}


@simulated
async def test_wakeup_before_a_poll(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with consumer(broker, "t") as reader:
        reader.wakeup()
        with pytest.raises(WakeupError):
            await reader.getmany(timeout_ms=1_000)
        assert await values(reader, 1) == [b"a"]


@simulated
async def test_wakeup_ends_an_iteration(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    async with consumer(broker, "t") as reader:

        async def iterate() -> None:
            async for _ in reader:
                reader.wakeup()

        with pytest.raises(WakeupError):
            await iterate()
        assert await values(reader, 1) == [b"b"]


# Commits without a membership.


@simulated
async def test_commits_after_a_manual_assignment(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", [b"a", b"b", b"c"])
    async with consumer(broker, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([T0])
        await values(reader, 2)
        assert await reader.committed(T0) is None
        await reader.commit()
        assert await reader.committed(T0) == 2
        await reader.commit({T0: 1})
        await reader.commit({T1: (7, "note")})
        assert await reader.committed_offsets(T0, T1) == {
            T0: OffsetAndMetadata(1, "", -1),
            T1: OffsetAndMetadata(7, "note", -1),
        }
    async with consumer(broker, group_id="g") as reader:
        reader.assign([T0])
        assert await values(reader, 1) == [b"b"]


@simulated
async def test_invalid_commits(broker: Machine) -> None:
    await broker.create("t")
    async with consumer(broker, group_id="g") as reader:
        wrong: Any = {T0: "5"}
        with pytest.raises(TypeError, match="give an offset"):
            await reader.commit(wrong)
        with pytest.raises(ValueError, match="at least 0"):
            await reader.commit({T0: -1})
        wrong = {"t": 1}
        with pytest.raises(TypeError, match="give TopicPartition"):
            await reader.commit(wrong)


@simulated
async def test_a_group_without_access(broker: Machine) -> None:
    broker.script.always(ApiKey.FIND_COORDINATOR, refused(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    await broker.create("t")
    reader = consumer(broker, "t", group_id="g")
    with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED") as raised:
        await reader.start()
    assert raised.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
