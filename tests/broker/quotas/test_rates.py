"""Rates and token buckets. The numbers are those of Kafka's ``ClientQuotaManagerTest`` and ``TokenBucketTest``."""

import pytest

from barnabas_broker.quotas.clients import milliseconds
from barnabas_broker.quotas.rates import Rate, TokenBucket, Window

WINDOW = Window(11, 1.0)


def steady(rate: Rate, value: float) -> float:
    """Ten seconds of steady use; the time after them."""
    for second in range(10):
        rate.record(WINDOW, value, second)
        assert rate.wait(WINDOW, 500, second) == 0
    return 10.0


def test_a_spike_makes_wait_until_the_average_is_down_to_the_limit() -> None:
    rate = Rate()
    now = steady(rate, 400) + 0.5
    # 400 * 10 + 2300 = 6300 in 10.5 s are 600 a second: (600 - 500) / 500 * 10.5 s.
    rate.record(WINDOW, 2300, now)
    assert rate.measure(WINDOW, now) == (600, 10.5)
    assert milliseconds(rate.wait(WINDOW, 500, now)) == 2100


def test_a_spike_is_forgotten_when_its_sample_is() -> None:
    rate = Rate()
    now = steady(rate, 400) + 0.5
    rate.record(WINDOW, 2300, now)
    for second in range(1, 11):
        rate.record(WINDOW, 400, now + second)
    assert rate.wait(WINDOW, 500, now + 11) == 0


def test_a_percentage() -> None:
    rate = Rate()
    for second in range(10):
        rate.record(WINDOW, 0.4, second)
    rate.record(WINDOW, 6.71, 10.5)
    assert milliseconds(rate.wait(WINDOW, 1, 10.5)) == 210


def test_a_client_without_a_past_may_use_what_it_was_allowed_before() -> None:
    rate = Rate()
    rate.record(WINDOW, 5000, 100.0)
    assert rate.wait(WINDOW, 500, 100.0) == 0
    rate.record(WINDOW, 1, 100.0)
    assert rate.wait(WINDOW, 500, 100.0) == pytest.approx(0.002)


def test_what_was_used_long_ago_does_not_count() -> None:
    rate = Rate()
    rate.record(WINDOW, 1e9, 0.0)
    assert rate.wait(WINDOW, 1, 10.9) > 0
    assert not rate.idle(WINDOW, 10.9)
    assert rate.idle(WINDOW, 11.0)
    assert rate.measure(WINDOW, 11.0) == (0, 10.0)


def test_a_rate_has_no_more_samples_than_its_window() -> None:
    rate = Rate()
    for number in range(10_000):
        rate.record(WINDOW, 1, number / 10)
    assert len(rate._samples) <= WINDOW.samples + 1
    assert rate.measure(WINDOW, 999.9)[0] == pytest.approx(10, rel=0.1)


def test_a_clock_that_does_not_move() -> None:
    rate = Rate()
    for _ in range(100):
        rate.record(Window(1, 1.0), 1, 5.0)
    assert rate.measure(Window(1, 1.0), 5.0) == (100_000, 0.001)


def test_a_bucket_is_full_at_first_and_refills_at_its_rate() -> None:
    window = Window(10, 1.0)
    bucket = TokenBucket(window, 10, 1000.0)
    assert bucket.refill(window, 10, 1000.0) == 100
    bucket.use(160)
    assert bucket.wait(window, 10, 1000.0) == 6
    assert bucket.wait(window, 10, 1005.0) == 1
    assert bucket.refill(window, 10, 1006.0) == 0
    assert bucket.wait(window, 10, 1006.0) == 0
    assert not bucket.idle(window, 10, 1015.9)
    assert bucket.idle(window, 10, 1016.0)
    assert bucket.refill(window, 10, 2000.0) == 100


def test_a_clock_that_jumps_back_gives_no_tokens() -> None:
    window = Window(10, 1.0)
    bucket = TokenBucket(window, 10, 1000.0)
    bucket.use(100)
    assert bucket.refill(window, 10, 900.0) == 0
    assert bucket.refill(window, 10, 1000.0) == 0
    assert bucket.refill(window, 10, 1001.0) == 10
