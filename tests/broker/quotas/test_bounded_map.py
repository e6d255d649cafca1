"""What is measured of many is kept in bounded memory, and what is held is not forgotten."""

from barnabas_broker.quotas.bounded_map import Kept


def kept(most: int = 3) -> Kept[str, list[str]]:
    return Kept(most)


def test_what_was_not_used_for_longest_makes_room() -> None:
    few = kept()
    for key in "abcad":
        assert few.use(key, 0.0, lambda key=key: [key]) == [key]  # type: ignore[misc]
    assert len(few) == 3
    assert few.use("b", 0.0, lambda: ["new"]) == ["new"]
    assert few.use("a", 0.0, lambda: ["new"]) == ["a"]


def test_what_is_held_makes_no_room_until_then() -> None:
    few = kept()
    for key, until in zip("abc", (5.0, 9.0, 7.0), strict=True):
        few.use(key, 0.0, lambda: ["old"])
        few.hold(key, until)
    assert few.use("d", 4.9, list) is None
    assert few.use("a", 4.9, list) == ["old"]
    assert few.use("d", 5.0, list) == []
    assert few.use("a", 5.0, list) == []
    assert few.use("b", 5.0, list) == ["old"]
    assert len(few) == 3


def test_a_hold_is_not_made_shorter() -> None:
    few = kept(1)
    few.use("a", 0.0, lambda: ["old"])
    few.hold("a", 5.0)
    few.hold("a", 3.0)
    few.hold("unknown", 3.0)
    assert few.use("b", 4.0, list) is None
    few.use("a", 5.0, list)
    few.hold("a", 6.0)
    assert few.use("b", 5.5, list) is None
    assert few.use("b", 6.0, list) == []


def test_what_no_longer_counts_is_forgotten() -> None:
    few = kept()
    for key in "abc":
        few.use(key, 0.0, lambda key=key: [key])  # type: ignore[misc]
    few.hold("b", 5.0)
    few.hold("c", 6.0)
    few.forget(5.0, lambda value: value != ["a"])
    assert len(few) == 2
    few.forget(6.0, lambda value: False)
    assert len(few) == 2
    few.clear()
    assert len(few) == 0
