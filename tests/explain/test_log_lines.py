"""Log lines of groups: one line for each rebalance, in plain words; Kafka's sentences at the debug level."""

import logging

import pytest

from barnabas_broker.groups.effects import Caller
from tests.broker.groups.support import Service, assignment

LOGGER = "barnabas_broker.coordinator"


@pytest.fixture
def info(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


async def two_members(service: Service) -> list[str]:
    """Ids of two members of generation 1."""
    callers = [Caller(name, "/10.0.0.7") for name in ("worker-1", "worker-2")]
    ids = [service.join(caller=caller).member_id for caller in callers]
    joins = [service.join(each, caller=caller) for each, caller in zip(ids, callers, strict=True)]
    await service.after(6.25)
    for join in joins:
        await service.ask(join, 9)
    for sync in [service.sync(ids[0], 1, {ids[0]: assignment(t=[0])}), service.sync(ids[1], 1)]:
        await service.ask(sync, 5)
    return ids


async def test_a_rebalance_is_one_line(info: pytest.LogCaptureFixture) -> None:
    service = await Service().loaded()
    info.clear()
    await two_members(service)
    (line,) = info.messages
    assert line == ("group rebalanced group=g generation=1 members=2 reason='worker-1 (10.0.0.7) joined' took=6.250s")


async def test_the_reason_of_a_client_stands_in_the_line(info: pytest.LogCaptureFixture) -> None:
    service = await Service().loaded()
    ids = await two_members(service)
    info.clear()
    service.leave(ids[1], reason="the consumer is being closed")
    await service.ask(service.join(ids[0]), 9)
    await service.ask(service.sync(ids[0], 2, {ids[0]: assignment(t=[0])}), 5)
    (line,) = info.messages
    assert "generation=2 members=1 reason='worker-2 (10.0.0.7) left: the consumer is being closed' took=0.000s" in line


async def test_a_member_that_is_silent_is_a_warning_and_then_a_reason(info: pytest.LogCaptureFixture) -> None:
    service = await Service().loaded()
    ids = await two_members(service)
    info.clear()
    for _ in range(4):
        await service.after(2.6)
        service.heartbeat(ids[0], 1)
    await service.ask(service.join(ids[0]), 9)
    await service.ask(service.sync(ids[0], 2, {ids[0]: assignment(t=[0])}), 5)
    silent, rebalanced = info.records
    assert silent.levelname == "WARNING"
    assert "member is silent group=g generation=1 member='worker-2 (10.0.0.7)' silent=6." in silent.getMessage()
    assert silent.getMessage().endswith(" session=10.000s")
    assert "members=1 reason='worker-2 (10.0.0.7) missed its session of 10.000s'" in rebalanced.getMessage()


async def test_the_last_member_that_leaves_is_one_line(info: pytest.LogCaptureFixture) -> None:
    service = await Service().loaded()
    member_id = await service.member()
    info.clear()
    service.leave(member_id)
    assert info.messages == ["group is empty group=g generation=2 reason='client (127.0.0.1) left'"]


async def test_the_steps_go_to_the_debug_level_in_the_words_of_kafka(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    service = await Service().loaded()
    caplog.clear()
    await service.member()
    sentences = [record.getMessage() for record in caplog.records if record.levelname == "DEBUG"]
    assert any("Preparing to rebalance group g in state PreparingRebalance with old gen" in line for line in sentences)
    assert any("Stabilized group g generation 1 with 1 members." in line for line in sentences)
    assert any("Assignment received from leader for group g for generation 1." in line for line in sentences)


async def test_three_normal_runs_are_no_storm(info: pytest.LogCaptureFixture) -> None:
    service = await Service(group_initial_rebalance_delay_ms="0").loaded()
    info.clear()
    for run in range(10):
        joined = await service.ask(service.join(version=3), 3)
        generation = joined.generation_id
        await service.ask(service.sync(joined.member_id, generation, {joined.member_id: assignment(t=[0])}), 5)
        await service.after(1.0)
        service.leave(joined.member_id)
        assert len(info.messages) == 2 * (run + 1), "one line for its start and one for its end"
    assert not [line for line in info.messages if "storm" in line]
    assert {record.levelname for record in info.records} == {"INFO"}


async def test_a_member_that_is_removed_again_and_again_is_a_storm(info: pytest.LogCaptureFixture) -> None:
    service = await Service(group_initial_rebalance_delay_ms="0", group_min_session_timeout_ms="1000").loaded()
    for _ in range(10):
        joined = await service.ask(service.join(version=3, session=1000), 3)
        sync = service.sync(joined.member_id, joined.generation_id, {joined.member_id: assignment(t=[0])})
        await service.ask(sync, 5)
        await service.after(1.5)
    (storm,) = [line for line in info.messages if line.startswith("rebalance storm")]
    assert "group=g rebalances=6 within=" in storm
    assert "mostly='client (127.0.0.1), 6 times'" in storm


async def test_a_deleted_group_names_the_client(info: pytest.LogCaptureFixture) -> None:
    service = await Service().loaded()
    service.leave(await service.member())
    info.clear()
    await service.ask(service.delete("g"), 2)
    (line,) = info.messages
    assert line == "group deleted group=g offsets=0 reason='a client asked for it' client_id=client host=/127.0.0.1"


async def test_a_transaction_that_consumers_wait_for_is_two_lines(info: pytest.LogCaptureFixture) -> None:
    service = await Service().loaded()
    await service.committed_in_transaction(6)
    info.clear()
    service.wall += 12_000
    service.stable()
    service.end_transaction(commit=False)
    assert info.messages == [
        "offsets are pending in a transaction, consumers wait group=g producer_id=7 offsets=1 transactional_id=x"
        " since=12.000s",
        "transaction with pending offsets ended group=g producer_id=7 offsets=1 committed=False took=12.000s",
    ]
