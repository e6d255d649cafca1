"""ShareFetch and ShareAcknowledge over the wire, on a broker with its share coordinator."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import GroupConfigured, TopicDeleted
from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_broker.groups.share.partition import Totals
from barnabas_broker.replication.replica import Replica
from barnabas_broker.security import acls
from barnabas_broker.share_partitions import dead_letters
from barnabas_broker.share_partitions.dead_letters import DeadLetterTopics
from barnabas_broker.share_partitions.service import SharePartitions
from barnabas_broker.shares.records import ShareKey
from barnabas_broker.storage.slices import joined
from barnabas_broker.testing.clock import AdvancingClock
from barnabas_explain.catalog import GroupEvent, ShareDeadLetters, ShareRecords, ShareRecordsReleased
from barnabas_explain.members import Member as ExplainedMember
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from barnabas_protocol.messages.share_fetch import (
    FetchAcknowledgementBatch,
    ShareFetchLeader,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    SharePartitionData,
)
from barnabas_protocol.records import Record, build_batch, decode_records, iter_batches
from tests.broker.conftest import StartBroker
from tests.wire import PATIENCE, Wire, until

E = ErrorCode
#: Takes what has happened to records: type, records, first offset, deliveries.
Found = Callable[[BrokerServer], list[tuple[str, int, int, int | None]]]
NOW = 1_700_000_000_000


class Member:
    """A member of the group "g" that fetches from partition 0 of "t"."""

    def __init__(self, wire: Wire, topic_id: bytes, name: str = "ann") -> None:
        self.wire = wire
        self.topic_id = topic_id
        self.name = name
        self.epoch = 0

    def request(
        self, *batches: tuple[int, int, list[int]], epoch: int | None = None, wait: int = 0, **fields: int
    ) -> ShareFetchRequest:
        said = [
            FetchAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in batches
        ]
        partition = ShareFetchPartition(partition_index=0, acknowledgement_batches=said)
        named = self.epoch == 0 or said or epoch is not None
        values: dict[str, Any] = {
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            **fields,
        }
        return ShareFetchRequest(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait,
            topics=[ShareFetchTopic(topic_id=self.topic_id, partitions=[partition])] if named else [],
            forgotten_topics_data=[],
            **values,
        )

    async def ask(self, request: ShareFetchRequest) -> ShareFetchResponse:
        answer = await self.wire.ask(request, 2, ShareFetchResponse)
        if answer.error_code == E.NONE:
            self.epoch += 1
        return answer

    async def fetch(self, *batches: tuple[int, int, list[int]], wait: int = 0, **fields: int) -> SharePartitionData:
        answer = await self.ask(self.request(*batches, wait=wait, **fields))
        assert answer.error_code == E.NONE
        assert answer.acquisition_lock_timeout_ms == 30_000
        return answer.responses[0].partitions[0] if answer.responses else nothing()

    async def acknowledge(self, *batches: tuple[int, int, list[int]], epoch: int | None = None) -> int:
        said = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            for first, last, types in batches
        ]
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=said)
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        answer = await self.wire.ask(request, 2, ShareAcknowledgeResponse)
        if answer.error_code != E.NONE:
            return answer.error_code
        self.epoch += 1
        return answer.responses[0].partitions[0].error_code


def nothing() -> SharePartitionData:
    """What a response without partitions says of one."""
    return SharePartitionData(
        partition_index=0,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=ShareFetchLeader(leader_id=0, leader_epoch=0),
        records=b"",
        acquired_records=[],
    )


def acquired(data: SharePartitionData) -> list[tuple[int, int, int]]:
    """First offset, last offset and delivery count."""
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records]


def values(data: SharePartitionData) -> list[bytes | None]:
    """The values of all records."""
    return [record.value for header, batch in iter_batches(data.records) for record in decode_records(batch)]


async def produce(wire: Wire, *values: bytes, compression: str = "none") -> None:
    """Append one batch to "t"."""
    batch = build_batch([(None, value, (), NOW) for value in values], compression=compression)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    answer = await wire.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == E.NONE


@pytest.fixture
async def topic_id(wire: Wire, broker: BrokerServer) -> bytes:
    return await initialized(wire, broker)


async def initialized(wire: Wire, broker: BrokerServer) -> bytes:
    """The id of "t", which the group "g" reads from its beginning."""
    asked = [MetadataRequestTopic(name="t", topic_id=bytes(16))]
    found = (await wire.ask(MetadataRequest(topics=asked), 12, MetadataResponse)).topics[0].topic_id
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await broker.services.persister.initialize(ShareKey("g", UUID(bytes=found), 0), 0, 0)
                return found
            except KafkaError:  # its coordinator is still loading
                await asyncio.sleep(0)


@pytest.fixture
async def members(broker: BrokerServer, topic_id: bytes) -> AsyncIterator[list[Member]]:
    """Three members with connections of their own."""
    wires = [await Wire.connect(broker.port) for _ in range(3)]
    yield [Member(wire, topic_id, name) for wire, name in zip(wires, ("ann", "bob", "cid"), strict=True)]
    for wire in wires:
        await wire.close()


async def test_records_are_acquired_acknowledged_and_not_delivered_again(
    wire: Wire, broker: BrokerServer, members: list[Member]
) -> None:
    ann, bob, _ = members
    await produce(wire, b"a", b"b", b"c")
    got = await ann.fetch()
    assert (acquired(got), values(got)) == ([(0, 2, 1)], [b"a", b"b", b"c"])
    assert acquired(await bob.fetch()) == []
    got = await ann.fetch((0, 2, [1, 2, 1]), wait=60_000)
    assert (got.acknowledge_error_code, acquired(got)) == (E.NONE, [(1, 1, 2)])
    assert await ann.acknowledge((1, 1, [1])) == E.NONE
    assert acquired(await bob.fetch()) == []
    assert broker.services.queues.totals == Totals(acquired=4, redelivered=1, acknowledged=3)


async def test_a_fetch_waits_for_records(wire: Wire, members: list[Member]) -> None:
    ann, bob, _ = members
    waiting = asyncio.create_task(ann.fetch(wait=60_000))
    other = asyncio.create_task(bob.fetch(wait=60_000))
    await produce(wire, b"a")
    done, _ = await asyncio.wait([waiting, other], return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    await produce(wire, b"b")
    both = [acquired(await each) for each in (waiting, other)]
    assert sorted(both) == [[(0, 0, 1)], [(1, 1, 1)]]


async def test_a_released_record_wakes_a_fetch(wire: Wire, members: list[Member]) -> None:
    ann, bob, _ = members
    await produce(wire, b"a")
    await ann.fetch()
    waiting = asyncio.create_task(bob.fetch(wait=60_000))
    await asyncio.sleep(0)
    assert await ann.acknowledge((0, 0, [2])) == E.NONE
    assert acquired(await waiting) == [(0, 0, 2)]


@pytest.mark.parametrize("by", ["final fetch", "final acknowledge", "connection"])
async def test_the_end_of_a_session_gives_records_back(wire: Wire, members: list[Member], by: str) -> None:
    ann, bob, _ = members
    await produce(wire, b"a", b"b")
    await ann.fetch()
    waiting = asyncio.create_task(bob.fetch(wait=60_000))
    match by:
        case "final fetch":
            answer = await ann.ask(ann.request((0, 0, [1]), epoch=-1))
            assert answer.error_code == E.NONE
        case "final acknowledge":
            assert await ann.acknowledge((0, 0, [1]), epoch=-1) == E.NONE
        case _:
            assert await ann.acknowledge((0, 0, [1])) == E.NONE
            await ann.wire.close()
    assert acquired(await waiting) == [(1, 1, 2)]


async def test_a_restart_keeps_what_is_acknowledged(
    wire: Wire, broker: BrokerServer, topic_id: bytes, start_broker: StartBroker
) -> None:
    ann = Member(wire, topic_id)
    await produce(wire, b"a", b"b", b"c")
    await ann.fetch()
    assert await ann.acknowledge((0, 0, [1]), (2, 2, [1])) == E.NONE
    await broker.stop()
    again = await start_broker()
    async with asyncio.timeout(PATIENCE), await Wire.connect(again.port) as other:
        while True:
            bob = Member(other, topic_id, "bob")
            got = await bob.fetch()
            if got.error_code == E.NONE:
                break
            await asyncio.sleep(0)  # its coordinator is still loading
    assert acquired(got) == [(1, 1, 1)]


async def test_a_failed_write_takes_the_acknowledgement_back(
    wire: Wire, broker: BrokerServer, members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = members[0]
    await produce(wire, b"a")
    await ann.fetch()

    async def write(*_: object, **__: object) -> None:
        raise KafkaError(E.NOT_COORDINATOR)

    monkeypatch.setattr(broker.services.persister, "write", write)
    assert await ann.acknowledge((0, 0, [1])) == E.COORDINATOR_NOT_AVAILABLE
    monkeypatch.undo()
    assert await ann.acknowledge((0, 0, [1])) == E.NONE


async def configure(broker: BrokerServer, **values: str) -> None:
    """Configure the group "g"."""
    configs = {key.replace("_", "."): value for key, value in values.items()}
    await broker.services.cluster.change(lambda _: ([GroupConfigured("g", configs)], None))


async def letters(broker: BrokerServer, wire: Wire, topic: str = "dlq.g") -> list[Record]:
    """The records of a topic for dead letters."""
    log = broker.services.replicas.find(topic, 0).log
    parts = log.read(log.log_start_offset, 1_000_000, log.high_watermark, min_one=True)
    return [record for part in parts for _, batch in iter_batches(joined([part])) for record in decode_records(batch)]


async def create(wire: Wire, topic: str, **configs: str) -> None:
    """Create a topic of one partition."""
    given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=given)
    answer = await wire.ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == E.NONE


@pytest.mark.parametrize("copy", [False, True])
async def test_rejected_records_become_dead_letters(
    wire: Wire, broker: BrokerServer, members: list[Member], copy: bool
) -> None:
    ann = members[0]
    await create(wire, "dlq.g", errors_deadletterqueue_group_enable="true")
    name = {
        "errors.deadletterqueue.topic.name": "dlq.g",
        "errors.deadletterqueue.copy.record.enable": str(copy).lower(),
    }
    await configure(broker, **name)
    await produce(wire, b"a", b"b", b"c", compression="gzip")
    await ann.fetch()
    assert await ann.acknowledge((0, 2, [3, 1, 3])) == E.NONE
    found = await letters(broker, wire)
    assert [record.value for record in found] == ([b"a", b"c"] if copy else [None, None])
    assert found[1].headers == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"2"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )


async def test_records_at_their_delivery_limit_become_dead_letters(
    wire: Wire, broker: BrokerServer, members: list[Member]
) -> None:
    ann = members[0]
    await create(wire, "dlq.g", errors_deadletterqueue_group_enable="true")
    await configure(broker, errors_deadletterqueue_topic_name="dlq.g", share_delivery_count_limit="2")
    await produce(wire, b"a")
    await ann.fetch()
    assert acquired(await ann.fetch((0, 0, [2]), wait=60_000)) == [(0, 0, 2)]
    assert acquired(await ann.fetch((0, 0, [2]))) == []
    (letter,) = await letters(broker, wire)
    assert dict(letter.headers)["__dlq.errors.delivery.count"] == b"2"
    assert dict(letter.headers)["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("dlq.missing", "UNKNOWN_TOPIC_OR_PARTITION: the topic does not exist"),
        ("dlq.forbidden", "POLICY_VIOLATION: errors.deadletterqueue.group.enable is not set for the topic"),
        ("other", "INVALID_TOPIC_EXCEPTION: its name does not begin with dlq."),
    ],
)
async def test_topics_that_may_have_no_dead_letters(
    wire: Wire, broker: BrokerServer, members: list[Member], topic: str, error: str
) -> None:
    ann = members[0]
    if topic == "dlq.forbidden":
        await create(wire, topic)
    if topic == "other":
        await create(wire, topic, errors_deadletterqueue_group_enable="true")
    await configure(broker, errors_deadletterqueue_topic_name=topic)
    await produce(wire, b"a")
    await ann.fetch()
    assert await ann.acknowledge((0, 0, [3])) == E.NONE
    assert acquired(await ann.fetch()) == []
    broker.maintain()
    (event,) = (each for each in broker.services.groups.journal.recent("g") if isinstance(each, ShareDeadLetters))
    assert (event.failed, event.error) == (1, error)
    if topic != "dlq.missing":
        assert await letters(broker, wire, topic) == []


async def test_a_topic_for_dead_letters_that_is_deleted_while_they_are_written(
    wire: Wire, broker: BrokerServer, members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(wire, "dlq.g", errors_deadletterqueue_group_enable="true")
    copies = {"errors.deadletterqueue.topic.name": "dlq.g", "errors.deadletterqueue.copy.record.enable": "true"}
    await configure(broker, **copies)
    originals = DeadLetterTopics._originals

    async def delete(self: DeadLetterTopics, *arguments: Any) -> Any:
        await broker.services.cluster.change(lambda _: ([TopicDeleted("dlq.g")], None))
        return await originals(self, *arguments)

    monkeypatch.setattr(DeadLetterTopics, "_originals", delete)
    await produce(wire, b"a")
    await members[0].fetch()
    assert await members[0].acknowledge((0, 0, [3])) == E.NONE
    assert broker.services.queues.dead_letters.failed == 1


@pytest.fixture
async def lacking_replicas(
    wire: Wire, broker: BrokerServer, members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> list[KafkaError]:
    """Errors of the replica of the dead letters: as long as there are some, it does not take any."""
    monkeypatch.setattr(dead_letters, "_RETRY_SECONDS", (0.01, 0.01))
    await create(wire, "dlq.g", errors_deadletterqueue_group_enable="true")
    await configure(broker, errors_deadletterqueue_topic_name="dlq.g")
    errors = [KafkaError(E.NOT_ENOUGH_REPLICAS)]

    original = Replica.check_isr

    def check(self: Replica) -> None:
        for error in errors if str(self.log.topic_partition) == "dlq.g-0" else ():
            raise error
        original(self)

    monkeypatch.setattr(Replica, "check_isr", check)
    await produce(wire, b"a", b"b")
    await members[0].fetch()
    return errors


async def test_dead_letters_are_tried_again(
    wire: Wire,
    broker: BrokerServer,
    members: list[Member],
    lacking_replicas: list[KafkaError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "_RETRIES", 1_000_000)
    assert await members[0].acknowledge((0, 0, [3])) == E.NONE, "the acknowledgement does not wait for the dead letter"
    assert await members[0].acknowledge((1, 1, [3])) == E.NONE
    assert await letters(broker, wire) == []
    lacking_replicas.clear()
    found = broker.services.queues.dead_letters
    await until(lambda: found.written == 2)
    offsets = [dict(each.headers)["__dlq.errors.offset"] for each in await letters(broker, wire)]
    assert sorted(filter(None, offsets)) == [b"0", b"1"]
    assert found.failed == 0


@pytest.mark.usefixtures("lacking_replicas")
async def test_dead_letters_are_given_up(
    broker: BrokerServer, members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_RETRIES", 2)
    assert await members[0].acknowledge((0, 1, [3])) == E.NONE
    found = broker.services.queues.dead_letters
    await until(lambda: found.failed > 0)
    assert (found.failed, found.written) == (2, 0)
    events = [*broker.services.groups.journal.recent("g")]
    events += [each for _, each in broker.services.queues.incidents.take(math.inf)]
    (event,) = (each for each in events if isinstance(each, ShareDeadLetters))
    assert (event.failed, event.error) == (2, "NOT_ENOUGH_REPLICAS")


@pytest.mark.usefixtures("lacking_replicas")
async def test_dead_letters_are_tried_once_when_too_many_wait(
    broker: BrokerServer, members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_RETRIES", 1_000_000)
    monkeypatch.setattr(dead_letters, "_MOST_WAITING", 0)
    assert await members[0].acknowledge((0, 1, [3])) == E.NONE
    await until(lambda: broker.services.queues.dead_letters.failed == 2)


async def test_where_a_group_begins(wire: Wire, broker: BrokerServer, topic_id: bytes) -> None:
    persister = broker.services.persister
    await produce(wire, b"a", b"b")
    await persister.initialize(ShareKey("g", UUID(bytes=topic_id), 0), 1, -1)
    await configure(broker, share_auto_offset_reset="by_duration:PT1H")  # the records are older
    ann = Member(wire, topic_id)
    assert acquired(await ann.fetch()) == []
    await produce(wire, b"c")
    assert acquired(await ann.fetch()) == [(2, 2, 1)]


async def test_read_committed_delivers_no_aborted_records(
    wire: Wire, broker: BrokerServer, members: list[Member]
) -> None:
    ann, bob, _ = members
    await configure(broker, share_isolation_level="read_committed")
    replica = broker.services.replicas.find("t", 0)
    for producer, written, commit in ((7, (b"x", b"y"), False), (8, (b"z",), True)):
        batch = build_batch(
            [(None, value, (), NOW) for value in written],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        verification = replica.log.producers.verify(producer, 0, 0, NOW, "id", bumps_epoch=False)
        replica.append(batch, NOW, verification=verification)
        assert acquired(await ann.fetch()) == []
        replica.append_marker(producer, 1, NOW, commit=commit, coordinator_epoch=0, transaction_version=2)
    got = await bob.fetch()
    assert (acquired(got), values(got)) == ([(3, 3, 1)], [b"z"])
    assert await bob.acknowledge((3, 3, [1])) == E.NONE
    assert acquired(await ann.fetch()) == []
    (hosted,) = broker.services.queues.hosted
    assert hosted.machine.start_offset == 5


async def test_deleted_records_are_not_delivered(wire: Wire, broker: BrokerServer, members: list[Member]) -> None:
    ann, bob, _ = members
    await produce(wire, b"a", b"b")
    await produce(wire, b"c", b"d")
    await ann.fetch(max_records=1)
    broker.services.replicas.find("t", 0).log.delete_records(3)
    assert acquired(await bob.fetch()) == [(3, 3, 1)]
    assert await ann.acknowledge((0, 1, [1])) == E.NONE  # too late, which is no error


async def test_topics_that_a_member_may_not_read(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
    broker = await start_broker(**settings)
    async with await Wire.connect(broker.port) as wire:
        asked = [MetadataRequestTopic(name="t", topic_id=bytes(16))]
        found = (await wire.ask(MetadataRequest(topics=asked), 12, MetadataResponse)).topics[0].topic_id
        authorizer = broker.services.authorizer
        assert authorizer is not None
        ann = Member(wire, found)
        for refused, code in ((acls.GROUP, E.GROUP_AUTHORIZATION_FAILED), (acls.TOPIC, E.NONE)):
            monkeypatch.setattr(authorizer, "decide", lambda *of, refused=refused: of[3] is not refused)
            authorizer.change()
            answer = await ann.ask(ann.request())
            assert answer.error_code == code
        assert answer.responses[0].partitions[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
        assert await ann.acknowledge((0, 0, [1])) == E.TOPIC_AUTHORIZATION_FAILED


async def test_a_topic_that_is_deleted_ends_what_waits(wire: Wire, broker: BrokerServer, members: list[Member]) -> None:
    ann = members[0]
    waiting = asyncio.create_task(ann.fetch(wait=60_000))
    await until(lambda: bool(broker.services.queues.hosted))
    request = DeleteTopicsRequest(topics=[], topic_names=["t"], timeout_ms=1000)
    await wire.ask(request, 5, DeleteTopicsResponse)
    assert (await waiting).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker.services.queues.hosted


async def test_the_locks_of_a_member_that_never_acknowledges(start_broker: StartBroker, incidents: Found) -> None:
    clock = AdvancingClock()
    broker = await start_broker(clock=clock)
    async with await Wire.connect(broker.port) as wire, await Wire.connect(broker.port) as other:
        topic_id = await initialized(wire, broker)
        ann, bob = Member(wire, topic_id), Member(other, topic_id, "bob")
        await produce(wire, b"a", b"b")
        assert acquired(await ann.fetch()) == [(0, 1, 1)]
        waiting = asyncio.create_task(bob.fetch(wait=600_000))
        await until(lambda: bool(broker.services.queues.hosted))
        clock.advance(29.0)
        assert broker.services.queues.totals.expired == 0
        clock.advance(1.5)
        assert acquired(await waiting) == [(0, 1, 2)]
        assert broker.services.queues.totals.expired == 2
        assert incidents(broker) == [("share_locks_expired", 2, 0, 1)]
        assert await ann.acknowledge((0, 1, [1])) == E.INVALID_RECORD_STATE


async def test_a_member_that_has_acknowledged_a_record_is_known(broker: BrokerServer, members: list[Member]) -> None:
    ann = members[0]
    await produce(ann.wire, b"a", b"b")
    queues = broker.services.queues
    assert acquired(await ann.fetch()) == [(0, 1, 1)]
    session = queues.sessions.of("g", ann.name)
    assert session is not None
    assert queues.incidents._never_acknowledged("g", ann.name)
    assert await ann.acknowledge((0, 0, [1])) == E.NONE
    assert not queues.incidents._never_acknowledged("g", ann.name)
    assert queues.begin("g", session.identity, []).acknowledged, "a session that it opens anew"


async def test_records_in_flight_are_bounded(wire: Wire, broker: BrokerServer, members: list[Member]) -> None:
    await configure(broker, share_partition_max_record_locks="100")
    for _ in range(20):
        await produce(wire, *[b"x"] * 10)
    counts = [sum(last - first + 1 for first, last, _ in acquired(await each.fetch())) for each in members]
    assert counts == [100, 0, 0]


async def test_each_record_of_the_largest_window_may_have_a_state_of_its_own(start_broker: StartBroker) -> None:
    broker = await start_broker(**{"group.share.max.partition.max.record.locks": "10000"})
    async with await Wire.connect(broker.port) as wire:
        ann = Member(wire, await initialized(wire, broker))
        await configure(broker, share_partition_max_record_locks="10000")
        for _ in range(12):
            await produce(wire, *[b"x"] * 500)
        taken = 0
        while records := acquired(await ann.fetch()):
            taken += sum(last - first + 1 for first, last, _ in records)
        assert await ann.acknowledge((0, taken - 1, [1, 2] * (taken // 2))) == E.NONE


def told(events: Iterable[GroupEvent]) -> list[tuple[str, int, int, int | None]]:
    """The events of records: type, records, first offset, deliveries."""
    return [
        (event.type, event.records, event.first_offset, event.deliveries)
        for event in events
        if isinstance(event, ShareRecords)
    ]


@pytest.fixture
def incidents(monkeypatch: pytest.MonkeyPatch) -> Found:
    """What has happened to records since the last time. The broker does not publish it meanwhile."""
    monkeypatch.setattr(SharePartitions, "tick", lambda self: None)
    times = count(0.0, 1_000_000.0)
    return lambda broker: told(event for _, event in broker.services.queues.incidents.take(next(times)))


async def test_what_members_do_to_records_becomes_events(
    wire: Wire, broker: BrokerServer, members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = members[0]
    await create(wire, "dlq.g", errors_deadletterqueue_group_enable="true")
    await configure(broker, errors_deadletterqueue_topic_name="dlq.g", share_delivery_count_limit="2")
    await produce(wire, b"a", b"b", b"c", b"d")
    monkeypatch.setattr(broker.services.queues, "tick", lambda: None)
    await ann.fetch()
    assert await ann.acknowledge((0, 3, [1, 2, 2, 3])) == E.NONE
    assert acquired(await ann.fetch()) == [(1, 2, 2)]
    assert await ann.acknowledge((1, 2, [2])) == E.NONE
    monkeypatch.undo()
    broker.maintain()
    recent = broker.services.groups.journal.recent("g")
    assert told(recent) == [
        ("share_dead_letters", 3, 1, 2),
        ("share_records_rejected", 1, 3, 1),
        ("share_records_released", 2, 1, 1),
        ("share_records_archived", 2, 1, 2),
    ]
    assert [each.owner for each in recent if isinstance(each, ShareRecordsReleased)] == [
        ExplainedMember("ann", "test", "/127.0.0.1")
    ]


async def test_an_accepted_record_is_no_event(
    wire: Wire, broker: BrokerServer, members: list[Member], incidents: Found
) -> None:
    await produce(wire, b"a", b"b")
    await members[0].fetch()
    assert await members[0].acknowledge((0, 1, [1])) == E.NONE
    assert incidents(broker) == []


async def test_a_window_that_is_full_and_stands_still_becomes_an_event(
    start_broker: StartBroker, incidents: Found
) -> None:
    clock = AdvancingClock()
    broker = await start_broker(clock=clock)
    async with await Wire.connect(broker.port) as wire, await Wire.connect(broker.port) as other:
        topic_id = await initialized(wire, broker)
        await configure(broker, share_partition_max_record_locks="100")
        ann, bob = Member(wire, topic_id), Member(other, topic_id, "bob")
        for _ in range(11):
            await produce(wire, *[b"x"] * 10)
        assert acquired(await ann.fetch()) == [(0, 99, 1)]
        assert await ann.acknowledge((1, 99, [1])) == E.NONE
        assert acquired(await bob.fetch()) == []
        clock.advance(4.9)
        assert acquired(await bob.fetch()) == []
        assert incidents(broker) == [], "it has stood still for less than 5 s"
        clock.advance(0.2)
        assert acquired(await bob.fetch()) == []
        assert incidents(broker) == [("share_window_blocked", 100, 0, 1)]
        clock.advance(15.0)
        assert acquired(await bob.fetch()) == []
        assert len(incidents(broker)) == 1, "again, when twice the time is over"
        assert await ann.acknowledge((0, 0, [1])) == E.NONE
        assert acquired(await bob.fetch()) == [(100, 109, 1)]
        clock.advance(15.0)
        assert acquired(await bob.fetch()) == []
        assert incidents(broker) == [("share_window_moved", 1, 0, 1)]
        clock.advance(10.0)
        assert acquired(await bob.fetch()) == []
        assert incidents(broker) == [], "once"
