"""The admin client against a real broker: each operation has its effect."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas_client import (
    Admin,
    AlterConfigOp,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    Producer,
    TopicPartition,
)
from barnabas_client.config import GroupProtocol
from tests.client.real_broker import ONLY_BARNABAS
from tests.client.share_member import share_member

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def admin(empty_servers: str) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=empty_servers, request_timeout_ms=10_000) as admin:
        await admin.create_topics([NewTopic("t", 2, topic_configs={"retention.ms": "-1"})])
        yield admin


async def write(empty_servers: str, count: int = 3) -> None:
    async with Producer(bootstrap_servers=empty_servers) as producer:
        for number in range(count):
            await producer.send_and_wait("t", b"%d" % number, partition=0, timestamp_ms=1_000 * (number + 1))


@ONLY_BARNABAS
async def test_topics_are_created_extended_and_deleted(admin: Admin) -> None:
    assert await admin.list_topics() == ["t"]
    (grown,) = await admin.create_partitions({"t": 3})
    assert grown.num_partitions == 3
    results = await admin.create_partitions({"t": 2, "u": 1}, raise_errors=False)
    assert {one.name: one.error and one.error.code for one in results} == {
        "t": ErrorCode.INVALID_PARTITIONS,
        "u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (topic,) = await admin.describe_topics(["t"])
    assert sorted(topic.partitions) == [0, 1, 2]
    (checked,) = await admin.create_topics([NewTopic("u", 1)], validate_only=True)
    assert (checked.error, await admin.list_topics()) == (None, ["t"])
    await admin.delete_topics(["t"])
    assert await admin.list_topics() == []


async def test_offsets_by_position_and_time(empty_servers: str, admin: Admin) -> None:
    await write(empty_servers)
    for spec, offset in (
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 3),
        (OffsetSpec.MAX_TIMESTAMP, 2),
        (1_500, 1),
        (9_000, -1),
    ):
        assert (await admin.list_offsets({ZERO: spec}))[ZERO].offset == offset
    found = await admin.delete_records({ZERO: 2, ONE: 7}, raise_errors=False)
    assert found[ZERO].low_watermark == 2
    beyond = found[ONE].error
    assert beyond is not None
    assert beyond.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await admin.list_offsets({ZERO: OffsetSpec.EARLIEST}))[ZERO].offset == 2


@ONLY_BARNABAS
async def test_configuration_is_changed_key_by_key(admin: Admin) -> None:
    topic = ConfigResource.topic("t")
    (before,) = await admin.describe_configs([topic], ["retention.ms", "cleanup.policy"], include_synonyms=True)
    retention, policy = before.entries["retention.ms"], before.entries["cleanup.policy"]
    assert (retention.value, retention.source) == ("-1", ConfigSource.TOPIC)
    assert (policy.value, policy.is_default) == ("delete", True)
    assert [one.name for one in policy.synonyms] == ["log.cleanup.policy"]
    changes = [
        AlterConfigOp("retention.ms", op=ConfigOp.DELETE),
        AlterConfigOp("cleanup.policy", "compact", ConfigOp.APPEND),
        AlterConfigOp("max.message.bytes", "2000"),
    ]
    await admin.incremental_alter_configs({topic: changes}, validate_only=True)
    await admin.incremental_alter_configs({topic: changes})
    (after,) = await admin.describe_configs([topic])
    assert after.entries["retention.ms"].is_default
    assert after.entries["cleanup.policy"].value == "delete,compact"
    assert after.entries["max.message.bytes"].value == "2000"
    wrong = {topic: [AlterConfigOp("no.such.key", "1")], ConfigResource.broker(9): [AlterConfigOp("a", "b")]}
    results = await admin.incremental_alter_configs(wrong, raise_errors=False)
    assert [one.error is not None for one in results] == [True, True]


async def test_a_group_is_described_changed_and_deleted(empty_servers: str, admin: Admin) -> None:
    await write(empty_servers)
    async with Consumer(
        "t", bootstrap_servers=empty_servers, group_id="g", client_id="c", auto_offset_reset="earliest"
    ) as consumer:
        await consumer.getone()
        await consumer.commit({ZERO: OffsetAndMetadata(1, "so far")})
        (group,) = await admin.describe_consumer_groups(["g"])
        (member,) = group.members
        assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
        assert (member.client_id, member.partitions, member.topics) == ("c", (ZERO, ONE), ("t",))
        (listed,) = await admin.list_consumer_groups(["stable"])
        assert (listed.group_id, listed.state, listed.type) == ("g", "Stable", "classic")
        offsets = await admin.list_consumer_group_offsets("g", [ZERO, ONE])
        assert [(one.offset, one.metadata) for one in offsets.values()] == [(1, "so far"), (None, "")]
        for refused in (
            await admin.alter_consumer_group_offsets("g", {ZERO: 0}, raise_errors=False),
            await admin.delete_consumer_group_offsets("g", [ZERO], raise_errors=False),
        ):
            assert refused[ZERO].error is not None
        with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
            await admin.delete_consumer_groups(["g"])
    await admin.alter_consumer_group_offsets("g", {ZERO: 2, ONE: OffsetAndMetadata(0, "new")})
    assert {tp: one.offset for tp, one in (await admin.list_consumer_group_offsets("g")).items()} == {ZERO: 2, ONE: 0}
    await admin.delete_consumer_group_offsets("g", [ONE])
    assert list(await admin.list_consumer_group_offsets("g")) == [ZERO]
    results = await admin.delete_consumer_groups(["g", "h"], raise_errors=False)
    assert [one.error and one.error.code for one in results] == [None, ErrorCode.GROUP_ID_NOT_FOUND]
    assert await admin.list_consumer_groups() == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_are_removed(empty_servers: str, admin: Admin, protocol: GroupProtocol) -> None:
    """By group.instance.id: their programs are gone. A program that runs would join again."""

    def static(name: str) -> Consumer[bytes, bytes | None]:
        return Consumer(
            "t",
            bootstrap_servers=empty_servers,
            group_id="static",
            group_instance_id=name,
            group_protocol=protocol,
        )

    async with asyncio.timeout(60), static("one") as one:
        two = static("two")
        joining = asyncio.create_task(two.start())
        # The second member joins when the first one has polled: otherwise after 40 s.
        while not joining.done():
            await one.getmany(timeout_ms=50)
        while not all(len(each.assignment()) == 1 for each in (one, two)):
            await asyncio.gather(one.getmany(timeout_ms=50), two.getmany(timeout_ms=50))
        await two.stop()
    removed = await admin.remove_group_members("static", ["one", "none", "one"], reason="smaller", raise_errors=False)
    assert [(each.member, each.error and each.error.code) for each in removed] == [
        ("one", None),
        ("none", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    (group,) = await admin.describe_consumer_groups(["static"])
    assert [each.instance_id for each in group.members] == ["two"]
    with pytest.raises(KafkaError, match=r"remove from group 'static' the member 'one'.*UNKNOWN_MEMBER_ID"):
        await admin.remove_group_members("static", ["one"])
    await admin.remove_group_members("static", [group.members[0].member_id])
    assert (await admin.describe_consumer_groups(["static"]))[0].members == ()
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        await admin.remove_group_members("none", ["one"])


@ONLY_BARNABAS
async def test_a_share_group_is_described_changed_and_deleted(empty_servers: str, admin: Admin) -> None:
    await write(empty_servers)
    async with share_member(empty_servers, "queue", "t"):
        (group,) = await admin.describe_share_groups(["queue"])
        (member,) = group.members
        assert (group.state, group.protocol_type, group.protocol) == ("Stable", "share", "simple")
        assert (member.client_id, member.partitions, member.topics) == ("worker", (ZERO, ONE), ("t",))
        assert (member.epoch, group.assignment_epoch) == (group.epoch, group.epoch)
        (listed,) = await admin.list_consumer_groups(types=["share"])
        assert (listed.group_id, listed.state, listed.type, listed.protocol_type) == (
            "queue",
            "Stable",
            "share",
            "share",
        )
        assert await admin.list_consumer_groups(types=["classic"]) == []
        with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
            await admin.alter_share_group_offsets("queue", {ZERO: 0})
        with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
            await admin.delete_share_group_offsets("queue", ["t"])
    offsets = await admin.list_share_group_offsets("queue")
    assert {tp: (one.start_offset, one.lag) for tp, one in offsets.items()} == {ZERO: (None, None), ONE: (None, None)}
    wrong = TopicPartition("u", 0)
    done = await admin.alter_share_group_offsets("queue", {ZERO: 1, ONE: 0, wrong: 0}, raise_errors=False)
    assert {tp: one.error and one.error.code for tp, one in done.items()} == {
        ZERO: None,
        ONE: None,
        wrong: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    offsets = await admin.list_share_group_offsets("queue", [ZERO, ONE])
    assert {tp: (one.start_offset, one.lag) for tp, one in offsets.items()} == {ZERO: (1, 2), ONE: (0, 0)}
    results = await admin.delete_share_group_offsets("queue", ["t", "u"], raise_errors=False)
    assert [one.error and one.error.code for one in results] == [None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await admin.list_share_group_offsets("queue") == {}
    await admin.delete_consumer_groups(["queue"])
    (gone,) = await admin.describe_share_groups(["queue"], raise_errors=False)
    assert gone.error is not None and gone.error.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert await admin.list_share_group_offsets("queue") == {}, "as in Kafka: a group that does not exist has none"


async def test_the_cluster_is_described(empty_servers: str, admin: Admin) -> None:
    cluster = await admin.describe_cluster()
    assert [f"{broker.host}:{broker.port}" for broker in cluster.brokers] == [empty_servers]
    assert cluster.controller_id == cluster.brokers[0].node_id
    assert cluster.cluster_id
