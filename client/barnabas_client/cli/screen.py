"""Draws a group as lines of text that fit a terminal, with its lag, rates and last rebalances. Pure."""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final, Literal, NamedTuple

from barnabas_client.cli import events
from barnabas_client.cli.output import STATES, Column, Output, Style
from barnabas_client.cli.view import coordinator
from barnabas_client.history.view import GroupView, Row
from barnabas_client.structs import TopicPartition
from barnabas_explain.explain import ExplanationData
from barnabas_explain.waits import Waiting
from barnabas_explain.words import moment
from barnabas_protocol.counts import counted
from barnabas_protocol.printable import printable

#: Rates are averages over this time, in seconds.
_RATE_SECONDS: Final = 10.0
#: Seconds between the views that are kept for this.
_VIEWS_APART: Final = 0.25
#: Transactions that are named in a view that must fit the screen.
_WAITS: Final = 2
_COLUMNS: Final = (
    Column("TOPIC", 5),
    Column("PARTITION", 9, right=True),
    Column("CURRENT-OFFSET", 14, right=True),
    Column("LOG-END-OFFSET", 14, right=True),
    Column("LAG", 8, right=True),
    Column("LAG-TIME", 8, right=True),
    Column("IN/S", 7, right=True),
    Column("OUT/S", 7, right=True),
    Column("MEMBER", 6),
    Column("HOST", 4),
)
_GROUP_COLUMNS: Final = (
    Column("GROUP", 5),
    Column("STATE", 6),
    Column("MEMBERS", 7, right=True),
    Column("PARTITIONS", 10, right=True),
    Column("LAG", 8, right=True),
    Column("IN/S", 7, right=True),
    Column("OUT/S", 7, right=True),
    Column("LAST REBALANCE", 28),
)
#: The columns that a narrow terminal leaves out, in this order; texts are shortened afterwards, to no less than this.
_OPTIONAL: Final = (("HOST",), ("CURRENT-OFFSET", "LOG-END-OFFSET"))
_TEXTS: Final = ("MEMBER", "TOPIC")
_GROUP_OPTIONAL: Final = (("PARTITIONS",), ("IN/S",))
_GROUP_TEXTS: Final = ("GROUP", "LAST REBALANCE")
_LEAST_TEXT: Final = 6
#: Lines of a screen that the reason of the last rebalance, and its remedy, may take each; rows that always have room.
_REASON_LINES: Final = 3
_LEAST_ROWS: Final = 3


_GENERATION: Final = re.compile(r"^Generation \d+: ")


class Rate(NamedTuple):
    """Records per second that were written to a partition, and that the group consumed; None if not known."""

    produced: float | None
    consumed: float | None


class Rates:
    """Measures rates from successive views."""

    def __init__(self) -> None:
        self._views: deque[tuple[float, dict[TopicPartition, Row]]] = deque()

    def add(self, view: GroupView) -> dict[TopicPartition, Rate]:
        """Add a view; returns the rates of the last seconds, of partitions that were in an earlier view."""
        rows = {row.partition: row for row in view.rows if row.partition is not None}
        # The oldest view that is kept may be older than the limit, so that there always is one if there was one.
        while len(self._views) > 1 and self._views[1][0] <= view.time - _RATE_SECONDS:
            self._views.popleft()
        rates = {
            tp: Rate(self._rate(tp, "end", row.end, view.time), self._rate(tp, "committed", row.committed, view.time))
            for tp, row in rows.items()
        }
        if not self._views or view.time - self._views[-1][0] >= _VIEWS_APART:
            self._views.append((view.time, rows))
        return rates

    def _rate(
        self, tp: TopicPartition, name: Literal["end", "committed"], now: int | None, time: float
    ) -> float | None:
        """The growth per second since the first view that has this offset."""
        for at, rows in self._views:
            before: int | None = getattr(rows[tp], name) if tp in rows else None
            if before is not None and now is not None and time > at:
                return max(now - before, 0) / (time - at)
        return None


