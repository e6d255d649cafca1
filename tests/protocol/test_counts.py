"""Numbers of things as text."""

import pytest

from barnabas_protocol.counts import counted


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files"), (1_200, "1,200 files")])
def test_a_number_of_things(count: int, text: str) -> None:
    assert counted(count, "file") == text


def test_a_plural_of_its_own() -> None:
    assert [counted(count, "batch", "batches") for count in (1, 2)] == ["1 batch", "2 batches"]
