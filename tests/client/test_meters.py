"""Totals, rates, means and maxima."""

import pytest

from barnabas_client.meters import STEPS, WINDOW, Meter


def test_a_meter_without_events() -> None:
    meter = Meter(0.0)
    assert (meter.count, meter.total, meter.last) == (0, 0, None)
    assert (meter.rate(100.0), meter.frequency(100.0)) == (0, 0)
    assert (meter.mean(100.0), meter.maximum(100.0)) == (None, None)


def test_values_of_the_window() -> None:
    meter = Meter(0.0)
    for at in range(20):
        meter.add(2.0 + at % 2, float(at))
    assert (meter.count, meter.total, meter.last) == (20, 50.0, 3.0)
    assert meter.rate(20.0) == pytest.approx(2.5)
    assert meter.frequency(20.0) == pytest.approx(1.0)
    assert meter.mean(20.0) == pytest.approx(2.5)
    assert meter.maximum(20.0) == 3.0


def test_the_rate_of_the_first_event() -> None:
    meter = Meter(0.0)
    meter.add(10.0, 0.001)
    assert meter.rate(0.001) == pytest.approx(10.0 / (WINDOW / STEPS))


def test_old_events_count_in_totals_only() -> None:
    meter = Meter(0.0)
    meter.add(9.0, 1.0)
    meter.add(1.0, 1.0 + WINDOW)
    assert meter.maximum(1.0 + WINDOW) == 1.0
    assert meter.rate(1.0 + WINDOW) == pytest.approx(1.0 / WINDOW)
    assert meter.mean(1.0 + 3 * WINDOW) is None
    assert (meter.count, meter.total) == (2, 10.0)