@dataclass(frozen=True, slots=True)
class Measured:
    """A view of a group with what was measured.

    Attributes:
        view: the group.
        ages: the lag of partitions in seconds, if it is known.
        rates: the rates of partitions, if they are known.
        rebalances: the last rebalances, oldest first.
        waits: the partitions in which ``read_committed`` consumers wait for an open transaction.
    """

    view: GroupView
    ages: Mapping[TopicPartition, float]
    rates: Mapping[TopicPartition, Rate]
    rebalances: Sequence[ExplanationData]
    waits: Sequence[Waiting] = ()


def draw(measured: Measured, output: Output, width: int | None, height: int | None) -> list[str]:
    """Return the lines of a view.

    Args:
        measured: the view.
        output: for colours.
        width: the maximum length of a line; None for no limit.
        height: the maximum number of lines; None for no limit. Rows with the smallest lag are left out first.
    """
    head = [*_head(measured, output, width), *_waits([("", one) for one in measured.waits], output, width)]
    tail = _rebalances(measured.rebalances, output, width)
    rows = [_cells(row, measured) for row in measured.view.rows]
    lags = [row.lag or row.uncommitted or 0 for row in measured.view.rows]
    # Above and below of the rows are an empty line, and the titles of the columns.
    rows, left_out = _largest(rows, lags, None if height is None else height - len(head) - len(tail) - 2)
    columns, rows = _fitted(_COLUMNS, rows, width, _OPTIONAL, _TEXTS)
    lines = [*head, "", *output.table_lines(columns, rows), *left_out, *tail]
    return lines if height is None else lines[:height]


def draw_groups(
    now: float,
    groups: Sequence[Measured],
    errors: Mapping[str, str],
    output: Output,
    width: int | None,
    height: int | None,
) -> list[str]:
    """Return the lines of a view of several groups: a line for each, with its last rebalance, and below them the
    transactions that ``read_committed`` consumers wait for.

    Args:
        now: the time of the view, in seconds since 1970.
        groups: the groups.
        errors: for each group that cannot be described the name of the error.
        output: for colours.
        width: the maximum length of a line; None for no limit.
        height: the maximum number of lines; None for no limit. Groups with the smallest lag are left out first.
    """
    lags = [one.view.known_lag + one.view.uncommitted for one in groups] + [0] * len(errors)
    rows = [_group_cells(one) for one in groups]
    rows += [[name, (error, Style.BAD), *[None] * 5, None] for name, error in errors.items()]
    head = f"{output.styled(moment(round(now * 1000)), Style.FAINT)}  {counted(len(rows), 'group')}"
    waits = [(f"{one.view.group.group_id}, ", wait) for one in groups for wait in one.waits]
    tail = _waits(waits, output, width)
    tail = ["", *tail] if tail else []
    rows, left_out = _largest(rows, lags, None if height is None else height - 3 - len(tail))
    columns, rows = _fitted(_GROUP_COLUMNS, rows, width, _GROUP_OPTIONAL, _GROUP_TEXTS)
    return [head, "", *output.table_lines(columns, rows), *left_out, *tail] if rows else [head]


def _group_cells(measured: Measured) -> list[object]:
    view, total = measured.view, _total(measured)
    partitions = sum(1 for row in view.rows if row.partition is not None)
    lag = (f"{view.known_lag:,}", _lag_style(view.known_lag, total))
    last = measured.rebalances[-1] if measured.rebalances else None
    return [
        view.group.group_id,
        (view.group.state, STATES.get(view.group.state, Style.WARN)),
        len(view.group.members),
        partitions,
        ("-", Style.WARN) if view.uncommitted and not view.known_lag else lag if partitions else None,
        None if total.produced is None else _rate(total.produced),
        None if total.consumed is None else (_rate(total.consumed), _consumed_style(total, view.known_lag)),
        None if last is None else f"{events.time_of_day(last)} {_GENERATION.sub('', last['text'])}",
    ]


