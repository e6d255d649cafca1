"""Groups of thousands of members in the shell: nothing holds the event loop."""

import asyncio
from collections.abc import Generator
from typing import Any
from unittest.mock import patch

import pytest

from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.consumer import group as group_module
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.consumer.group import ConsumerGroup
from barnabas_broker.groups.consumer.regex import NAMES_PER_CALL
from barnabas_broker.steps import Steps
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.group_records import key_type
from barnabas_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas_protocol.records import decode_records
from tests.broker.groups.support import CALLER, Service, owned_subscription, turn

T = b"t" * 16


async def started(members: int) -> Service:
    """A group whose members have joined at the same time."""
    service = await Service(group_consumer_assignment_interval_ms="0").loaded()
    service.groups.topics_changed({"t": 1000}, [Topic(T, "t", 1000)])
    waiting = [beat(service, f"m{number:03d}", 0) for number in range(members)]
    await settle(service)
    assert all(not isinstance(each, asyncio.Future) or each.done() for each in waiting)
    return service


def beat(service: Service, member_id: str, epoch: int) -> object:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 60_000
        request.subscribed_topic_names = ["t"]
        request.topic_partitions = []
    return service.groups.consumer_heartbeat(request, 1, CALLER)


async def settle(service: Service) -> None:
    for _ in range(20):
        while service.offloaded:
            service.offloaded.pop()()
        await service.after(0.02)


async def test_a_large_group_is_described_in_steps_and_as_it_was_at_the_first() -> None:
    service = await started(120)
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    steps = service.groups.consumer_describe(request, 1, CALLER)
    next(steps)
    for number in range(120):
        beat(service, f"m{number:03d}", -1)
    await settle(service)
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            response = stop.value
            break
        count += 1
    assert count == 3, "two parts of 50, and the end of the group"
    (group,) = response.groups
    assert [member.member_id for member in group.members] == [f"m{number:03d}" for number in range(120)]
    targets = [topic for member in group.members for topic in member.target_assignment.topic_partitions]
    assert sorted(each for topic in targets for each in topic.partitions) == list(range(1000))


async def test_a_large_group_is_restored_while_other_tasks_run() -> None:
    service = await started(350)
    again = Service(service.log)
    again.groups.topics_changed({"t": 1000}, [Topic(T, "t", 1000)])
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += bool(again.groups._runtime.partitions) and not again.groups.groups

    running = asyncio.create_task(others())
    await again.loaded()
    running.cancel()
    assert len(again.groups.groups["g"].group.members) == 350
    assert turns >= 4


async def test_a_group_that_is_unloaded_while_it_is_restored_is_not_hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    service = await started(350)
    again = Service(service.log)
    right = ConsumerGroup.restoring

    def restoring(*arguments: Any) -> Steps[ConsumerGroup]:
        steps = right(*arguments)
        next(steps)
        again.groups.unload(0)
        yield
        return (yield from steps)

    monkeypatch.setattr(ConsumerGroup, "restoring", restoring)
    await again.groups.load(0, 1)
    assert again.groups.groups == {} and again.groups.loaded == frozenset()


async def test_a_record_of_thousands_of_topics_is_encoded_in_a_later_turn() -> None:
    service = await Service(group_consumer_assignment_interval_ms="0").loaded()
    names = [f"t{number}" for number in range(2_000)]
    topics = [Topic(b"%016d" % number, name, 1) for number, name in enumerate(names)]
    service.groups.topics_changed(dict.fromkeys(names, 1), topics)
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000)
    request.subscribed_topic_names, request.topic_partitions = names, []
    joining = service.groups.consumer_heartbeat(request, 1, CALLER)
    assert service.log.appends == 0
    assert service.groups.groups["g"].backlog is not None
    asked = beat(service, "m2", 0)
    await turn()
    assert isinstance(joining, asyncio.Future)
    assert isinstance(asked, asyncio.Future)
    assert not joining.done()
    await settle(service)
    assert joining.result().error_code == asked.result().error_code == ErrorCode.NONE
    keys = [record.key or b"" for record in service.log.records()]
    members = [key for key in keys if key_type(key) == 5]
    assert [key[-2:] for key in members] == [b"\x01m", b"m2"], "what comes later is appended later"


