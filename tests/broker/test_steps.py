"""Work in steps."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from barnabas_broker.steps import by_key, consumed, distinct, finish, release


class Item:
    """Something whose end can be seen."""


def test_items_are_found_by_their_keys_and_keys_that_come_again_are_known() -> None:
    items = ["apple", "bean", "avocado", "corn"]
    found, repeated = finish(by_key(items, lambda item: item[0]))
    assert list(found.items()) == [("a", "avocado"), ("b", "bean"), ("c", "corn")]
    assert repeated == {"a"}


def test_a_hundred_items_are_a_step() -> None:
    assert sum(1 for _ in by_key(range(1_000), str)) == 10


def test_distinct_items_are_in_the_order_in_which_they_came_first() -> None:
    assert list(finish(distinct(["b", "a", "b", "c", "a"]))) == ["b", "a", "c"]


def test_an_item_that_was_consumed_is_freed_when_the_next_one_is_taken() -> None:
    items = [Item() for _ in range(5)]
    references = [weakref.ref(item) for item in items]
    left = [sum(reference() is not None for reference in references) for _ in consumed(items)]
    assert left == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("collection", [list, set, dict.fromkeys])
def test_a_collection_is_released_a_thousand_items_at_a_time(collection: Callable[[Any], Any]) -> None:
    items = collection(range(3_500))
    assert [len(items) for _ in release(items)] == [2_500, 1_500, 500]
