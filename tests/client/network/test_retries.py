"""Pauses between retries."""

import random

from barnabas_client.network.retries import jitter


def test_jitter_leaves_the_random_numbers_of_the_program_alone() -> None:
    before = random.getstate()
    assert all(0.8 <= jitter() <= 1.2 for _ in range(100))
    assert random.getstate() == before
