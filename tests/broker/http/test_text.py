"""Responses in pieces: Prometheus and JSON parsers read them, and other tasks run while they are built."""

import asyncio
import json
import math
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas_broker.http.text import PIECE, TURN, collect, family, gather, histograms, labels, listing
from barnabas_broker.metrics import Histogram


def test_a_family_is_parsed_back() -> None:
    text = "".join(family("x_things", "gauge", "Things.", [(labels(a="1"), 1), (labels(a="2", b="3"), -1.5)]))
    (read,) = text_string_to_metric_families(text)
    assert (read.name, read.type, read.documentation) == ("x_things", "gauge", "Things.")
    assert [(sample.labels, sample.value) for sample in read.samples] == [({"a": "1"}, 1), ({"a": "2", "b": "3"}, -1.5)]


def test_a_family_without_samples_is_left_out() -> None:
    assert list(family("x", "gauge", "Nothing.", [])) == []


@pytest.mark.parametrize("value", ["", "plain", 'a"b', "a\\b", "a\nb", "\\n", 'a\\"\n', "grüße", "a{b}=c,d"])
def test_any_label_is_escaped(value: str) -> None:
    text = "".join(family("x", "gauge", "A label.", [(labels(name=value), 1)]))
    (read,) = text_string_to_metric_families(text)
    assert read.samples[0].labels == {"name": value}


def test_a_long_family_has_several_pieces_and_one_header() -> None:
    pieces = list(family("x", "gauge", "Many.", ((labels(n=n), n) for n in range(2 * PIECE + 1))))
    assert [piece.count("\nx{") + piece.startswith("x{") for piece in pieces] == [PIECE, PIECE, 1]
    (read,) = text_string_to_metric_families("".join(pieces))
    assert [sample.value for sample in read.samples] == list(range(2 * PIECE + 1))


def test_buckets_are_cumulative() -> None:
    histogram = Histogram([0.1, 1.0])
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    text = "".join(histograms("x_seconds", "Time.", [({"api": "A"}, histogram), ({"api": "B"}, Histogram([0.1, 1.0]))]))
    (read,) = text_string_to_metric_families(text)
    assert read.type == "histogram"
    of_a = {
        (sample.name, sample.labels.get("le")): sample.value for sample in read.samples if sample.labels["api"] == "A"
    }
    assert of_a == {
        ("x_seconds_bucket", "0.1"): 2,
        ("x_seconds_bucket", "1.0"): 3,
        ("x_seconds_bucket", "+Inf"): 4,
        ("x_seconds_count", None): 4,
        ("x_seconds_sum", None): pytest.approx(7.65),
    }
    assert math.isclose(sum(sample.value for sample in read.samples if sample.labels["api"] == "B"), 0)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_listing_is_json(count: int) -> None:
    rows = [{"n": n, "text": 'a"]}'} for n in range(count)]
    assert json.loads("".join(listing({"head": [1]}, "rows", rows))) == {"head": [1], "rows": rows}


async def test_other_tasks_run_between_pieces() -> None:
    clock = 0.0
    turns = 0
    running = True

    def pieces() -> Iterator[str]:
        nonlocal clock
        for n in range(100):
            clock += TURN / 4
            yield f"{n} "

    async def others() -> None:
        nonlocal turns
        while running:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    chunks = await gather(pieces(), lambda: clock)
    running = False
    await task
    assert b"".join(chunks).split() == [b"%d" % n for n in range(100)]
    assert turns >= 20
    assert max(chunk.count(b" ") for chunk in chunks) <= 5


async def test_rows_are_collected_with_turns_in_between() -> None:
    clock, turns, running = 0.0, 0, True

    def rows() -> Iterator[int | None]:
        nonlocal clock
        for n in range(100):
            clock += TURN / 4
            yield n if n % 2 else None

    async def others() -> None:
        nonlocal turns
        while running:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert await collect(rows(), lambda: clock) == list(range(1, 100, 2))
    running = False
    await task
    assert turns >= 20
