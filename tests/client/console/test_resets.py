"""What a page may ask for to reset offsets."""

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.console.resets import arguments_of
from barnabas_client.cli.values import TopicSpec


def test_targets_are_the_options_of_the_command() -> None:
    assert arguments_of("g", {"to": "earliest"}).to_earliest is True
    assert arguments_of("g", {"to": "offset", "value": "12"}).to_offset == 12
    assert arguments_of("g", {"to": "shift", "value": "-5"}).shift_by == -5
    assert arguments_of("g", {"to": "duration", "value": "10m"}).by_duration == 600_000
    assert arguments_of("g", {"to": "datetime", "value": "1970-01-01T00:01:00Z"}).to_datetime == 60_000
    made = arguments_of("--execute", {"to": "latest", "topics": ["orders", "payments:0,2"]})
    assert made.topics == [TopicSpec("orders", None), TopicSpec("payments", (0, 2))]
    assert (made.group, made.to_earliest, made.to_latest, made.from_file) == ("--execute", False, True, None)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({}, "to: must be one of"),
        ({"to": "file", "value": "/etc/passwd"}, "to: must be one of"),
        ({"to": ["earliest"]}, "to: must be one of"),
        ({"to": "offset"}, "value: must be a text"),
        ({"to": "offset", "value": 5}, "value: must be a text"),
        ({"to": "offset", "value": "1.5"}, "'1.5' is not a whole number"),
        ({"to": "offset", "value": "9" * 30}, "is too large"),
        ({"to": "shift", "value": "1" * 101}, "value: must be a text"),
        ({"to": "duration", "value": "soon"}, "is not a duration"),
        ({"to": "datetime", "value": "9" * 50}, "is too large"),
        ({"to": "latest", "topics": "t"}, "topics: must be a list"),
        ({"to": "latest", "topics": [1]}, "topics: must be a list"),
        ({"to": "latest", "topics": ["t:x"]}, "is not a topic with partitions"),
    ],
)
def test_anything_else_is_refused(wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        arguments_of("g", wanted)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["to", "value", "topics"]), inner),
    max_leaves=6,
)


@settings(max_examples=50)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "to": st.sampled_from(["earliest", "offset", "shift", "datetime", "duration"]) | json,
            "value": json,
            "topics": json,
        },
    )
)
def test_no_input_raises_anything_else(wanted: dict[str, Any]) -> None:
    try:
        made = arguments_of("g", wanted)
    except ValueError:
        return
    chosen = [each for each in (made.to_offset, made.shift_by, made.to_datetime, made.by_duration) if each is not None]
    assert len(chosen) + made.to_earliest + made.to_latest + made.to_current == 1
    assert all(abs(each) <= sys.maxsize + 1 for each in chosen)