@pytest.mark.parametrize("metadata", ["read", "malformed"])
async def test_a_subscription_to_tens_of_thousands_of_topics_is_read_in_a_thread(metadata: str) -> None:
    service = await started(1)
    wanted = [f"{number:x}" for number in range(60_000)]
    sent = owned_subscription({}, *wanted)
    sent = sent if metadata == "read" else sent[:-2_000]
    with patch.object(group_module, "read_subscription", side_effect=AssertionError("on the event loop")):
        joining = service.groups.join(classic_join("i", sent), 9, CALLER)
        assert len(service.groups.groups["g"].group.members) == 1
        assert len(service.offloaded) == 1
        await settle(service)
    assert isinstance(joining, asyncio.Future)
    response = joining.result()
    if metadata == "malformed":
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        return
    assert response.error_code == ErrorCode.NONE
    group = service.groups.groups["g"].group
    assert isinstance(group, ConsumerGroup)
    assert group.members[response.member_id].topics == frozenset(wanted)


@pytest.mark.parametrize("failed", [False, True])
async def test_thousands_of_members_leave_in_steps(failed: bool) -> None:
    service = await started(3)
    unknown = [f"x{number}" for number in range(5_000)]
    identities = [MemberIdentity(member_id=each) for each in ("m000", *unknown, "m001")]
    service.log.hold = True
    steps = service.groups.leave(LeaveGroupRequest(group_id="g", members=identities), 5, CALLER)
    assert isinstance(steps, Generator)
    parts = 0
    while True:
        try:
            next(steps)
            parts += 1
        except StopIteration as stop:
            asked = stop.value
            break
    assert parts == 3
    await turn()
    assert not asked.done(), "its records are not in the log"
    if failed:
        service.groups.unload(0)
    service.log.hold = False
    service.log.release()
    response = await service.ask(asked, 5)
    if failed:
        assert (response.error_code, response.members) == (ErrorCode.NOT_COORDINATOR, [])
        return
    assert response.error_code == ErrorCode.NONE
    assert [each.member_id for each in response.members] == ["m000", *unknown, "m001"]
    left = [each.member_id for each in response.members if each.error_code == ErrorCode.NONE]
    assert left == ["m000", "m001"]
    assert set(service.groups.groups["g"].group.members) == {"m002"}


async def test_many_records_are_appended_in_several_turns_and_in_their_order() -> None:
    service = await Service().loaded()
    writer = service.groups._runtime.writer
    done: list[str] = []

    def add(name: str, count: int) -> None:
        records: list[tuple[bytes, bytes | None]] = [
            (b"\x00\x63%s" % name.encode(), b"%d" % number) for number in range(count)
        ]
        writer.add(0, records, lambda error: done.append(name) if error == ErrorCode.NONE else None)

    for name, count in (("a", 700), ("b", 200), ("c", 700), ("d", 3000), ("e", 1)):
        add(name, count)
    writer.when_settled([0], lambda: done.append("settled"))
    await asyncio.sleep(0)
    assert done == ["a", "b"]
    writer.when_settled([0, 1], lambda: done.append("still"))
    add("f", 1)
    await asyncio.sleep(0)
    assert done == ["a", "b", "c"]
    await asyncio.sleep(0)
    assert done == ["a", "b", "c", "d"], "what one call adds is not divided"
    await asyncio.sleep(0)
    assert done == ["a", "b", "c", "d", "e", "settled", "still", "f"]
    assert [len(list(decode_records(batch))) for batch in service.log.batches[0]] == [900, 700, 3000, 1, 1]


async def test_the_end_of_a_partition_ends_appends_that_wait_for_their_turn() -> None:
    service = await Service().loaded()
    writer = service.groups._runtime.writer
    errors: list[ErrorCode] = []
    for _ in range(3):
        writer.add(0, [(b"\x00\x63", b"")] * 800, errors.append)
    await asyncio.sleep(0)
    assert errors == [ErrorCode.NONE]
    writer.drop(0, ErrorCode.NOT_COORDINATOR)
    assert errors == [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]
    await asyncio.sleep(0)
    assert service.log.appends == 1


@pytest.mark.parametrize("epoch", [1, -1, -2])
async def test_heartbeats_of_fresh_member_ids_leave_nothing_behind(epoch: int) -> None:
    service = await started(2)
    appends, events = service.log.appends, len(service.groups.journal.recent("g"))
    for number in range(3_000):
        for group in ("g", f"new-{number}"):
            request = ConsumerGroupHeartbeatRequest(
                group_id=group, member_id=f"x{number}", member_epoch=epoch, instance_id="i" if epoch == -2 else None
            )
            response = service.groups.consumer_heartbeat(request, 1, CALLER)
            assert not isinstance(response, asyncio.Future)
            assert response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
    await settle(service)
    assert list(service.groups.groups) == ["g"]
    assert set(service.groups.groups["g"].group.members) == {"m000", "m001"}
    assert service.log.appends == appends
    assert len(service.groups.journal.recent("g")) == events


