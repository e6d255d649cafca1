"""TxnOffsetCommit, transaction markers, and what waits for them."""

import asyncio
from typing import Any

import pytest

from barnabas_broker.steps import finish
from barnabas_explain.catalog import GroupEvent, OffsetsStable, OffsetsUnstable
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_protocol.records import read_header
from tests.broker.groups.memory import MemoryLog
from tests.broker.groups.support import CALLER, Service, turn

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


async def test_a_commit_is_pending_until_its_transaction_is_committed(service: Service) -> None:
    await service.ask(service.commit(5), 8)
    assert await service.committed_in_transaction(6) == ErrorCode.NONE
    assert (service.committed(), service.stable()) == (5, UNSTABLE)
    service.end_transaction(8, commit=True)
    assert (service.committed(), service.stable()) == (5, UNSTABLE), "the marker of another producer"
    service.end_transaction(commit=True)
    assert (service.committed(), service.stable()) == (6, 6)
    service.end_transaction(commit=False)
    assert service.committed() == 6


async def test_the_records_are_a_transactional_batch_of_their_own_in_the_order_of_the_requests(
    service: Service,
) -> None:
    answers = [
        service.commit(1),
        service.commit_in_transaction(2, producer_id=7, producer_epoch=3),
        service.commit(3),
        service.commit_in_transaction(4, producer_id=8, producer_epoch=4),
        service.commit(5),
    ]
    for answer in answers:
        assert (await service.ask(answer, 3)).topics[0].partitions[0].error_code == ErrorCode.NONE
    headers = [read_header(batch) for batch in service.log.batches[0]]
    found = [(each.is_transactional, each.producer_id, each.producer_epoch, each.base_sequence) for each in headers]
    plain = (False, -1, -1, -1)
    assert found == [plain, (True, 7, 3, -1), plain, (True, 8, 4, -1), plain]
    service.end_transaction(7, commit=True)
    assert service.committed() == 5, "the later record in the log wins"
    again = await Service(service.log).loaded()
    assert (again.committed(), again.stable()) == (5, UNSTABLE)


async def test_a_commit_is_answered_and_pending_when_it_is_in_the_log(service: Service) -> None:
    service.log.hold = True
    committing = service.commit_in_transaction(6)
    fetching = service.fetch(stable=True)
    await turn()
    assert not committing.done()
    assert not fetching.done()
    service.log.release()
    assert (await service.ask(committing, 3)).topics[0].partitions[0].error_code == ErrorCode.NONE
    fetched = await service.ask(fetching, 8)
    assert fetched.groups[0].topics[0].partitions[0].error_code == UNSTABLE


@pytest.mark.parametrize("commit", [True, False])
async def test_a_marker_that_is_reported_before_the_commit_takes_effect(service: Service, commit: bool) -> None:
    service.log.hold = True
    committing = service.commit_in_transaction(6)
    service.end_transaction(commit=commit)
    service.log.release()
    await service.ask(committing, 3)
    assert service.stable() == (6 if commit else -1)


async def test_a_late_marker_does_not_end_the_next_transaction(service: Service) -> None:
    """A marker that is written again is durable when the next transaction has committed offsets already."""
    await service.committed_in_transaction(6)
    first, again = service.groups.next_position(), service.groups.next_position()
    service.groups.offsets.transaction_ended(0, 7, True, first)
    await service.committed_in_transaction(8)
    service.log.hold = True
    committing = service.commit_in_transaction(9, partition=1)
    service.groups.offsets.transaction_ended(0, 7, True, again)
    service.log.release()
    await service.ask(committing, 3)
    assert (service.stable(), service.stable(partition=1)) == (UNSTABLE, UNSTABLE)
    service.groups.offsets.transaction_ended(0, 7, False, service.groups.next_position())
    assert (service.stable(), service.stable(partition=1)) == (6, -1)


async def test_a_failed_append_leaves_nothing_pending(service: Service) -> None:
    service.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await service.committed_in_transaction(6) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "g" not in service.groups.groups
    service.log.fail = ErrorCode.INVALID_PRODUCER_EPOCH
    assert await service.committed_in_transaction(6) == ErrorCode.INVALID_PRODUCER_EPOCH
    service.end_transaction(commit=True)
    assert service.committed() == -1


