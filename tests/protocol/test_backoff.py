"""Pauses between attempts."""

from barnabas_protocol.backoff import Backoff


def test_pauses_double_up_to_a_bound_and_start_over() -> None:
    backoff = Backoff(0.1, 0.5)
    assert [backoff.failed() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.succeeded()
    assert backoff.failed() == 0.1


def test_many_failures_do_not_overflow() -> None:
    backoff = Backoff(0.1, 0.5)
    assert max(backoff.failed() for _ in range(10_000)) == 0.5


def test_a_first_pause_above_the_longest_is_the_longest() -> None:
    assert Backoff(2.0, 1.0).failed() == 2.0


def test_jitter() -> None:
    assert Backoff(1.0, 8.0, lambda: 0.5).failed() == 0.5
