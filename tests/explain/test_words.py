"""Words of sentences about groups."""

import pytest

from barnabas_explain.words import rate


@pytest.mark.parametrize(
    ("records", "milliseconds", "said"),
    [
        (2_000, 100_000, "20 records/s"),
        (150, 100_000, "1.5 records/s"),
        (100, 100_000, "1 records/s"),
        (50, 100_000, "30 records/min"),
        (1, 3_600_000, "1 records/h"),
        (3_000_000, 1_000, "3,000,000 records/s"),
    ],
)
def test_a_rate_has_a_unit_in_which_it_is_not_a_fraction(records: int, milliseconds: float, said: str) -> None:
    assert rate(records, milliseconds) == said
