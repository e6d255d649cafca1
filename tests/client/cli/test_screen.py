"""A group on the screen: what fits, what is left out, and colours."""

import re
from dataclasses import replace

import pytest

from barnabas_client.admin.types import GroupDescription, MemberDescription
from barnabas_client.cli.output import Output
from barnabas_client.cli.screen import _COLUMNS, Measured, Rate, Rates, draw, draw_groups
from barnabas_client.history.view import GroupView, Row
from barnabas_client.network.metadata import Node
from barnabas_client.structs import TopicPartition
from barnabas_explain.explain import ExplanationData
from barnabas_explain.waits import Waiting
from tests.lots import in_lots

TITLES = [column.title for column in _COLUMNS]
COLOR = re.compile(r"\x1b\[\d+m")


def row(
    number: int, committed: int | None = 5, end: int | None = 9, *, topic: str = "orders", start: int | None = None
) -> Row:
    member = MemberDescription("m", None, "billing-worker-of-a-long-name", "/192.168.100.200")
    return Row(TopicPartition(topic, number), committed, end, member, start)


def measured(rows: list[Row], rebalances: int = 3, rates: dict[TopicPartition, Rate] | None = None) -> Measured:
    owners = tuple(MemberDescription(f"m{at}", None, "worker", "/127.0.0.1") for at in range(2))
    group = GroupDescription(
        "billing", None, "Stable", "consumer", "cooperative-sticky", owners, Node(1, "broker-1.internal.example", 9092)
    )
    ages = {one.partition: 3.0 for one in rows if one.lag and one.partition is not None}
    reasons: list[ExplanationData] = [
        {"time": 1_000_000 + at, "text": f"Generation {at}: {'worker was slow. ' * 9}", "remedy": f"Do {'this ' * 40}"}
        for at in range(rebalances)
    ]
    return Measured(GroupView(group, rows, 1_000.0), ages, rates or {}, reasons)


def plain(lines: list[str]) -> list[str]:
    return [COLOR.sub("", line) for line in lines]


@in_lots("width", [72, 80, 100, 140])
@pytest.mark.parametrize("rows", [0, 1, 5, 40])
@pytest.mark.parametrize("rebalances", [0, 1, 3])
def test_a_view_fits_the_screen(width: int, rows: int, rebalances: int) -> None:
    some = [row(at, topic="a-topic-with-a-rather-long-name") for at in range(rows)]
    some += [row(99, None, 1_234_567, start=0)] if rows > 1 else []
    fast = {one.partition: Rate(12_345.6, 12_345.6) for one in some if one.partition is not None}
    view = measured(some, rebalances, fast)
    lines = plain(draw(view, Output(color=True), width, 24))
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    assert ("LAST REBALANCES" in lines) == bool(rebalances)
    for at in range(rebalances):
        assert any(f"Generation {at}: worker was slow" in line for line in lines)
    assert any("To do: Do this" in line for line in lines) == bool(rebalances)
    assert any(re.fullmatch(r"\.\.\. and \d+ more with the smallest lag", line) for line in lines) == (rows == 40)


def test_transactions_that_consumers_wait_for() -> None:
    waits = [Waiting(TopicPartition("t", at), 10, at + 1, 7, "a-name-that-is-long" * 3, 61_000) for at in range(5)]
    view = replace(measured([row(0)], 0), waits=waits)
    lines = plain(draw(view, Output(color=False), 80, 24))
    assert max(map(len, lines)) <= 80
    first = next(at for at, line in enumerate(lines) if "read_committed consumers wait" in line)
    assert [line.split(":")[0] for line in lines[first : first + 2]] == ["t-4", "t-3"]
    assert lines[first + 2] == "... and 3 more partitions with an open transaction"
    whole = draw(view, Output(color=False), None, None)
    assert sum("open for 61 s" in line for line in whole) == 5


def test_several_groups_show_the_transactions_that_they_wait_for() -> None:
    waits = [Waiting(TopicPartition("t", at), 10, at + 1, 7, "a-name-that-is-long" * 3, 61_000) for at in range(3)]
    groups = [replace(measured([row(0)], 0), waits=waits[:2]), replace(measured([row(1)], 0), waits=waits[2:])]
    lines = plain(draw_groups(1_000.0, groups, {}, Output(color=False), 80, 24))
    assert max(map(len, lines)) <= 80
    assert [line.split(":")[0] for line in lines[-3:-1]] == ["billing, t-2", "billing, t-1"]
    assert lines[-1] == "... and 1 more partitions with an open transaction"
    assert len(plain(draw_groups(1_000.0, groups * 20, {}, Output(color=False), 80, 24))) <= 24


def test_rows_with_the_largest_lag_stay() -> None:
    rows = [row(at, 0, at % 7) for at in range(50)] + [row(50, None, 90, start=0)]
    lines = plain(draw(measured(rows), Output(color=True), 80, 24))
    shown = [int(line.split()[1]) for line in lines if line.startswith("orders")]
    assert len(shown) == 24 - 2 - 2 - 1 - (1 + 1 + 3 + 3 + 2)
    assert {6, 13, 20, 27, 34, 41, 48, 50} <= set(shown)
    assert shown == sorted(shown)