async def test_an_append_that_times_out_may_still_be_pending(service: Service) -> None:
    service.log.hold = True
    committing = service.commit_in_transaction(6)
    await service.after(6)
    assert (await service.ask(committing, 3)).topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.log.release()
    assert service.stable() == UNSTABLE
    service.end_transaction(commit=True)
    assert service.stable() == 6


# The checks


async def test_the_transaction_is_verified_before_the_member_is_checked(service: Service) -> None:
    service.verification = ErrorCode.INVALID_TXN_STATE
    assert await service.committed_in_transaction(6, generation=3) == ErrorCode.INVALID_TXN_STATE
    assert service.verified == [0]
    assert service.log.appends == 0
    service.verification = ErrorCode.NONE
    assert await service.committed_in_transaction(6, generation=3) == ErrorCode.ILLEGAL_GENERATION
    assert "g" not in service.groups.groups


@pytest.mark.parametrize(
    ("code", "version", "answered"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, 5, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, 3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, 3, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_a_failed_verification_is_answered_as_the_version_knows_it(
    service: Service, code: ErrorCode, version: int, answered: ErrorCode
) -> None:
    service.verification = code
    assert await service.committed_in_transaction(6, version=version) == answered


async def test_the_verification_goes_to_the_log_with_the_batch(service: Service) -> None:
    """So that a marker that is written between the two makes it void (KIP-890)."""
    await service.committed_in_transaction(6, producer_epoch=4, version=3)
    await service.committed_in_transaction(6, producer_epoch=4, version=5)
    assert service.log.verifications == ["7 4 False", "7 4 True"]
    service.verification = ErrorCode.INVALID_TXN_STATE
    await service.committed_in_transaction(6, producer_epoch=4)
    assert service.log.forgotten == ["7 4 False"]


async def test_a_transaction_that_is_open_in_the_log_is_not_verified_again(service: Service) -> None:
    service.log.is_open = True
    assert await service.committed_in_transaction(6) == ErrorCode.NONE
    assert service.verified == []
    assert service.log.verifications == [None]


async def test_an_epoch_that_is_old_in_the_log_is_refused(service: Service) -> None:
    service.log.refuses = ErrorCode.INVALID_PRODUCER_EPOCH
    assert await service.committed_in_transaction(6) == ErrorCode.INVALID_PRODUCER_EPOCH
    service.log.refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await service.committed_in_transaction(6) == ErrorCode.NOT_COORDINATOR
    assert service.verified == []


async def test_a_group_may_move_while_the_transaction_is_verified(service: Service) -> None:
    service.verification = None
    committing = service.commit_in_transaction(6)
    service.groups.unload(0)
    (verified,) = service.verifying
    verified(ErrorCode.NONE)
    answer = await service.ask(committing, 3)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert service.log.appends == 0


async def test_a_static_member_that_was_replaced_is_fenced(service: Service) -> None:
    joining = service.join(instance="i")
    await service.after(3.25)
    joined = await service.ask(joining, 9)
    arguments: dict[str, Any] = {"generation": joined.generation_id, "instance": "i"}
    assert await service.committed_in_transaction(6, member_id="old", **arguments) == ErrorCode.FENCED_INSTANCE_ID
    # The group is CompletingRebalance, in which OffsetCommit is refused; TxnOffsetCommit is not.
    assert service.describe().group_state == "CompletingRebalance"
    assert await service.committed_in_transaction(6, member_id=joined.member_id, **arguments) == ErrorCode.NONE


async def test_a_request_without_a_known_partition_is_not_verified(service: Service) -> None:
    service.groups.topics_changed({"t": 1})
    assert await service.committed_in_transaction(6, topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await service.committed_in_transaction(6, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert service.verified == []
    assert await service.committed_in_transaction(6, group="") == ErrorCode.INVALID_GROUP_ID
    assert await service.committed_in_transaction(6, metadata="m" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert service.log.appends == 0


async def test_other_partitions_and_partitions_that_load_are_refused() -> None:
    first = await Service().loaded()
    await first.ask(first.commit(5), 8)
    log = _SlowLog(first.log)
    service = Service(log)
    assert await service.committed_in_transaction(6) == ErrorCode.NOT_COORDINATOR
    loading = asyncio.ensure_future(service.groups.load(0, 1))
    await turn()
    assert await service.committed_in_transaction(6, version=2) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await service.committed_in_transaction(6, version=1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.go.set()
    await loading
    assert service.verified == []


async def test_offsets_that_do_not_fit_into_a_batch_are_refused() -> None:
    service = await Service(message_max_bytes="100").loaded()
    assert await service.committed_in_transaction(6, metadata="m" * 100) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert service.verified == []
    assert service.log.appends == 0


# Failover


@pytest.mark.parametrize("commit", [True, False])
async def test_pending_offsets_survive_a_failover(commit: bool) -> None:
    first = await Service().loaded()
    await first.ask(first.commit(5), 8)
    await first.committed_in_transaction(6)
    again = await Service(first.log).loaded()
    assert (again.committed(), again.stable()) == (5, UNSTABLE)
    again.end_transaction(commit=commit)
    assert (again.committed(), again.stable()) == ((6, 6) if commit else (5, 5))
    third = await Service(first.log).loaded()
    assert third.stable() == (6 if commit else 5)


async def test_a_marker_that_is_appended_during_a_replay_is_applied() -> None:
    first = await Service().loaded()
    await first.committed_in_transaction(6)
    log = _SlowLog(first.log)
    again = Service(log)
    loading = asyncio.ensure_future(again.groups.load(0, 1))
    await turn()
    again.end_transaction(commit=True)
    log.go.set()
    await loading
    assert again.stable() == 6


async def test_a_marker_that_is_appended_during_a_replay_and_reported_later_is_applied() -> None:
    first = await Service().loaded()
    for offset in range(5):
        await first.committed_in_transaction(offset)
    log = _SlowLog(first.log)
    again = Service(log)
    loading = asyncio.ensure_future(again.groups.load(0, 1))
    await turn()
    position = again.groups.next_position()
    log.go.set()
    await loading
    assert again.stable() == UNSTABLE
    again.groups.offsets.transaction_ended(0, 7, True, position)
    assert again.stable() == 4


async def test_a_marker_from_before_a_load_that_is_reported_later_does_not_end_the_next_transaction() -> None:
    first = await Service().loaded()
    await first.committed_in_transaction(6)
    log = _SlowLog(first.log)
    again = Service(log)
    position = again.groups.next_position()
    loading = asyncio.ensure_future(again.groups.load(0, 1))
    await turn()
    again.groups.offsets.transaction_ended(0, 7, True, position)
    log.go.set()
    await loading
    assert again.stable() == UNSTABLE
    again.groups.offsets.transaction_ended(0, 7, True, position)
    assert again.stable() == UNSTABLE


class _SlowLog(MemoryLog):
    """A log whose first read returns what was there when it was called, and later."""

    def __init__(self, other: MemoryLog) -> None:
        super().__init__(other.batches, ends=other.ends)
        self.go = asyncio.Event()

    async def read(self, partition: int, offset: int) -> bytes:
        found = await super().read(partition, offset)
        await self.go.wait()
        return found


async def test_a_marker_of_a_partition_that_is_not_hosted_is_ignored(service: Service) -> None:
    service.groups.offsets.transaction_ended(3, 7, True)
    service.groups.offsets.transaction_ended(0, 7, True)
    assert not service.groups.groups


# Deletion and expiry


async def test_a_group_with_a_pending_offset_does_not_expire() -> None:
    service = await Service(offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000").loaded()
    await service.ask(service.commit(5), 8)
    await service.ask(service.commit(5, partition=1), 8)
    await service.committed_in_transaction(6)
    await service.after(70)
    assert (service.committed(), service.committed(partition=1)) == (5, -1)
    service.end_transaction(commit=False)
    await service.after(5)
    assert "g" not in service.groups.groups


async def test_a_group_with_nothing_but_a_pending_offset_is_there_until_it_is_aborted() -> None:
    service = await Service(offsets_retention_check_interval_ms="1000").loaded()
    await service.committed_in_transaction(6)
    await service.after(5)
    assert service.describe().group_state == "Empty"
    service.end_transaction(commit=False)
    await service.after(5)
    assert service.describe().group_state == "Dead"


async def test_a_deleted_group_has_no_pending_offsets(service: Service) -> None:
    await service.ask(service.commit(5), 8)
    await service.committed_in_transaction(6)
    await service.committed_in_transaction(6, partition=1)
    answer = await service.ask(service.delete("g"), 2)
    assert answer.results[0].error_code == ErrorCode.NONE
    assert "g" not in service.groups.groups
    service.end_transaction(commit=True)
    assert (service.committed(), service.committed(partition=1)) == (-1, -1)
    again = await Service(service.log).loaded()
    assert not again.groups.groups


async def test_pending_offsets_of_a_deleted_topic_are_removed(service: Service) -> None:
    await service.committed_in_transaction(6)
    service.groups.topics_deleted(["t"])
    await turn()
    service.end_transaction(commit=True)
    assert service.committed() == -1


async def test_a_commit_after_the_deletion_of_its_group_makes_the_group_again(service: Service) -> None:
    await service.ask(service.commit(5), 8)
    deleting, committing = service.delete("g"), service.commit(6)
    await service.ask(deleting, 2)
    await service.ask(committing, 8)
    assert service.committed() == 6
    deleting, committing = service.delete("g"), service.commit_in_transaction(7)
    await service.ask(deleting, 2)
    await service.ask(committing, 3)
    assert service.stable() == UNSTABLE
    service.end_transaction(commit=True)
    assert service.committed() == 7
    again = await Service(service.log).loaded()
    assert again.committed() == 7


async def test_a_commit_that_is_reported_after_its_partition_moved_changes_nothing(service: Service) -> None:
    service.log.hold = True
    committing = service.commit(5)
    await service.after(6)
    assert (await service.ask(committing, 8)).topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.groups.unload(0)
    service.log.release()
    service.log.hold = False
    assert not service.groups.groups
    await service.groups.load(0, 2)
    assert service.committed() == 5, "the replay has it"


async def test_a_commit_that_is_reported_after_a_replay_is_older_than_it(service: Service) -> None:
    service.groups.next_position()
    service.log.hold = True
    committing = service.commit(5)
    await service.after(6)
    await service.ask(committing, 8)
    service.groups.unload(0)
    other = await Service(service.log).loaded()
    service.log.hold, held, service.log.held = False, service.log.held, []
    await other.ask(other.commit(7), 8)
    await service.groups.load(0, 2)
    for done, error in held:
        done(error)
    assert service.committed() == 7


async def test_the_order_of_commits_is_that_of_their_appends_not_of_their_requests(service: Service) -> None:
    def committing(offset: int) -> Any:
        partitions = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=offset, committed_metadata="")
            for each in range(3)
        ]
        topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
        return service.groups.offsets.commit(OffsetCommitRequest(group_id="g", topics=topics), 8, CALLER)

    slow = committing(1)
    next(slow)
    fast = finish(committing(2))
    later = finish(slow)
    await service.ask(fast, 8)
    await service.ask(later, 8)
    again = await Service(service.log).loaded()
    assert (service.committed(), again.committed()) == (1, 1)


# Events


async def test_a_transaction_that_consumers_wait_for_is_reported_once(service: Service) -> None:
    def events() -> list[GroupEvent]:
        types = (OffsetsUnstable, OffsetsStable)
        return [event for _, event in service.published if isinstance(event, types)]

    await service.committed_in_transaction(6)
    await service.committed_in_transaction(7, producer_id=8, partition=1)
    assert service.committed() == -1
    assert events() == [], "clients that do not ask for stable offsets do not wait"
    service.wall += 12_000
    assert (service.stable(), service.stable()) == (UNSTABLE, UNSTABLE)
    (event,) = events()
    known: dict[str, Any] = {"generation": 0, "producer_id": 7, "transactional_id": "x"}
    waits = OffsetsUnstable(**known, offsets=1, keys=(("t", 0),), pending_ms=12_000)
    assert event.values() == waits.values() | {"group": "g", "time": event.time}
    service.wall += 2_000
    service.end_transaction(commit=True)
    service.end_transaction(8, commit=True)
    (_, ended) = events()
    stable = OffsetsStable(**known, committed=True, offsets=1, pending_ms=14_000)
    assert ended.values() == stable.values() | {"group": "g", "time": ended.time}
    await service.after(1)
    written = [event["type"] for event in service.events.of("g")]
    assert written == ["offsets_unstable", "offsets_stable"]
