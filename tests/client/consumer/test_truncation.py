"""Decisions after a leader has said where the records of an epoch end."""

import pytest

from barnabas_client.consumer.fetched import Chunk
from barnabas_client.consumer.subscription import Needed, PartitionState
from barnabas_client.consumer.truncation import judge
from barnabas_client.errors import LogTruncationError, OffsetOutOfRangeError
from barnabas_client.structs import TopicPartition
from barnabas_protocol.backoff import Backoff

TP = TopicPartition("t", 0)


def read_up_to(position: int, epoch: int, *, fetched: int, fetched_epoch: int) -> PartitionState:
    """The program has got the records before `position`, those before `fetched` wait for it."""
    state = PartitionState(TP, active=True, backoff=Backoff(0.1, 1.0))
    state.seek(position, epoch)
    state.fetch_offset, state.fetch_epoch = fetched, fetched_epoch
    state.chunks.append(Chunk(fetched, memoryview(b"x"), leader_epoch=fetched_epoch))
    state.checked = 3
    return state


@pytest.mark.parametrize(("epoch", "end"), [(4, 20), (4, 99), (5, 20)])
def test_no_truncation(epoch: int, end: int) -> None:
    state = read_up_to(10, 3, fetched=20, fetched_epoch=4)
    assert judge(state, epoch, end, Needed.EARLIEST)
    assert (state.position, state.fetch_offset, len(state.chunks)) == (10, 20, 1)


@pytest.mark.parametrize("policy", [None, Needed.LATEST])
@pytest.mark.parametrize(("epoch", "end"), [(4, 15), (3, 10), (3, 30)])
def test_a_truncation_of_buffered_records_only(policy: Needed | None, epoch: int, end: int) -> None:
    state = read_up_to(10, 3, fetched=20, fetched_epoch=4)
    assert not judge(state, epoch, end, policy)
    assert (state.position, state.fetch_offset, state.fetch_epoch) == (10, 10, 3)
    assert not state.chunks
    assert state.error is None
    assert state.checked == -1


def test_a_truncation_of_read_records_continues_at_the_divergence() -> None:
    state = read_up_to(10, 3, fetched=20, fetched_epoch=4)
    assert not judge(state, 2, 7, Needed.LATEST)
    assert (state.position, state.fetch_offset, state.fetch_epoch, state.leader_epoch) == (7, 7, 2, 2)
    assert not state.chunks


def test_an_older_history_that_is_longer_diverged_before_the_position() -> None:
    state = read_up_to(10, 3, fetched=20, fetched_epoch=4)
    assert not judge(state, 2, 40, Needed.EARLIEST)
    assert (state.position, state.fetch_epoch) == (10, 2)


def test_a_truncation_without_a_reset_policy_raises_offset_and_epoch() -> None:
    state = read_up_to(10, 3, fetched=20, fetched_epoch=4)
    assert not judge(state, 2, 7, None)
    error = state.error
    assert isinstance(error, LogTruncationError)
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.topic_partition, error.position, error.offset, error.leader_epoch) == (TP, 10, 7, 2)
    assert "offset 7 (leader epoch 2)" in str(error)
    assert state.position == 10


def test_a_leader_that_does_not_know_the_epoch() -> None:
    state = read_up_to(10, 3, fetched=20, fetched_epoch=4)
    assert not judge(state, -1, -1, Needed.LATEST)
    assert (state.position, state.needed) == (None, Needed.LATEST)
    state = read_up_to(10, 3, fetched=20, fetched_epoch=4)
    assert not judge(state, -1, -1, None)
    error = state.error
    assert isinstance(error, LogTruncationError)
    assert (error.offset, error.leader_epoch) == (None, -1)
    assert "an offset that exists" in str(error)