def test_numbers_are_aligned_to_the_right_and_columns_left_out_by_width() -> None:
    rows = [row(0, 5, 9), row(10, 500, 123_456)]
    wide = plain(draw(measured(rows), Output(color=True), 160, 24))
    assert wide[3].split() == TITLES
    narrow = plain(draw(measured(rows), Output(color=True), 80, 24))
    assert narrow[3].split() == [*TITLES[:2], *TITLES[4:-1]]
    for name, one, other in (("PARTITION", "0", "10"), ("LAG", "4", "122,956")):
        end = narrow[3].index(name) + len(name)
        assert (narrow[4][:end].endswith(f" {one}"), narrow[5][:end].endswith(f" {other}")) == (True, True)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], "no partitions are assigned or committed"),
        ([row(0, 9, 9)], "0 records behind"),
        ([row(0, 8, 9)], "1 record behind, 3.0 s"),
        ([row(0, 5, 9), row(1, 8, 9)], "5 records behind, 3.0 s"),
        ([row(0, None, 9, start=2)], "7 records without a committed offset"),
        ([row(0, None, 1, start=0)], "1 record without a committed offset"),
        ([row(0, 5, 9), row(1, None, 9, start=0)], "4 records behind, 3.0 s  9 records without a committed offset"),
        ([row(0, None, 9, start=9)], "0 records behind"),
        ([row(0, None, None)], "the lag of some partitions is not known"),
        ([row(0, 5, 9), row(1, 5, None)], "4 records behind, 3.0 s  the lag of some partitions is not known"),
    ],
)
def test_lag_that_is_not_known_is_not_zero(rows: list[Row], text: str) -> None:
    assert draw(measured(rows, 0), Output(color=False), 120, 24)[1] == text
    unknown = "without" in text or "not known" in text or not rows
    assert (measured(rows).view.lag is None) == unknown


@pytest.mark.parametrize(
    ("committed", "rate", "lag_color", "out_color"),
    [
        (9, Rate(0.0, 0.0), 32, None),
        (9, Rate(5.0, 5.0), 32, 32),
        (5, Rate(5.0, 9.0), 33, 32),
        (5, Rate(5.0, 3.0), 31, 33),
        (5, Rate(0.0, 0.0), 33, 31),
        (5, Rate(5.0, 0.0), 31, 31),
    ],
)
def test_lag_and_rates_have_colours(committed: int, rate: Rate, lag_color: int, out_color: int | None) -> None:
    rows = [row(0, committed, 9)]
    line = draw(measured(rows, 0, {TopicPartition("orders", 0): rate}), Output(color=True), 120, 24)[4]
    colored = re.findall(r"\x1b\[(\d+)m *([\d.,]+)\x1b\[0m", line)
    consumed = f"{rate.consumed:.1f}" if rate.consumed else "0"
    assert colored == [(str(lag_color), str(9 - committed))] + (
        [] if out_color is None else [(str(out_color), consumed)]
    )


def test_rates_are_averages_of_the_last_seconds() -> None:
    rates, tp = Rates(), TopicPartition("orders", 0)

    def at(time: float, committed: int | None, end: int) -> Rate:
        return rates.add(GroupView(GroupDescription("g"), [row(0, committed, end)], time))[tp]

    assert at(0, None, 100) == (None, None)
    assert at(1, 10, 110) == (10.0, None)
    assert at(2, 30, 120) == (10.0, 20.0)
    assert at(2.1, 30, 120)[1] == pytest.approx(20 / 1.1)
    assert at(12, 30, 120) == (0.0, 0.0)
    assert at(13, 20, 100) == (0.0, 0.0)  # offsets were reset, and the topic was created again


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_a_view_of_several_groups_fits_the_screen(width: int, count: int) -> None:
    groups = [measured([row(0, 5, 9 + at), row(1, None, 7, start=7)], at % 2) for at in range(count)]
    errors = {"missing": "GROUP_ID_NOT_FOUND"} if count == 2 else {}
    lines = plain(draw_groups(1_000.0, groups, errors, Output(color=True), width, 24))
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    head = {0: "0 groups", 1: "1 group", 2: "3 groups", 40: "40 groups"}[count]
    assert lines[0].endswith(f":40  {head}")
    assert sum(line.startswith("billing") for line in lines) == (20 if count == 40 else count)
    assert any("GROUP_ID_NOT_FOUND" in line for line in lines) == (count == 2)
    assert any(":40 worker was slow." in line for line in lines) == (count > 1)


def test_the_group_line_of_records_without_a_committed_offset() -> None:
    lines = draw_groups(1_000.0, [measured([row(0, None, 9, start=0)], 0)], {}, Output(color=False), None, None)
    assert lines[-1].split() == ["billing", "Stable", "2", "1", "-", "-", "-", "-"]
