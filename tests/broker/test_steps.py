"""Work in steps."""

from barnabas_broker.steps import by_key, finish


def test_items_are_found_by_their_keys_and_keys_that_come_again_are_known() -> None:
    items = ["apple", "bean", "avocado", "corn"]
    found, repeated = finish(by_key(items, lambda item: item[0]))
    assert list(found.items()) == [("a", "avocado"), ("b", "bean"), ("c", "corn")]
    assert repeated == {"a"}


def test_a_hundred_items_are_a_step() -> None:
    assert sum(1 for _ in by_key(range(1_000), str)) == 10
