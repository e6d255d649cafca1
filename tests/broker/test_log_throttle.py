"""Lines that clients may cause without end are counted."""

import pytest

from barnabas_broker import log_throttle
from barnabas_broker.log_throttle import WINDOW, Folded, FoldedLines, Repeated
from barnabas_broker.security.audit import Client, LoginFailed, Refused, Said
from barnabas_broker.security.principals import Principal

ADA, BOB = Client(Principal("User", "ada"), "10.0.0.7"), Client(Principal("User", "bob"), "10.0.0.8")
READ, WRITE = Refused("READ", "TOPIC", "orders"), Refused("WRITE", "TOPIC", "orders")


def test_the_first_of_each_is_written_and_the_others_are_counted() -> None:
    repeated: Repeated[Client, Said] = Repeated()
    assert [repeated.add(ADA, READ, 0), repeated.add(ADA, READ, 1), repeated.add(ADA, WRITE, 2)] == [True, False, True]
    assert repeated.add(BOB, READ, 3)
    assert not repeated.add(ADA, READ, 4)
    assert list(repeated.ended(WINDOW - 0.1)) == []
    assert list(repeated.ended(WINDOW)) == [(ADA, READ, 2)]
    assert len(repeated) == 1
    assert repeated.add(ADA, READ, WINDOW)
    assert list(repeated.ended(WINDOW + 3)) == []
    assert len(repeated) == 1


def test_a_client_that_tries_many_names_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_throttle, "MOST_OF_CLIENT", 3)
    repeated: Repeated[Client, Said] = Repeated()
    written = [repeated.add(ADA, READ._replace(name=f"t{number}"), 0) for number in range(10)]
    assert written == [True] * 3 + [False] * 7
    assert list(repeated.ended(WINDOW)) == [(ADA, Refused, 7)]


def test_many_clients_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_throttle, "MOST_CLIENTS", 3)
    repeated: Repeated[Client, Said] = Repeated()
    for number in range(10):
        assert repeated.add(ADA._replace(host=f"10.0.0.{number}"), READ, number)
        assert len(repeated) <= 3


def test_many_users_that_are_tried_do_not_hide_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_throttle, "MOST_OF_CLIENT", 3)
    repeated: Repeated[Client, Said] = Repeated()
    tried = [LoginFailed("OUTSIDE", "wrong", f"user-{number}") for number in range(10)]
    assert [repeated.add(ADA, each, 0) for each in tried] == [True] * 3 + [False] * 7
    assert repeated.add(ADA, READ, 0)
    assert list(repeated.ended(WINDOW)) == [(ADA, LoginFailed, 7)]


def test_the_lines_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_throttle, "MOST_OF_CLIENT", 3)
    now, lines = 0.0, []

    def write(event: str, **pairs: object) -> None:
        lines.append((event, pairs))

    closed = Folded(write, "connection closed", "connections closed", lambda: now)
    for number in range(5):
        closed.add("10.0.0.7", f"10.0.0.7:{number}", reason="broken")
    for number in range(5):
        closed.add("10.0.0.7", f"10.0.0.7:{number}", reason=f"frame of {number} bytes")
    closed.add("10.0.0.8", reason="broken")
    assert lines == [
        ("connection closed", {"peer": "10.0.0.7:0", "reason": "broken"}),
        ("connection closed", {"peer": "10.0.0.7:0", "reason": "frame of 0 bytes"}),
        ("connection closed", {"peer": "10.0.0.7:1", "reason": "frame of 1 bytes"}),
        ("connection closed", {"host": "10.0.0.8", "reason": "broken"}),
    ]
    lines.clear()
    now = WINDOW
    closed.tick()
    assert lines == [
        ("connections closed", {"host": "10.0.0.7", "reason": "broken", "repeated": 4}),
        ("connections closed", {"host": "10.0.0.7", "others": 3}),
    ]
    assert len(closed) == 0


def test_lines_of_each_event_are_folded_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_throttle, "MOST_LINES", 3)
    now, lines = 0.0, []

    def write(event: str, **pairs: object) -> None:
        lines.append((event, pairs))

    groups = FoldedLines(lambda: now, "group")
    for number in range(10):
        groups.add(write, "group is empty", f"g{number}", generation=1)
    groups.add(write, "group rebalanced", "g0", generation=1)
    groups.add(write, "group is empty", "g0", generation=1)
    empty = [("group is empty", {"group": f"g{number}", "generation": 1}) for number in range(3)]
    assert lines == [*empty, ("group rebalanced", {"group": "g0", "generation": 1})]
    lines.clear()
    now = WINDOW
    groups.tick()
    assert lines == [
        ("group is empty", {"group": "g0", "generation": 1, "repeated": 1}),
        ("group is empty", {"others": 7}),
    ]


def test_lines_that_are_only_counted_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_throttle, "MOST_LINES", 3)
    closed = Folded(lambda event, **pairs: None, "closed", "closed", lambda: 0.0)
    for number in range(10):
        closed.add(f"10.0.0.{number}", reason="broken")
    assert len(closed) == 3