async def test_new_members_are_refused_when_a_group_is_full() -> None:
    service = await Service(group_consumer_max_size="100").loaded()
    service.groups.topics_changed({"t": 4}, [Topic(T, "t", 4)])
    refused = 0
    for number in range(3_000):
        response = beat(service, f"m{number}", 0)
        refused += not isinstance(response, asyncio.Future)
    assert refused == 2_900
    await settle(service)
    assert len(service.groups.groups["g"].group.members) == 100


async def test_a_phase_of_a_large_classic_group_ends_some_responses_at_a_time() -> None:
    service = await Service().loaded()
    done: list[Any] = []
    for number in range(900):
        joining = service.groups.join(classic_join(f"i{number}"), 4, CALLER)
        assert isinstance(joining, asyncio.Future)
        joining.add_done_callback(done.append)
    parts = []
    while len(done) < 900:
        before = len(done)
        if not before:
            service.time += 0.5
            service.groups.tick()
        await asyncio.sleep(0)
        if len(done) > before:
            parts.append(len(done) - before)
    assert parts == [250, 250, 250, 150]
    assert {each.result().generation_id for each in done} == {1}
    assert service.groups.groups["g"].backlog is None


def classic_join(instance: str, metadata: bytes | None = None) -> JoinGroupRequest:
    """JoinGroup of a static member of the classic protocol."""
    metadata = owned_subscription({}, "t") if metadata is None else metadata
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


async def test_many_regexes_of_many_topics_are_taken_over_in_turns_and_share_what_they_match() -> None:
    service = await Service(group_consumer_assignment_interval_ms="0").loaded()
    names = [f"t{number}" for number in range(1_000)]
    topics = [Topic(b"%016d" % number, name, 1) for number, name in enumerate(names)]
    service.groups.topics_changed(dict.fromkeys(names, 1), topics)
    calls: list[int] = []
    right = ConsumerGroup.regexes_resolved

    def resolved(group: ConsumerGroup, ticket: int, matches: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(sum(map(len, matches.values())))
        return right(group, ticket, matches, *arguments, **options)

    def join(number: int) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=f"m{number}", member_epoch=0)
        request.rebalance_timeout_ms, request.topic_partitions, request.subscribed_topic_names = 60_000, [], []
        request.subscribed_topic_regex = f"t.*|{number}"
        return service.groups.consumer_heartbeat(request, 1, CALLER)

    with patch.object(ConsumerGroup, "regexes_resolved", resolved):
        joining = [join(number) for number in range(200)]
        await settle(service)
        answers = [each.result() if isinstance(each, asyncio.Future) else each for each in joining]
        await service.after(11)
        join(0)
        group = service.groups.groups["g"].group
        assert isinstance(group, ConsumerGroup)
        for _ in range(50):
            await turn()
            await settle(service)
    codes = [each.error_code for each in answers]
    assert codes == [ErrorCode.NONE] * 100 + [ErrorCode.INVALID_REGULAR_EXPRESSION] * 100
    assert (
        len(group.subscriptions.resolved) == 100
        and len({id(each.topics) for each in group.subscriptions.resolved.values()}) == 1
    )
    assert max(calls) == NAMES_PER_CALL and sum(calls) == 101_000
    assert calls[-1] == 0, "all topics are hashed in a call of its own"


async def test_the_groups_of_a_partition_are_given_up_some_per_turn() -> None:
    service = await Service(group_initial_rebalance_delay_ms="3000").loaded()
    answers = [service.join(group=f"g{number}", version=3) for number in range(500)]
    assert not any(answer.done() for answer in answers)
    service.groups.unload(0)
    assert service.heartbeat("m", 0, group="g499") == ErrorCode.NOT_COORDINATOR
    left: list[int] = []
    while left[-1:] != [0]:
        left.append(sum(not answer.done() for answer in answers))
        await turn()
    assert left == [400, 300, 200, 100, 0]
    assert {answer.result().error_code for answer in answers} == {ErrorCode.NOT_COORDINATOR}


async def test_a_group_whose_end_fails_keeps_no_other_group_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    service = await Service(group_initial_rebalance_delay_ms="3000").loaded()
    answers = [service.join(group=f"g{number}", version=3) for number in range(3)]
    right = ClassicGroup.unload

    def unload(group: ClassicGroup, now: float) -> Any:
        if group.group_id == "g0":
            raise ValueError("g0")
        return right(group, now)

    monkeypatch.setattr(ClassicGroup, "unload", unload)
    with pytest.raises(ValueError, match="g0"):
        service.groups.unload(0)
    await service.groups.load(0, 2)
    service.groups.unload(0)
    await settle(service)
    assert [answer.done() for answer in answers] == [False, True, True]
