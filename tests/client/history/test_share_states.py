"""The states of share partitions, replayed from records of ``__share_group_state``."""

from typing import Any

import pytest

from barnabas_client.history.share_states import Delivered, DeliveryState, ShareStates, state_key
from barnabas_client.membership.heartbeats import TopicIdPartition
from barnabas_protocol.codec import encode
from barnabas_protocol.coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)

WHERE = TopicIdPartition(bytes(range(16)), 3)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState

Batch = tuple[int, int, int, int]


def batches(given: tuple[Batch, ...]) -> list[StateBatch]:
    """Batches of first offset, last offset, state and deliveries."""
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in given
    ]


def snapshot(*given: Batch, start: int = 0, group: str = "g") -> tuple[bytes, bytes]:
    key = ShareSnapshotKey(group_id=group, topic_id=WHERE.topic_id, partition=WHERE.partition)
    fields: dict[str, Any] = {"snapshot_epoch": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": start}
    value = ShareSnapshotValue(**fields, create_timestamp=0, write_timestamp=0, state_batches=batches(given))
    return b"\0\0" + encode(key, 0), b"\0\0" + encode(value, 0)


def update(*given: Batch, start: int = -1) -> tuple[bytes, bytes]:
    key = ShareUpdateKey(group_id="g", topic_id=WHERE.topic_id, partition=WHERE.partition)
    value = ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=start, state_batches=batches(given))
    return b"\0\1" + encode(key, 1), b"\0\0" + encode(value, 0)


@pytest.mark.parametrize(
    ("records", "stuck"),
    [
        ([snapshot((5, 6, AVAILABLE, 2))], {5: (2, AVAILABLE), 6: (2, AVAILABLE)}),
        ([snapshot((5, 6, AVAILABLE, 1))], {}),
        ([snapshot((5, 6, ACKNOWLEDGED, 3))], {}),
        ([snapshot(), update((5, 5, AVAILABLE, 2)), update((5, 5, ARCHIVED, 3))], {5: (3, ARCHIVED)}),
        ([snapshot((5, 9, AVAILABLE, 2)), update((7, 7, ACKNOWLEDGED, 2), start=6)], dict.fromkeys((6, 8, 9), (2, 0))),
        ([snapshot((5, 5, AVAILABLE, 4)), snapshot(start=5)], {}),
        ([snapshot((5, 5, AVAILABLE, 4)), (snapshot()[0], None)], {}),
        ([update((5, 5, AVAILABLE, 4))], {}),
        ([snapshot((5, 5, AVAILABLE, 4), group="other")], {}),
        ([snapshot((5, 5, AVAILABLE, 2)), (b"\0\7", b""), (None, b""), (b"\0\0x", b"\0\0"), update()], {5: (2, 0)}),
    ],
    ids=[
        "again and again",
        "once",
        "acknowledged",
        "the higher count applies",
        "acknowledged with the same count, and before the start",
        "a snapshot replaces all",
        "deleted",
        "an update without a snapshot",
        "another group",
        "records that cannot be read",
    ],
)
def test_states(records: list[tuple[bytes | None, bytes | None]], stuck: dict[int, Delivered]) -> None:
    states = ShareStates("g")
    for record in records:
        states.add(*record)
    assert {offset: one for where, offset, one in states.stuck() if where == WHERE} == stuck


def test_a_batch_without_end_is_cut() -> None:
    states = ShareStates("g")
    states.add(*snapshot((0, 2**62, AVAILABLE, 2)))
    assert len(list(states.stuck())) < 200_000


def test_a_name_is_that_of_apache_kafka() -> None:
    assert state_key("g", WHERE) == "g:AAECAwQFBgcICQoLDA0ODw:3"
