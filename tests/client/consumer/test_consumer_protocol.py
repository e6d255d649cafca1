"""A consumer with ``group_protocol="consumer"`` (KIP-848) and a coordinator that may refuse."""

import re
from collections.abc import Collection
from typing import Any

import pytest

from barnabas_client import Consumer, ConsumerRebalanceListener, TopicPartition
from barnabas_client.errors import CommitFailedError, KafkaError, UnsupportedVersionError
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, T1, consumer, stored, values
from tests.world.answers import Answer, Refused, lose, refused
from tests.world.broker import until
from tests.world.programs import Machine, simulated


def member(broker: Machine, *topics: str, **settings: Any) -> Consumer[Any, Any]:
    return consumer(broker, *topics, **{"group_id": "g", "group_protocol": "consumer", **settings})


class Calls(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(revoked)))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(assigned)))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(lost)))


async def fill(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", [b"a", b"b"])


@simulated
async def test_reads_commits_and_leaves(broker: Machine) -> None:
    await fill(broker)
    listener = Calls()
    async with member(broker) as reader:
        reader.subscribe(["t"], listener=listener)
        assert await values(reader, 2) == [b"a", b"b"]
        await reader.commit()
        assert reader.assignment() == {T0, T1}
    assert await stored(broker) == (2, "")
    assert listener.calls == [("assigned", [T0, T1]), ("revoked", [T0, T1])]
    first, last = (
        broker.script.asked(ConsumerGroupHeartbeatRequest)[0],
        broker.script.asked(ConsumerGroupHeartbeatRequest)[-1],
    )
    assert (first.member_epoch, last.member_epoch) == (0, -1)
    assert first.member_id == last.member_id != ""
    assert not {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT} & set(broker.script.keys())


@simulated
async def test_a_broker_of_version_0(broker: Machine) -> None:
    await fill(broker)
    broker.limit(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)
    async with member(broker, "t") as reader:
        assert await values(reader, 2) == [b"a", b"b"]


@simulated
async def test_a_pattern_needs_version_1(broker: Machine) -> None:
    await fill(broker)
    broker.limit(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)
    reader = member(broker)
    reader.subscribe(pattern="t")
    with pytest.raises(UnsupportedVersionError, match=r"re\.compile"):
        await reader.start()


@simulated
async def test_a_compiled_pattern_is_matched_here(broker: Machine) -> None:
    await fill(broker)
    broker.limit(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)
    async with member(broker) as reader:
        reader.subscribe(pattern=re.compile("t"))
        assert await values(reader, 2) == [b"a", b"b"]
        assert reader.subscription() == {"t"}


@simulated
async def test_a_pattern_is_sent(broker: Machine) -> None:
    await fill(broker)
    async with member(broker) as reader:
        reader.subscribe(pattern="t|u")
        assert await values(reader, 2) == [b"a", b"b"]
        assert reader.subscription() == {"t"}
        assert broker.script.asked(ConsumerGroupHeartbeatRequest)[0].subscribed_topic_regex == "t|u"
        reader.unsubscribe()
        await until(lambda: broker.script.asked(ConsumerGroupHeartbeatRequest)[-1].member_epoch == -1)


@simulated
async def test_a_broker_without_the_protocol(broker: Machine) -> None:
    await fill(broker)
    broker.limit(ApiKey.CONSUMER_GROUP_HEARTBEAT, -1)
    reader = member(broker, "t")
    with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'") as raised:
        await reader.start()
    assert "the broker does not have CONSUMER_GROUP_HEARTBEAT" in str(raised.value)


@simulated
async def test_a_group_version_that_is_not_finalized(broker: Machine) -> None:
    await fill(broker)
    broker.script.always(ApiKey.CONSUMER_GROUP_HEARTBEAT, refused(ErrorCode.UNSUPPORTED_VERSION))
    with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
        await member(broker, "t").start()


@simulated
async def test_a_fenced_member_loses_its_partitions_and_reads_on(broker: Machine) -> None:
    await fill(broker)
    listener = Calls()
    async with member(broker, enable_auto_commit=False) as reader:
        reader.subscribe(["t"], listener=listener)
        await values(reader, 2)
        broker.script.once(ApiKey.CONSUMER_GROUP_HEARTBEAT, refused(ErrorCode.FENCED_MEMBER_EPOCH))
        assert await values(reader, 2) == [b"a", b"b"]
        assert listener.calls == [("assigned", [T0, T1]), ("lost", [T0, T1]), ("assigned", [T0, T1])]


@simulated
async def test_a_lost_answer_to_the_join(broker: Machine) -> None:
    await fill(broker)
    broker.script.once(ApiKey.CONSUMER_GROUP_HEARTBEAT, lose)
    async with member(broker, "t") as reader:
        await values(reader, 2)
    joins = [one for one in broker.script.asked(ConsumerGroupHeartbeatRequest) if one.member_epoch == 0]
    assert len(joins) == 2
    assert joins[0] == joins[1]


@simulated
async def test_a_stale_epoch_is_repeated_with_the_new_one(broker: Machine) -> None:
    await fill(broker)
    async with member(broker, "t", enable_auto_commit=False) as reader:
        await values(reader, 2)

        def changed(request: Any) -> Answer:
            return ConsumerGroupHeartbeatResponse(
                throttle_time_ms=0,
                error_code=0,
                member_id=request.member_id,
                member_epoch=7,
                heartbeat_interval_ms=5000,
            )

        def stale(request: Any) -> Answer:
            code = ErrorCode.NONE if request.generation_id_or_member_epoch == 7 else ErrorCode.STALE_MEMBER_EPOCH
            return Refused(code)

        broker.script.once(ApiKey.CONSUMER_GROUP_HEARTBEAT, changed)
        broker.script.always(ApiKey.OFFSET_COMMIT, stale)
        await reader.commit()
        epochs = [each.generation_id_or_member_epoch for each in broker.script.asked(OffsetCommitRequest)]
        assert (epochs[0] != 7, epochs[-1]) == (True, 7)


@simulated
async def test_a_commit_of_an_unknown_member(broker: Machine) -> None:
    await fill(broker)
    async with member(broker, "t", enable_auto_commit=False) as reader:
        await values(reader, 2)
        broker.script.once(ApiKey.OFFSET_COMMIT, refused(ErrorCode.UNKNOWN_MEMBER_ID))
        with pytest.raises(CommitFailedError, match="UNKNOWN_MEMBER_ID"):
            await reader.commit()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, "UnreleasedInstanceIdError"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "UnsupportedAssignorError"),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, "InvalidRegularExpressionError"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "GroupMaxSizeReachedError"),
    ],
)
@simulated
async def test_errors_with_a_class(broker: Machine, code: ErrorCode, name: str) -> None:
    await fill(broker)
    broker.script.always(ApiKey.CONSUMER_GROUP_HEARTBEAT, refused(code))
    with pytest.raises(KafkaError, match="To do: ") as raised:
        await member(broker, "t").start()
    assert type(raised.value).__name__ == name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_protocol": "new"}, "'classic', 'consumer'"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9000}, r"group\.consumer\.session\.timeout\.ms"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 9}, r"group\.consumer\.heartbeat\.interval\.ms"),
        ({"group_protocol": "consumer", "partition_assignment_strategy": []}, "group_remote_assignor"),
        ({"group_remote_assignor": "range"}, "group_protocol='consumer'"),
        ({"group_protocol": "consumer", "group_remote_assignor": ""}, "group_remote_assignor"),
    ],
)
def test_settings_that_exclude_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Consumer(group_id="g", **settings)
