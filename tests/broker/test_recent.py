"""Dictionaries of bounded size."""

from barnabas_broker.recent import Lately, Newest


def test_the_oldest_entry_makes_room_and_one_that_is_set_again_is_the_newest() -> None:
    newest: Newest[str, int] = Newest(2)
    newest["a"], newest["b"], newest["a"] = 1, 2, 3
    newest["c"] = 4
    assert newest == {"a": 3, "c": 4}


def test_a_key_is_reported_once_in_a_while_and_few_keys_are() -> None:
    lately: Lately[str] = Lately(10.0, 2)
    assert [lately.add(key, 0.0) for key in ("a", "a", "b", "c")] == [True, False, True, False]
    assert not lately.may_add("a", 9.9)
    assert lately.may_add("a", 10.0)
    assert lately.add("c", 10.0)
    assert lately == {"c": 10.0}
