"""What is read and where it stands."""

import pytest

from barnabas_client.consumer.fetched import Chunk
from barnabas_client.consumer.subscription import Needed, PartitionState, Subscription
from barnabas_client.errors import IllegalStateError
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_protocol.backoff import Backoff

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def pauses() -> Backoff:
    return Backoff(0.1, 1.0)


def test_manual_assignment() -> None:
    subscription = Subscription(pauses)
    subscription.assign([T0, T1])
    subscription.state(T0).seek(5)
    subscription.assign([T0])
    assert subscription.state(T0).position == 5  # continues where it is
    assert list(subscription.states) == [T0]
    with pytest.raises(IllegalStateError, match=r"subscribe\(\) after assign\(\).*unsubscribe\(\) first"):
        subscription.subscribe(["t"])


def test_subscribed() -> None:
    subscription = Subscription(pauses)
    subscription.subscribe(["t"])
    with pytest.raises(IllegalStateError, match=r"assign\(\) after subscribe\(\)"):
        subscription.assign([T0])
    subscription.add([T0], active=False)
    assert not subscription.state(T0).fetchable
    subscription.unsubscribe()
    subscription.assign([T1])
    assert list(subscription.states) == [T1]


def test_a_partition_that_is_not_assigned() -> None:
    subscription = Subscription(pauses)
    with pytest.raises(IllegalStateError, match=r"partition t-1 is not assigned to this consumer \(assigned: none\)"):
        subscription.state(T1)
    subscription.assign([T0])
    with pytest.raises(IllegalStateError, match=r"assigned: t-0"):
        subscription.state(T1)


def test_what_makes_a_partition_fetchable() -> None:
    subscription = Subscription(pauses)
    subscription.assign([T0])
    state = subscription.state(T0)
    assert not state.fetchable
    assert state.needed is Needed.COMMITTED
    state.seek(3)
    assert [flag for flag in ("active", "fetching", "paused", "revoking", "queued") if blocks(state, flag)] == [
        "active",
        "fetching",
        "paused",
        "revoking",
    ]


def blocks(state: PartitionState, flag: str) -> bool:
    """Whether turning that flag keeps a partition from being fetched."""
    before = getattr(state, flag)
    setattr(state, flag, not before)
    blocked = not state.fetchable
    setattr(state, flag, before)
    return blocked


def test_a_seek_drops_buffers_and_requests_in_flight() -> None:
    subscription = Subscription(pauses)
    subscription.assign([T0])
    state = subscription.state(T0)
    state.seek(3)
    state.chunks.append(Chunk(9, memoryview(b"xxx")))
    state.buffered, state.fetching, epoch = 3, True, state.epoch
    state.seek(20)
    assert (state.position, state.fetch_offset, state.buffered, len(state.chunks)) == (20, 20, 0, 0)
    assert state.epoch != epoch
    assert not state.fetching
    state.need(Needed.EARLIEST)
    assert state.position is None
    assert not state.fetchable


def test_another_leader_drops_requests_in_flight_and_keeps_buffers() -> None:
    subscription = Subscription(pauses)
    subscription.assign([T0])
    state = subscription.state(T0)
    state.seek(3)
    state.chunks.append(Chunk(9, memoryview(b"xxx")))
    state.led_by(1)
    state.fetching, state.retry_at, epoch = True, 9.0, state.epoch
    state.led_by(1)
    assert (state.fetching, state.retry_at, state.epoch) == (True, 9.0, epoch)
    state.led_by(2)
    assert not state.fetching
    assert state.retry_at == 0.0
    assert state.epoch != epoch
    assert (state.position, len(state.chunks)) == (3, 1)


def test_a_revocation_drops_buffers_and_requests_in_flight() -> None:
    subscription = Subscription(pauses)
    subscription.assign([T0])
    state = subscription.state(T0)
    epoch = state.epoch
    subscription.remove([T0, T1])
    assert state.epoch != epoch
    assert subscription.states == {}


def test_fetching_again_starts_at_the_position() -> None:
    subscription = Subscription(pauses)
    subscription.assign([T0])
    state = subscription.state(T0)
    state.seek(3)
    state.fetch_offset = 50
    state.refetch()
    assert (state.position, state.fetch_offset) == (3, 3)


def test_positions_contain_only_known_ones() -> None:
    subscription = Subscription(pauses)
    subscription.assign([T0, T1])
    subscription.state(T0).seek(7, leader_epoch=2)
    assert subscription.positions() == {T0: OffsetAndMetadata(7, "", 2)}
    assert subscription.positions([T1]) == {}


@pytest.mark.parametrize(
    ("policy", "needed"), [("latest", Needed.LATEST), ("earliest", Needed.EARLIEST), ("none", None)]
)
def test_reset_policies(policy: str, needed: Needed | None) -> None:
    assert Needed.of_policy(policy) is needed