def _total(measured: Measured) -> Rate:
    """The rates of all partitions together."""
    produced = [rate.produced for rate in measured.rates.values() if rate.produced is not None]
    consumed = [rate.consumed for rate in measured.rates.values() if rate.consumed is not None]
    return Rate(sum(produced) if produced else None, sum(consumed) if consumed else None)


def _largest(rows: list[list[object]], lags: Sequence[int], room: int | None) -> tuple[list[list[object]], list[str]]:
    """Return the rows that have room, in their order, and the line about those that were left out."""
    if room is None or len(rows) <= max(room, _LEAST_ROWS):
        return rows, []
    largest = sorted(range(len(rows)), key=lambda at: -lags[at])[: max(room, _LEAST_ROWS) - 1]
    return [rows[at] for at in sorted(largest)], [f"... and {len(rows) - len(largest)} more with the smallest lag"]


def _head(measured: Measured, output: Output, width: int | None) -> list[str]:
    view, group = measured.view, measured.view.group
    parts = [
        (moment(round(view.time * 1000)), Style.FAINT),
        (group.group_id, Style.HEAD),
        (group.state, STATES.get(group.state, Style.WARN)),
        (counted(len(group.members), "member"), Style.PLAIN),
        (group.protocol or "-", Style.PLAIN),
        (f"coordinator {coordinator(group)}", Style.PLAIN),
    ]
    parts = [(printable(text), style) for text, style in parts]
    while width is not None and len("  ".join(text for text, _ in parts)) > width and len(parts) > 3:
        parts.pop()
    if width is not None:
        parts = [(_shortened(text, width // 2), style) for text, style in parts]
    total = _total(measured)
    behind = _behind(measured, total)
    speed = [] if total.produced is None else [(f"in {_rate(total.produced)}/s", Style.PLAIN)]
    if total.consumed is not None:
        speed.append((f"out {_rate(total.consumed)}/s", _consumed_style(total, view.known_lag)))
    fits = width is None or len("  ".join(text for text, _ in (*behind, *speed))) <= width
    lines = [parts, behind + speed] if fits else [parts, behind, speed]
    return ["  ".join(output.styled(text, style) for text, style in line) for line in lines]


def _behind(measured: Measured, total: Rate) -> list[tuple[str, Style]]:
    view = measured.view
    partitions = [row for row in view.rows if row.partition is not None]
    if not partitions:
        return [("no partitions are assigned or committed", Style.FAINT)]
    parts = []
    if view.lag is not None or any(row.committed is not None for row in partitions):
        longest = max(measured.ages.values(), default=None)
        age = "" if longest is None else f", {_age(longest)}"
        parts.append((f"{counted(view.known_lag, 'record')} behind{age}", _lag_style(view.known_lag, total)))
    if view.uncommitted:
        parts.append((f"{counted(view.uncommitted, 'record')} without a committed offset", Style.WARN))
    elif view.lag is None:
        parts.append(("the lag of some partitions is not known", Style.WARN))
    return parts


def _cells(row: Row, measured: Measured) -> list[object]:
    tp, member = row.partition, row.member
    age = None if tp is None else measured.ages.get(tp)
    rate = Rate(None, None) if tp is None else measured.rates.get(tp, Rate(None, None))
    lag: object = row.lag if row.lag is None else (f"{row.lag:,}", _lag_style(row.lag, rate))
    return [
        None if tp is None else tp.topic,
        None if tp is None else tp.partition,
        row.committed,
        row.end,
        ("-", Style.WARN) if row.uncommitted else lag,
        None if age is None else _age(age),
        None if rate.produced is None else _rate(rate.produced),
        None if rate.consumed is None else (_rate(rate.consumed), _consumed_style(rate, row.lag or 0)),
        None if member is None else member.instance_id or member.client_id,
        None if member is None else member.host.removeprefix("/"),
    ]


def _lag_style(lag: int, rate: Rate) -> Style:
    """No lag is good; a lag that grows is bad."""
    if not lag:
        return Style.GOOD
    grows = rate.produced is not None and (rate.consumed or 0) < rate.produced
    return Style.BAD if grows else Style.WARN


def _consumed_style(rate: Rate, lag: int) -> Style:
    """Records that wait while none is consumed are bad."""
    if not lag:
        return Style.PLAIN if not rate.consumed else Style.GOOD
    if not rate.consumed:
        return Style.BAD
    return Style.GOOD if rate.consumed >= (rate.produced or 0) else Style.WARN


def _fitted(
    columns: Sequence[Column],
    rows: list[list[object]],
    width: int | None,
    optional: Sequence[Sequence[str]],
    texts: Sequence[str],
) -> tuple[list[Column], list[list[object]]]:
    """Make lines no longer than `width`: leave out `optional` columns, then shorten those with `texts`."""
    rows = [[printable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    places = list(range(len(columns)))
    widths = [
        max([column.least, len(column.title), *(len(_text(row[at])) for row in rows)])
        for at, column in enumerate(columns)
    ]

    def excess() -> int:
        return 0 if width is None else sum(widths[at] + 1 for at in places) - 1 - width

    for titles in optional:
        if excess() > 0:
            places = [at for at in places if columns[at].title not in titles]
    shortened = [at for at in places if columns[at].title in texts]
    while excess() > 0 and (longer := [at for at in shortened if widths[at] > max(_LEAST_TEXT, columns[at].least)]):
        widths[max(longer, key=widths.__getitem__)] -= 1
    *fitted, last = (columns[at] for at in places)
    return [*fitted, last._replace(least=0)], [
        [_shortened(cell, widths[at]) if isinstance(cell := row[at], str) else cell for at in places] for row in rows
    ]


def _rebalances(rebalances: Sequence[ExplanationData], output: Output, width: int | None) -> list[str]:
    """The last rebalances: in full without a limit, else the last one, and a line for each earlier one."""
    if not rebalances:
        return []
    lines = ["", output.styled("LAST REBALANCES", Style.HEAD)]
    if width is None:
        return lines + [line for one in rebalances for line in events.lines(one, output)]
    newest, *earlier = reversed(rebalances)
    when, texts = events.time_of_day(newest), [(printable(newest["text"]), "")]
    texts += [(printable(newest["remedy"]), "To do: ")] if newest.get("remedy") else []
    for text, label in texts:
        wrapped = wrap(f"{label}{text}", width - len(when) - 2, max_lines=_REASON_LINES, placeholder=" ...")
        wrapped[0] = (
            wrapped[0].replace(label, output.styled(label.strip(), Style.WARN) + " ", 1) if label else wrapped[0]
        )
        for at, line in enumerate(wrapped):
            first = not label and not at
            lines.append(f"{output.styled(when, Style.FAINT) if first else ' ' * len(when)}  {line}")
    for one in earlier:
        when = events.time_of_day(one)
        lines.append(f"{output.styled(when, Style.FAINT)}  {_shortened(printable(one['text']), width - len(when) - 2)}")
    return lines


def _waits(waits: Sequence[tuple[str, Waiting]], output: Output, width: int | None) -> list[str]:
    """The transactions that consumers wait for: all of them without a limit, else the ones with most records behind.

    Args:
        waits: each with what its line begins with, such as the name of the group.
        output: for colours.
        width: the maximum length of a line; None for no limit.
    """
    shown = waits if width is None else sorted(waits, key=lambda one: -one[1].records)[:_WAITS]
    texts = [printable(f"{head}{one.text}") for head, one in shown]
    if len(shown) < len(waits):
        texts.append(f"... and {len(waits) - len(shown)} more partitions with an open transaction")
    return [output.styled(text if width is None else _shortened(text, width), Style.WARN) for text in texts]


def _text(cell: object) -> str:
    return str(cell[0] if isinstance(cell, tuple) else "-" if cell is None else cell)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _age(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _rate(per_second: float) -> str:
    return f"{per_second:,.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"
