"""The sentences about share groups: why their epochs grew, and what happened to their records."""

from typing import Any

import pytest

from barnabas_explain import words
from barnabas_explain.catalog import EpochBumped, GroupEvent, ShareOffsetsAltered, SharePartitionsOpened
from barnabas_explain.explain import explain
from barnabas_explain.records import EventRecord
from tests.explain.reading import read


def event(event_type: type[GroupEvent], *, at: int = 100_000, generation: int = 2, **data: Any) -> EventRecord:
    return {"version": 1, "group": "g", "time": at, "generation": generation, "type": event_type.type, **data}


@pytest.mark.parametrize(
    ("cause", "data", "text", "without"),
    [
        (
            SharePartitionsOpened,
            {"partitions": {"t": [0, 1]}},
            "the share state of t-0 to t-1 was created: members can get records from there",
            "the group has new share partitions",
        ),
        (
            ShareOffsetsAltered,
            {"partitions": {"t": [0]}},
            "a client altered the share offsets of t-0",
            "the group has other share offsets",
        ),
    ],
)
def test_causes_of_the_epoch_of_a_share_group(
    cause: type[GroupEvent], data: dict[str, Any], text: str, without: str
) -> None:
    trigger, bumped = event(cause, **data), event(EpochBumped, generation=3, cause=cause.type, by=[])
    (told,) = explain(read([trigger, bumped]))
    assert told.text == f"Epoch 3: {text}."
    (told,) = explain(read([bumped]))
    assert told.text == f"Epoch 3: {without}.", "its trigger was not read"
    (told,) = explain(read([trigger]))
    assert told.text == f"{words.capital(text)}.", "no epoch has followed"
